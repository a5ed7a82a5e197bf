"""The trajectory of a run: what each candidate's interval was as outcomes came in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.engine.pair_source import PairSource

MOMENTS = 24  # of a long run, at least; at most twice as many, evenly over the outcomes

_BY_ROW = ("mean", "lower", "upper")


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

    def told(self, pairs: PairSource) -> None:
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

    def until_now(self, pairs: PairSource) -> Trajectory:
        """Return the trajectory with the present as its last moment."""
        trajectory = Trajectory(
            list(self.moments), dict(self.left), dict(self.beaten_by), self._told
        )
        if pairs.table.n_asked:
            if trajectory.moments and trajectory.moments[-1].told == self._told:
                trajectory.moments.pop()  # more may have been asked since
            trajectory._look(pairs)
        return trajectory

    def _look(self, pairs: PairSource) -> None:
        found, verdict, asked = pairs.estimates(), pairs.best(), pairs.table.n_asked
        self.moments.append(Moment(self._told, asked, found.mean, found.lower, found.upper))
        possible = {verdict.best, *verdict.tied}
        for i in np.flatnonzero(found.n > 0).tolist():
            if i in possible:  # also one that came back: its rival was a passing one
                self.left.pop(i, None)
                self.beaten_by.pop(i, None)
            elif i not in self.left:
                self.left[i], self.beaten_by[i] = asked, verdict.best


def dump_trajectory(trajectory: Trajectory) -> bytes:
    """Write a trajectory as a NumPy archive."""
    stream = BytesIO()
    n_rows = max((len(moment.mean) for moment in trajectory.moments), default=0)
    grids: dict[str, Any] = {
        name: np.full((len(trajectory.moments), n_rows), np.nan) for name in _BY_ROW
    }
    for k, moment in enumerate(trajectory.moments):
        for name, grid in grids.items():
            values = getattr(moment, name)
            grid[k, : len(values)] = values
    np.savez_compressed(
        stream,
        told=np.array([moment.told for moment in trajectory.moments], dtype=np.int64),
        asked=np.array([moment.asked for moment in trajectory.moments], dtype=np.int64),
        rows=np.array([len(moment.mean) for moment in trajectory.moments], dtype=np.int64),
        left=np.array(list(trajectory.left.items()), dtype=np.int64).reshape(-1, 2),
        beaten_by=np.array(list(trajectory.beaten_by.items()), dtype=np.int64).reshape(-1, 2),
        **grids,
    )
    return stream.getvalue()


def load_trajectory(data: bytes) -> Trajectory:
    """Read a trajectory back, to be looked at; raise ValueError, KeyError or OSError if damaged."""
    with np.load(BytesIO(data), allow_pickle=False) as arrays:
        found = {name: arrays[name] for name in arrays.files}
    counts = zip(*(found[name].tolist() for name in ("told", "asked", "rows")), strict=True)
    moments = [
        Moment(told, asked, *(found[name][k, :rows] for name in _BY_ROW))
        for k, (told, asked, rows) in enumerate(counts)
    ]
    return Trajectory(moments, dict(found["left"].tolist()), dict(found["beaten_by"].tolist()))
