"""Successive Rejects, on its own examples for each candidate or on common ones.

Audibert & Bubeck 2010, "Best Arm Identification in Multi-Armed Bandits", section 4: K - 1 phases;
at the end of each the worst candidate leaves. No parameter, and near-optimal when all that is known
is the budget. Weak where one or two candidates stand far above the rest and the budget is large.

Synchronised (Lyu et al. 2026, arXiv 2606.07726), all surviving candidates see the same examples in
one random order fixed beforehand, so what makes an example hard for all of them cancels.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.elimination import Field, Schedule, drop_worst
from bestarm_agent.selectors.rounds import RoundSelector
from bestarm_agent.selectors.types import FloatArray, IntArray, Problem


class SuccessiveRejects(RoundSelector):
    """Drop the worst candidate after each of K - 1 phases.

    Budget, rounds and pulls in flight: see ``RoundSelector``. Phases that ask for no further pull
    are joined to the one before.

    Args:
        problem: K, N, seed and the rest; the budget is needed.
        common_examples: whether all candidates see the same examples, in one shared random order;
            then the rule is ``sysrs``.

    Raises:
        ValueError: ``problem.budget`` is missing.

    Example:
        >>> selector = SuccessiveRejects(Problem(n_candidates=3, n_examples=50, budget=30))
        >>> len(selector.ask(8))
        8
    """

    name: ClassVar[str] = "successive-rejects"

    def __init__(self, problem: Problem, *, common_examples: bool = False) -> None:
        super().__init__(problem, common_examples=common_examples)

    def _schedule(self, n_active: int, budget: float) -> Schedule:
        return one_leaves_per_phase(n_active, budget)

    def _thin(self, field: Field, means: FloatArray, leaving: int, ties: FloatArray) -> Field:
        return drop_worst(field, means, leaving, ties)


class SynchronisedSuccessiveRejects(SuccessiveRejects):
    """Successive Rejects in which all candidates see the same examples.

    Budget, rounds and pulls in flight: see ``RoundSelector``.

    Raises:
        ValueError: ``problem.budget`` is missing.

    Example:
        >>> problem = Problem(n_candidates=3, n_examples=50, budget=30)
        >>> asks = SynchronisedSuccessiveRejects(problem).ask(3)
        >>> len({ask.pair.example for ask in asks})
        1
    """

    name: ClassVar[str] = "sysrs"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, common_examples=True)


def one_leaves_per_phase(n_active: int, budget: float) -> Schedule:
    """n_k = ceil((T - K) / (L (K + 1 - k))), L = 1/2 + sum_{i=2..K} 1/i; at least 1 pull each."""
    survivors = n_active + 1 - np.arange(1, n_active)  # K + 1 - k for k = 1..K-1
    log_bar = 0.5 + (1.0 / np.arange(2, n_active + 1)).sum()
    targets = np.ceil((budget - n_active) / (log_bar * survivors) - 1e-9)
    return _joined(np.maximum(targets, 1).astype(np.int64))


def _joined(targets: IntArray) -> Schedule:
    """Join phases of one leaver each that have the same target."""
    distinct, counts = np.unique(targets, return_counts=True)
    return Schedule(distinct, counts)
