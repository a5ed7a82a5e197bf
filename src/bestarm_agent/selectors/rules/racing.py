"""Racing: one common example after the other, on the candidates that may still be the best.

Maron & Moore 1994, "Hoeffding Races: Accelerating Model Selection Search for Classification and
Function Approximation", where Hoeffding intervals tell who is out. Here candidates are compared in
pairs by betting, which holds at every time and needs far fewer examples. Made for a confidence
rather than a budget: it stops early where it can, and spends evenly on close candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.rules.filled_subset import FilledSubset
from bestarm_agent.selectors.types import BoolArray, Choice, Problem, Tell


class Racing(FilledSubset):
    """Filled Subset among the leader and those that it is not shown to beat.

    A candidate that is out comes back if another one leads which is not shown to beat it. If none
    of the race may be asked, or the race is decided and the run goes on, the others are asked.
    Without intervals (``Problem.track_intervals``) no candidate is ever out.

    In flight: a pending pair counts as seen; comparisons rest on the scores told up to the first
    pending one of each candidate.
    """

    name: ClassVar[str] = "racing"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._in_race: BoolArray | None = None  # None: to be worked out again

    def _choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        if self._in_race is None:
            self._in_race = self._field()
        field = allowed & self._in_race
        return super()._choose(field if field.any() else allowed, rng)

    def _field(self) -> BoolArray:
        """(K,) mask of the leader and its rivals; of all once there are none."""
        leader = self.ranking()[0]
        field = self.evidence.rivals(leader)
        if not field.any():
            return ~field
        field[leader] = True
        if (awaited := self.evidence.awaited) is not None:
            field[awaited] = True
        return field

    def _told(self, tell: Tell) -> None:
        self._in_race = None

    def _left_race(self, candidates: Sequence[int]) -> None:
        self._in_race = None

    def _grown(self) -> None:
        super()._grown()
        self._in_race = None
