"""``simulate``: how much of an evaluation a rule would have saved; ``import``: others' logs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path

import click
import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bestarm_agent._version import __version__
from bestarm_agent.cli.given import Given
from bestarm_agent.cli.output import Column, numbers, print_json, print_table, say, stderr_console
from bestarm_agent.cli.stores import default_store
from bestarm_agent.domain.text import percent
from bestarm_agent.errors import ConfigError
from bestarm_agent.interop.formats import is_log_file
from bestarm_agent.interop.logs import Logs, read_logs, write_answers, write_replay_study
from bestarm_agent.simulation.curves import (
    Curve,
    check_figure_path,
    describe,
    draw_study,
    hardness,
    summarise,
)
from bestarm_agent.simulation.replay import budget_shares, parse_contenders, replay_all
from bestarm_agent.simulation.score_matrices import ScoreMatrix, is_score_file, load_matrix
from bestarm_agent.store.export import labels
from bestarm_agent.store.export import matrix as score_matrix
from bestarm_agent.study import Archive

_POINTS = 20  # budgets between the lowest and the highest


def import_(
    given: Given,
    paths: Sequence[str],
    metric: str | None,
    out: Path | None,
    study_folder: Path | None,
) -> None:
    """Read logs of other tools; write their answers and scores, or a study that replays them."""
    if out is not None and out.suffix != ".jsonl":
        raise ConfigError(f"--out is a file of JSON lines, FILE.jsonl, got {str(out)!r}")
    for name in ("study.json", "study.yaml"):
        if study_folder is not None and (study_folder / name).exists():
            raise ConfigError(
                f"{study_folder / name} exists already and is not overwritten; name another folder"
            )
    logs = read_logs(paths, metric=metric)
    _show_logs(logs)
    if out is not None:
        write_answers(logs, out)
        click.echo(f"written: {out}")
    if study_folder is not None:
        click.echo(f"written: {write_replay_study(logs, study_folder)}")


def _show_logs(logs: Logs) -> None:
    known = logs.matrix()
    n_candidates, n_examples = known.scores.shape
    say(f"{logs.source}: {n_candidates} candidates x {n_examples} examples", *logs.notes())
    print_table(
        [Column("candidate", "middle"), *numbers("scored", "mean")],
        [
            [name, f"{sum(map(isfinite, row)):,}", percent(mean)]
            for name, row, mean in zip(known.names, known.scores, known.means, strict=True)
        ],
    )


def simulate(
    given: Given,
    matrix: Sequence[str],
    selectors: str,
    budget: str,
    seeds: int,
    jobs: int | None,
    metric: str | None,
    plot: Path | None,
) -> None:
    """Replay selection rules on known scores."""
    if plot is not None:
        check_figure_path(plot)
    known, notes = known_scores(matrix, metric, given.store)
    shares = budget_shares(*parse_budget(budget))
    contenders = parse_contenders(selectors)
    try:
        with _progress_bar() as report:
            replays = replay_all(
                known.scores,
                contenders,
                shares,
                seeds,
                jobs=jobs or os.cpu_count() or 1,
                progress=report,
            )
    except ValueError as error:  # a rule refuses its options or the problem
        raise ConfigError(str(error)) from None
    curves = {label: summarise(known, runs) for label, runs in replays.items()}
    if plot is not None:
        draw_study(plot, curves, title=_title(known))
    if given.as_json:
        results = {label: curve.as_dict() for label, curve in curves.items()}
        head = {"version": __version__, "matrix": describe(known), "seeds": seeds}
        print_json({**head, "selectors": results})
        return
    say(_title(known), *notes)
    titles = "95 % from", "(5-95 %)", "eps .01", "top-1", "NDCG", "regret", "us/answer"
    print_table(
        [Column("selector", "middle"), *numbers(*titles)],
        [_cells(label, curve) for label, curve in curves.items()],
    )
    say(
        "95 % from: the share of all calls from which top-1 precision is 95 %, by its rising fit; "
        f"top-1 and what follows: at {100 * shares[-1]:.3g} % of them; {seeds} seeds",
        _conclusion(curves, known.scores.size),
    )


def known_scores(
    locations: Sequence[str], metric: str | None, store: str | None
) -> tuple[ScoreMatrix, list[str]]:
    """Read the matrix, and what a reader should know of it."""
    first, *others = locations
    if others or metric is not None or is_log_file(first):
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
    state = asyncio.run(Archive(default_store(store)).state(run))
    scores = score_matrix(state)
    rows = np.flatnonzero(np.isfinite(scores).any(axis=1))
    if not len(rows):
        raise ConfigError(f"run {run} holds no score yet; nothing can be simulated on it")
    names = [labels(state)[i] for i in rows]
    return ScoreMatrix(scores[rows].astype(np.float32), tuple(names), source=run)


def parse_budget(text: str) -> tuple[float, float, int]:
    """Read LO:HI[:POINTS], shares in (0, 1] or percentages, or raise ConfigError.

    Example:
        >>> parse_budget("1%:0.3")
        (0.01, 0.3, 20)
    """
    # any mistake becomes values that the check below refuses, so that there is one message
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


@contextmanager
def _progress_bar() -> Iterator[Callable[[int, int], None]]:
    console = stderr_console()
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    off = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=off) as bar:
        task = bar.add_task("runs", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _cells(label: str, curve: Curve) -> list[str]:
    """Return the cells of a rule: the share from which it is right, its scores at the end."""
    ends = curve.budget_to_95_range["top1"]
    return [
        label,
        _percent(curve.budget_to_95["top1"]),
        "-".join(_percent(end).rstrip(" %") for end in ends),
        _percent(curve.budget_to_95["top1_eps0.01"]),
        *(f"{curve.mean[name][-1]:.3f}" for name in ("top1", "ndcg10", "regret")),
        f"{1e6 * curve.seconds_per_decision:.0f}",
    ]


def _title(matrix: ScoreMatrix) -> str:
    n_candidates, n_examples = matrix.scores.shape
    name, h1 = Path(matrix.source).name, hardness(matrix.means)
    return f"{name}: {n_candidates} candidates x {n_examples} examples, H1 = {h1:,.0f}"


def _missing_lines(matrix: ScoreMatrix) -> list[str]:
    """Return a line about missing scores and their effect; none if all are there."""
    missing = describe(matrix)["missing"]
    if not missing:
        return []
    return [
        f"{percent(missing)} of the scores are missing: these answers count as not to be had, and "
        f"the best candidate is the one of the highest mean over what is there. A run that chose "
        f"its answers says more about good candidates than about bad ones."
    ]


def _conclusion(curves: Mapping[str, Curve], n_calls: int) -> str:
    reached = {label: curve.budget_to_95["top1"] for label, curve in curves.items()}
    in_reach = {label: share for label, share in reached.items() if share is not None}
    if not in_reach:
        return "No rule names the best candidate in 95 % of the runs within this budget."
    label = min(in_reach, key=lambda name: in_reach[name])
    share = in_reach[label]
    first = share <= curves[label].budget_fraction[0]
    return (
        f"{label} names the best candidate in 95 % of the runs from {_percent(share)} of all calls"
        f" on{', if not from fewer' if first else ''}: it would have saved {_percent(1 - share)} of"
        f" them, {(1 - share) * n_calls:,.0f} of {n_calls:,} calls."
    )


def _percent(share: float | None) -> str:
    return "never" if share is None else percent(share)
