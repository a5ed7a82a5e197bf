"""A Plackett-Luce model that answers preselection rules, and their regret."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bestarm_agent.preselection.rule import FloatArray, IntArray, Preselector, RankedArms
from bestarm_agent.stats.keyed_random import KeyedRandom


def draw_ranking(log_utilities: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw a ranking of all arms, best first (eq. 4), from their (s,) log-utilities.

    Sorting utilities in logs with Gumbel noise added draws from the Plackett-Luce model exactly
    (Yellott 1977).
    """
    return np.argsort(-(log_utilities + rng.gumbel(size=len(log_utilities))))


def weak_regret(log_utilities: FloatArray, chosen: IntArray) -> float:
    """Return the share of the best utility that the best chosen arm lacks (before eq. 9).

    ``log_utilities`` (n,) are the true ones, ``chosen`` (k,) the arms.

    Example:
        >>> weak_regret(np.log([4.0, 2.0, 1.0]), np.array([1, 2]))
        0.5
    """
    return float(0.0 - np.expm1(log_utilities[chosen].max() - log_utilities.max()))


def replay_model(
    rule: Preselector,
    rounds: Iterable[tuple[FloatArray, FloatArray]],
    k: int,
    *,
    n_ranked: int,
    seed: int,
) -> FloatArray:
    """Let a Plackett-Luce model answer a rule; return its (T,) cumulative weak regret (eq. 9).

    Args:
        rule: chooses the arms.
        rounds: (n, d) contexts and (n,) log of the true utilities, round by round.
        k: arms chosen per round.
        n_ranked: 1 for winner feedback, k for rankings of all chosen arms.
        seed: of the answers.

    References:
        El Mesaoudi-Paul et al. 2020, section 4.
    """
    draws = KeyedRandom(seed, "answers")
    regrets = []
    for t, (contexts, log_utilities) in enumerate(rounds):
        chosen = rule.choose(contexts, k, t)
        regrets.append(weak_regret(log_utilities, chosen))
        order = chosen[draw_ranking(log_utilities[chosen], draws.at(t))]
        rule.learn(RankedArms(contexts, order, n_ranked))
    return np.cumsum(regrets)
