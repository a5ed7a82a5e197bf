"""A run as a picture for a slide or a message: verdict, ranking with intervals, effects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.engine.results.axis_effects import AxisEffects, axis_effects
from bestarm_agent.engine.results.standing import Row, Standing, Status
from bestarm_agent.report.caveats import caveat
from bestarm_agent.report.outlook import headline, outlook
from bestarm_agent.report.progress_text import budget_line, hidden_line
from bestarm_agent.report.text import (
    duration,
    estimate,
    how_sure,
    interval,
    safe,
    seen,
    seen_title,
    shortened,
    state,
)
from bestarm_agent.simulation.figures import check_figure_path, paper_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SHOWN_ROWS = 12
_SHOWN_AXES = 3
_SHOWN_LEVELS = 6
_LABEL = 40  # characters
_LINE = 150  # characters of a line of text
_WIDTH, _HEADER, _LEAST_HEIGHT = 10.0, 1.45, 2.6  # inches
_SEEN, _ESTIMATE, _STATE = 60, 68, 150  # points from the panel to the texts beside it
_INK, _DIM, _GRID = "#1b1f24", "#5a6472", "#d8dde4"
_COLOURS = {  # those of the report
    Status.BEST: "#00734f",
    Status.LEADING: "#00734f",
    Status.OPEN: "#0063a3",
    Status.BEATEN: "#6b7480",
    Status.BARRED: "#6b7480",
    Status.DROPPED: "#6b7480",
    Status.BROKEN: "#b04a00",
}
_FILLED = (Status.BEST, Status.LEADING, Status.BEATEN)


def draw_standing(standing: Standing, path: Path, result: ModeResult | None = None) -> None:
    """Draw where a run stands, under the ``result`` of its mode if there is one.

    The suffix of the path gives the format: .png, .svg or .pdf.

    Raises:
        ConfigError: the format is unknown, there is no such folder, or matplotlib is not installed.
    """
    check_figure_path(path)
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    effects = axis_effects(standing)[:_SHOWN_AXES] if result is None else []
    height = _HEADER + max(_LEAST_HEIGHT, 0.8 + 0.28 * len(standing.rows[:_SHOWN_ROWS]))
    below = (0.01, 0.02, 0.98, 1 - _HEADER / height - 0.02)
    with paper_style():
        figure = Figure(figsize=(_WIDTH, height), layout=ConstrainedLayoutEngine(rect=below))
        _write_header(figure, standing, result)
        left, *right = _panels(figure, effects)
        _draw_ranking(left, standing, with_intervals=result is None)
        _draw_effects(right, effects)
        figure.savefig(path, dpi=160)


def _write_header(figure: Figure, standing: Standing, result: ModeResult | None) -> None:
    verdict, first, second = _said(standing) if result is None else _answer(result)
    _write(figure, 0.25, safe(standing.name), size=9, color=_DIM)
    _write(figure, 0.58, _cut(verdict, 90), size=14, weight="bold")
    lines = [first, second, f"{budget_line(standing)}, {duration(standing.seconds)}"]
    for place, line in enumerate([line for line in lines if line]):
        _write(figure, 0.9 + 0.21 * place, _cut(line, _LINE), size=8.5, color=_DIM)


def _said(standing: Standing) -> tuple[str, str, str]:
    name, said = headline(standing)
    verdict = f"{shortened(name, _LABEL)} {said}{caveat(standing)}".strip()
    sure = how_sure(standing) if standing.winner is not None else ""
    return verdict, sure, outlook(standing)


def _answer(result: ModeResult) -> tuple[str, str, str]:
    first, *more = (" ".join(line.split()) for line in result.lines())
    return safe(first), safe(next(iter(more), "")), result.ranking


def _write(figure: Figure, inches: float, text: str, **style: Any) -> None:  # noqa: ANN401
    """Write a line so many inches below the upper edge."""
    style = {"color": _INK, "va": "center", "parse_math": False, **style}
    figure.text(0.02, 1 - inches / figure.get_figheight(), text, **style)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _panels(figure: Figure, effects: Sequence[AxisEffects]) -> list[Axes]:
    """Return the panel of the ranking, then one for each axis, to its right."""
    if not effects:
        return [figure.subplots()]
    left, right = figure.subfigures(1, 2, width_ratios=(5, 2), squeeze=False)[0]
    heights = [1 + min(_SHOWN_LEVELS, len(axis.levels)) for axis in effects]
    panels = right.subplots(len(effects), 1, squeeze=False, sharex=True, height_ratios=heights)
    return [left.subplots(), *panels.ravel().tolist()]


def _draw_ranking(axes: Axes, standing: Standing, *, with_intervals: bool) -> None:
    """Draw the candidates; a mode says nothing of intervals and states, but counts and means."""
    rows = standing.rows[:_SHOWN_ROWS]
    for place, row in enumerate(rows):
        _draw_row(axes, place, row, with_interval=with_intervals)
        counts = seen(row, graded=standing.graded)
        _beside(axes, place, counts, _SEEN, ha="right")
        if with_intervals:
            _beside(axes, place, f"{estimate(row)} {interval(row)}", _ESTIMATE)
            _beside(axes, place, state(row), _STATE, color=_COLOURS[row.status])
    labels = [shortened(safe(row.candidate.label), _LABEL) for row in rows]
    _label(axes, labels)
    axes.set_xlim(0, 1)
    more = f", estimate of the mean, and {standing.confidence:.0%} interval"
    title = seen_title(graded=standing.graded).capitalize() + more * with_intervals
    axes.set_title(title, loc="left", color=_DIM)
    axes.set_xlabel(hidden_line(standing.rows[_SHOWN_ROWS:]), color=_DIM, loc="left")


def _beside(axes: Axes, place: int, text: str, points: float, **style: Any) -> None:  # noqa: ANN401
    """Write a text to the right of a row, so many points from the panel."""
    at = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
    axes.annotate(text, (1, place), (points, 0), va="center", **{"color": _INK, **at, **style})


def _draw_row(axes: Axes, place: int, row: Row, *, with_interval: bool) -> None:
    colour = _COLOURS[row.status]
    style: Any = {"color": colour, "clip_on": False}
    if with_interval:
        axes.plot([row.lower, row.upper], [place, place], alpha=0.45, linewidth=3, **style)
    if row.estimate is not None:
        style["markerfacecolor"] = colour if row.status in _FILLED else "white"
        axes.plot([row.estimate], [place], "o", markersize=6, **style)


def _draw_effects(panels: Sequence[Axes], effects: Sequence[AxisEffects]) -> None:
    colour = _COLOURS[Status.OPEN]
    for axes, axis in zip(panels, effects, strict=True):
        levels = axis.levels[:_SHOWN_LEVELS]
        for place, one in enumerate(levels):
            axes.plot([one.lower, one.upper], [place, place], color=colour, alpha=0.45)
            axes.plot([one.effect], [place], "o", color=colour, markersize=4)
        _label(axes, [shortened(safe(one.level), _LABEL // 2) for one in levels])
        axes.axvline(0, color=_GRID, linewidth=0.8, zorder=0)
        axes.set_title(f"Effect of {safe(axis.axis)}", loc="left", color=_DIM, parse_math=False)


def _label(axes: Axes, labels: Sequence[str]) -> None:
    """Name the rows of a panel, the first at the top."""
    axes.set_yticks(range(len(labels)), labels=labels, parse_math=False)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelcolor=_INK)
    axes.tick_params(axis="x", labelcolor=_DIM, color=_GRID)
    axes.spines["left"].set_visible(False)
    axes.spines["bottom"].set_color(_GRID)
