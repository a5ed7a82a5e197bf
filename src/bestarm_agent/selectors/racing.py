"""Racing: one common example after the other, on the candidates that may still be the best.

Maron & Moore 1994, "Hoeffding Races: Accelerating Model Selection Search for Classification and
Function Approximation": all candidates run on the same examples, and whoever is shown to be worse
than the leader is not run any more. Theirs compares Hoeffding intervals; here candidates are
compared in pairs by betting, which holds at every time and needs far fewer examples where the same
examples are hard for all. Made for a confidence rather than a budget: it stops early where it can,
and spends evenly on those that are close.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.filled_subset import FilledSubset
from bestarm_agent.selectors.types import BoolArray, Choice, Problem, Tell


class Racing(FilledSubset):
    """Filled Subset among the leader and those whom it is not shown to beat.

    Who is out may come back: if another candidate leads, those whom it does not beat catch up. A
    candidate that may not be asked now is passed by; if none of the race may be, or the race is
    decided and the run goes on, the others are asked.

    In flight: a pending pair is seen. Who is beaten rests on the scores told up to the first one
    that is pending, candidate by candidate.

    Without intervals (``Problem.track_intervals``) nobody is ever out.

    Example:
        >>> from bestarm_agent.selectors.types import State, Tell
        >>> selector = Racing(Problem(n_candidates=3, n_examples=200))
        >>> for ask in selector.ask(90):
        ...     score = (0.0, 1.0, 0.9)[ask.pair.candidate]
        ...     selector.tell([Tell(ask.seq, State.DONE, score)])
        >>> sorted({ask.pair.candidate for ask in selector.ask(20)})
        [1, 2]
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
        """(K,) the leader and its rivals; all once there are none."""
        leader = self.ranking()[0]
        field = self._rivals(leader)
        if not field.any():
            return ~field
        field[leader] = True
        return field

    def _told(self, tell: Tell) -> None:
        self._in_race = None

    def _left_race(self, candidates: Sequence[int]) -> None:
        self._in_race = None

    def _grown(self) -> None:
        super()._grown()
        self._in_race = None
