"""The trajectory of a run: what each candidate's interval was as outcomes came in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.selectors.pairs import Pairs

MOMENTS = 24  # of a long run, at least; at most twice as many, evenly over the outcomes


@dataclass(frozen=True, slots=True)
class Moment:
    """Intervals after a number of outcomes; K are the candidates that had joined."""

    told: int  # outcomes
    asked: int  # pairs
    mean: NDArray[np.float64]  # (K,) estimates; nan without a score
    lower: NDArray[np.float64]  # (K,)
    upper: NDArray[np.float64]  # (K,)


@dataclass(slots=True)
class Trajectory:
    """Moments of a run, and when candidates left.

    When it is looked at depends on the number of outcomes alone, so a run that is rebuilt from its
    log has the same trajectory.
    """

    moments: list[Moment] = field(default_factory=list)
    left: dict[int, int] = field(default_factory=dict)  # by row: pairs asked when it was ruled out
    beaten_by: dict[int, int] = field(default_factory=dict)  # by row: the row that led then
    _told: int = 0
    _step: int = 1  # outcomes between two moments

    def told(self, pairs: Pairs) -> None:
        """Note that ``pairs`` was told one more outcome."""
        self._told += 1
        if self._told % self._step:
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
        trajectory = Trajectory(
            list(self.moments), dict(self.left), dict(self.beaten_by), self._told
        )
        if pairs.table.n_asked:
            if trajectory.moments and trajectory.moments[-1].told == self._told:
                trajectory.moments.pop()  # more may have been asked since
            trajectory._look(pairs)
        return trajectory

    def _look(self, pairs: Pairs) -> None:
        found, verdict, asked = pairs.estimates(), pairs.best(), pairs.table.n_asked
        self.moments.append(Moment(self._told, asked, found.mean, found.lower, found.upper))
        possible = {verdict.best, *verdict.tied}
        for i in np.flatnonzero(found.n > 0).tolist():
            if i in possible:  # also one that came back: its rival was a passing one
                self.left.pop(i, None)
                self.beaten_by.pop(i, None)
            elif i not in self.left:
                self.left[i], self.beaten_by[i] = asked, verdict.best
