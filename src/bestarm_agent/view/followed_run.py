"""A stored run as it goes on: what is new in its log is read, never the whole log again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from bestarm_agent.certification.live.mode import Certification
from bestarm_agent.domain.events import Event
from bestarm_agent.engine.mode import Mode
from bestarm_agent.engine.pair_source import PairSource
from bestarm_agent.engine.results.objectives import ObjectiveTracker
from bestarm_agent.engine.results.pair_outcomes import RunTexts, read_dataset
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.run.event_log import Replayer, initial_size
from bestarm_agent.engine.setup.history import recorded_history
from bestarm_agent.runs import recorded_mode, recorded_objective, recorded_standing
from bestarm_agent.store.base import RunStore
from bestarm_agent.store.registry import StorePlace, folder_of
from bestarm_agent.store.run_state import RunState


class FollowedRun:
    """A run that another process may be writing.

    Its state, texts and standing are to be used within ``refreshed``, which reads what is new and
    keeps other readers out meanwhile.
    """

    def __init__(self, store: RunStore, place: StorePlace, run_id: str) -> None:
        self.run_id = run_id
        self.place = place
        self.state = RunState()
        self._store = store
        self._reading = asyncio.Lock()
        self._unfed: list[Event] = []  # the log, as long as the source has to be built from it
        self._source: _Source | None = None
        self._shown: tuple[Standing, list[str]] | None = None
        self._texts: RunTexts | None = None
        self._texts_of = (0, 0)  # the size of the grid that they were opened for

    @asynccontextmanager
    async def refreshed(self) -> AsyncIterator[RunState]:
        """Read what was logged since the last time.

        Raises:
            RunNotFoundError: the run is gone.
            StoreError: the log is damaged.
        """
        async with self._reading:
            events = await self._store.events_of(self.run_id, since=self.state.n_events)
            if events:
                await asyncio.to_thread(self._take, events)
            yield self.state

    async def standing(self) -> tuple[Standing, list[str]]:
        """Return where the run stands, and the lines of a mode with an answer of its own."""
        if self._shown is None:
            self._shown = await asyncio.to_thread(self._work_out)
        return self._shown

    async def texts(self) -> RunTexts:
        """Return the run's texts."""
        size = len(self.state.candidates), len(self.state.example_ids)
        if self._texts is None or self._texts_of != size:
            examples = await asyncio.to_thread(read_dataset, self.state, folder_of(self.place))
            self._texts = RunTexts(self._store, self.state, *examples)
            self._texts_of = size
        return self._texts

    def _take(self, events: Sequence[Event]) -> None:
        for event in events:
            self.state.apply(event)
        self._shown = None
        if self._source is None:
            self._unfed += events
        else:
            self._source.feed(events)

    def _work_out(self) -> tuple[Standing, list[str]]:
        source = self._source or _Source(self.state, self._unfed, self.run_id, self.place)
        if self.state.asks and source.grows:
            self._source = source
            self._unfed.clear()
        standing = recorded_standing(self.state, source.pairs, self.run_id, source.objective)
        found = source.mode.result(source.pairs, standing)
        return standing, [] if found is None else found.lines()


class _Source:
    """The rule of a run and its objective, rebuilt from the log so far."""

    def __init__(
        self, state: RunState, events: Sequence[Event], run_id: str, place: StorePlace
    ) -> None:
        self.mode: Mode = recorded_mode(state, events, run_id, folder_of(place))
        # a certification reads its plan off the whole log, and is built anew each time
        self.grows = not isinstance(self.mode, Certification)
        history = recorded_history(state, place)
        self.pairs: PairSource = self.mode.pairs(initial_size(events), state.candidates, history)
        self._replayer = Replayer(self.pairs)
        self.objective: ObjectiveTracker | None = None
        self.feed(events)
        self.objective = recorded_objective(state, self.pairs, events)

    def feed(self, events: Sequence[Event]) -> None:
        """Feed what was logged since."""
        for event in events:
            self._replayer.feed(event)
            if self.objective is not None:
                self.objective.book.take(event)
