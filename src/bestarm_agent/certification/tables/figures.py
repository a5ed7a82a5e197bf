"""Figures of a certificate: the evidence over the labels, and the weights of reliance factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bestarm_agent.certification.certificate import Certificate, Screened
from bestarm_agent.certification.evidence import Goal
from bestarm_agent.simulation.figures import check_figure_path, finish, paper_style, style_of
from bestarm_agent.stats.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SHOWN = 6  # candidates: the last ones looked at, where the decision fell
_MOST_TICKS = 10
_LONGEST_NAME = 34


def draw_certificate(
    path: Path, found: Certificate, names: Sequence[str], goal: Goal, reliance: FloatArray
) -> None:
    """Draw the e-values of the last candidates over the labels, and the weights of one.

    The weights are those of the chosen candidate, or of the last one tested if none was chosen. The
    suffix of the path gives the format; ``reliance`` (S, A) are the method's factors.
    """
    check_figure_path(path)
    from matplotlib.figure import Figure

    shown = [one for one in found.screened if one.log_wealths][-_SHOWN:]
    with paper_style():
        figure = Figure(figsize=(6.6, 2.9), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_evidence(left, shown, goal)
        chosen = [one for one in shown if one.candidate == found.chosen] or shown[-1:]
        if chosen:
            _draw_weights(figure, right, chosen[0], names[chosen[0].candidate], reliance)
        labels = [_short(names[one.candidate]) for one in shown]
        finish(figure, labels, path, columns=min(3, len(labels)))


def _draw_evidence(axes: Axes, shown: Sequence[Screened], goal: Goal) -> None:
    for index, one in enumerate(shown):
        values = [0.0, *(log / math.log(10) for log in one.log_wealths)]
        floor = [max(value, -4.0) for value in values if math.isfinite(value)]
        axes.plot(range(len(floor)), floor, **style_of(index))
    axes.axhline(goal.enough / math.log(10), color="0.4", linewidth=0.7, linestyle=(0, (4, 3)))
    axes.set_title("evidence (dashed: enough)")
    axes.set_xlabel("labels")
    axes.set_ylabel("log10 of the e-value")
    axes.grid(color="0.92", linewidth=0.5)


def _draw_weights(
    figure: Figure, axes: Axes, one: Screened, name: str, reliance: FloatArray
) -> None:
    weights = np.array(one.weights).T
    axes.set_title(f"weights, {_short(name)}")
    axes.set_xlabel("labels")
    if len(weights) == 1:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "one reliance factor: nothing to weigh", ha="center", va="center")
        return
    image = axes.imshow(
        weights,
        aspect="auto",
        origin="lower",
        cmap="viridis",
        interpolation="nearest",
        vmin=0.0,
        extent=(0, weights.shape[1], -0.5, len(weights) - 0.5),
    )
    ticks = range(0, len(weights), -(-len(weights) // _MOST_TICKS))
    axes.set_yticks(ticks, [_shown(reliance[tick]) for tick in ticks])
    axes.set_ylabel("reliance on the autoevaluator" + ("s" if reliance.shape[1] > 1 else ""))
    figure.colorbar(image, ax=axes, shrink=0.9)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


def _shown(row: FloatArray) -> str:
    return " ".join(f"{value:.2g}" for value in row)
