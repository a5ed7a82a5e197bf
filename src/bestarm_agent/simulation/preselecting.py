"""Replays a preselection rule on a stored table: what would routing by it have been worth?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from bestarm_agent.preselection.base import Preselector
from bestarm_agent.preselection.features import joint_features
from bestarm_agent.preselection.plackett_luce import draw_ranking, weak_regret
from bestarm_agent.preselection.types import Feedback, FloatArray, IntArray, score_feedback
from bestarm_agent.stats.keyed import KeyedRandom

_MOST_SUBSETS = 20_000


@dataclass(frozen=True, slots=True)
class Table:
    """All scores of n candidates on N prompts.

    Attributes:
        scores: (n, N) qualities in [0, 1], higher is better; no cell is missing.
        costs: (n,) what one answer costs, >= 0, in any one unit.
        prompts: (N, p) features of the prompts.
        arms: (n, q) features of the candidates.

    Raises:
        ValueError: shapes do not fit, or a number is not finite.
    """

    scores: FloatArray
    costs: FloatArray
    prompts: FloatArray
    arms: FloatArray

    def __post_init__(self) -> None:
        """Check the rules given above."""
        n, length = self.scores.shape
        shapes = (self.costs.shape, self.prompts.shape[:1], self.arms.shape[:1])
        if shapes != ((n,), (length,), (n,)):
            raise ValueError(
                f"{n} x {length} scores need {n} costs, {length} prompts and {n} arms, got {shapes}"
            )
        for name in ("scores", "costs", "prompts", "arms"):
            if not np.isfinite(getattr(self, name)).all():
                raise ValueError(f"{name} must be finite; leave out what has a hole")

    @property
    def n_features(self) -> int:
        """Length of an arm's joint context vector."""
        return int(self.prompts.shape[1] * self.arms.shape[1])

    def utility(self, cost_weight: float) -> FloatArray:
        """(n, N) quality minus ``cost_weight`` times cost."""
        utility: FloatArray = self.scores - cost_weight * self.costs[:, None]
        return utility

    def best_of(self, chosen: IntArray, order: IntArray) -> FloatArray:
        """(T,) quality of the best answer among (T, k) chosen candidates on prompts ``order``."""
        best: FloatArray = self.scores[chosen.T, order].max(axis=0)
        return best


def replay_table(
    rule: Preselector, table: Table, order: IntArray, k: int, *, cost_weight: float = 0.0
) -> IntArray:
    """Route the prompts one after another; after each, show the rule the scores of what it chose.

    Args:
        rule: made for the table's arms and ``n_features``.
        table: what is known.
        order: (T,) prompts in the order in which they arrive.
        k: candidates run per prompt, >= 2.
        cost_weight: how much quality one unit of cost outweighs, >= 0.

    Returns:
        (T, k) what it chose, the most promising first.
    """
    if k < 2:
        raise ValueError(f"k must be at least 2, for one answer has nothing to win, got {k}")
    draws = KeyedRandom(rule.problem.seed, "ties of scores")
    utility = table.utility(cost_weight)
    chosen = np.empty((len(order), k), dtype=np.intp)
    for t, prompt in enumerate(order):
        contexts = joint_features(table.prompts[prompt], table.arms)
        chosen[t] = rule.choose(contexts, k)
        seen = utility[chosen[t], prompt]
        feedback = score_feedback(contexts, chosen[t].tolist(), seen, draws.at(t))
        if feedback is not None:
            rule.learn(feedback)
    return chosen


def replay_model(
    rule: Preselector,
    rounds: Iterable[tuple[FloatArray, FloatArray]],
    k: int,
    *,
    n_ranked: int,
    seed: int,
) -> FloatArray:
    """Let a Plackett-Luce model answer a rule, and measure its regret.

    Args:
        rule: what chooses.
        rounds: (n, d) contexts and (n,) log of the true utilities, round by round.
        k: arms chosen per round.
        n_ranked: 1 for winner feedback, k for rankings of all that was chosen.
        seed: of the answers.

    Returns:
        (T,) cumulative weak regret (eq. 9).

    References:
        El Mesaoudi-Paul et al. 2020, section 4.
    """
    draws = KeyedRandom(seed, "answers")
    regrets = []
    for t, (contexts, log_utilities) in enumerate(rounds):
        chosen = rule.choose(contexts, k)
        regrets.append(weak_regret(log_utilities, chosen))
        order = chosen[draw_ranking(log_utilities[chosen], draws.at(t))]
        rule.learn(Feedback(contexts, order, n_ranked))
    return np.cumsum(regrets)


def best_fixed_subset(table: Table, k: int, *, cost_weight: float = 0.0) -> IntArray:
    """(k,) the candidates that, always run together, would have been worth most.

    Worth is the mean quality of their best answer minus ``cost_weight`` times their cost. Nobody
    knows them beforehand: they are a yardstick.

    Raises:
        ValueError: there are too many subsets to try.
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
