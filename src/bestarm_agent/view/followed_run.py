"""A stored run as it goes on: what is new in its log is read, never the whole log again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from bestarm_agent.certification.mode import Certification
from bestarm_agent.engine.confirm import confirmed
from bestarm_agent.engine.mode import Mode, ModeResult
from bestarm_agent.engine.record import RunRecord
from bestarm_agent.engine.results.from_log import build_standing
from bestarm_agent.engine.results.labelling import with_labels
from bestarm_agent.engine.results.pairs import RunTexts, texts_of
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.errors import BestarmError, RunNotFoundError
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.store import CONFIRMS, Store, StorePlace, folder_of
from bestarm_agent.study import recorded_replay


class FollowedRun:
    """A run that another process may be writing.

    Its state, texts and standing are to be used within ``refreshed``, which reads what is new and
    keeps other readers out meanwhile.
    """

    def __init__(self, store: Store, place: StorePlace, run_id: str) -> None:
        self.run_id = run_id
        self.place = place
        self._store = store
        self._reading = asyncio.Lock()
        self._folded = RunState()  # until a replay goes on from there
        self._second = RunState()  # of the run that confirms its winners; empty without one
        self._replay: tuple[Mode, RunRecord] | None = None
        self._shown: tuple[Standing, ModeResult | None] | None = None
        self._texts: RunTexts | None = None
        self._texts_size = (0, 0)  # the size of the grid that they were opened for

    @property
    def state(self) -> RunState:
        """The run as of the last reading."""
        return self._folded if self._replay is None else self._replay[1].state

    @property
    def n_events(self) -> int:
        """The events read so far: also those of the run that confirms its winners."""
        return self.state.n_events + self._second.n_events

    @asynccontextmanager
    async def refreshed(self) -> AsyncIterator[RunState]:
        """Read what was logged since the last time.

        Raises:
            RunNotFoundError: the run is gone.
            StoreError: the log is damaged.
        """
        async with self._reading:
            if not self.state.n_events:
                # The rule is fed while the log is read for the first time, since whoever opens a
                # run looks at its standing. Where that fails, ``standing`` says why, and the pairs
                # can be looked at.
                with suppress(BestarmError):
                    await self._rebuilt()
            async for page in self._store.lines_of(self.run_id, since=self.state.n_events):
                self._shown = None
                await asyncio.to_thread(self._take, page)
            if self.state.started.kept_back:
                await self._read_second()
            yield self.state

    async def standing(self) -> tuple[Standing, ModeResult | None]:
        """Return where the run stands, and the answer of a mode that has one of its own."""
        if self._shown is None:
            replay = self._replay or await self._rebuilt()
            self._shown = await asyncio.to_thread(self._work_out, *replay)
        standing, result = self._shown
        # labels lie beside the log, and come while it rests
        return await with_labels(standing, self.texts, self.place), result

    async def texts(self) -> RunTexts:
        """Return the run's texts."""
        state = self.state
        size = len(state.candidates), len(state.example_ids)
        # Candidates and examples can join a run, and the replay has a state of its own.
        if self._texts is None or self._texts_size != size or self._texts.state is not state:
            self._texts = await texts_of(self._store, self.run_id, state, folder_of(self.place))
            self._texts_size = size
        return self._texts

    async def _rebuilt(self) -> tuple[Mode, RunRecord]:
        """Replay the log; then what is new goes to the replay."""
        mode, replay = await recorded_replay(self._store, self.run_id, self.place)
        await replay.take_all(self._store, self.run_id)
        # a certification reads its plan off the whole log, and is built anew each time
        if replay.state.n_asked and not isinstance(mode, Certification):
            self._replay = mode, replay
            self._folded = RunState()
        elif not self._folded.n_events:
            self._folded = replay.state
        return mode, replay

    async def _read_second(self) -> None:
        """Read what is new of the run that confirms winners, if there is one yet."""
        name, since = f"{self.run_id}{CONFIRMS}", self._second.n_events
        with suppress(RunNotFoundError):
            async for page in self._store.lines_of(name, since=since):
                self._shown = None
                await asyncio.to_thread(self._second.take, page)

    def _take(self, page: Sequence[tuple[str, str]]) -> None:
        # Folding is enough where nothing was asked, or a mode reads the whole log each time.
        if self._replay is not None:
            self._replay[1].take(page)
        else:
            self._folded.take(page)

    def _work_out(self, mode: Mode, replay: RunRecord) -> tuple[Standing, ModeResult | None]:
        standing = build_standing(replay.state, replay.pairs, self.run_id, replay.objective)
        standing = confirmed(standing, self._second if self._second.n_events else None)
        return standing, mode.result(replay.pairs, standing)
