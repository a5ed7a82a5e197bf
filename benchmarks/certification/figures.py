"""Figures of the certification experiments."""
# ruff: noqa: ANN401 - matplotlib hands out objects without useful types

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bestarm_agent.simulation.figures import finish, paper_style, plot_band, style_of

_SURPLUS = re.compile(r"(?<=\.\d\d)\d+| +(?=\n)")  # a hundredth of a point is enough
METHODS = ("r-eval", "r-autoeval", "r-autoeval+")
GAMMAS = ("0.99", "0.9", "0.7")
BETTING = ("portfolio", "plug-in")


def draw_toy(path: Path, found: Mapping[str, Any], deltas: Sequence[float]) -> None:
    """Figure 3: labels against ln(1/delta), and the largest growth rate against the factor."""
    with paper_style():
        figure, panels = _grid(2, 3)
        for column, gamma in enumerate(GAMMAS):
            for index, name in enumerate(METHODS):
                runs = np.array(runs_of(found, "chebyshev", gamma, name))
                old = np.array(runs_of(found, "published", gamma, name)).mean(axis=0)
                x = -np.log(deltas)
                plot_band(panels[0, column], x.tolist(), *_mean_se(runs), index)
                panels[0, column].plot(x, old, color=style_of(index)["color"], ls=":", lw=0.9)
            panels[0, column].set_title(f"γ = {gamma}")
            panels[0, column].set_xlabel("ln(1/δ)")
            factors = np.linspace(0, 1, 41)
            panels[1, column].plot(
                factors, [1e3 * growth(float(gamma), f) for f in factors], color="black"
            )
            panels[1, column].set_xlabel("reliance factor ρ")
            panels[1, column].set_ylim(0, 11)
        panels[0, 0].set_ylabel("labels (dotted: published grid)")
        panels[1, 0].set_ylabel("growth per label g* (x 1000)")
        finish(figure, METHODS, path)


def growth(gamma: float, factor: float, risk: float = 0.1, target: float = 0.12) -> float:
    """Largest expected growth of the log wealth per label, with unlabelled data without end."""
    guess = risk * gamma + (1 - risk) * (1 - gamma)
    chances = np.array([(1 - risk) * gamma, (1 - risk) * (1 - gamma), risk * gamma])
    chances = np.append(chances, risk * (1 - gamma))
    values = factor * guess - target + np.array([0.0, -factor, 1 - factor, 1.0])
    bets = np.linspace(0, 1, 2001)[:-1] / (1 + factor - target)
    return float((chances @ np.log1p(-np.outer(values, bets))).max())


def draw_weights(path: Path, found: Mapping[str, Any]) -> None:
    """Figures 2 and 5: weights of 100 factors over 5,000 rounds."""
    with paper_style():
        figure, panels = _grid(2, 3)
        for row, betting in enumerate(BETTING):
            for column, gamma in enumerate(GAMMAS):
                weights = np.array(found[f"{betting} {gamma}"]).T
                image = panels[row, column].imshow(
                    weights,
                    aspect="auto",
                    origin="lower",
                    extent=(0, 5000, 0, 1),
                    vmin=0.0,
                    vmax=0.05,
                    cmap="viridis",
                )
                panels[row, column].set_title(f"{betting}, γ = {gamma}")
        for axes in panels[:, 0]:
            axes.set_ylabel("reliance factor ρ")
        for axes in panels[1]:
            axes.set_xlabel("labels")
        figure.colorbar(image, ax=panels, shrink=0.8, label="mean weight")
        _save(figure, path)


def draw_quantisation(path: Path, found: Mapping[str, Any], labels: Sequence[int]) -> None:
    """Figures 4a and 7a, or 9: bits and loss of the chosen model, best and worst judge."""
    shown = ("r-eval", *(f"{m} {j}" for m in METHODS[1:] for j in ("best", "bad")))
    with paper_style():
        figure, panels = _grid(2, 2)
        for column, betting in enumerate(BETTING):
            for index, label in enumerate(shown):
                ends = np.array(found[betting][label])  # (labels, repetitions, 2)
                for row in (0, 1):
                    mean, se = _mean_se(ends[:, :, row].T)
                    plot_band(panels[row, column], list(labels), mean, se, index)
            panels[0, column].set_title(betting)
            panels[1, column].set_xlabel("labels n")
            panels[1, column].axhline(0.1, color="0.5", lw=0.7, ls=(0, (4, 3)))
            panels[1, column].set_ylim(0, 0.11)
        panels[0, 0].set_ylabel("mean bits of the chosen")
        panels[1, 0].set_ylabel("mean loss (dashed: target)")
        finish(
            figure, [f"{name} judge" if " " in name else name for name in shown], path, columns=3
        )


def draw_boxes(path: Path, found: Mapping[str, Any], gigabytes_per_bit: float) -> None:
    """Figures 1 and 6: loss and size of the chosen model over all repetitions."""
    labels = list(found["portfolio"])
    labels.sort(key=lambda label: (not label.startswith(("eval", "autoeval")), label))
    with paper_style():
        figure, panels = _grid(2, 2, height=2.2)
        for column, betting in enumerate(("plug-in", "portfolio")):
            ends = [np.array(found[betting][label]) for label in labels]
            style: dict[str, Any] = {"widths": 0.6, "medianprops": {"color": "black"}}
            fliers = {"marker": ".", "markersize": 2}
            panels[0, column].boxplot([e[:, 1] for e in ends], flierprops=fliers, **style)
            panels[1, column].boxplot(
                [gigabytes_per_bit * e[:, 0] for e in ends], flierprops=fliers, **style
            )
            panels[0, column].axhline(0.1, color="#D55E00", lw=0.8)
            panels[0, column].set_title(betting)
            panels[0, column].set_xticks(range(1, len(labels) + 1), [""] * len(labels))
            panels[1, column].set_xticks(range(1, len(labels) + 1), labels, rotation=60, ha="right")
        panels[0, 0].set_ylabel("loss of the chosen model")
        panels[1, 0].set_ylabel("its size, GB")
        _save(figure, path)


def draw_prompting(path: Path, found: Mapping[str, Any], qualities: Sequence[str]) -> None:
    """Figures 4b and 7b: length and loss of the chosen prompt, mean over the tasks."""
    with paper_style():
        figure, panels = _grid(2, 2)
        for column, betting in enumerate(BETTING):
            tasks = found[betting]
            for index, name in enumerate(METHODS):
                for row in (0, 1):
                    means = [
                        np.array([e[row] for e in _ends(task, name, quality)])
                        for task in tasks.values()
                        for quality in qualities
                    ]
                    runs = np.array(means).reshape(len(tasks), len(qualities), -1).mean(axis=0)
                    at = list(range(1, len(qualities) + 1))
                    plot_band(panels[row, column], at, *_mean_se(runs.T), index)
            panels[0, column].set_title(betting)
            panels[1, column].set_xlabel("examples shown to the judge")
            target = np.mean([task["risk"] for task in tasks.values()])
            panels[1, column].axhline(target, color="0.5", lw=0.7, ls=(0, (4, 3)))
            panels[1, column].locator_params(axis="y", nbins=4)
        panels[0, 0].set_ylabel("length of the chosen prompt")
        panels[1, 0].set_ylabel("loss (dashed: mean target)")
        finish(figure, METHODS, path)


def draw_tasks(path: Path, found: Mapping[str, Any], qualities: Sequence[str]) -> None:
    """Figure 8: length of the chosen prompt, task by task."""
    tasks = found["portfolio"]
    with paper_style():
        rows = -(-len(tasks) // 5)
        figure, panels = _grid(rows, 5, width=1.5, height=1.25)
        for axes, (title, task) in zip(panels.flat, tasks.items(), strict=False):
            for index, name in enumerate(METHODS):
                runs = np.array(
                    [[e[0] for e in _ends(task, name, quality)] for quality in qualities]
                )
                at = list(range(1, len(qualities) + 1))
                plot_band(axes, at, *_mean_se(runs.T), index)
            axes.set_title(f"{title}, α = {task['risk']:.2f}", fontsize=6)
        for axes in panels.flat[len(tasks) :]:
            axes.set_visible(False)
        finish(figure, METHODS, path)


def draw_intervals(path: Path, found: Mapping[str, Any], sizes: Sequence[int]) -> None:
    """Figure 10: width of the intervals, and their ends."""
    with paper_style():
        figure, panels = _grid(2, 3)
        for column, gamma in enumerate(GAMMAS):
            for index, name in enumerate(METHODS):
                ends = np.array(found[f"{gamma} {name}"])  # (repetitions, sizes, 2)
                plot_band(
                    panels[0, column], list(sizes), *_mean_se(ends[:, :, 1] - ends[:, :, 0]), index
                )
                for end in (0, 1):
                    plot_band(panels[1, column], list(sizes), *_mean_se(ends[:, :, end]), index)
            panels[0, column].set_title(f"γ = {gamma}")
            panels[1, column].axhline(0.1, color="0.5", lw=0.7, ls=(0, (4, 3)))
            panels[1, column].set_xlabel("labels n")
            for axes in panels[:, column]:
                axes.set_xscale("log")
                axes.set_ylim(0, 0.35)
        panels[0, 0].set_ylabel("width")
        panels[1, 0].set_ylabel("ends (dashed: the risk)")
        finish(figure, METHODS, path)


def runs_of(found: Mapping[str, Any], grid: str, gamma: str, name: str) -> Any:
    """The runs of the toy example; R-Eval is the same for every judge."""
    return found[grid][GAMMAS[0] if name == "r-eval" else gamma][name]


def _ends(task: Mapping[str, Any], name: str, quality: str) -> Any:
    return task[f"{name} {'bad' if name == 'r-eval' else quality}"]


def _mean_se(runs: Any) -> tuple[list[float], list[float]]:
    """Means and standard errors over the first axis."""
    runs = np.asarray(runs, dtype=float)
    se = runs.std(axis=0, ddof=1) / np.sqrt(len(runs)) if len(runs) > 1 else 0 * runs[0]
    return runs.mean(axis=0).tolist(), se.tolist()


def _grid(rows: int, columns: int, *, width: float = 2.3, height: float = 1.75) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(0.4 + width * columns, 0.7 + height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None})
    text = path.read_text(encoding="utf-8")
    path.write_text(_SURPLUS.sub("", text), encoding="utf-8")
