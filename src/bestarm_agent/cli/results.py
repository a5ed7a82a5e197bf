"""The result of a run, on stdout: a few lines for people, or one JSON object."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isinf
from pathlib import Path

import typer
from rich.console import Console

from bestarm_agent.cli.display import candidates_table, print_line
from bestarm_agent.config.objective import Objective
from bestarm_agent.course import budget_line, ending, unseen_line, what_next
from bestarm_agent.domain.spend import Books, Spend, usd
from bestarm_agent.report.page import FailureLine
from bestarm_agent.standing import Finding, Row, Standing, Status
from bestarm_agent.wording import (
    aim_line,
    duration,
    how_sure,
    interval,
    price_text,
    safe,
)

_SHOWN_ROWS = 10
_SHOWN_FAILURES = 5
_SHOWN_LABELS = 3
_INDENT = len("Winner:    ")
_WIDTH_WITHOUT_TERMINAL = 140


def print_result(
    standing: Standing,
    *,
    as_json: bool,
    report: Path | None = None,
    failures: Sequence[FailureLine] = (),
) -> None:
    """Print a standing, and for people what went wrong most often."""
    if as_json:
        typer.echo(json.dumps(standing_json(standing, report), indent=2, ensure_ascii=False))
        return
    console = stdout_console()
    console.print(candidates_table(standing, _SHOWN_ROWS))
    if len(standing.rows) > _SHOWN_ROWS:
        console.print(f"... and {len(standing.rows) - _SHOWN_ROWS} more", style="dim")
    console.print()
    for line in [*_lines(standing, report), *_failure_lines(failures)]:
        print_line(console, line, indent=_INDENT)


def stdout_console() -> Console:
    """The console of results; wide where no terminal sets a width."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    return console


def _lines(standing: Standing, report: Path | None) -> list[str]:
    lines = ["No score yet."] if standing.best is None else _verdict_lines(standing)
    if not standing.asked and len(standing.rows) == 1:
        lines.append(
            "There is one candidate, so nothing is to be found out; add others, or let it be "
            "scored with `selector: {stop_when_separated: false}`."
        )
    lines.append(f"Spent:     {budget_line(standing)}, {duration(standing.seconds)}")
    lines.append(f"Run:       {standing.run_id}, {ending(standing.end)}{what_next(standing.end)}")
    if report is not None:
        lines.append(f"Report:    {report}")
    return [*lines, *_problem_lines(standing)]


def _problem_lines(standing: Standing) -> list[str]:
    """Why candidates can no longer be asked; a reason that several share is told once."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in standing.rows:
        if row.problem is not None:
            groups.setdefault((_why(row), row.problem), []).append(row.candidate.label)
    return [
        f"{why}: {_whose(labels)}: {safe(problem)}" for (why, problem), labels in groups.items()
    ]


def _verdict_lines(standing: Standing) -> list[str]:
    best, second = standing.best, standing.runner_up
    if standing.finding is not None:
        lines = _finding_lines(standing.finding)
    else:
        lines = [f"Winner:    {_placed(best)}"] if best is not None else []
    lines.append(f"How sure:  {how_sure(standing)}")
    if second is not None and standing.finding is None:
        lines.append(f"Runner-up: {_placed(second)}")
    if (unseen := unseen_line(standing)) is not None:
        lines.append(f"Unseen:    {unseen}")
    return lines


def _failure_lines(failures: Sequence[FailureLine]) -> list[str]:
    """A line for each thing that went wrong, whoever it happened to; the report lists everybody."""
    groups: dict[tuple[str, str, str], list[FailureLine]] = {}
    for failure in failures:
        key = (failure.kind, failure.blame, failure.message)
        groups.setdefault(key, []).append(failure)
    counted = sorted(groups.items(), key=lambda item: -sum(f.count for f in item[1]))
    lines = []
    for (kind, blame, message), found in counted[:_SHOWN_FAILURES]:
        whose, count = _whose([f.label for f in found]), sum(f.count for f in found)
        lines.append(f"Failed:    {whose}: {count:,} x {kind} ({blame}): {safe(message)}")
    if (more := len(counted) - _SHOWN_FAILURES) > 0:
        lines.append(f"... and {more} more kinds of failure in the report")
    return lines


def _whose(labels: Sequence[str]) -> str:
    more = len(labels) - _SHOWN_LABELS
    shown = ", ".join(map(safe, labels[:_SHOWN_LABELS]))
    return f"{shown} and {more} more" if more > 0 else shown


def _why(row: Row) -> str:
    return "Too dear" if row.status is Status.BARRED else "Not usable"


def _finding_lines(finding: Finding) -> list[str]:
    lines = [f"Asked for: {aim_line(finding.spec)}"]
    if finding.spec.name is Objective.PARETO:
        lines += [f"Pareto:    {_placed(row)}" for row in finding.chosen]
    elif finding.answer is None:
        lines.append("Winner:    none of those seen so far")
    else:
        lines.append(f"Winner:    {_placed(finding.answer)}")
    return lines


def _placed(row: Row) -> str:
    mean = "-" if row.mean is None else f"{row.mean:.3f}"
    price = "" if row.price is None else f", {price_text(row.price)} per 1,000 calls"
    score = f"mean {mean}, interval {interval(row)}, {row.n} pulls"
    return f"{safe(row.candidate.label)}, {score}{price}"


def standing_json(standing: Standing, report: Path | None = None) -> dict[str, object]:
    """A standing as a JSON object."""
    spent = standing.spent
    return {
        "run": standing.run_id,
        "name": standing.name,
        "ended": standing.end,
        "best": _row_json(standing.best),
        "winner": _row_json(standing.winner),
        "objective": _objective_json(standing.finding),
        "established": standing.established,
        "runner_up": _row_json(standing.runner_up),
        "separated": standing.separated,
        "margin": standing.margin,
        "probability_of_best": standing.probability,
        "confidence": standing.confidence,
        "guarantee": standing.guarantee.value,
        "how_sure": how_sure(standing),
        "selector": standing.selector,
        "asked": standing.asked,
        "told": standing.told,
        "grid": standing.grid,
        "share": standing.share,
        "spent": {
            "pulls": spent.pulls,
            "calls": spent.calls,
            "tokens": spent.tokens,
            "usd": usd(spent.usd_nanos),
            "worker_seconds": spent.gpu_seconds,
            "seconds": standing.seconds,
        },
        "accounts": [{"what": line.what, **_spend_json(line.spend)} for line in standing.accounts],
        "books": _books_json(standing.books),
        "report": None if report is None else str(report),
        "candidates": [_row_json(row) for row in standing.rows],
    }


def _spend_json(spend: Spend) -> dict[str, object]:
    return {
        "pulls": spend.pulls,
        "calls": spend.calls,
        "tokens": spend.tokens,
        "usd": usd(spend.usd_nanos),
        "worker_seconds": spend.gpu_seconds,
    }


def _books_json(books: Books) -> dict[str, object]:
    parts = ("reserved", "settled", "refunded", "overrun", "charged", "difference")
    return {part: _spend_json(getattr(books, part)) for part in parts}


def _objective_json(finding: Finding | None) -> dict[str, object]:
    if finding is None:
        return {"name": Objective.BEST.value}
    return {
        **finding.spec.model_dump(mode="json", exclude_none=True),
        "answer": None if finding.answer is None else finding.answer.candidate.label,
        "chosen": [row.candidate.label for row in finding.chosen],
        "established": finding.established,
        "margin": finding.margin,
        "confidence": finding.confidence,
    }


def _price_json(row: Row) -> dict[str, object] | None:
    if row.price is None:
        return None
    upper = None if isinf(row.price.upper) else row.price.upper
    return {"mean": row.price.mean, "interval": [row.price.lower, upper]}


def _row_json(row: Row | None) -> dict[str, object] | None:
    if row is None:
        return None
    return {
        "label": row.candidate.label,
        "id": row.candidate.id,
        "state": row.status.value,
        "mean": row.mean,
        "interval": [row.lower, row.upper],
        "n": row.n,
        "pending": row.pending,
        "failed": row.failed,
        "void": row.void,
        "usd": usd(row.spend.usd_nanos),
        "tokens": row.spend.tokens,
        "calls": row.spend.calls,
        "seconds_per_call": row.seconds,
        "problem": row.problem,
        "price_per_1k_calls": _price_json(row),
        "price_source": row.price_source,
    }
