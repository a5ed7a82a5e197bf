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
from bestarm_agent.domain.text import duration, safe, shortened
from bestarm_agent.engine.loop import End
from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.engine.results.effects import axis_effects
from bestarm_agent.engine.results.standing import FailureLine, ObjectiveResult, Standing
from bestarm_agent.errors import counted
from bestarm_agent.report.words import (
    budget_line,
    caveat,
    caveat_lines,
    effects_line,
    ending,
    first_line,
    hidden_line,
    limit_text,
    measures_line,
    number_lines,
    objective_text,
    passed_caps,
    placed,
    plain,
    problem_lines,
    what_next,
)

SCHEMA_VERSION = 2  # of the JSON object, which docs/reference/json.md describes
DERIVED = ("best", "winner", "established", "is_provisional", "priced", "grid", "share")
_SHOWN_ROWS = 5  # with the lines below them, a screen
_SHOWN_FAILURES = 3  # kinds
_MESSAGE = 120  # characters of a message
_INDENT = len("Winner:    ")


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
    shown = len(standing.rows) if everything else _SHOWN_ROWS
    console.print(CandidateTable(standing, shown))
    if hidden := hidden_line(standing.rows[shown:]):
        console.print(hidden)
    console.print()
    more = _more_lines(standing) if everything else []
    for line in [*_lines(standing, report), *_failure_line(failures), *more]:
        print_line(console, line, indent=_INDENT)


def _lines(standing: Standing, report: Path | None) -> list[str]:
    lines = [f"CAP PASSED: {text}" for text in passed_caps(standing)]
    lines += ["No score yet."] if standing.best is None else _verdict_lines(standing)
    if not standing.asked and len(standing.rows) == 1:
        lines.append(
            "There is one candidate, so nothing is to be found out; add others, or let it be "
            "scored with `selector: {stop_when_separated: false}`."
        )
    lines.append(f"Spent:     {budget_line(standing)}, {duration(standing.seconds)}")
    lines.append(f"Run:       {standing.run_id}, {ending(standing.end)}{what_next(standing.end)}")
    if report is not None:
        lines.append(f"Report:    {report}")
    return [*lines, *problem_lines(standing)]


def _verdict_lines(standing: Standing) -> list[str]:
    stopped = standing.end == End.FAILURES and not standing.established
    title = "Best yet: " if stopped else "Winner:   "
    lines = [f"{title} {first_line(standing)}{caveat(standing)}"]
    if standing.objective is not None:
        lines += _objective_lines(standing, standing.objective)
    lines += [f"{title + ':':<11}{text}" for title, text in number_lines(standing)]
    lines += [f"Measures:  {text}"] if (text := measures_line(standing.winner)) else []
    return lines + [f"{title + ':':<11}{text}" for title, text in caveat_lines(standing)]


def _more_lines(standing: Standing) -> list[str]:
    """Return what else the report shows first."""
    second, lines = standing.runner_up, []
    if second is not None and standing.objective is None:
        lines.append(f"Runner-up: {placed(second, graded=standing.graded)}")
    return lines + ([f"Effects:   {text}"] if (text := effects_line(standing)) else [])


def _failure_line(failures: Sequence[FailureLine]) -> list[str]:
    """Return a line that counts failures by kind, with the most frequent message, if there are any.

    `answers --failed` and the report list them.
    """
    if not failures:
        return []
    kinds: Counter[str] = Counter()
    for one in failures:
        kinds[f"{one.last.kind} ({one.last.blame})"] += one.count
    counts = ", ".join(f"{count:,} x {kind}" for kind, count in kinds.most_common(_SHOWN_FAILURES))
    labels = sorted({one.label for one in failures})
    whom = safe(labels[0]) if len(labels) == 1 else counted(len(labels), "candidate")
    most = max(failures, key=lambda one: one.count).last.message
    return [f"Failed:    {counts} of {whom}; mostly: {shortened(safe(most), _MESSAGE)}"]


def _objective_lines(standing: Standing, result: ObjectiveResult) -> list[str]:
    lines = [f"Asked for: {objective_text(result.spec)}"]
    if standing.winner is None:
        why = ": no candidate keeps the limits" if result.established else " of those seen so far"
        return [*lines, f"Fits:      none{why}"]
    lines.append(f"Seen:      {placed(standing.winner, graded=standing.graded)}")
    return lines + [f"Limit:     {limit_text(one)}" for one in standing.winner.limits]


def standing_json(standing: Standing, report: Path | None = None) -> dict[str, Any]:
    """Return a standing as a JSON object: its attributes, and what is worked out from them."""
    return {
        "schema_version": SCHEMA_VERSION,
        "said": first_line(standing),
        "report": None if report is None else str(report),
        **plain(standing),
        **{name: plain(getattr(standing, name)) for name in DERIVED},
        "caps_passed": passed_caps(standing),
        "effects": plain(axis_effects(standing)),
    }


_MODE_INDENT = len("Labels used: ")


def print_mode_result(found: ModeResult, *, as_json: bool, report: Path | None = None) -> None:
    """Print the answer of a mode."""
    if as_json:
        print_json(found.as_json)
        return
    console = stdout_console()
    if len(found.rows) > 1 or not all(row.said for row in found.rows):
        name, verdict, *others = (head.lower() for head in found.columns)
        print_table(
            [Column(name, "middle"), Column(verdict), *numbers(*others)],
            [[row.cells[0], found.marks[row.verdict], *row.cells[2:]] for row in found.rows],
        )
        console.print()
    for line in found.lines:
        print_line(console, safe(line), indent=_MODE_INDENT)
    if report is not None:
        print_line(console, f"Report:    {report}", indent=_MODE_INDENT)
