"""The experiments on preselection: synthetic, SAT solvers, and routing on stored tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.preselection.features.tfidf import TextFeatures
from bestarm_agent.preselection.rules.joint_features import (
    FeatureFilter,
    arm_features,
    joint_features,
)
from bestarm_agent.preselection.rules.registry import make_preselector
from bestarm_agent.preselection.rules.types import PreselectionProblem
from bestarm_agent.preselection.table_replay import Table, replay_table
from tests.support.bandit_model import replay_model

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
Rounds = Iterator[tuple[FloatArray, FloatArray]]

PAPER_RULES = ("cppl", "max-theta", "epsilon-greedy", "mm")
FIRST_PROMPTS = 500  # prompts from which the text features are made: the first to arrive
POINTS = 60  # of a curve


@dataclass(frozen=True, slots=True)
class Contender:
    """A rule with its parameters, and what it takes a dollar to be worth.

    Attributes:
        label: how it is called in the report.
        rule: name of the rule.
        params: its parameters.
        cost_weight: quality that one unit of cost outweighs.
        k: candidates run per prompt.
    """

    label: str
    rule: str
    params: Mapping[str, float] = field(default_factory=dict)
    cost_weight: float = 0.0
    k: int = 2


def synthetic_rounds(n: int, d: int, length: int, seed: int) -> Rounds:
    """Theta and contexts uniform on the unit interval and cube (paper, section 6.1)."""
    rng = np.random.default_rng([seed, 1])
    theta = rng.random(d)
    for _ in range(length):
        contexts = rng.random((n, d))
        yield contexts, contexts @ theta


def solver_rounds(data: Mapping[str, NDArray[Any]], seed: int) -> Rounds:
    """SAT instances without replacement, utility exp(-10 seconds) (paper, section 6.2)."""
    features = data["features"].astype(np.float64)
    instances = FeatureFilter().fit(features).transform(features)
    arms = data["arm_features"].astype(np.float64)
    log_utilities = -10.0 * data["runtime"].astype(np.float64)
    for i in np.random.default_rng([seed, 2]).permutation(len(instances)):
        yield joint_features(instances[i], arms), log_utilities[i]


def play(
    rule: str, rounds: Rounds, size: tuple[int, int], k: int, n_ranked: int, seed: int
) -> FloatArray:
    """(T,) cumulative weak regret of one repetition."""
    made = make_preselector(rule, PreselectionProblem(*size, seed=seed))
    return replay_model(made, rounds, k, n_ranked=n_ranked, seed=seed)


def summary(regrets: list[FloatArray]) -> dict[str, Any]:
    """A curve with standard errors, and every repetition's end, from (T,) cumulative regrets."""
    runs = np.array(regrets)
    at = np.unique(np.linspace(0, runs.shape[1] - 1, POINTS).astype(int))
    error = runs[:, at].std(axis=0, ddof=1) / np.sqrt(len(runs))
    return {
        "at": (at + 1).tolist(),
        "mean": runs[:, at].mean(axis=0).tolist(),
        "se": error.tolist(),
        "ends": runs[:, -1].tolist(),
    }


def router_table(path: Path, order: IntArray) -> Table:
    """Real prompts and nine models; text features are made from the prompts that come first."""
    with np.load(path) as data:
        texts = [str(text) for text in data["prompt_text"]]
        scores, price = data["scores"].astype(np.float64), data["price_per_mtok"].astype(np.float64)
    fitted = TextFeatures(16).fit([texts[i] for i in order[:FIRST_PROMPTS]])
    return Table(scores, price, with_constant(fitted.transform(texts)), np.eye(len(scores)))


def solver_table(path: Path, n_components: int = 8) -> Table:
    """31 SAT solvers: 1 - time / cutoff is the quality, the mean time the cost."""
    with np.load(path) as data:
        raw, scores = data["features"].astype(np.float64), data["scores"].astype(np.float64)
        cost = data["runtime"].astype(np.float64).mean(axis=1) / float(data["cutoff"])
    kept = FeatureFilter().fit(raw).transform(raw)
    left, sizes, _ = np.linalg.svd(kept - kept.mean(axis=0), full_matrices=False)
    components = left[:, :n_components] * sizes[:n_components]
    components /= components.std(axis=0) * np.sqrt(n_components)
    no_numbers = np.zeros((len(scores), 0))
    arms = arm_features(no_numbers, ("",) * len(scores))
    return Table(scores, cost, with_constant(components), arms)


def with_constant(features: FloatArray) -> FloatArray:
    """Features with a leading 1, so that an arm can be better on all prompts."""
    return np.hstack([np.ones((len(features), 1)), features])


def route(table: Table, contender: Contender, order: IntArray, seed: int) -> dict[str, Any]:
    """One repetition of routing: quality of the best answer, of the first choice, and cost."""
    problem = PreselectionProblem(len(table.scores), table.n_features, seed)
    rule = make_preselector(contender.rule, problem, **contender.params)
    chosen = replay_table(rule, table, order, contender.k, cost_weight=contender.cost_weight)
    quality = table.best_of(chosen, order)
    return {
        "quality": float(quality.mean()),
        "late": float(quality[len(order) // 2 :].mean()),
        "first": float(table.best_of(chosen[:, :1], order)[len(order) // 2 :].mean()),
        "cost": float(table.costs[chosen].sum(axis=1).mean()),
        "curve": np.array([part.mean() for part in np.array_split(quality, 20)]).tolist(),
    }
