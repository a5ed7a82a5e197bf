"""Figures of a study: metrics against the share of calls made, with standard errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bestarm_agent.errors import ConfigError
from bestarm_agent.simulation.curves import TARGET, Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".svg", ".png", ".pdf")

TITLES: Mapping[str, str] = {
    "top1": "Top-1 precision",
    "top1_eps0.001": "Top-1 precision, ε = 0.001",
    "top1_eps0.01": "Top-1 precision, ε = 0.01",
    "top1_p0.01": "Top-1 precision, p = 0.01",
    "top1_p0.1": "Top-1 precision, p = 0.1",
    "ndcg10": "NDCG@10",
    "regret": "Simple regret",
    "aggregate_regret": "Aggregate regret",
    "top_k_precision": "Precision of the top K",
}

# Okabe and Ito's colours, which colour-blind readers tell apart; dashes once they are used up
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_WIDE = 20  # budgets whose largest is this many times the smallest
_SURPLUS = re.compile(r"(?<=\.\d\d)\d+|(?<=\n) +| +(?=\n)")  # a hundredth of a point is enough
_DASHES = ("-", "--", ":", "-.")
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
    if path.suffix not in FORMATS:
        raise ConfigError(f"a figure is written as {', '.join(FORMATS)}, got {str(path)!r}")
    check_folder(path)
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigError("drawing needs matplotlib; pip install 'bestarm-agent[plot]'") from None


def check_folder(path: Path) -> None:
    """Raise a ConfigError if a file cannot be written, before its content is computed."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {path.parent} to write {path.name} into; make it")


def draw_study(path: Path, curves: Mapping[str, Curve], *, title: str) -> None:
    """Draw one study, a panel per metric that is usually shown and was measured.

    The suffix of the path gives the format. Raises ConfigError if that is unknown, or matplotlib is
    not installed.
    """
    draw_grid(path, {title: curves}, _measured(curves))


def draw_grid(
    path: Path, studies: Mapping[str, Mapping[str, Curve]], metrics: Sequence[str]
) -> None:
    """Draw several studies: a column for each, a row per metric, one legend for all.

    As ``draw_study``; studies are by title, their curves by label.
    """
    check_figure_path(path)
    from matplotlib.figure import Figure

    n_rows, n_columns = len(metrics), len(studies)
    if n_columns == 1:  # one study: panels side by side, at most three in a row
        n_columns = min(3, n_rows)
        n_rows = -(-n_rows // n_columns)
    with paper_style():
        figure = Figure(figsize=(0.3 + 2.3 * n_columns, 0.8 + 1.75 * n_rows), layout="constrained")
        if len(studies) == 1:
            axes = figure.subplots(n_rows, n_columns, squeeze=False)
            [(title, curves)] = studies.items()
            figure.suptitle(title, fontsize=9)
            _fill_one(axes.ravel().tolist(), curves, metrics)
        else:
            axes = figure.subplots(n_rows, n_columns, squeeze=False, sharex="col", sharey="row")
            _fill_columns(axes, studies, metrics)
        finish(figure, _labels(studies), path)


@contextmanager
def paper_style() -> Iterator[None]:
    """Set small type, thin lines, and text as text for the time of the block."""
    from matplotlib import rc_context

    with rc_context(_STYLE):
        yield


def style_of(index: int) -> dict[str, Any]:
    """Return colour and dashes of the ``index``-th line."""
    return {
        "color": _COLOURS[index % len(_COLOURS)],
        "linestyle": _DASHES[(index // len(_COLOURS)) % len(_DASHES)],
    }


def plot_band(
    axes: Axes, x: Sequence[float], mean: Sequence[float], se: Sequence[float], index: int
) -> None:
    """Draw a line with a band of one standard error on either side."""
    style = style_of(index)
    axes.plot(x, mean, **style)
    low = [m - s for m, s in zip(mean, se, strict=True)]
    high = [m + s for m, s in zip(mean, se, strict=True)]
    axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)


def finish(
    figure: Figure, labels: Sequence[str], path: Path, *, columns: int | None = None
) -> None:
    """Add the legend below all panels and write the file."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **style_of(i), label=label) for i, label in enumerate(labels)]
    usual = min(len(labels), max(2, int(figure.get_figwidth() / 1.4)))
    n_columns = usual if columns is None else columns
    figure.legend(handles=handles, loc="outside lower center", ncols=n_columns, frameon=False)
    date = {"Date": None} if path.suffix == ".svg" else {}
    figure.savefig(path, dpi=200, metadata=date)
    if path.suffix == ".svg":
        text = path.read_text(encoding="utf-8")
        path.write_text(_SURPLUS.sub("", text), encoding="utf-8")


def _measured(curves: Mapping[str, Curve]) -> list[str]:
    first = next(iter(curves.values()))
    hidden = ("top1_p0.01",)
    return [name for name in TITLES if name in first.mean and name not in hidden]


def _labels(studies: Mapping[str, Mapping[str, Curve]]) -> list[str]:
    """Return all labels in order of first appearance: one colour each in all panels."""
    return list(dict.fromkeys(label for curves in studies.values() for label in curves))


def _fill_one(panels: Sequence[Axes], curves: Mapping[str, Curve], metrics: Sequence[str]) -> None:
    for axes, metric in zip(panels, metrics, strict=False):
        _panel(axes, curves, metric, list(curves))
        axes.set_title(TITLES[metric])
        axes.set_xlabel("calls made (% of all)")
    for axes in panels[len(metrics) :]:
        axes.set_visible(False)


def _fill_columns(
    panels: Any,  # noqa: ANN401 - an object array of Axes
    studies: Mapping[str, Mapping[str, Curve]],
    metrics: Sequence[str],
) -> None:
    labels = _labels(studies)
    for column, (title, curves) in enumerate(studies.items()):
        for row, metric in enumerate(metrics):
            _panel(panels[row, column], curves, metric, labels)
        panels[0, column].set_title(title)
        panels[-1, column].set_xlabel("calls made (% of all)")
    for row, metric in enumerate(metrics):
        panels[row, 0].set_ylabel(TITLES[metric])


def _panel(axes: Axes, curves: Mapping[str, Curve], metric: str, labels: Sequence[str]) -> None:
    for label, curve in curves.items():
        percent = [100 * share for share in curve.budget_fraction]
        mean, se = curve.mean[metric].tolist(), curve.se[metric].tolist()
        plot_band(axes, percent, mean, se, labels.index(label))
    if metric.startswith("top1"):
        axes.axhline(TARGET, color="0.6", linewidth=0.6, linestyle=(0, (4, 3)), zorder=0)
        axes.set_ylim(-0.02, 1.02)
    _spread_budgets(axes, curves)
    axes.grid(color="0.92", linewidth=0.5)


def _spread_budgets(axes: Axes, curves: Mapping[str, Curve]) -> None:
    """Use a logarithmic axis for budgets far apart."""
    shares = [share for curve in curves.values() for share in curve.budget_fraction]
    axes.locator_params(axis="y", nbins=4)
    if max(shares) < _WIDE * min(shares):
        axes.locator_params(axis="x", nbins=4)
        axes.set_xlim(left=0)
        return
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
