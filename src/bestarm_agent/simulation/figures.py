"""Figures of a study: metrics against the share of calls made, with standard errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bestarm_agent.errors import ConfigError
from bestarm_agent.simulation.curves import TARGET, Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
