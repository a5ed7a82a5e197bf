"""``simulate``: how much of an evaluation a selection rule would have saved."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bestarm_agent.cli.options import Count, StoreOption, Text
from bestarm_agent.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from bestarm_agent.simulation.curves import Curve
    from bestarm_agent.simulation.score_matrices import ScoreMatrix

_POINTS = 20  # budgets between the lowest and the highest


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Rules to replay, their budgets, and the number of seeds."""

    selectors: Annotated[
        str, typer.Option(help="Rules separated by commas, each perhaps with [OPTION=VALUE,...].")
    ] = "auto,ucb-e,sysrs,uniform"
    budget: Annotated[
        str, typer.Option(help="LO:HI or LO:HI:POINTS, shares of all calls: 0.01:0.30 or 1%:30%.")
    ] = "0.01:0.30"
    seeds: Annotated[
        int, typer.Option(min=1, help="Repetitions, each with the matrix shuffled again.")
    ] = 50
    jobs: Annotated[
        Count, typer.Option(min=1, help="Parallel processes; one per core if not given.")
    ] = None


@dataclass(frozen=True, slots=True)
class Results:
    """Curves of the rules on a matrix, by label."""

    matrix: ScoreMatrix
    seeds: int
    highest: float  # share of all calls, the last budget
    curves: Mapping[str, Curve]


def simulate(
    matrix: Annotated[
        list[str],
        typer.Argument(
            help="FILE.npz or FILE.npz:NAME, FILE.csv, FILE.parquet, a run, or logs of other tools."
        ),
    ],
    replay: ReplayOptions,
    metric: Annotated[
        Text, typer.Option(help="The score to take from logs that hold several.")
    ] = None,
    store: StoreOption = None,
    json_path: Annotated[
        Text, typer.Option("--json", help="Write all curves to this file; - for stdout.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the curves: FILE.svg, FILE.png or FILE.pdf.")
    ] = None,
) -> None:
    """Replay selection rules on known scores: what would be saved?"""
    from bestarm_agent.simulation.figures import check_figure_path, check_folder, draw_study

    if plot is not None:
        check_figure_path(plot)
    if json_path not in (None, "-"):
        check_folder(Path(json_path))
    known, notes = known_scores(matrix, metric, store)
    results = _replayed(known, replay)
    if plot is not None:
        draw_study(plot, results.curves, title=_title(known))
    _show(results, notes, json_path)


def known_scores(
    locations: Sequence[str], metric: str | None, store: str | None
) -> tuple[ScoreMatrix, list[str]]:
    """Read the matrix, and what a reader should know of it."""
    from bestarm_agent.interop.formats import is_log_file
    from bestarm_agent.interop.logs import read_logs
    from bestarm_agent.simulation.score_matrices import is_score_file, load_matrix

    first, *more = locations
    if more or metric is not None or is_log_file(first):
        logs = read_logs(locations, metric=metric)
        known, notes = logs.matrix(), logs.notes()
    else:
        is_file = is_score_file(first) or Path(first).is_file()
        known = load_matrix(first) if is_file else stored_scores(first, store)
        notes = _missing_lines(known)
    if len(known.names) == 1:
        raise ConfigError(
            f"{known.source} holds one candidate, and a selection rule chooses among several"
        )
    return known, notes


def stored_scores(run: str, store: str | None) -> ScoreMatrix:
    """Read the scores of a stored run; candidates without any score are left out.

    Raises ConfigError if there is no store or no score, RunNotFoundError if there is no run.
    """
    import asyncio

    import numpy as np

    from bestarm_agent.cli.stores import default_store
    from bestarm_agent.simulation.score_matrices import ScoreMatrix
    from bestarm_agent.store.export import labels, matrix
    from bestarm_agent.study import Archive

    state = asyncio.run(Archive(default_store(store)).state(run))
    scores = matrix(state)
    seen = np.flatnonzero(np.isfinite(scores).any(axis=1))
    if not len(seen):
        raise ConfigError(f"run {run} holds no score yet; nothing can be simulated on it")
    names = [labels(state)[i] for i in seen]
    return ScoreMatrix(scores[seen].astype(np.float32), tuple(names), source=run)


def parse_budget(text: str) -> tuple[float, float, int]:
    """Read LO:HI[:POINTS], shares in (0, 1] or percentages, or raise ConfigError.

    Example:
        >>> parse_budget("1%:0.3")
        (0.01, 0.3, 20)
    """
    parts = text.split(":")
    try:
        low, high = (_share(part) for part in parts[:2])
        points = int(parts[2]) if len(parts) == 3 else _POINTS
    except ValueError:
        low, high, points = 0.0, 0.0, 0
    if not (0 < low <= high <= 1 and points >= 1 and len(parts) <= 3):
        raise ConfigError(
            "--budget must be LO:HI[:POINTS] with 0 < LO <= HI <= 1, for example 0.01:0.30:20,"
            f" got {text!r}"
        )
    return low, high, points


def _share(text: str) -> float:
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def _replayed(known: ScoreMatrix, options: ReplayOptions) -> Results:
    from bestarm_agent.simulation.curves import summarise
    from bestarm_agent.simulation.replay_many import budget_shares, replay_all
    from bestarm_agent.simulation.rule_specs import parse_contenders

    shares = budget_shares(*parse_budget(options.budget))
    contenders, jobs = parse_contenders(options.selectors), options.jobs or os.cpu_count() or 1
    try:
        with _progress_bar() as report:
            replays = replay_all(
                known.scores, contenders, shares, options.seeds, jobs=jobs, progress=report
            )
    except ValueError as error:  # a rule refuses its options or the problem
        raise ConfigError(str(error)) from None
    curves = {label: summarise(known, runs) for label, runs in replays.items()}
    return Results(known, options.seeds, shares[-1], curves)


@contextmanager
def _progress_bar() -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True, emoji=False)
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    off = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=off) as bar:
        task = bar.add_task("runs", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _show(results: Results, notes: Sequence[str], json_path: str | None) -> None:
    from rich.text import Text as Line

    from bestarm_agent.cli.result_output import stdout_console
    from bestarm_agent.report.words import safe

    if json_path is not None:
        text = json.dumps(_results_json(results), indent=1, allow_nan=False)
        if json_path == "-":
            typer.echo(text)
            return
        Path(json_path).write_text(text + "\n", encoding="utf-8")
    console = stdout_console()
    for line in (_title(results.matrix), *notes):
        console.print(Line(safe(line)))
    console.print(_table(results))
    console.print(Line(_conclusion(results)))


def _results_json(results: Results) -> dict[str, Any]:
    from bestarm_agent._version import __version__
    from bestarm_agent.simulation.curves import describe

    return {
        "version": __version__,
        "matrix": describe(results.matrix),
        "seeds": results.seeds,
        "selectors": {label: curve.as_dict() for label, curve in results.curves.items()},
    }


def _title(matrix: ScoreMatrix) -> str:
    from bestarm_agent.simulation.curves import hardness

    n_candidates, n_examples = matrix.scores.shape
    name, h1 = Path(matrix.source).name, hardness(matrix.means)
    return f"{name}: {n_candidates} candidates x {n_examples} examples, H1 = {h1:,.0f}"


def _missing_lines(matrix: ScoreMatrix) -> list[str]:
    """Return a line about missing scores and their effect; none if all are there."""
    from bestarm_agent.simulation.curves import describe

    missing = describe(matrix)["missing"]
    if not missing:
        return []
    return [
        f"{missing:.1%} of the scores are missing: these pairs count as not measurable, and the "
        f"best candidate is the one of the highest mean over what is there. A run that chose its "
        f"pairs says more about good candidates than about bad ones; one that learned from history "
        f"asked contested examples first, so that its means over few scores are means over those."
    ]


def _table(results: Results) -> Table:
    """Make a row per rule: the share from which it is right, and its scores at the end."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        caption="95% from: the share of all calls from which top-1 precision is 95 %, by its "
        f"rising fit; top-1 and what follows: at {100 * results.highest:.3g} % of them; "
        f"{results.seeds} seeds",
        caption_justify="left",
    )
    table.add_column("selector", no_wrap=True)
    for header in ("95% from", "(5-95%)", "eps .01", "top-1", "NDCG", "regret", "us/pair"):
        table.add_column(header, justify="right", no_wrap=True)
    for label, curve in results.curves.items():
        ends = curve.budget_to_95_range["top1"]
        table.add_row(
            label.replace("[", r"\["),
            _percent(curve.budget_to_95["top1"]),
            "-".join(_percent(end).rstrip("%") for end in ends),
            _percent(curve.budget_to_95["top1_eps0.01"]),
            *(f"{curve.mean[name][-1]:.3f}" for name in ("top1", "ndcg10", "regret")),
            f"{1e6 * curve.seconds_per_decision:.0f}",
        )
    return table


def _conclusion(results: Results) -> str:
    reached = {label: curve.budget_to_95["top1"] for label, curve in results.curves.items()}
    found = {label: share for label, share in reached.items() if share is not None}
    if not found:
        return "No rule names the best candidate in 95 % of the runs within this budget."
    label = min(found, key=lambda name: found[name])
    share, n_calls = found[label], results.matrix.scores.size
    first = share <= results.curves[label].budget_fraction[0]
    return (
        f"{label} names the best candidate in 95 % of the runs from {_percent(share)} of all calls"
        f" on{', if not from fewer' if first else ''}: it would have saved {_percent(1 - share)} of"
        f" them, {(1 - share) * n_calls:,.0f} of {n_calls:,} calls."
    )


def _percent(share: float | None) -> str:
    return "never" if share is None else f"{100 * share:.1f}%"
