"""Curves from replays: metrics against the share of calls made, with standard errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeAlias

import numpy as np

from bestarm_agent.simulation.replay import Answer, Replay
from bestarm_agent.simulation.score_matrices import ScoreMatrix
from bestarm_agent.stats.arrays import BoolArray, FloatArray
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.stats.ranking import (
    aggregate_regret,
    hardness,
    isotonic_crossing,
    last_crossing,
    ndcg,
    not_significantly_worse,
    simple_regret,
    top_k_precision,
    within_gap,
)

Metric: TypeAlias = Callable[[Answer], float]

GAPS = (0.001, 0.01)  # Zhou et al. 2024, section 4.2
LEVELS = (0.01, 0.1)
TARGET = 0.95
_RESAMPLES = 200


@dataclass(frozen=True, slots=True)
class Truth:
    """The full matrix, and the metrics that compare an answer with it."""

    matrix: ScoreMatrix  # all scores
    means: FloatArray  # (K,) true means
    h1: float  # hardness H1; infinite where the best is tied
    metrics: Mapping[str, Metric]  # by name, a function from an answer to a number

    @classmethod
    def of(
        cls,
        matrix: ScoreMatrix,
        *,
        top_k: int = 1,
        gaps: Sequence[float] = GAPS,
    ) -> Truth:
        """Build the metrics of a matrix; with ``top_k`` > 1 also the set's regret and precision.

        Top-1 also counts as right within each of the ``gaps`` >= 0 of the best mean.
        """
        means = matrix.means
        metrics = _top1_metrics(matrix, means, gaps)
        metrics["ndcg10"] = lambda answer: ndcg(means, answer.ranking, depth=10)
        metrics["regret"] = lambda answer: simple_regret(means, answer.best)
        if top_k > 1:
            metrics["aggregate_regret"] = lambda a: aggregate_regret(means, a.ranking[:top_k])
            metrics["top_k_precision"] = lambda a: top_k_precision(means, a.ranking[:top_k])
        if matrix.costs is not None:
            metrics["cost"] = lambda answer: answer.cost
        metrics["seconds"] = lambda answer: answer.seconds
        metrics["most_pulls"] = lambda answer: float(answer.most_pulls)
        return cls(matrix, means, hardness(means), metrics)


@dataclass(frozen=True, slots=True)
class Curve:
    """One rule's metrics, averaged over seeds.

    Attributes:
        budget_to_95_range: 5 % and 95 % points of the isotonic one over resampled seeds; None is
            "not within the budgets tested".
    """

    budget_fraction: tuple[float, ...]  # (B,) shares of the K x N cells
    mean: Mapping[str, FloatArray]  # by metric, (B,) averages
    se: Mapping[str, FloatArray]  # (B,) standard errors of them; 0 with a single seed
    budget_to_95: Mapping[str, float | None]  # by top-1 metric, where precision stays >= 0.95
    budget_to_95_isotonic: Mapping[str, float | None]  # by the fitted rising curve: less noisy
    budget_to_95_range: Mapping[str, tuple[float | None, float | None]]
    seconds_per_decision: float  # processor time per pair

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists for JSON."""
        found: dict[str, Any] = {"budget_fraction": list(self.budget_fraction)}
        for name, values in self.mean.items():
            found[name] = values.tolist()
            found[f"{name}_se"] = self.se[name].tolist()
        for metric in self.budget_to_95:
            suffix = metric.removeprefix("top1")
            found[f"budget_to_95{suffix}"] = self.budget_to_95[metric]
            found[f"budget_to_95{suffix}_isotonic"] = self.budget_to_95_isotonic[metric]
            found[f"budget_to_95{suffix}_range"] = list(self.budget_to_95_range[metric])
        found["seconds_per_decision"] = self.seconds_per_decision
        return found


def summarise(truth: Truth, replays: Sequence[Replay]) -> Curve:
    """Average one rule's replays, one per seed, all at the same budgets."""
    budgets = [answer.budget for answer in replays[0].answers]
    shares = tuple(budget / truth.matrix.scores.size for budget in budgets)
    samples = {
        name: np.array([[metric(answer) for answer in one.answers] for one in replays])
        for name, metric in truth.metrics.items()
    }
    precisions = {name: values for name, values in samples.items() if name.startswith("top1")}
    means = {name: values.mean(axis=0) for name, values in samples.items()}
    return Curve(
        budget_fraction=shares,
        mean=means,
        se={name: _standard_error(values) for name, values in samples.items()},
        budget_to_95={name: last_crossing(shares, means[name], TARGET) for name in precisions},
        budget_to_95_isotonic={
            name: isotonic_crossing(shares, means[name], TARGET) for name in precisions
        },
        budget_to_95_range={
            name: _crossing_range(shares, values) for name, values in precisions.items()
        },
        seconds_per_decision=sum(r.cpu_seconds for r in replays) / sum(r.pulls for r in replays),
    )


def describe(truth: Truth) -> dict[str, Any]:
    """Describe the matrix in plain numbers: shape, H1, the best candidate and its lead."""
    scores, costs = truth.matrix.scores, truth.matrix.costs
    ranked = np.sort(truth.means)[::-1]
    return {
        "source": truth.matrix.source,
        "shape": list(scores.shape),
        "h1": truth.h1 if isfinite(truth.h1) else None,
        "best": truth.matrix.names[int(np.argmax(truth.means))],
        "best_mean": float(ranked[0]),
        "gap": float(ranked[0] - ranked[1]) if len(ranked) > 1 else None,
        "missing": float(np.isnan(scores).mean()),
        "full_cost": None if costs is None else float(costs.sum() * scores.shape[1]),
    }


def _top1_metrics(
    matrix: ScoreMatrix, means: FloatArray, gaps: Sequence[float]
) -> dict[str, Metric]:
    masks = {"top1": within_gap(means, 0.0)}
    masks |= {f"top1_eps{gap:g}": within_gap(means, gap) for gap in gaps}
    masks |= {f"top1_p{p:g}": not_significantly_worse(matrix.scores, means, p) for p in LEVELS}
    metrics = {name: _is_right(mask) for name, mask in masks.items()}
    exact = masks["top1"]
    metrics["highest_estimate_top1"] = lambda answer: float(exact[answer.highest])
    return metrics


def _is_right(mask: BoolArray) -> Metric:
    return lambda answer: float(mask[answer.best])


def _standard_error(samples: FloatArray) -> FloatArray:
    n = len(samples)
    if n == 1:
        return np.zeros(samples.shape[1])
    spread: FloatArray = samples.std(axis=0, ddof=1) / np.sqrt(n)
    return spread


def _crossing_range(
    shares: Sequence[float], samples: FloatArray
) -> tuple[float | None, float | None]:
    draws = KeyedRandom(0, "bootstrap of seeds")
    n = len(samples)
    crossings = []
    for index in range(_RESAMPLES):
        picked = samples[draws.at(index).integers(n, size=n)]
        found = isotonic_crossing(shares, picked.mean(axis=0), TARGET)
        crossings.append(np.inf if found is None else found)
    low, high = np.sort(crossings)[[_RESAMPLES // 20, -1 - _RESAMPLES // 20]]
    return _finite(low), _finite(high)


def _finite(value: float) -> float | None:
    return float(value) if isfinite(value) else None
