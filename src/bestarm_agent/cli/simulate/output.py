"""Print the result of ``bestarm-agent simulate``: a table for people, an object for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from bestarm_agent._version import __version__
from bestarm_agent.simulation.curves import Curve, Truth, describe
from bestarm_agent.simulation.replay_many import Plan
from bestarm_agent.simulation.score_matrices import ScoreMatrix


@dataclass(frozen=True, slots=True)
class Results:
    """Curves of the rules on a matrix.

    Attributes:
        floor: the least share of all calls (or of their cost) that any rule needs; None: not asked.
    """

    truth: Truth
    plan: Plan
    curves: Mapping[str, Curve]
    floor: float | None = None


def results_json(results: Results) -> dict[str, Any]:
    """Return all that was measured, in plain numbers, lists and strings."""
    plan, conditions = results.plan, results.plan.conditions
    latency = conditions.latency
    return {
        "version": __version__,
        "matrix": describe(results.truth),
        "floor": results.floor,
        "seeds": plan.seeds,
        "top_k": plan.top_k,
        "per": "dollar" if plan.per_cost else "call",
        "conditions": {
            "in_flight": conditions.in_flight,
            "batch": conditions.batch,
            "latency": latency and {"mean": latency.mean, "slowdown": latency.slowdown},
            "failures": conditions.failures,
        },
        "selectors": {label: curve.as_dict() for label, curve in results.curves.items()},
    }


def results_title(truth: Truth) -> str:
    """Return name, size and hardness of the matrix."""
    n_candidates, n_examples = truth.matrix.scores.shape
    name = Path(truth.matrix.source).name
    return f"{name}: {n_candidates} candidates x {n_examples} examples, H1 = {truth.h1:,.0f}"


def missing_lines(matrix: ScoreMatrix) -> list[str]:
    """Return a line about missing scores and their effect; none if all are there."""
    missing = float(np.isnan(matrix.scores).mean())
    if not missing:
        return []
    return [
        f"{missing:.1%} of the scores are missing: these pairs count as not measurable, and the "
        f"best candidate is the one of the highest mean over what is there. A run that chose its "
        f"pairs says more about good candidates than about bad ones; one that learned from history "
        f"asked contested examples first, so that its means over few scores are means over those."
    ]


def results_table(results: Results) -> Table:
    """Make a row per rule: the share from which it is right, and its scores at the end."""
    truth, plan, floor = results.truth, results.plan, results.floor
    has_sets, has_costs = plan.top_k > 1, truth.matrix.costs is not None
    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        caption=f"95% from: the share of {_whole(plan)} from which top-1 precision stays at 95 %;"
        f" top-1 and what follows: at {100 * max(plan.fractions):.3g} % of it; {plan.seeds} seeds"
        + (f"; floor: {_percent(floor)}, the least that any rule needs" if floor else ""),
        caption_justify="left",
    )
    table.add_column("selector", no_wrap=True)
    headers = ["95% from", "(5-95%)", *(["x floor"] if floor else [])]
    headers += ["eps .01", "top-1", "NDCG", "regret"]
    headers += ["set regret", "set precision"] if has_sets else []
    headers += ["cost", "us/pair"] if has_costs else ["us/pair"]
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    for label, curve in results.curves.items():
        table.add_row(label.replace("[", r"\["), *_row(truth, curve, floor))
    return table


def _whole(plan: Plan) -> str:
    return "what all calls cost" if plan.per_cost else "all calls"


def conclusion(results: Results) -> str:
    """Return the conclusion in one sentence."""
    truth, plan, curves = results.truth, results.plan, results.curves
    reached = {label: curve.budget_to_95["top1"] for label, curve in curves.items()}
    found = {label: share for label, share in reached.items() if share is not None}
    if not found:
        return "No rule names the best candidate in 95 % of the runs within this budget."
    label = min(found, key=lambda name: found[name])
    return (
        f"{label} names the best candidate in 95 % of the runs from {_percent(found[label])} of"
        f" {_whole(plan)} on{_or_fewer(curves[label], found[label])}: it would have saved"
        f" {_percent(1 - found[label])} of it{_in_calls(truth, plan, 1 - found[label])}."
    )


def _in_calls(truth: Truth, plan: Plan, share: float) -> str:
    if plan.per_cost:
        return ""
    n_calls = truth.matrix.scores.size
    return f", {share * n_calls:,.0f} of {n_calls:,} calls"


def _or_fewer(curve: Curve, share: float) -> str:
    return ", if not from fewer" if share <= curve.budget_fraction[0] else ""


def _row(truth: Truth, curve: Curve, floor: float | None) -> list[str]:
    reached = curve.budget_to_95["top1"]
    cells = [
        _percent(reached),
        "-".join(_percent(end).rstrip("%") for end in curve.budget_to_95_range["top1"]),
    ]
    if floor is not None:
        cells.append("-" if reached is None else f"{reached / floor:.1f}")
    cells.append(_percent(curve.budget_to_95["top1_eps0.01"]))
    shown = ("top1", "ndcg10", "regret", "aggregate_regret", "top_k_precision")
    cells += [f"{curve.mean[name][-1]:.3f}" for name in shown if name in curve.mean]
    full_cost = describe(truth)["full_cost"]
    if full_cost is not None:
        cells.append(_percent(float(curve.mean["cost"][-1]) / full_cost))
    return [*cells, f"{1e6 * curve.seconds_per_decision:.0f}"]


def _percent(share: float | None) -> str:
    return "never" if share is None else f"{100 * share:.1f}%"
