"""Sequential Halving, on examples that all candidates share."""

from __future__ import annotations

from math import ceil, floor, log2
from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.rules.rounds import RoundRule, Schedule


class SequentialHalving(RoundRule):
    """Halve the candidates after each of ceil(log2 K) rounds of equal cost; see ``RoundRule``.

    Karnin, Koren & Somekh 2013, "Almost Optimal Exploration in Multi-Armed Bandits", Algorithm 3,
    but the pulls of earlier rounds count in later ones and all candidates see the same examples,
    the scheme of Baharav & Tse 2019, "Ultra Fast Medoid Identification via Correlated Sequential
    Halving". Strong for a known, small budget; drops close rivals early.
    """

    name: ClassVar[str] = "sequential-halving"

    def _schedule(self, n_active: int, budget: float) -> Schedule:
        """Give each of |S_r| candidates floor(T / (|S_r| ceil(log2 K))) pulls in round r."""
        n_rounds = ceil(log2(n_active))
        targets, leaving, size, target = [], [], n_active, 0
        for _ in range(n_rounds):
            target = max(1, target + floor(budget / (size * n_rounds)))
            targets.append(target)
            leaving.append(size // 2)  # the better ceil(|S_r| / 2) stay
            size -= size // 2
        return Schedule(np.array(targets), np.array(leaving))
