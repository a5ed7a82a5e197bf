"""OptMAI: the top K by aggregate regret, in rounds that keep three quarters each.

Zhou, Chen & Li 2014, "Optimal PAC Multiple Arm Identification with Applications to Crowdsourcing",
Algorithms 1 to 3 with the changes of section 6: budget Q', means over all pulls so far, and beta as
a parameter. It finds K candidates whose mean is close to that of the best K (not surely those K),
and pulls no candidate very often. Less suited to K = 1 and to near ties.
"""

from __future__ import annotations

from math import ceil, floor, log
from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.rules.round_based import RoundRule, all_decided
from bestarm_agent.selectors.rules.round_schedule import Field, Schedule
from bestarm_agent.selectors.types import FloatArray, IntArray, Problem


class OptMai(RoundRule):
    """Quartile elimination while |S| >= 4K, then accept-reject.

    If more than half of the candidates are wanted, the others are looked for instead, on 1 - score
    (Theorem 4.5). Budget, rounds and pulls in flight: see ``RoundRule``.

    Args:
        top_k: how many candidates are wanted, >= 1.
        beta: ratio of the budgets of successive rounds, in (0.75, 1). Algorithm 1 has
            e^0.2 * 3/4 = 0.916; the default is the 0.8 that section 6 recommends, where 0.9 does
            better for small K only.
    """

    name: ClassVar[str] = "opt-mai"
    common_examples: bool = False

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
        self._quartiles_from = 4 * (n_active - wanted if self._mirrored else wanted)  # 4K
        super()._plan_rest()

    def _schedule(self, n_active: int, budget: float) -> Schedule:
        """Round r spends beta^r (1 - beta) Q' on its candidates alike (Algorithm 1, lines 5, 8)."""
        # Q' (section 6), so that all rounds together spend Q: there are at most ln n / ln(4/3)
        total = budget / (1 - self.beta ** (log(n_active) / log(4 / 3)))
        targets, leaving, size, target, share = [], [], n_active, 0.0, 1 - self.beta
        while size > 0:
            target += share * total / size  # Q_0 = Q / |S| (Algorithms 2 and 3, line 2)
            targets.append(max(1, floor(target + 1e-9)))
            leaving.append(ceil(size / 4))
            size -= leaving[-1]
            share *= self.beta
        return Schedule(np.array(targets), np.array(leaving))

    def _thin(self, field: Field, means: FloatArray, leaving: int, ties: FloatArray) -> Field:
        """Algorithm 1, lines 3 to 9."""
        values = 1.0 - means if self._mirrored else means
        best_first = field.active[np.lexsort((ties[field.active], -values[field.active]))]
        wanted = self.top_k - len(field.accepted)  # K' = K - |T| (Algorithm 3, line 3)
        wanted = len(best_first) - wanted if self._mirrored else wanted
        if 0 < wanted < len(best_first):  # line 3
            if len(best_first) >= self._quartiles_from:  # line 4
                field = self._quartile_elimination(field, best_first, leaving)  # line 5
            else:
                falling, ties = values[best_first], ties[best_first]
                field = self._accept_reject(field, best_first, falling, leaving, wanted, ties)
        return all_decided(field, means, self.top_k)

    def _quartile_elimination(self, field: Field, best_first: IntArray, leaving: int) -> Field:
        """Algorithm 2, lines 3 and 4: the lowest quarter leaves, the worst first."""
        for candidate in best_first[-leaving:][::-1].tolist():
            field = self._reject(field, candidate)
        return field

    def _accept_reject(
        self,
        field: Field,
        best_first: IntArray,
        falling: FloatArray,
        leaving: int,
        wanted: int,
        ties: FloatArray,
    ) -> Field:
        """Decide the quarter of S farthest from the border (Algorithm 3, lines 3 to 9).

        ``best_first``, their ``falling`` means and ``ties`` are (n,); K' is ``wanted``, in 1..n-1.
        """
        gaps = np.maximum(falling - falling[wanted], falling[wanted - 1] - falling)  # eq. 2
        for place in np.lexsort((ties, -gaps))[:leaving].tolist():  # lines 4 and 5
            # Line 6 accepts from the (K'+1)-th mean on, which would accept the worse of the last
            # two candidates half of the time; meant is from the K'-th on.
            decide = self._accept if place < wanted else self._reject
            field = decide(field, int(best_first[place]))
        return field

    def _accept(self, field: Field, candidate: int) -> Field:
        return field.drop(candidate) if self._mirrored else field.accept(candidate)

    def _reject(self, field: Field, candidate: int) -> Field:
        return field.accept(candidate) if self._mirrored else field.drop(candidate)
