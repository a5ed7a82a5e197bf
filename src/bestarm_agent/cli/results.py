"""The result of a run, on stdout: a few lines for people, or one JSON object."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.console import Console

from bestarm_agent.cli.display import candidates_table
from bestarm_agent.domain.spend import usd
from bestarm_agent.standing import Row, Standing
from bestarm_agent.wording import budget_line, duration, how_sure, interval, safe

_SHOWN_ROWS = 10
_WIDTH_WITHOUT_TERMINAL = 140


def print_result(standing: Standing, *, as_json: bool, report: Path | None = None) -> None:
    """Print a standing."""
    if as_json:
        typer.echo(json.dumps(standing_json(standing, report), indent=2, ensure_ascii=False))
        return
    console = stdout_console()
    console.print(candidates_table(standing, _SHOWN_ROWS))
    if len(standing.rows) > _SHOWN_ROWS:
        console.print(f"... and {len(standing.rows) - _SHOWN_ROWS} more", style="dim")
    console.print()
    for line in _lines(standing, report):
        console.print(line, markup=False, soft_wrap=True)


def stdout_console() -> Console:
    """The console of results; wide where no terminal sets a width."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    return console


def _lines(standing: Standing, report: Path | None) -> list[str]:
    best, second = standing.best, standing.runner_up
    if best is None:
        return [f"No score yet. Run {standing.run_id}, {budget_line(standing)}."]
    lines = [f"Winner:    {_placed(best)}", f"How sure:  {how_sure(standing)}"]
    if second is not None:
        lines.append(f"Runner-up: {_placed(second)}")
    lines.append(f"Spent:     {budget_line(standing)}, {duration(standing.seconds)}")
    lines.append(f"Run:       {standing.run_id}, ended: {standing.end or 'not yet'}")
    if report is not None:
        lines.append(f"Report:    {report}")
    broken = [row for row in standing.rows if row.problem is not None]
    lines += [f"Not usable: {safe(r.candidate.label)}: {safe(r.problem or '')}" for r in broken]
    return lines


def _placed(row: Row) -> str:
    mean = "-" if row.mean is None else f"{row.mean:.3f}"
    return f"{safe(row.candidate.label)}, mean {mean}, interval {interval(row)}, {row.n} pulls"


def standing_json(standing: Standing, report: Path | None = None) -> dict[str, object]:
    """A standing as a JSON object."""
    spent = standing.spent
    return {
        "run": standing.run_id,
        "name": standing.name,
        "ended": standing.end,
        "best": _row_json(standing.best),
        "runner_up": _row_json(standing.runner_up),
        "separated": standing.separated,
        "margin": standing.margin,
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
        "report": None if report is None else str(report),
        "candidates": [_row_json(row) for row in standing.rows],
    }


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
    }
