"""The result of a run, a certification or a gate, on stdout: a few lines for people, or JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bestarm_agent.cli.output import (
    Column,
    numbers,
    print_json,
    print_line,
    print_table,
    stdout_console,
)
from bestarm_agent.cli.progress import CandidateTable
from bestarm_agent.domain.text import safe, shortened
from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.engine.results.decision import passed_caps
from bestarm_agent.engine.results.effects import axis_effects
from bestarm_agent.engine.results.from_log import FailureLine
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.errors import counted
from bestarm_agent.report import words

SCHEMA_VERSION = 3  # of the JSON object, which docs/reference/json.md describes
DERIVED = ("priced", "grid", "share", "unfinished")
_SHOWN_ROWS = 5  # with the lines below them, a screen
_SHOWN_FAILURES = 3  # kinds
_MESSAGE = 120  # characters of a message
_INDENT = 2  # of what a long line goes on with


def print_result(
    standing: Standing,
    *,
    as_json: bool,
    report: Path | None = None,
    failures: Sequence[FailureLine] = (),
    everything: bool = False,
) -> None:
    """Print a standing, and for people what went wrong most often."""
    if as_json:
        print_json(standing_json(standing, report))
        return
    console = stdout_console()
    for sentence in standing.said:
        print_line(console, sentence, indent=_INDENT)
    console.print()
    n_rows = len(standing.rows) if everything else _SHOWN_ROWS
    console.print(CandidateTable(standing, n_rows))
    console.print()
    effects = [f"Effects: {text}"] if everything and (text := words.effects_line(standing)) else []
    for line in [*_lines(standing, report), *_failure_line(failures), *effects]:
        print_line(console, line, indent=_INDENT)


def _lines(standing: Standing, report: Path | None) -> list[str]:
    """Return the accounts below the decision."""
    lines = [f"{title}: {text}" for title, text in words.facts(standing)]
    lines.append(f"Spent: {words.budget_line(standing)}, {words.time_used(standing)}")
    lines.append(f"Run: {standing.run_id}, {words.ending(standing.end, standing.asked)}")
    lines += [] if report is None else [f"Report: {report}"]
    return [*lines, *words.problem_lines(standing)]


def _failure_line(failures: Sequence[FailureLine]) -> list[str]:
    """Return a line that counts failures by kind, with the most frequent message, if there are any.

    `answers --failed` and the report list them.
    """
    if not failures:
        return []
    kinds: Counter[str] = Counter()
    for failure in failures:
        kinds[failure.last.kind.said] += failure.count
    counts = ", ".join(f"{count:,} x {kind}" for kind, count in kinds.most_common(_SHOWN_FAILURES))
    labels = sorted({failure.label for failure in failures})
    whom = safe(labels[0]) if len(labels) == 1 else counted(len(labels), "candidate")
    most = max(failures, key=lambda failure: failure.count).last.message
    return [f"Failed: {counts} of {whom}; mostly: {shortened(safe(most), _MESSAGE)}"]


def standing_json(standing: Standing, report: Path | None = None) -> dict[str, Any]:
    """Return a standing as a JSON object: its attributes, and what is worked out from them."""
    return {
        "schema_version": SCHEMA_VERSION,
        "decision": words.plain(standing.decision),
        "report": None if report is None else str(report),
        **words.plain(standing),
        **{name: words.plain(getattr(standing, name)) for name in DERIVED},
        "caps_passed": passed_caps(standing),
        "effects": words.plain(axis_effects(standing)),
    }


def print_mode_result(
    result: ModeResult,
    standing: Standing | None = None,
    *,
    as_json: bool,
    report: Path | None = None,
    failures: Sequence[FailureLine] = (),
) -> None:
    """Print the answer of a mode, what failed, and how a run can go on that was cut short."""
    if as_json:
        print_json(result.as_json)
        return
    console = stdout_console()
    if len(result.rows) > 1 or not all(row.said for row in result.rows):
        name, verdict, *others = (head.lower() for head in result.columns)
        print_table(
            [Column(name, "middle"), Column(verdict), *numbers(*others, leaves=True)],
            [
                [row.cells[0], result.marks.get(row.verdict, row.cells[1]), *row.cells[2:]]
                for row in result.rows
            ],
        )
        console.print()
    lines = [*map(safe, result.lines)]
    lines += [] if report is None else [f"Report: {report}"]
    lines += _failure_line(failures)
    for line in (*lines, *(standing.said if standing else ())):
        print_line(console, line, indent=_INDENT)
