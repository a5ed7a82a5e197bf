"""Replays of a preselection rule on a stored table."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from bestarm_agent.preselection.rules.base import Preselector
from bestarm_agent.preselection.rules.joint_features import joint_features
from bestarm_agent.preselection.rules.types import FloatArray, IntArray, score_feedback
from bestarm_agent.stats.keyed_random import KeyedRandom

_MOST_SUBSETS = 20_000


@dataclass(frozen=True, slots=True)
class Table:
    """All scores of n candidates on N prompts: finite, scores in [0, 1]."""

    scores: FloatArray  # (n, N) qualities in [0, 1], higher is better; no cell is missing
    costs: FloatArray  # (n,) cost of one answer, >= 0, in any one unit
    prompts: FloatArray  # (N, p) features of the prompts
    arms: FloatArray  # (n, q) features of the candidates

    def __post_init__(self) -> None:
        n, length = self.scores.shape
        shapes = (self.costs.shape, self.prompts.shape[:1], self.arms.shape[:1])
        if shapes != ((n,), (length,), (n,)):
            raise ValueError(
                f"{n} x {length} scores need {n} costs, {length} prompts and {n} arms, got {shapes}"
            )
        for name in ("scores", "costs", "prompts", "arms"):
            if not np.isfinite(getattr(self, name)).all():
                raise ValueError(f"{name} must be finite; leave out what has a hole")
        if not ((self.scores >= 0) & (self.scores <= 1)).all():
            raise ValueError("scores must be in [0, 1]; rescale them, higher is better")

    @property
    def n_features(self) -> int:
        """Return the length of an arm's joint context vector."""
        return int(self.prompts.shape[1] * self.arms.shape[1])

    def utility(self, cost_weight: float) -> FloatArray:
        """Return the (n, N) qualities minus ``cost_weight`` times cost."""
        utility: FloatArray = self.scores - cost_weight * self.costs[:, None]
        return utility

    def best_of(self, chosen: IntArray, order: IntArray) -> FloatArray:
        """Return the (T,) best qualities among (T, k) chosen candidates on prompts ``order``."""
        best: FloatArray = self.scores[chosen.T, order].max(axis=0)
        return best


def replay_table(
    rule: Preselector, table: Table, order: IntArray, k: int, *, cost_weight: float = 0.0
) -> IntArray:
    """Route the prompts one after another; after each, give the rule the scores of its choice.

    A single answer teaches nothing about which candidate is better. With k = 1 two candidates are
    therefore run on each prompt of the first half; in the second half one is run, and the rule
    learns no more. ``order`` (T,) holds the prompts as they arrive. Return the (T, k) choices, the
    most promising first.
    """
    draws = KeyedRandom(rule.problem.seed, "ties of scores")
    utility = table.utility(cost_weight)
    chosen = np.empty((len(order), k), dtype=np.intp)
    n_paired = len(order) // 2 if k == 1 else len(order)
    for t, prompt in enumerate(order):
        contexts = joint_features(table.prompts[prompt], table.arms)
        run = rule.choose(contexts, max(k, 2) if t < n_paired else k)
        chosen[t] = run[:k]
        if len(run) > 1:
            seen = utility[run, prompt]
            rule.learn(score_feedback(contexts, run.tolist(), seen, draws.at(t)))
    return chosen


def best_fixed_subset(table: Table, k: int, *, cost_weight: float = 0.0) -> IntArray:
    """Return the (k,) candidates of the highest mean utility if always run together.

    Utility is the quality of their best answer minus ``cost_weight`` times their cost.
    """
    n = len(table.scores)
    if comb(n, k) > _MOST_SUBSETS:
        raise ValueError(f"{comb(n, k):,} subsets of {k} of {n} are too many to try")
    subsets = list(combinations(range(n), k))
    worth = [
        table.scores[list(s)].max(axis=0).mean() - cost_weight * table.costs[list(s)].sum()
        for s in subsets
    ]
    return np.array(subsets[int(np.argmax(worth))])
