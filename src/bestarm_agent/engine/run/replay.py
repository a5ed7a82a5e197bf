"""A run rebuilt from its log, event by event, so that no log has to fit into memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from typing import TypeAlias

from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.events import Asked, CandidatesBarred, Event, Told
from bestarm_agent.engine.results.objectives import ObjectiveTracker
from bestarm_agent.engine.results.trajectory import Trajectory
from bestarm_agent.engine.run.event_log import Replayer, Size, initial_size
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.store.run_state import RunState

OpenPairs: TypeAlias = Callable[[Size, Sequence[Candidate]], Pairs]
TrackObjective: TypeAlias = Callable[[Pairs], ObjectiveTracker | None]


class RunReplay:
    """Everything that a log amounts to.

    Args:
        open_pairs: makes the source of pairs, of the size of the problem at the first ask.
        track: makes the objective of that source; None if it is simply the best.
    """

    def __init__(self, open_pairs: OpenPairs, track: TrackObjective) -> None:
        self.state = RunState()
        self.trajectory = Trajectory()
        self.size: Size  # of the problem at the first ask, once there is a source of pairs
        self.objective: ObjectiveTracker | None = None
        self._open_pairs = open_pairs
        self._track = track
        self._head: list[Event] = []  # the log before the first ask
        self._replayer: Replayer | None = None

    def feed(self, events: Iterable[Event]) -> None:
        """Feed the next events; raise StoreError if one cannot come there."""
        for event in events:
            self.state.apply(event)
            if self._replayer is None and not isinstance(event, Asked):
                self._head.append(event)
            else:
                self._take(event, self._replayer or self._begin())

    async def feed_all(self, pages: AsyncIterable[Sequence[Event]]) -> None:
        """Feed a log some events at a time, in a thread."""
        async for page in pages:
            await asyncio.to_thread(self.feed, page)

    @property
    def pairs(self) -> Pairs:
        """The source of pairs, fed the log; to be looked at once the log, or an ask, is fed."""
        return (self._replayer or self._begin()).selector

    def _begin(self) -> Replayer:
        self.size = initial_size(self._head)
        pairs = self._open_pairs(self.size, self.state.candidates)
        self._replayer = Replayer(pairs)
        self.objective = self._track(pairs)
        for event in self._head:
            self._take(event, self._replayer)
        self._head.clear()
        return self._replayer

    def _take(self, event: Event, replayer: Replayer) -> None:
        replayer.feed(event)
        if self.objective is not None:
            self.objective.take(event)
        if isinstance(event, Told):
            self.trajectory.told(replayer.selector)
        elif isinstance(event, CandidatesBarred):
            self.trajectory.barred(event.candidates, len(self.state.asks))
