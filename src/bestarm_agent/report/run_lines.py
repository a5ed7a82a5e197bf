"""Lines that every mode says of its run: the caps it passed, what it spent, how it ended."""

from __future__ import annotations

from collections.abc import Mapping

from bestarm_agent.domain.spend import usd
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.report.caveats import passed_caps
from bestarm_agent.report.progress_text import budget_line, ending, what_next
from bestarm_agent.report.text import duration


def run_lines(standing: Standing, width: int) -> list[str]:
    """Return a line each, with titles of this width."""
    spent = f"{budget_line(standing)}, {duration(standing.seconds)}"
    ended = f"{ending(standing.end)}{what_next(standing.end)}"
    return [
        *(f"CAP PASSED: {text}" for text in passed_caps(standing)),
        f"{'Spent:':<{width}}{spent}",
        f"{'Run:':<{width}}{standing.run_id}, {ended}",
    ]


def run_json(standing: Standing) -> Mapping[str, object]:
    """Return the run, its end and its spend as entries of a JSON object."""
    spent = standing.spent
    return {
        "run": standing.run_id,
        "ended": standing.end,
        "spent": {
            "pulls": spent.pulls,
            "calls": spent.calls,
            "tokens": spent.tokens,
            "usd": usd(spent.usd_nanos) if standing.priced else None,
            "seconds": standing.seconds,
        },
    }
