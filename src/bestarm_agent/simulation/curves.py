"""Curves from replays, and their figures: metrics by the share of calls made, standard errors.

Definitions follow Zhou et al. 2024 ("On Speeding Up Language Model Evaluation", sections 2.2 and
4.2; H1 from its Corollary 1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bestarm_agent.errors import ConfigError
from bestarm_agent.plugins import optional
from bestarm_agent.simulation.replay import Replay, ReplayAnswer
from bestarm_agent.simulation.score_matrices import ScoreMatrix
from bestarm_agent.stats.arrays import FloatArray
from bestarm_agent.stats.keyed_random import KeyedRandom

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TARGET = 0.95
# a named candidate is right if its mean is this close to the best; Zhou et al. 2024, section 4.2
TOP1 = {"top1": 0.0, "top1_eps0.001": 0.001, "top1_eps0.01": 0.01}
# Bootstrap samples of the seeds: enough for the 5 % and 95 % points, a twentieth from either end.
_RESAMPLES = 200
_ROUNDING = 1e-9  # two means or precisions that differ by less are equal


@dataclass(frozen=True, slots=True)
class Curve:
    """One rule's metrics, averaged over seeds.

    The metrics are those of ``TOP1`` (1 or 0), ``ndcg10`` and ``regret``, the best true mean minus
    that of the named candidate.
    """

    budget_fraction: tuple[float, ...]  # (B,) shares of the K x N cells
    mean: Mapping[str, FloatArray]  # by metric, (B,) averages
    se: Mapping[str, FloatArray]  # (B,) standard errors of them; 0 with a single seed
    # by top-1 metric, the share from which its rising fit is >= .95; None: not within the budgets
    budget_to_95: Mapping[str, float | None]
    # 5 % and 95 % points of that share over resampled seeds
    budget_to_95_range: Mapping[str, tuple[float | None, float | None]]
    seconds_per_decision: float  # processor time per pair

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists for JSON."""
        content: dict[str, Any] = {"budget_fraction": list(self.budget_fraction)}
        for name, values in self.mean.items():
            content[name] = values.tolist()
            content[f"{name}_se"] = self.se[name].tolist()
        for metric in self.budget_to_95:
            suffix = metric.removeprefix("top1")
            content[f"budget_to_95{suffix}"] = self.budget_to_95[metric]
            content[f"budget_to_95{suffix}_range"] = list(self.budget_to_95_range[metric])
        content["seconds_per_decision"] = self.seconds_per_decision
        return content


def summarise(matrix: ScoreMatrix, replays: Sequence[Replay]) -> Curve:
    """Average one rule's replays, one per seed, all at the same budgets."""
    means = matrix.means
    shares = [answer.budget / matrix.scores.size for answer in replays[0].answers]
    measured = [[_metrics(means, answer) for answer in replay.answers] for replay in replays]
    samples = {  # (seeds, B)
        name: np.array([[metrics[name] for metrics in row] for row in measured])
        for name in measured[0][0]
    }
    averages = {name: values.mean(axis=0) for name, values in samples.items()}
    return Curve(
        budget_fraction=tuple(shares),
        mean=averages,
        se={name: _standard_error(values) for name, values in samples.items()},
        budget_to_95={name: isotonic_crossing(shares, averages[name], TARGET) for name in TOP1},
        budget_to_95_range={name: _crossing_range(shares, samples[name]) for name in TOP1},
        seconds_per_decision=sum(r.cpu_seconds for r in replays) / sum(r.pulls for r in replays),
    )


def describe(matrix: ScoreMatrix) -> dict[str, Any]:
    """Describe a matrix in plain numbers: shape, H1, the best candidate and its lead."""
    means = matrix.means
    ranked, h1 = np.sort(means)[::-1], hardness(means)
    return {
        "source": matrix.source,
        "shape": list(matrix.scores.shape),
        "h1": h1 if isfinite(h1) else None,
        "best": matrix.names[int(np.argmax(means))],
        "best_mean": float(ranked[0]),
        "gap": float(ranked[0] - ranked[1]) if len(ranked) > 1 else None,
        "missing": float(np.isnan(matrix.scores).mean()),
    }


def hardness(means: FloatArray) -> float:
    """Return H1, the sum of 1 / gap^2 over all but the best.

    Infinite where the best is tied, 0 for a single candidate.

    Example:
        >>> hardness(np.array([0.9, 0.8, 0.4]))  # 1/0.1^2 + 1/0.5^2
        104.0
    """
    values = np.sort(means)
    # The last of the sorted means is the best itself. A gap of 0 makes the sum infinite: no number
    # of calls tells two equal candidates apart.
    gaps = values[-1] - values[:-1]
    return float("inf") if (gaps < _ROUNDING).any() else float(np.sum(gaps**-2))


def ndcg(means: FloatArray, ranking: Sequence[int], depth: int = 10) -> float:
    """Return the normalised discounted cumulative gain of a ranking, best first.

    The paper gives no gain. Here it is ``depth + 1 - rank`` for true ranks 1 .. ``depth`` (equal
    ``means`` share the better rank) and 0 below, divided by log2(1 + position); the means
    themselves as gains would put every answer near 1. ``depth`` >= 1 is cut to K.

    Example:
        >>> ndcg(np.array([0.9, 0.5, 0.1]), [1, 0, 2], depth=2)  # (1 + 2/log2(3)) / (2 + 1/log2(3))
        0.8597
    """
    depth = min(depth, len(means))
    # How many means are higher, by more than rounding: 0 for the best and for all that equal it.
    better = len(means) - np.searchsorted(np.sort(means), means + _ROUNDING, side="right")
    gain = np.maximum(0, depth - better)
    discount = 1 / np.log2(np.arange(2, depth + 2))
    gains = gain[list(ranking[:depth])]
    # Ties of the best may give more than one candidate the highest gain, so the ideal order is
    # computed rather than assumed to be depth, depth - 1, ..., 1.
    ideal = np.sort(gain)[::-1][:depth]
    return float(gains @ discount[: len(gains)] / (ideal @ discount))


def isotonic_crossing(
    budgets: Sequence[float], precision: Sequence[float] | FloatArray, target: float
) -> float | None:
    """Return where the non-decreasing least-squares fit of precision crosses ``target``.

    Pool adjacent violators, then linear interpolation between the rising ``budgets`` (B,): one
    unlucky seed moves it little. The first budget if the fit starts at or above ``target``; None if
    it ends below.

    Example:
        >>> isotonic_crossing([0.1, 0.2, 0.3], [0.80, 0.90, 1.00], 0.95)
        0.25
    """
    from scipy.optimize import isotonic_regression  # kept out of the import time of the package

    # Precision rises with the budget in truth, so falls are noise of the seeds, which the fit
    # averages.
    fit = isotonic_regression(np.asarray(precision, dtype=np.float64)).x
    above = np.flatnonzero(fit >= target - _ROUNDING)
    if not len(above):
        return None
    index = int(above[0])
    if index == 0:
        return float(budgets[0])
    # The share of the way between the two budgets; the fit rises there, so the divisor is not 0.
    share = (target - fit[index - 1]) / (fit[index] - fit[index - 1])
    return float(budgets[index - 1] + min(1.0, share) * (budgets[index] - budgets[index - 1]))


def _metrics(means: FloatArray, answer: ReplayAnswer) -> dict[str, float]:
    regret = float(means.max() - means[answer.best])
    right = {name: float(regret <= gap + _ROUNDING) for name, gap in TOP1.items()}
    return {**right, "ndcg10": ndcg(means, answer.ranking), "regret": regret}


def _standard_error(samples: FloatArray) -> FloatArray:
    n = len(samples)
    if n == 1:
        return np.zeros(samples.shape[1])
    return np.asarray(samples.std(axis=0, ddof=1) / np.sqrt(n))


def _crossing_range(
    shares: Sequence[float], samples: FloatArray
) -> tuple[float | None, float | None]:
    draws = KeyedRandom(0, "bootstrap of seeds")
    n = len(samples)
    crossings = []
    for index in range(_RESAMPLES):
        picked = samples[draws.at(index).integers(n, size=n)]
        crossing = isotonic_crossing(shares, picked.mean(axis=0), TARGET)
        # Never within the budgets is later than any budget: infinity sorts to the end.
        crossings.append(np.inf if crossing is None else crossing)
    low, high = np.sort(crossings)[[_RESAMPLES // 20, -1 - _RESAMPLES // 20]]
    return (float(low) if isfinite(low) else None, float(high) if isfinite(high) else None)


_FORMATS = (".svg", ".png", ".pdf")
_TITLES = {
    "top1": "Top-1 precision",
    "top1_eps0.001": "Top-1 precision, ε = 0.001",
    "top1_eps0.01": "Top-1 precision, ε = 0.01",
    "ndcg10": "NDCG@10",
    "regret": "Simple regret",
}
_COLUMNS = 3  # panels in a row
# Okabe and Ito's colours, which colour-blind readers tell apart; dashes once they are used up
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", ":", "-.")
_WIDE = 20  # budgets whose largest is this many times the smallest
# Digits of coordinates after the second, and blanks at the beginnings and ends of lines.
_SURPLUS = re.compile(r"(?<=\.\d\d)\d+|(?<=\n) +| +(?=\n)")  # a hundredth of a point is enough
_STYLE: Any = {  # Any: matplotlib types its keys one by one
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "svg.fonttype": "none",  # text stays text: small files that can be searched
    "svg.hashsalt": "bestarm-agent",  # the same data gives the same file
}


def check_figure_path(path: Path) -> None:
    """Raise a ConfigError if a figure cannot be written, before its data is computed."""
    if path.suffix not in _FORMATS:
        raise ConfigError(f"a figure is written as {', '.join(_FORMATS)}, got {str(path)!r}")
    check_folder(path)
    optional("matplotlib", "plot", "drawing")


def check_folder(path: Path) -> None:
    """Raise a ConfigError if a file cannot be written, before its content is computed."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {path.parent} to write {path.name} into; make it")


def draw_study(path: Path, curves: Mapping[str, Curve], *, title: str) -> None:
    """Draw one study's curves, given by label: a panel per metric, one legend for all.

    The suffix of the path gives the format. Raises ConfigError if that is unknown, or matplotlib is
    not installed.
    """
    check_figure_path(path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    n_rows = -(-len(_TITLES) // _COLUMNS)
    size = (0.3 + 2.3 * _COLUMNS, 0.8 + 1.75 * n_rows)
    with rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        figure.suptitle(title, fontsize=9)
        panels = figure.subplots(n_rows, _COLUMNS, squeeze=False).ravel().tolist()
        for axes, metric in zip(panels, _TITLES, strict=False):
            _fill(axes, curves, metric)
        for axes in panels[len(_TITLES) :]:
            axes.set_visible(False)
        lines = panels[0].get_lines()[: len(curves)]
        columns = min(len(curves), 4)
        figure.legend(lines, curves, loc="outside lower center", ncols=columns, frameon=False)
        figure.savefig(path, dpi=200, metadata={"Date": None} if path.suffix == ".svg" else {})
    if path.suffix == ".svg":
        text = path.read_text(encoding="utf-8")
        path.write_text(_SURPLUS.sub("", text), encoding="utf-8")


def _fill(axes: Axes, curves: Mapping[str, Curve], metric: str) -> None:
    """Draw a line per rule with a band of one standard error on either side."""
    for index, curve in enumerate(curves.values()):
        colour = _COLOURS[index % len(_COLOURS)]
        dashes = _DASHES[(index // len(_COLOURS)) % len(_DASHES)]
        percent = [100 * share for share in curve.budget_fraction]
        mean, se = curve.mean[metric], curve.se[metric]
        axes.plot(percent, mean, color=colour, linestyle=dashes)
        axes.fill_between(percent, mean - se, mean + se, color=colour, alpha=0.15, linewidth=0)
    if metric.startswith("top1"):
        axes.axhline(TARGET, color="0.6", linewidth=0.6, linestyle=(0, (4, 3)), zorder=0)
        axes.set_ylim(-0.02, 1.02)
    axes.set_title(_TITLES[metric])
    axes.set_xlabel("calls made (% of all)")
    axes.locator_params(axis="y", nbins=4)
    axes.grid(color="0.92", linewidth=0.5)
    shares = [share for curve in curves.values() for share in curve.budget_fraction]
    if max(shares) < _WIDE * min(shares):
        axes.locator_params(axis="x", nbins=4)
        axes.set_xlim(left=0)
        return
    axes.set_xscale("log")  # budgets far apart
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
