"""The trajectory of a run: what each candidate's interval was as outcomes came in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.engine.record import RunRecord
from bestarm_agent.store.codec import Line

MOMENTS = 32  # of a long run


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

    Attributes:
        moments: oldest first; the last one is the present, once a pair was asked.
        left: by row, the pairs asked when it was seen to be ruled out.
        beaten_by: by row, the row that led then.
    """

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self.left: dict[int, int] = {}
        self.beaten_by: dict[int, int] = {}

    def look(self, record: RunRecord) -> None:
        """Add the present moment of a run."""
        pairs, state = record.pairs, record.state
        found, asked, best = pairs.estimates(), state.n_asked, pairs.ranking()[0]
        self.moments.append(Moment(state.n_told, asked, found.mean, found.lower, found.upper))
        possible = {best, *pairs.answer.tied(best)}
        for i in np.flatnonzero(found.n > 0).tolist():
            if i in possible:  # also one that came back: its rival was a passing one
                self.left.pop(i, None)
                self.beaten_by.pop(i, None)
            elif i not in self.left:
                self.left[i], self.beaten_by[i] = asked, best
        for i in state.barred:
            self.left.setdefault(i, asked)


async def follow(
    record: RunRecord, pages: AsyncIterable[Sequence[Line]], n_told: int
) -> Trajectory:
    """Feed a log with about so many outcomes to a record, and look at it now and then.

    A look at the intervals of a large run takes a while, so there are about ``MOMENTS`` of them,
    evenly over the outcomes.
    """
    trajectory, every = Trajectory(), n_told // MOMENTS + 1

    def take(page: Sequence[Line]) -> None:
        start, told = 0, record.state.n_told
        for end, (tag, _) in enumerate(page, start=1):
            told += tag == "told"
            if tag == "told" and told % every == 0:
                record.take(page[start:end])
                trajectory.look(record)
                start = end
        record.take(page[start:])

    async for page in pages:
        await asyncio.to_thread(take, page)
    latest = trajectory.moments[-1].asked if trajectory.moments else 0
    if record.state.n_asked > latest:
        trajectory.look(record)
    return trajectory
