"""OptMAI: the top K by aggregate regret, in rounds that keep three quarters each.

Zhou, Chen & Li 2014, "Optimal PAC Multiple Arm Identification with Applications to Crowdsourcing",
Algorithms 1 to 3, with the changes of their section 6: budget Q', means over all pulls so far, and
beta as a parameter. Finds K candidates whose mean is close to that of the best K (no guarantee of
the exact set), and pulls no candidate very often. Less suited to K = 1 and near ties.
"""

from __future__ import annotations

from math import ceil, floor, log
from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.elimination import Field, Schedule
from bestarm_agent.selectors.rounds import RoundSelector
from bestarm_agent.selectors.sar import all_decided, border_gaps
from bestarm_agent.selectors.types import FloatArray, IntArray, Problem


class OptMai(RoundSelector):
    """Quartile elimination while |S| >= 4K, then accepting and rejecting.

    If more than half of the candidates are wanted, the others are looked for instead, on 1 - score
    (Theorem 4.5). Budget, rounds and pulls in flight: see ``RoundSelector``. It ends early when all
    the remaining candidates are wanted, or none is.

    Args:
        problem: K, N, seed and the rest; the budget is needed.
        top_k: how many candidates are wanted, >= 1.
        beta: ratio of the budgets of successive rounds, in (0.75, 1). The paper reports .8 (better
            for large K) and .9 (better for small K).

    Raises:
        ValueError: ``problem.budget`` is missing, or a parameter is out of range.

    Example:
        >>> selector = OptMai(Problem(n_candidates=20, n_examples=99, budget=400), top_k=4)
        >>> len(selector.top())
        4
    """

    name: ClassVar[str] = "opt-mai"

    def __init__(self, problem: Problem, *, top_k: int = 1, beta: float = 0.8) -> None:
        if not 0.75 < beta < 1:
            raise ValueError(f"beta must be in (0.75, 1), got {beta}")
        if top_k < 1:
            raise ValueError(f"top_k must be >= 1, got {top_k}")
        self.top_k = top_k
        self.beta = beta
        super().__init__(problem)

    def _plan_rest(self) -> None:
        n_active = len(self._field.active)
        wanted = self.top_k - len(self._field.accepted)
        self._mirrored = wanted > n_active / 2
        self._quartiles_from = 4 * (n_active - wanted if self._mirrored else wanted)
        super()._plan_rest()

    def _schedule(self, n_active: int, budget: float) -> Schedule:
        """Round r spends beta^r (1 - beta) Q' on all active candidates alike; a quarter leaves."""
        total = budget / (1 - self.beta ** (log(n_active) / log(4 / 3)))  # Q'
        targets, leaving, size, target, share = [], [], n_active, 0.0, 1 - self.beta
        while size > 0:
            target += share * total / size
            targets.append(max(1, floor(target + 1e-9)))
            leaving.append(ceil(size / 4))
            size -= leaving[-1]
            share *= self.beta
        return Schedule(np.array(targets), np.array(leaving))

    def _thin(self, field: Field, means: FloatArray, leaving: int, ties: FloatArray) -> Field:
        values = 1.0 - means if self._mirrored else means
        best_first = field.active[np.lexsort((ties[field.active], -values[field.active]))]
        wanted = self.top_k - len(field.accepted)
        wanted = len(best_first) - wanted if self._mirrored else wanted
        if 0 < wanted < len(best_first):
            if len(best_first) >= self._quartiles_from:
                field = self._reject(field, best_first[-leaving:][::-1].tolist())
            else:
                gaps = border_gaps(values[best_first], wanted)
                farthest = np.lexsort((ties[best_first], -gaps))[:leaving]
                field = self._accept_or_reject(field, best_first, farthest.tolist(), wanted)
        return all_decided(field, means, self.top_k)

    def _accept_or_reject(
        self, field: Field, best_first: IntArray, places: list[int], wanted: int
    ) -> Field:
        """Algorithm 3, lines 4 to 9; ``places`` count from 0 in ``best_first``.

        Printed, line 6 accepts from the (K'+1)-th mean on, which would accept the worse of the last
        two candidates half of the time; meant is from the K'-th on.
        """
        for place in places:
            if place < wanted:
                field = self._accept(field, [int(best_first[place])])
            else:
                field = self._reject(field, [int(best_first[place])])
        return field

    def _accept(self, field: Field, who: list[int]) -> Field:
        return field.drop(*who) if self._mirrored else field.accept(*who)

    def _reject(self, field: Field, who: list[int]) -> Field:
        return field.accept(*who) if self._mirrored else field.drop(*who)
