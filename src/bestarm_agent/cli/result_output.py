"""The result of a run, a certification or a gate, on stdout: a few lines for people, or JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path

from bestarm_agent.cli.output import (
    Column,
    numbers,
    print_json,
    print_line,
    print_table,
    stdout_console,
)
from bestarm_agent.cli.progress import CandidateTable
from bestarm_agent.config.study import Objective
from bestarm_agent.domain.spend import Reservations, Spend, usd
from bestarm_agent.engine.loop import End
from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.engine.results.effects import AxisEffects, axis_effects
from bestarm_agent.engine.results.standing import (
    FailureLine,
    ObjectiveResult,
    Row,
    RowLimit,
    Standing,
)
from bestarm_agent.errors import counted
from bestarm_agent.report.words import (
    budget_line,
    caveat,
    caveat_lines,
    confirmation_json,
    duration,
    effects_line,
    ending,
    first_line,
    hidden_line,
    limit_text,
    measures_line,
    new_examples_json,
    number_lines,
    objective_text,
    passed_caps,
    placed,
    problem_lines,
    safe,
    shortened,
    slices_json,
    weakest_line,
    what_next,
)
from bestarm_agent.stats.agreement import Measure

SCHEMA_VERSION = 1  # of the JSON object; docs/reference/result.schema.json describes it
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
    graded, stopped = standing.graded, standing.end == End.FAILURES and not standing.established
    title = "Best yet: " if stopped else "Winner:   "
    lines = [f"{title} {first_line(standing)}{caveat(standing)}"]
    if standing.objective is not None:
        lines += _objective_lines(standing.objective, graded=graded)
    lines += [f"{title + ':':<11}{text}" for title, text in number_lines(standing)]
    said = (measures_line(standing.winner), weakest_line(standing))
    titles = ("Measures:", "Weakest:")
    lines += [f"{title:<11}{text}" for title, text in zip(titles, said, strict=True) if text]
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
        kinds[f"{one.kind} ({one.blame})"] += one.count
    counts = ", ".join(f"{count:,} x {kind}" for kind, count in kinds.most_common(_SHOWN_FAILURES))
    labels = sorted({one.label for one in failures})
    whom = safe(labels[0]) if len(labels) == 1 else counted(len(labels), "candidate")
    most = max(failures, key=lambda one: one.count).message
    return [f"Failed:    {counts} of {whom}; mostly: {shortened(safe(most), _MESSAGE)}"]


def _objective_lines(result: ObjectiveResult, *, graded: bool) -> list[str]:
    lines = [f"Asked for: {objective_text(result.spec)}"]
    if result.answer is None:
        why = ": no candidate keeps the limits" if result.established else " of those seen so far"
        return [*lines, f"Fits:      none{why}"]
    lines.append(f"Seen:      {placed(result.answer, graded=graded)}")
    return lines + [f"Limit:     {limit_text(one)}" for one in result.answer.limits]


def standing_json(standing: Standing, report: Path | None = None) -> dict[str, object]:
    """Return a standing as a JSON object."""
    spent = standing.spent
    return {
        "schema_version": SCHEMA_VERSION,
        "run": standing.run_id,
        "name": standing.name,
        "ended": standing.end,
        "best": _row_json(standing.best),
        "winner": _row_json(standing.winner),
        "new_examples": new_examples_json(standing),
        "confirmed": confirmation_json(standing),
        "objective": _objective_json(standing.objective),
        "established": standing.established,
        "runner_up": _row_json(standing.runner_up),
        "separated": standing.separated,
        "margin": standing.margin,
        "within": standing.within,
        "provisional": standing.is_provisional,
        "caps_passed": passed_caps(standing),
        "confidence": standing.confidence,
        "guarantee": standing.guarantee.value,
        "said": first_line(standing),
        "selector": standing.selector,
        "asked": standing.asked,
        "told": standing.told,
        "graded": standing.graded,
        "grid": standing.grid,
        "share": standing.share,
        "spent": {
            "pulls": spent.pulls,
            "calls": spent.calls,
            "tokens": spent.tokens,
            "usd": _usd(spent, priced=standing.priced),
            "worker_seconds": spent.gpu_seconds,
            "seconds": standing.seconds,
        },
        "slices": slices_json(standing),
        "effects": [_effects_json(axis) for axis in axis_effects(standing)],
        "accounts": [
            {"what": line.what, **_spend_json(line.spend, priced=line.priced)}
            for line in standing.costs
        ],
        "reservations": _reservations_json(standing.reservations, priced=standing.priced),
        "report": None if report is None else str(report),
        "candidates": [_row_json(row) for row in standing.rows],
    }


def _usd(spend: Spend, *, priced: bool) -> float | None:
    return usd(spend.usd_nanos) if priced else None


def _spend_json(spend: Spend, *, priced: bool) -> dict[str, object]:
    return {
        "pulls": spend.pulls,
        "calls": spend.calls,
        "tokens": spend.tokens,
        "usd": _usd(spend, priced=priced),
        "worker_seconds": spend.gpu_seconds,
    }


def _reservations_json(reservations: Reservations, *, priced: bool) -> dict[str, object]:
    parts = ("reserved", "settled", "refunded", "overrun", "charged", "difference")
    return {part: _spend_json(getattr(reservations, part), priced=priced) for part in parts}


def _objective_json(result: ObjectiveResult | None) -> dict[str, object]:
    if result is None:
        return {"name": Objective.BEST.value}
    return {
        **result.spec.model_dump(mode="json", exclude_none=True),
        "answer": None if result.answer is None else result.answer.candidate.label,
        "established": result.established,
        "margin": result.margin,
        "confidence": result.confidence,
    }


def _effects_json(axis: AxisEffects) -> dict[str, object]:
    levels = [
        {
            "level": one.level,
            "candidates": one.candidates,
            "effect": one.effect.value,
            "lower": one.effect.lower,
            "upper": one.effect.upper,
        }
        for one in axis.levels
    ]
    return {"axis": axis.axis, "levels": levels}


def _measure_json(found: Measure) -> dict[str, object]:
    value, lower, upper = (end if isfinite(end) else None for end in found)
    return {"mean": value, "interval": [lower, upper]}


def _limit_json(found: RowLimit) -> dict[str, object]:
    shown = {"limit": found.constraint.text, "state": found.state.value}
    return {**shown, **_measure_json(found.mean)}


def _row_json(row: Row | None) -> dict[str, object] | None:
    if row is None:
        return None
    return {
        "label": row.candidate.label,
        "id": row.candidate.id,
        "state": row.status.value,
        "n": row.n,
        "right": row.total,
        "estimate": row.estimate,
        "interval": [row.lower, row.upper],
        "pending": row.pending,
        "void_bounds": row.void_bounds,
        "failed": row.failed,
        "void": row.void,
        "usd": _usd(row.spend, priced=row.priced),
        "tokens": row.spend.tokens,
        "calls": row.spend.calls,
        "seconds_per_call": row.seconds,
        "latency": None if row.latency is None else asdict(row.latency),
        "problem": row.problem,
        "price_per_1k_calls": None if row.price is None else _measure_json(row.price),
        "limits": [_limit_json(one) for one in row.limits],
        "output_tokens_mean": row.output_tokens,
        "measures": [asdict(one) for one in row.measures],
        "price_source": row.price_source,
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
