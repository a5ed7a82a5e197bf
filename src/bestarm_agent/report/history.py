"""The course of a run: what each candidate's interval was as the pairs were asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.domain.events import Asked, CandidatesBarred, Event
from bestarm_agent.engine.pair_source import PairSource
from bestarm_agent.engine.run.event_log import Replayer

MOMENTS = 30  # at which the intervals are looked at, evenly over the pairs


@dataclass(frozen=True, slots=True)
class Moment:
    """Intervals after a number of asks; K are the candidates that had joined."""

    asked: int  # pairs
    mean: NDArray[np.float64]  # (K,) estimates; nan without a score
    lower: NDArray[np.float64]  # (K,)
    upper: NDArray[np.float64]  # (K,)


@dataclass(slots=True)
class History:
    """Moments of a run, and when candidates left."""

    moments: list[Moment] = field(default_factory=list)
    left: dict[int, int] = field(default_factory=dict)  # by row: pairs asked when it was ruled out
    beaten_by: dict[int, int] = field(default_factory=dict)  # by row: the row that led then

    def _look(self, pairs: PairSource, asked: int) -> None:
        found, verdict = pairs.estimates(), pairs.best()
        self.moments.append(Moment(asked, found.mean, found.lower, found.upper))
        possible = {verdict.best, *verdict.tied}
        for i in np.flatnonzero(found.n > 0).tolist():
            if i in possible:  # also one that came back: its rival was a passing one
                self.left.pop(i, None)
                self.beaten_by.pop(i, None)
            elif i not in self.left:
                self.left[i], self.beaten_by[i] = asked, verdict.best


def watch(events: Sequence[Event], pairs: PairSource, moments: int = MOMENTS) -> History:
    """Feed a fresh source of pairs a whole log, and record its course at some moments."""
    history, replayer, asked = History(), Replayer(pairs), 0
    total = sum(isinstance(event, Asked) for event in events)
    due = {round(total * k / moments) for k in range(1, moments)} - {0}
    for event in events:
        if isinstance(event, Asked):
            if asked in due:  # before the next ask, when more was told
                history._look(pairs, asked)
            asked += 1
        elif isinstance(event, CandidatesBarred):
            history.left.update({i: asked for i in event.candidates if i not in history.left})
        replayer.feed(event)
    if asked and moments:
        history._look(pairs, asked)
    return history
