"""Figures and tables of the reproduction of PULSE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from benchmarks.papers.reproduce import fill_report
from benchmarks.papers.stored_studies import markdown
from numpy.typing import NDArray

from bestarm_agent.selectors.history import HistoryModel
from bestarm_agent.simulation.figures import finish, paper_style, plot_band
from bestarm_agent.simulation.score_matrices import ScoreMatrix
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.stats.ranking import hardness, isotonic_crossing, last_crossing

Runs: TypeAlias = Sequence[Mapping[str, Any]]
Results: TypeAlias = Mapping[tuple[int, float, str], Runs]
Pools: TypeAlias = Mapping[tuple[int, float], ScoreMatrix]
Array: TypeAlias = NDArray[np.float64]

WARM_UP = 64  # calls per model
RESAMPLES = 400


@dataclass(frozen=True, slots=True)
class Bench:
    """Where things are.

    Attributes:
        data: folder of the score matrices.
        work: folder of finished runs.
        out: folder of the report.
    """

    data: Path
    work: Path
    out: Path


def write_report(
    out: Path,
    pools: Pools,
    lessons: Mapping[float, HistoryModel],
    results: Results,
    arms: Mapping[str, Array],
) -> None:
    """Draw the figures and fill the tables into ``pulse.md``."""
    out.mkdir(parents=True, exist_ok=True)
    draw_errors(out / "paper2-one-arm.svg", arms)
    tables = {
        "pools": _pools_table(pools),
        "history": _history_table(lessons),
        "bias": _bias_table(arms),
    }
    for size in dict.fromkeys(size for size, _ in pools):
        these = {gap: pool for (of, gap), pool in pools.items() if of == size}
        found = {(gap, rule): runs for (of, gap, rule), runs in results.items() if of == size}
        draw_accuracy(out / f"paper2-accuracy-{size}.svg", list(these), found)
        tables[f"budgets-{size}"] = _budgets_table(these, found)
    fill_report(out / "pulse.md", tables)


def draw_accuracy(
    path: Path, gaps: Sequence[float], results: Mapping[tuple[float, str], Runs]
) -> None:
    """Accuracy against calls, one panel per gap, with standard errors."""
    from matplotlib.figure import Figure

    labels = list(dict.fromkeys(rule for _, rule in results))
    with paper_style():
        figure = Figure(figsize=(7.2, 2.9), layout="constrained")
        panels = figure.subplots(1, len(gaps), sharey=True)
        for axes, gap in zip(panels, gaps, strict=True):
            for index, rule in enumerate(labels):
                if results[gap, rule]:
                    budgets, accuracy = _accuracy(results[gap, rule])
                    thousands = (budgets / 1000).tolist()
                    mean = accuracy.mean(axis=0)
                    spread = np.sqrt(mean * (1 - mean) / len(accuracy))
                    plot_band(axes, thousands, mean.tolist(), spread.tolist(), index)
            axes.axhline(0.95, color="0.6", linewidth=0.6, linestyle=(0, (4, 3)), zorder=0)
            axes.set_title(f"top-two gap {gap:g}")
            axes.set_xlabel("calls, warm-up included (thousands)")
            axes.grid(color="0.92", linewidth=0.5)
        panels[0].set_ylabel("right model named")
        finish(figure, labels, path)


def draw_errors(path: Path, arms: Mapping[str, Array]) -> None:
    """Distribution of one model's estimate around the truth."""
    from matplotlib.figure import Figure

    with paper_style():
        figure = Figure(figsize=(7.2, 2.6), layout="constrained")
        axes = figure.subplots()
        for index, errors in enumerate(arms.values()):
            x = np.linspace(-0.07, 0.18, 76)
            density, _ = np.histogram(errors, bins=x, density=True)
            middle = ((x[1:] + x[:-1]) / 2).tolist()
            plot_band(axes, middle, density.tolist(), [0.0] * len(middle), index)
        axes.axvline(0.0, color="0.6", linewidth=0.6, zorder=0)
        axes.set_xlabel("estimate less true mean, 384 of 1,000 scores seen")
        axes.set_ylabel("density")
        finish(figure, list(arms), path)


def _accuracy(runs: Runs) -> tuple[Array, Array]:
    """(B,) budgets and (runs, B) whether the right model was named."""
    right = np.array([[regret == 0.0 for regret in run["regret"]] for run in runs])
    return np.array(runs[0]["budgets"], dtype=float), right.astype(float)


def _pools_table(pools: Pools) -> str:
    rows = []
    for (_, gap), pool in pools.items():
        ranked = np.sort(pool.means)[::-1]
        rows.append(
            [
                f"{gap:g}",
                f"{len(pool.scores)} x {pool.scores.shape[1]}",
                f"{ranked[0]:.4f}",
                f"{ranked[0] - ranked[1]:.4f}",
                f"{ranked[1] - ranked[2]:.4f}",
                f"{hardness(pool.means):,.0f}",
                f"{WARM_UP * len(pool.scores):,}",
            ]
        )
    headers = ["asked gap", "pool", "best mean", "gap 1-2", "gap 2-3", "H1", "warm-up calls"]
    return markdown(headers, rows)


def _history_table(lessons: Mapping[float, HistoryModel]) -> str:
    rows = []
    for gap, lesson in lessons.items():
        found = lesson.validation
        rows.append(
            [
                f"{gap:g}",
                str(found.rank),
                f"{found.ridge:g}",
                f"{found.gain:.3f} ± {found.gain_se:.3f}",
                f"{found.loss:.3f}",
                f"{found.baseline:.3f}",
                str(found.n_candidates),
            ]
        )
    headers = ["gap", "rank", "ridge", "variance removed", "log loss", "row-mean log loss"]
    return markdown([*headers, "held out"], rows)


def _budgets_table(
    pools: Mapping[float, ScoreMatrix], results: Mapping[tuple[float, str], Runs]
) -> str:
    rows: list[list[str]] = []
    for gap, pool in pools.items():
        warm_up = WARM_UP * len(pool.scores)
        plain = _crossing(results[gap, "UCB-E"])
        rows += [
            [f"{gap:g}", rule, *_budget_cells(runs, warm_up, plain)]
            for (of, rule), runs in results.items()
            if of == gap and runs
        ]
    headers = [
        "gap",
        "rule",
        "seeds",
        "calls to 95 %",
        "5-95 % over seeds",
        "after the warm-up",
        "saved, of UCB-E's after warm-up",
        "stays at 95 % from",
        "right at the end",
        "mean accuracy over the budgets",
        "CPU s / run",
    ]
    return markdown(headers, rows)


def _budget_cells(runs: Runs, warm_up: int, plain: float | None) -> list[str]:
    budgets, accuracy = _accuracy(runs)
    crossing = _crossing(runs)
    low, high = _crossing_range(budgets, accuracy)
    last = last_crossing(budgets.tolist(), accuracy.mean(axis=0))
    overall = accuracy.mean(axis=1)  # over the budgets of the figure
    saved = "-"
    if crossing is not None and plain is not None and plain > warm_up:
        saved = f"{1 - (crossing - warm_up) / (plain - warm_up):.0%}"
    return [
        str(len(runs)),
        _calls(crossing),
        f"{_calls(low)} - {_calls(high)}",
        _calls(None if crossing is None else crossing - warm_up),
        saved,
        _calls(last),
        f"{accuracy[:, -1].mean():.2f}",
        f"{overall.mean():.2f} ± {overall.std(ddof=1) / np.sqrt(len(overall)):.2f}",
        f"{np.mean([run['cpu_seconds'] for run in runs]):.1f}",
    ]


def _crossing(runs: Runs) -> float | None:
    if not runs:
        return None
    budgets, accuracy = _accuracy(runs)
    return isotonic_crossing(budgets.tolist(), accuracy.mean(axis=0))


def _crossing_range(budgets: Array, accuracy: Array) -> tuple[float | None, float | None]:
    """5 % and 95 % points over resampled seeds."""
    draws, n = KeyedRandom(0, "bootstrap of seeds"), len(accuracy)
    found = []
    for index in range(RESAMPLES):
        picked = accuracy[draws.at(index).integers(n, size=n)]
        crossing = isotonic_crossing(budgets.tolist(), picked.mean(axis=0))
        found.append(np.inf if crossing is None else crossing)
    low, high = np.sort(found)[[RESAMPLES // 20, -1 - RESAMPLES // 20]]
    return (float(low) if np.isfinite(low) else None, float(high) if np.isfinite(high) else None)


def _bias_table(arms: Mapping[str, Array]) -> str:
    rows = []
    for name, errors in arms.items():
        se = errors.std(ddof=1) / np.sqrt(len(errors))
        rows.append(
            [
                name,
                str(len(errors)),
                f"{errors.mean():+.5f}",
                f"{se:.5f}",
                f"{errors.mean() / se:+.1f}",
                f"{np.sqrt((errors**2).mean()):.4f}",
            ]
        )
    return markdown(["estimator", "runs", "mean error", "s.e.", "in s.e.", "rmse"], rows)


def _calls(number: float | None) -> str:
    return "not reached" if number is None else f"{number:,.0f}"
