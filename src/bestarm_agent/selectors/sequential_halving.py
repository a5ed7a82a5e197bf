"""Sequential Halving: log2 K rounds of equal cost; the worse half leaves after each.

Karnin, Koren & Somekh 2013, "Almost Optimal Exploration in Multi-Armed Bandits", Algorithm 3. Here
the pulls of earlier rounds count in later ones. On common examples it is the scheme of Baharav &
Tse 2019 ("Ultra Fast Medoid Identification via Correlated Sequential Halving"): what examples have
in common cancels in the comparison. Strong for a known, small budget; drops close rivals early.
"""

from __future__ import annotations

from math import ceil, floor, log2
from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.elimination import Field, Schedule, drop_worst
from bestarm_agent.selectors.rounds import RoundSelector
from bestarm_agent.selectors.types import FloatArray, Problem


class SequentialHalving(RoundSelector):
    """Halve the candidates after each of ceil(log2 K) rounds.

    Budget, rounds and pulls in flight: see ``RoundSelector``.

    Args:
        problem: K, N, seed and the rest; the budget is needed.
        common_examples: whether all candidates see the same examples, in one shared random order.

    Raises:
        ValueError: ``problem.budget`` is missing.

    Example:
        >>> problem = Problem(n_candidates=4, n_examples=50, budget=40)
        >>> selector = SequentialHalving(problem, common_examples=True)
        >>> len({ask.pair.example for ask in selector.ask(8)})
        2
    """

    name: ClassVar[str] = "sequential-halving"

    def __init__(self, problem: Problem, *, common_examples: bool = False) -> None:
        super().__init__(problem, common_examples=common_examples)

    def _schedule(self, n_active: int, budget: float) -> Schedule:
        """Each of |S_r| candidates gets floor(T / (|S_r| ceil(log2 K))) pulls in round r."""
        n_rounds = ceil(log2(n_active))
        targets, leaving, size, target = [], [], n_active, 0
        for _ in range(n_rounds):
            target = max(1, target + floor(budget / (size * n_rounds)))
            targets.append(target)
            leaving.append(size // 2)  # the better ceil(|S_r| / 2) stay
            size -= size // 2
        return Schedule(np.array(targets), np.array(leaving))

    def _thin(self, field: Field, means: FloatArray, leaving: int, ties: FloatArray) -> Field:
        return drop_worst(field, means, leaving, ties)
