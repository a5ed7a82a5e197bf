"""Tables and figures of the preselection experiments."""
# ruff: noqa: ANN401 - matplotlib hands out objects without useful types

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.papers.reproduce import fill_report

COLOURS = {
    "cppl": "#0072B2",
    "max-theta": "#D55E00",
    "epsilon-greedy": "#009E73",
    "mm": "#CC79A7",
    "linucb": "#E69F00",
    "thompson": "#56B4E9",
    "random": "#777777",
}
STYLE: Any = {  # Any: matplotlib types its keys one by one
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "svg.fonttype": "none",
    "svg.hashsalt": "bestarm-agent",
}


def write_report(out: Path, results: Mapping[str, Any]) -> None:
    """Draw the figures and fill the marked places of ``preselection.md``."""
    tables: dict[str, str] = {}
    for name in ("figure1", "figure2"):
        if name in results:
            tables[name] = regret_table(panels(results[name]))
            draw_regrets(out / f"preselection-{name}.svg", panels(results[name]))
    for name in ("router", "solvers"):
        if name in results:
            tables[name] = routing_table(results[name])
    if "router" in results:
        draw_router(out / "preselection-router.svg", results["router"])
    fill_report(out / "preselection.md", tables)


def panels(result: Mapping[str, Any]) -> dict[str, Any]:
    """The experiments of a result, by title."""
    return {title: found for title, found in result.items() if title != "seconds"}


def regret_table(found: Mapping[str, Any]) -> str:
    """Cumulative weak regret at the end, and how far above CPPL's, in standard errors."""
    rules = list(next(iter(found.values())))
    n = len(next(iter(found.values()))["cppl"]["ends"])
    head = f"| {n} repetitions | " + " | ".join(rules) + " |"
    lines = [head, "| --- |" + " --- |" * len(rules)]
    for title, by_rule in found.items():
        cppl = np.array(by_rule["cppl"]["ends"])
        cells = [_regret(np.array(by_rule[rule]["ends"]), cppl) for rule in rules]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def routing_table(result: Mapping[str, Any]) -> str:
    """What each router got, and what fixed choices of the same cost could have got."""
    length, frontier = result["length"], result["yardsticks"]["fixed"]
    n = len(next(iter(result["runs"].values())))
    lines = [
        f"| policy ({length:,} prompts, {n} orders) | best of 2 | 2nd half | "
        "first named, 2nd half | cost | best fixed choice at that cost |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for label, runs in result["runs"].items():
        quality = np.array([run["quality"] for run in runs])
        mean = {key: np.mean([run[key] for run in runs]) for key in ("late", "first", "cost")}
        error = quality.std(ddof=1) / np.sqrt(len(quality))
        lines.append(
            f"| {label} | {quality.mean():.3f} ± {error:.3f} | {mean['late']:.3f} | "
            f"{mean['first']:.3f} | {mean['cost']:.2f} | {_affordable(frontier, mean['cost'])} |"
        )
    single = max((f for f in frontier if len(f["arms"]) == 1), key=lambda f: f["quality"])
    pair = max(frontier, key=lambda f: f["quality"])
    oracle = result["yardsticks"]["oracle"]
    best = f"{oracle['quality']:.3f} | | | {oracle['cost']:.2f} | |"
    lines += [
        f"| always the best single | {single['quality']:.3f} | | | {single['cost']:.2f} | |",
        f"| always the best pair | {pair['quality']:.3f} | | | {pair['cost']:.2f} | |",
        f"| oracle (one, the cheapest best) | {best}",
    ]
    return "\n".join(lines)


def draw_regrets(path: Path, found: Mapping[str, Any]) -> None:
    """A panel per experiment: cumulative weak regret with a band of one standard error."""
    plt = _pyplot()
    with plt.rc_context(STYLE):
        n_rows = (len(found) + 2) // 3
        figure, grid = plt.subplots(n_rows, 3, figsize=(7.2, 1.9 * n_rows), squeeze=False)
        for axes, (title, by_rule) in zip(grid.flat, found.items(), strict=True):
            for rule, curve in by_rule.items():
                if rule != "mm":  # linear, and several times as high: it would hide the others
                    _band(axes, curve, rule)
            axes.set_title(title)
        for axes in grid[-1]:
            axes.set_xlabel("rounds")
        for axes in grid[:, 0]:
            axes.set_ylabel("weak regret")
        grid[0, 0].legend(frameon=False, fontsize=7)
        _save(figure, path)


def draw_router(path: Path, result: Mapping[str, Any]) -> None:
    """Learning curves, and quality against cost."""
    plt = _pyplot()
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 2.9))
        for label in ("random", "mm", "max-theta", "cppl", "linucb", "thompson"):
            runs = np.array([run["curve"] for run in result["runs"][label]])
            curve = runs.mean(axis=0).reshape(5, -1).mean(axis=1)  # fifths: prompts differ a lot
            at = (np.arange(len(curve)) + 0.5) * result["length"] / len(curve)
            left.plot(at, curve, color=COLOURS[label], label=label)
        left.set_xlabel("prompts routed")
        left.set_ylabel("quality, best of 2")
        left.legend(frameon=False, fontsize=7, loc="center right", ncols=2)
        frontier = _frontier(result["yardsticks"]["fixed"])
        right.step(*frontier, where="post", color="black", lw=0.8, label="best fixed, hindsight")
        for label, runs in result["runs"].items():
            rule = label.split()[0]
            x, y = (np.mean([run[key] for run in runs]) for key in ("cost", "quality"))
            marker = "o" if label == rule else "^"
            right.plot(x, y, marker, ms=4, color=COLOURS[rule])
        right.set_xlabel("$ per million tokens, summed over the models run")
        right.set_ylabel("quality, best of those run")
        right.legend(frameon=False, fontsize=7, loc="lower right")
        _save(figure, path)


def _regret(ends: Any, cppl: Any) -> str:
    error = ends.std(ddof=1) / np.sqrt(len(ends))
    cell = f"{ends.mean():.1f} ± {error:.1f}"
    apart = ends - cppl
    spread = apart.std(ddof=1) / np.sqrt(len(ends))
    return cell if not spread else f"{cell} ({apart.mean() / spread:+.1f})"


def _affordable(frontier: Sequence[Mapping[str, Any]], cost: float) -> str:
    within = [f["quality"] for f in frontier if f["cost"] <= cost * (1 + 1e-6)]
    return f"{max(within):.3f}" if within else ""


def _frontier(fixed: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
    ordered = sorted(fixed, key=lambda f: (f["cost"], -f["quality"]))
    costs = [f["cost"] for f in ordered]
    best = np.maximum.accumulate([f["quality"] for f in ordered]).tolist()
    return costs, best


def _band(axes: Any, curve: Mapping[str, Any], rule: str) -> None:
    mean, error = np.array(curve["mean"]), np.array(curve["se"])
    axes.plot(curve["at"], mean, color=COLOURS[rule], label=rule)
    axes.fill_between(curve["at"], mean - error, mean + error, color=COLOURS[rule], alpha=0.2, lw=0)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
