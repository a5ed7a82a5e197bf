"""Successive Accepts and Rejects: the exact top K by one decision per phase.

Bubeck, Wang & Viswanathan 2013, "Multiple Identifications in Multi-Armed Bandits", figure 1. Like
Successive Rejects, but what leaves is whoever is farthest from the border between the top K and the
rest, upwards (accepted) or downwards (rejected). Spends much on the few closest to the border.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.rounds import Field, RoundSelector, Schedule
from bestarm_agent.selectors.successive_rejects import one_leaves_per_phase
from bestarm_agent.selectors.types import FloatArray, IntArray, Problem


class Sar(RoundSelector):
    """Accept or reject one candidate after each of K - 1 phases.

    Budget, rounds and pulls in flight: see ``RoundSelector``. It ends early when the rest is
    decided, since all the remaining candidates are wanted or none is.

    Args:
        problem: K, N, seed and the rest; the budget is needed.
        top_k: how many candidates are wanted, >= 1.

    Raises:
        ValueError: ``problem.budget`` is missing, or ``top_k`` is not positive.

    Example:
        >>> selector = Sar(Problem(n_candidates=6, n_examples=50, budget=60), top_k=2)
        >>> len(selector.top())
        2
    """

    name: ClassVar[str] = "sar"

    def __init__(self, problem: Problem, *, top_k: int = 1) -> None:
        if top_k < 1:
            raise ValueError(f"top_k must be >= 1, got {top_k}")
        self.top_k = top_k
        super().__init__(problem)

    def _schedule(self, n_active: int, budget: float) -> Schedule:
        return one_leaves_per_phase(n_active, budget)

    def _thin(self, field: Field, means: FloatArray, leaving: int, ties: FloatArray) -> Field:
        for _ in range(leaving):
            wanted = self.top_k - len(field.accepted)
            if not 0 < wanted < len(field.active):
                break
            best_first = field.active[np.lexsort((ties[field.active], -means[field.active]))]
            gaps = border_gaps(means[best_first], wanted)
            at = int(np.lexsort((ties[best_first], -gaps))[0])
            who = int(best_first[at])
            is_above = means[who] > means[best_first[wanted]]
            field = field.accept(who) if is_above else field.drop(who)
        return all_decided(field, means, self.top_k)


def border_gaps(falling: FloatArray, wanted: int) -> FloatArray:
    """Distances of falling means from the border between the first ``wanted`` and the rest.

    Args:
        falling: (n,) means in falling order.
        wanted: in 1..n-1.
    """
    gaps: FloatArray = np.maximum(falling - falling[wanted], falling[wanted - 1] - falling)
    return gaps


def all_decided(field: Field, means: FloatArray, top_k: int) -> Field:
    """Accept the rest if all of them are wanted; drop it if none is."""
    wanted = top_k - len(field.accepted)
    rest: IntArray = field.active[np.argsort(means[field.active], kind="stable")]
    if wanted <= 0:
        return field.drop(*rest.tolist())
    if wanted >= len(rest):
        return field.accept(*rest[::-1].tolist())
    return field
