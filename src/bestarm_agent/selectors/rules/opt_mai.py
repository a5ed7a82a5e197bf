"""OptMAI: the top K by aggregate regret, in rounds that keep three quarters each.

Zhou, Chen & Li 2014, "Optimal PAC Multiple Arm Identification with Applications to Crowdsourcing",
with the changes of section 6: budget Q', means over all pulls so far, and beta as a parameter. It
finds K candidates whose mean is close to that of the best K (not surely those K), and pulls no
candidate very often. Less suited to K = 1 and to near ties.

    Algorithm 1, OptMAI(n, K, Q)                 S the active candidates, T the chosen ones
     2  S_0 = {1, ..., n}, T_0 = {}
     3  while |T_r| < K and |S_r| > 0:
     4      if |S_r| >= 4K:
     5          S_{r+1} = QE(S_r, beta^r (1 - beta) Q)
     8      else (S_{r+1}, T_{r+1}) = AR(S_r, T_r, beta^r (1 - beta) Q, K)
    Algorithm 2, QE(S, Q), quartile elimination
     2  sample each of S for Q_0 = Q / |S| times
     4  return S without those below the lower quartile of the means
    Algorithm 3, AR(S, T, Q, K), accept-reject
     2  sample each of S for Q_0 = Q / |S| times
     3  K' = K - |T|; the gap of each is its distance from the border (2)
     4  while |T| < K and |S| > 3s / 4:
     5      a = argmax of the gaps, which leaves S
     6      if a is above the border: a joins T

A round is that of ``rounds``, which says what happens with pulls in flight.
"""

from __future__ import annotations

from math import ceil, floor, log
from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.rules.rounds import Field, RoundRule, Schedule
from bestarm_agent.selectors.types import Problem
from bestarm_agent.stats.arrays import FloatArray, IntArray


class OptMai(RoundRule):
    """Quartile elimination while |S| >= 4K, then accept-reject.

    If more than half of the candidates are wanted, the others are looked for instead, on 1 - score
    (Theorem 4.5). Budget, rounds and pulls in flight: see ``RoundRule``.

    Args:
        top_k: how many candidates are wanted, >= 1.
        beta: ratio of the budgets of successive rounds, in (0.75, 1). Algorithm 1 has
            e^0.2 * 3/4 = 0.916; the default is the 0.8 that section 6 recommends, where 0.9 does
            better for small K only.

    Example:
        >>> from bestarm_agent.selectors import Problem, State, Tell, make_selector
        >>> pairs = make_selector("opt-mai", Problem(n_candidates=3, n_examples=20, budget=30))
        >>> while asks := pairs.ask():  # candidate 2 is right everywhere, the others nowhere
        ...     right = float(asks[0].pair.candidate == 2)
        ...     pairs.tell([Tell(asks[0].seq, State.DONE, right)])
        >>> pairs.answer.best().best
        2
    """

    name: ClassVar[str] = "opt-mai"
    common_examples: bool = False

    def __init__(self, problem: Problem, *, top_k: int = 1, beta: float = 0.8) -> None:
        if not 0.75 < beta < 1:
            raise ValueError(f"beta must be in (0.75, 1), got {beta}")
        if top_k < 1:
            raise ValueError(f"top_k must be >= 1, got {top_k}")
        if top_k > 1 and 0 < problem.n_candidates <= top_k:
            raise ValueError(
                f"top_k is {top_k}, and there are {problem.n_candidates} candidates: nothing is to "
                f"be found out about them; want fewer, or add candidates"
            )
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
        n, falling = len(best_first), values[best_first]
        wanted = self.top_k - len(field.accepted)  # K' = K - |T| (Algorithm 3, line 3)
        wanted = n - wanted if self._mirrored else wanted
        if not 0 < wanted < n:  # line 3
            return all_decided(field, means, self.top_k)
        if n >= self._quartiles_from:  # lines 4 and 5
            places = np.arange(n)[: -leaving - 1 : -1]  # Algorithm 2: the lowest quarter
        else:  # Algorithm 3, lines 4 and 5: those farthest from the border
            gaps = np.maximum(falling - falling[wanted], falling[wanted - 1] - falling)  # eq. 2
            places = np.lexsort((ties[best_first], -gaps))[:leaving]
        for place in places.tolist():
            # Algorithm 3, line 6, accepts from the (K'+1)-th mean on, which would accept the worse
            # of the last two candidates half of the time; meant is from the K'-th on.
            decide = field.drop if (place < wanted) == self._mirrored else field.accept
            field = decide(int(best_first[place]))
        return all_decided(field, means, self.top_k)


def all_decided(field: Field, means: FloatArray, top_k: int) -> Field:
    """Accept the rest if all of them are wanted; drop it if none is."""
    wanted = top_k - len(field.accepted)
    rest: IntArray = field.active[np.argsort(means[field.active], kind="stable")]
    if wanted <= 0:
        return field.drop(*rest.tolist())
    if wanted >= len(rest):
        return field.accept(*rest[::-1].tolist())
    return field
