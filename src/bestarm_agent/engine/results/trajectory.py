"""The trajectory of a run: what each candidate's interval was as outcomes came in."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import BoolArray

MOMENTS = 24  # of a long run, at least; at most twice as many, evenly over the outcomes


@dataclass(frozen=True, slots=True)
class Moment:
    """Intervals after a number of outcomes; K are the candidates that had joined."""

    told: int  # outcomes
    asked: int  # pairs
    mean: NDArray[np.float64]  # (K,) estimates; nan without a score
    lower: NDArray[np.float64]  # (K,)
    upper: NDArray[np.float64]  # (K,)


class Trajectory:
    """Moments of a run, and when candidates left.

    The moments depend on the number of outcomes alone, so a run that is rebuilt from its log has
    the same ones; a look at the intervals of a large run takes a while.

    Args:
        expected: outcomes that a log is known to hold, so that no moment is looked at in vain.

    Attributes:
        moments: oldest first.
        left: by row, the pairs asked when it was seen to be ruled out.
        beaten_by: by row, the row that led then.
    """

    def __init__(self, expected: int = 0) -> None:
        self.moments: list[Moment] = []
        self.left: dict[int, int] = {}
        self.beaten_by: dict[int, int] = {}
        self._told = 0
        self._step = 1  # outcomes between two moments
        while expected // self._step >= 2 * MOMENTS:
            self._step *= 2

    def until_look(self, is_told: BoolArray) -> int:
        """Return how many steps of a log, of which some are outcomes, may be taken before ``told``.

        These are all, or those up to the outcome at which there is something to see.
        """
        due = self._step - self._told % self._step
        return min(len(is_told), 1 + int(np.searchsorted(np.cumsum(is_told), due)))

    def told(self, pairs: Pairs, count: int = 1) -> None:
        """Note that ``pairs`` was told so many more outcomes."""
        self._told += count
        if not count or self._told % self._step:
            return
        self._look(pairs)
        if len(self.moments) == 2 * MOMENTS:
            self.moments = self.moments[1::2]
            self._step *= 2

    def barred(self, candidates: Iterable[int], asked: int) -> None:
        """Note that candidates were barred after ``asked`` pairs."""
        self.left.update({i: asked for i in candidates if i not in self.left})

    def until_now(self, pairs: Pairs) -> Trajectory:
        """Return the trajectory with the present as its last moment."""
        now = copy(self)
        now.moments, now.left, now.beaten_by = [*self.moments], {**self.left}, {**self.beaten_by}
        if pairs.table.n_asked:
            if now.moments and now.moments[-1].told == self._told:
                now.moments.pop()  # more may have been asked since
            now._look(pairs)
        return now

    def _look(self, pairs: Pairs) -> None:
        found, asked = pairs.estimates(), pairs.table.n_asked
        best = pairs.ranking()[0]
        self.moments.append(Moment(self._told, asked, found.mean, found.lower, found.upper))
        possible = {best, *pairs.answer.tied(best)}
        for i in np.flatnonzero(found.n > 0).tolist():
            if i in possible:  # also one that came back: its rival was a passing one
                self.left.pop(i, None)
                self.beaten_by.pop(i, None)
            elif i not in self.left:
                self.left[i], self.beaten_by[i] = asked, best
