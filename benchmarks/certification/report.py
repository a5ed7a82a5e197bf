"""Tables of the certification experiments, and where they and the figures go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.certification.figures import (
    GAMMAS,
    METHODS,
    draw_boxes,
    draw_intervals,
    draw_prompting,
    draw_quantisation,
    draw_tasks,
    draw_toy,
    draw_weights,
    growth,
    runs_of,
)
from benchmarks.certification.worlds import QUALITIES
from benchmarks.papers.reproduce import fill_report
from scipy.stats import binom

DELTAS = (0.1, 10 ** (-5 / 3), 10 ** (-7 / 3), 0.001)
LABELS = tuple(range(100, 301, 20))
WIDTHS = (100, 200, 500, 1000, 2000, 5000, 10_000)
GIGABYTES_PER_BIT = 8.03 / 8

# What the published code gave (100 runs; toy: labels at delta = 0.1 and 0.001)
TOY = {
    "published": {
        "r-eval": dict.fromkeys(GAMMAS, (2769, 5504)),
        "r-autoeval": {"0.99": (378, 977), "0.9": (2247, 5081), "0.7": (7369, 15075)},
        "r-autoeval+": {"0.99": (381, 946), "0.9": (1350, 3205), "0.7": (2642, 5565)},
    },
    "chebyshev": {
        "r-eval": dict.fromkeys(GAMMAS, (1830, 4363)),
        "r-autoeval": {"0.99": (402, 1052), "0.9": (1372, 4104), "0.7": (4613, 11917)},
        "r-autoeval+": {"0.99": (419, 1065), "0.9": (793, 2832), "0.7": (1785, 4331)},
    },
}
POINTS = {
    "150 r-eval best": (6.6025, 0.0413),
    "150 r-autoeval best": (6.4334, 0.0459),
    "150 r-autoeval med": (6.4263, 0.0459),
    "150 r-autoeval bad": (6.5609, 0.0421),
    "150 r-autoeval+ best": (6.2728, 0.0517),
    "150 r-autoeval+ med": (6.2738, 0.0522),
    "150 r-autoeval+ bad": (6.4916, 0.0444),
    "100 r-eval best": (7.0659, None),
    "100 r-autoeval best": (7.0775, None),
    "100 r-autoeval+ best": (6.6050, None),
    "200 r-eval best": (6.4244, None),
    "200 r-autoeval best": (6.2159, None),
    "200 r-autoeval+ best": (6.1825, None),
    "300 r-eval best": (6.2706, None),
    "300 r-autoeval best": (6.1628, None),
    "300 r-autoeval+ best": (6.1516, None),
}


def write_report(out: Path, results: Mapping[str, Any]) -> None:
    """Draw the figures and fill the marked places of ``certification.md``."""
    out.mkdir(parents=True, exist_ok=True)
    tables = {name: table(results[name]) for name, table in TABLES.items() if name in results}
    for name, draw in FIGURES.items():
        if name in results:
            draw(out, results[name])
    fill_report(out / "certification.md", tables)


def _draw_prompting(out: Path, found: Mapping[str, Any]) -> None:
    draw_prompting(out / "certification-prompting.svg", found, QUALITIES)
    draw_tasks(out / "certification-tasks.svg", found, QUALITIES)


FIGURES: Mapping[str, Callable[[Path, Mapping[str, Any]], None]] = {
    "toy": lambda out, found: draw_toy(out / "certification-toy.svg", found, DELTAS),
    "weights": lambda out, found: draw_weights(out / "certification-weights.svg", found),
    "triviaqa": lambda out, found: draw_quantisation(
        out / "certification-triviaqa.svg", found, LABELS
    ),
    "coqa": lambda out, found: draw_quantisation(out / "certification-coqa.svg", found, LABELS),
    "boxes": lambda out, found: draw_boxes(
        out / "certification-boxes.svg", found, GIGABYTES_PER_BIT
    ),
    "prompting": _draw_prompting,
    "intervals": lambda out, found: draw_intervals(
        out / "certification-intervals.svg", found, WIDTHS
    ),
}


def toy_table(found: Mapping[str, Any]) -> str:
    """Mean labels, ours and the reference, at all four levels."""
    heads = [f"δ = {delta:.3g}" for delta in DELTAS]
    lines = [_row("grid", "γ", "method", *heads, "reference at 0.1 / 0.001"), _rule(3, 5)]
    for grid in ("published", "chebyshev"):
        for gamma in GAMMAS:
            for name in METHODS:
                if name == "r-eval" and gamma != GAMMAS[0]:
                    continue
                runs = np.array(runs_of(found, grid, gamma, name))
                cells = [_cell(runs[:, i], 0) for i in range(len(DELTAS))]
                reference = " / ".join(f"{x:,}" for x in TOY[grid][name][gamma])
                shown = "any" if name == "r-eval" else gamma
                lines.append(_row(grid, shown, name, *cells, reference))
    return "\n".join(lines)


def weights_table(found: Mapping[str, Any]) -> str:
    """Where the weights lie in the end, and where growth is largest."""
    factors = np.linspace(0, 1, 100)
    lines = [_row("γ", "paper", "mean ρ", "mode", "mean ρ, plug-in", "largest g*"), _rule(1, 5)]
    for gamma, paper in zip(GAMMAS, ("0.9", "0.5", "0"), strict=True):
        last, plug = (np.array(found[f"{b} {gamma}"])[-1] for b in ("portfolio", "plug-in"))
        best = factors[int(np.argmax([growth(float(gamma), f) for f in factors]))]
        lines.append(
            _row(
                gamma,
                paper,
                f"{last @ factors:.2f}",
                f"{factors[int(last.argmax())]:.2f}",
                f"{plug @ factors:.2f}",
                f"{best:.2f}",
            )
        )
    return "\n".join(lines)


def quantisation_table(found: Mapping[str, Any]) -> str:
    """Mean bits at four sizes; how often the chosen model is bad."""
    at = (0, 5, 10)
    lines = [
        _row("betting", "method", *(f"n = {LABELS[i]}" for i in at), "largest mean loss"),
        _rule(2, 4),
    ]
    for betting in ("portfolio", "plug-in"):
        for label, ends in found[betting].items():
            array = np.array(ends)
            cells = [_cell(array[i, :, 0], 3) for i in at]
            lines.append(_row(betting, label, *cells, f"{array[:, :, 1].mean(axis=1).max():.4f}"))
    return "\n".join(lines)


def boxes_table(found: Mapping[str, Any]) -> str:
    """What Figure 1 plots: largest values within 1.5 interquartile ranges."""
    lines = [
        _row("betting", "method", "loss: top of the box plot", "size, GB: top", "loss > 0.1"),
        _rule(2, 3),
    ]
    for betting in ("plug-in", "portfolio"):
        for label, ends in sorted(found[betting].items()):
            array = np.array(ends)
            top = [_whisker(array[:, 1]), GIGABYTES_PER_BIT * _whisker(array[:, 0])]
            over = f"{(array[:, 1] > 0.1).mean():.1%}"
            lines.append(_row(betting, label, f"{top[0]:.3f}", f"{top[1]:.2f}", over))
    return "\n".join(lines)


def _whisker(values: Any) -> float:  # noqa: ANN401 - an array
    low, high = np.quantile(values, [0.25, 0.75])
    return float(values[values <= high + 1.5 * (high - low)].max())


def prompting_table(found: Mapping[str, Any]) -> str:
    """Mean length of the chosen prompt over the tasks, and in how many tasks a method is ahead."""
    shown = (QUALITIES[0], QUALITIES[3], QUALITIES[6])
    names = (f"{quality} judge" for quality in shown)
    lines = [
        _row("betting", "method", *names, "bad prompts chosen", "tasks with more than 10 %"),
        _rule(2, 5),
    ]
    for betting, tasks in found.items():
        if betting == "seconds":
            continue
        for name in METHODS:
            cells = []
            for quality in shown:
                key = f"{name} {'bad' if name == 'r-eval' else quality}"
                runs = np.array([[e[0] for e in task[key]] for task in tasks.values()])
                cells.append(_cell(runs.mean(axis=0), 1))
            shares = [
                np.mean([e[2] > task["risk"] and not e[3] for e in ends])
                for task in tasks.values()
                for key, ends in task.items()
                if key.rpartition(" ")[0] == name
            ]
            over = sum(share > 0.1 for share in shares)
            lines.append(
                _row(betting, name, *cells, f"{np.mean(shares):.2%}", f"{over} of {len(shares)}")
            )
    return "\n".join(lines)


def intervals_table(found: Mapping[str, Any]) -> str:
    """Mean width of the 99.9 % intervals, and how many missed."""
    sizes = (2, 4, 6)
    lines = [_row("γ", "method", *(f"n = {WIDTHS[i]:,}" for i in sizes), "missed"), _rule(2, 4)]
    for key, runs in found.items():
        if key == "seconds":
            continue
        ends = np.array(runs)
        width = ends[:, :, 1] - ends[:, :, 0]
        missed = int(((ends[:, :, 0] > 0.1) | (ends[:, :, 1] < 0.1)).any(axis=1).sum())
        cells = [_cell(width[:, i], 4) for i in sizes]
        lines.append(_row(*key.split(" "), *cells, f"{missed} of {len(ends)} runs"))
    return "\n".join(lines)


def points_table(found: Mapping[str, Any]) -> str:
    """The reference points: published grid against reference, and the package's own grid."""
    lines = [
        _row("n", "method", "judge", "reference", "published grid", "64 nodes", "plug-in", "loss"),
        _rule(3, 5),
    ]
    for key, (bits, _loss) in POINTS.items():
        n, name, judge = key.split(" ")
        cells = [
            _cell(np.array(found[f"{key} {grid}"])[:, 0], digits)
            for grid, digits in (("published", 4), ("chebyshev", 3), ("plug-in", 3))
        ]
        loss = np.array(found[f"{key} published"])[:, 1]
        shown = f"{loss.mean():.4f}" + (f" ({_loss})" if _loss is not None else "")
        lines.append(_row(n, name, judge, f"{bits:.4f}", *cells, shown))
    return "\n".join(lines)


def errors_table(found: Mapping[str, Any]) -> str:
    """False certifications, with the chance of so many or more at the promised rate."""
    runs = found["runs"]
    worlds: dict[str, dict[str, int]] = {}
    for key, count in found["false"].items():
        world, kind, name = key.split("|")
        worlds.setdefault(f"{world}, {kind}", {})[name] = count
    lines = [_row(f"{runs:,} runs, δ = 0.1", *METHODS, "smallest p"), _rule(1, 4)]
    for world, counts in worlds.items():
        cells = [f"{100 * counts[m] / runs:.1f} %" if m in counts else "" for m in METHODS]
        p = min(float(binom.sf(count - 1, runs, 0.1)) for count in counts.values())
        lines.append(_row(world, *cells, f"{p:.2f}"))
    return "\n".join(lines)


def savings_table(found: Mapping[str, Any]) -> str:
    """Mean labels until a good row of TriviaQA is certified."""
    rows = list(found["risks"])
    heads = [f"risk {found['risks'][row]:.3f}" for row in rows]
    lines = [_row("method", *heads, "all"), _rule(1, len(rows) + 1)]
    for label, runs in found["labels"].items():
        array = np.array(runs)
        cells = [_cell(array[array[:, 0] == int(row), 1], 0) for row in rows]
        by_run = array[:, 1].reshape(-1, len(rows)).mean(axis=1)
        lines.append(_row(label, *cells, _cell(by_run, 0)))
    return "\n".join(lines)


def _cell(values: Any, digits: int) -> str:  # noqa: ANN401 - an array
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{values.mean():,.{digits}f} ± {error:,.{digits}f}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(n_left: int, n_right: int) -> str:
    return _row(*["---"] * n_left, *["--:"] * n_right)


TABLES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "toy": toy_table,
    "weights": weights_table,
    "triviaqa": quantisation_table,
    "coqa": quantisation_table,
    "boxes": boxes_table,
    "prompting": prompting_table,
    "intervals": intervals_table,
    "published": points_table,
    "errors": errors_table,
    "savings": savings_table,
}
