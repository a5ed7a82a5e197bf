"""Successive Rejects on common examples.

Audibert & Bubeck 2010, "Best Arm Identification in Multi-Armed Bandits", section 4: K - 1 phases;
at the end of each the worst candidate leaves. No parameter, and near-optimal when all that is known
is the budget. Weak where one or two candidates stand far above the rest and the budget is large.

Synchronised (Lyu et al. 2026, arXiv 2606.07726): all surviving candidates see the same examples, so
that what makes an example hard for all of them cancels.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.rules.round_based import RoundRule
from bestarm_agent.selectors.rules.round_schedule import Schedule
from bestarm_agent.selectors.types import IntArray


class SuccessiveRejects(RoundRule):
    """Drop the worst candidate after each of K - 1 phases; see ``RoundRule``."""

    name: ClassVar[str] = "sysrs"

    def _schedule(self, n_active: int, budget: float) -> Schedule:
        return one_leaves_per_phase(n_active, budget)


def one_leaves_per_phase(n_active: int, budget: float) -> Schedule:
    """Plan n_k = ceil((T - K) / (L (K + 1 - k))) >= 1 pulls, L = 1/2 + sum_{i=2..K} 1/i."""
    survivors = n_active + 1 - np.arange(1, n_active)  # K + 1 - k for k = 1..K-1
    log_bar = 0.5 + (1.0 / np.arange(2, n_active + 1)).sum()
    targets = np.ceil((budget - n_active) / (log_bar * survivors) - 1e-9)
    return _joined(np.maximum(targets, 1).astype(np.int64))


def _joined(targets: IntArray) -> Schedule:
    distinct, counts = np.unique(targets, return_counts=True)
    return Schedule(distinct, counts)
