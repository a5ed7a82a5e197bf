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

from bestarm_agent.selectors import BoolArray, Choice, Pair, Problem, Rule, State, Tell
from bestarm_agent.stats.arrays import FloatArray, IntArray

_K1 = 1.25  # the paper's k_1 = 5/4


class Lucb(Rule):
    """Lower and upper confidence bounds around the border of the top K.

    A candidate without an unseen example has width 0, and the next in line on its side is pulled in
    its place. Both of a round are chosen before either is told. Pending and void pulls count in the
    width; one with pending pulls but no score is taken to score 1, one with void pulls only 0.

    Args:
        top_k: how many candidates are wanted, >= 1.
        delta: error probability in the width, in (0, 1); 1 - ``problem.confidence`` by default.
    """

    name: ClassVar[str] = "lucb"
    heeds_costs: bool = False

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
        self._n_followed = 0  # asks that rounds were counted by
        self._note()

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        """Pick h*, then l*."""
        self._follow()
        fresh = np.flatnonzero(allowed & (self.table.n_trials == 0))
        if self._partner is not None and allowed[self._partner]:
            candidate = self._partner
        elif len(fresh):
            candidate = int(fresh[rng.integers(len(fresh))])  # first, every candidate once
        else:
            candidate = next(
                who for who in self._critical(allowed, self.table.n_trials) if who is not None
            )
        example = self.draw_unseen(candidate, rng)
        return Choice(Pair(candidate, example), "lucb")

    def _critical(self, allowed: BoolArray, pulls: IntArray) -> tuple[int | None, int | None]:
        """Return h* and l* among the allowed; None where no candidate of that side is allowed."""
        levels = self._levels
        best_first = np.lexsort((self.answer.tie_ranks, -levels))
        inside, outside = best_first[: self.top_k], best_first[self.top_k :]
        inside, outside = inside[allowed[inside]], outside[allowed[outside]]
        width = self._widths(pulls)
        low, high = (levels - width)[inside], (levels + width)[outside]
        weakest = int(inside[low.argmin()]) if len(inside) else None
        challenger = int(outside[high.argmax()]) if len(outside) else None
        return weakest, challenger

    def _widths(self, pulls: IntArray) -> FloatArray:
        """beta(u, t) = sqrt(ln(k_1 n t^4 / delta) / (2 u)) in round t."""
        level = log(_K1 * len(pulls) * (self._n_rounds + 1) ** 4 / self.delta)
        return np.where(self.askable, np.sqrt(level / 2 / np.maximum(pulls, 1)), 0.0)

    def _note(self) -> None:
        """Note the means: both of a round are chosen by those before either is told."""
        means = self.table.mean()
        self._levels = np.where(np.isnan(means), self.table.count(State.VOID) == 0, means)

    def _follow(self) -> None:
        """Note who is the other one of each round that began."""
        table = self.table
        for seq in range(self._n_followed, table.n_asked):
            candidate = int(table.candidate[seq])
            if candidate == self._partner:
                self._partner = None
            elif table.position[seq]:  # the first pull of a round
                before = np.bincount(table.candidate[:seq], minlength=table.n_candidates)
                weakest, challenger = self._critical(self.askable, before)
                self._partner = challenger if candidate == weakest else weakest
                self._n_rounds += 1
        self._n_followed = table.n_asked

    def told(self, tell: Tell) -> None:
        """Note the means for the next round."""
        self._follow()
        self._note()

    def changed(self) -> None:
        """Begin a new round."""
        self._note()
        self._follow()
        self._partner = None
