"""LUCB: pull the two candidates at the border of the top K that may be on its wrong side.

Kalyanakrishnan, Tewari, Auer & Stone 2012, "PAC Subset Selection in Stochastic Multi-armed
Bandits", algorithm LUCB1: with h* the member of the empirical top K of the lowest lower bound and
l* the outsider of the highest upper bound, pull both. Made for a confidence rather than a budget;
its bounds are wide, so with few pulls it is close to uniform sampling.
"""

from __future__ import annotations

from math import log
from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import (
    Ask,
    BoolArray,
    Choice,
    FloatArray,
    Pair,
    Problem,
    Tell,
)

_K1 = 1.25  # the paper's k_1 = 5/4


class Lucb(Selector):
    """Lower and upper confidence bounds around the border of the top K.

    Examples are drawn without replacement: a candidate without an unseen example is known exactly
    (width 0), and the next in line on its side is pulled in its place. Runs stop by the intervals
    of ``estimates``, not by the bounds used here. With costs, pulls are weighed by them, and only
    the one of h* and l* that has fewer is pulled.

    In flight: pending and void pulls count in the width. A candidate with pending pulls but no
    score yet is taken to score 1, one with void pulls only to score 0. With one call in flight h*
    and l* are chosen before either is told, as in the paper.

    Args:
        top_k: how many candidates are wanted, >= 1.
        delta: error probability in the width, in (0, 1); 1 - ``problem.confidence`` by default.
    """

    name: ClassVar[str] = "lucb"

    def __init__(self, problem: Problem, *, top_k: int = 1, delta: float | None = None) -> None:
        if top_k < 1:
            raise ValueError(f"top_k must be >= 1, got {top_k}")
        if delta is not None and not 0 < delta < 1:
            raise ValueError(f"delta must be in (0, 1), got {delta}")
        super().__init__(problem)
        self.top_k = top_k
        self.delta = 1 - problem.confidence if delta is None else delta
        self._n_rounds = 0
        self._partner: int | None = None  # the other one of the round
        self._levels = np.empty(0)
        self._pulls = np.empty(0)
        self._grown()

    def _choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        if self._partner is not None and allowed[self._partner]:
            candidate = self._partner
        elif len(fresh := np.flatnonzero(allowed & (self._pulls == 0))):
            candidate = int(fresh[rng.integers(len(fresh))])  # first, every candidate once
        else:
            critical = [who for who in self._critical(allowed) if who is not None]
            candidate = critical[0]
            if self.problem.costs is not None:
                weighed = self._pulls * self.weights
                candidate = min(critical, key=lambda who: float(weighed[who]))
        example, propensity = self.draw_unseen(candidate, rng)
        return Choice(Pair(candidate, example), propensity, "lucb")

    def _critical(self, allowed: BoolArray) -> tuple[int | None, int | None]:
        """Return h* and l* among the allowed; None where no candidate of that side is allowed."""
        best_first = np.lexsort((self.evidence.tie_ranks, -self._levels))
        inside, outside = best_first[: self.top_k], best_first[self.top_k :]
        inside, outside = inside[allowed[inside]], outside[allowed[outside]]
        widths = self._widths()
        low, high = (self._levels - widths)[inside], (self._levels + widths)[outside]
        weakest = int(inside[low.argmin()]) if len(inside) else None
        challenger = int(outside[high.argmax()]) if len(outside) else None
        return weakest, challenger

    def _widths(self) -> FloatArray:
        """beta(u, t) = sqrt(ln(k_1 n t^4 / delta) / (2 u)) in round t, pulls weighed by cost."""
        level = log(_K1 * len(self._pulls) * (self._n_rounds + 1) ** 4 / self.delta)
        widths = np.sqrt(level / 2 / np.maximum(self._pulls, 1) / self.weights)
        return np.where(self._open, widths, 0.0)

    def _asked(self, ask: Ask) -> None:
        candidate = ask.pair.candidate
        if candidate == self._partner:
            self._partner = None
        elif self._pulls[candidate] > 0:  # the first pull of a round; with costs the only one
            if self.problem.costs is None:
                weakest, challenger = self._critical(self._open)
                self._partner = challenger if candidate == weakest else weakest
            self._n_rounds += 1
        self._update(candidate)

    def _told(self, tell: Tell) -> None:
        self._update(int(self.table.candidate[tell.seq]))

    def _grown(self) -> None:
        self._partner = None
        self._levels = np.ones(self.table.n_candidates)
        self._pulls = np.zeros(self.table.n_candidates)
        for candidate in range(self.table.n_candidates):
            self._update(candidate)

    def _update(self, candidate: int) -> None:
        scored, total, pending, void = self.table.tally(candidate)
        self._pulls[candidate] = scored + pending + void
        self._levels[candidate] = total / scored if scored else float(void == 0)
