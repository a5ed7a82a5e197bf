"""Successive Accepts and Rejects: the exact top K by one decision per phase.

Bubeck, Wang & Viswanathan 2013, "Multiple Identifications in Multi-Armed Bandits", figure 1. Like
Successive Rejects, but the candidate that leaves is the one farthest from the border between the
top K and the rest, upwards (accepted) or downwards (rejected).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.rules.opt_mai import all_decided
from bestarm_agent.selectors.rules.rounds import Field, SuccessiveRejects
from bestarm_agent.selectors.types import Problem
from bestarm_agent.stats.arrays import FloatArray


class Sar(SuccessiveRejects):
    """Accept or reject one candidate after each of K - 1 phases.

    Budget, rounds and pulls in flight: see ``RoundRule``. It ends early when all the remaining
    candidates are wanted, or none is.
    """

    name: ClassVar[str] = "sar"
    common_examples: bool = False

    def __init__(self, problem: Problem, *, top_k: int = 1) -> None:
        if top_k < 1:
            raise ValueError(f"top_k must be >= 1, got {top_k}")
        self.top_k = top_k
        super().__init__(problem)

    def _thin(self, field: Field, means: FloatArray, leaving: int, ties: FloatArray) -> Field:
        best_first = field.active[np.lexsort((ties[field.active], -means[field.active]))]
        accepted, dropped = _ends_first(
            means[best_first], ties[best_first], leaving, self.top_k - len(field.accepted)
        )
        field = field.accept(*best_first[accepted].tolist()).drop(*best_first[dropped].tolist())
        return all_decided(field, means, self.top_k)


def _ends_first(
    falling: FloatArray, ties: FloatArray, leaving: int, wanted: int
) -> tuple[list[int], list[int]]:
    """Let ``leaving`` candidates leave one by one: the best or worst left, by the larger gap.

    Return the places in ``falling`` of the accepted and of the dropped, in the order of leaving.
    """
    accepted: list[int] = []
    dropped: list[int] = []
    first, last = 0, len(falling) - 1
    while leaving > len(accepted) + len(dropped):
        border = first + wanted - len(accepted)  # the first that is not wanted
        if not first < border <= last:
            break
        up, down = falling[first] - falling[border], falling[border - 1] - falling[last]
        if (up, ties[last]) > (down, ties[first]):
            (accepted if up > 0 else dropped).append(first)
            first += 1
        else:
            dropped.append(last)
            last -= 1
    return accepted, dropped
