"""The log of prompts answered under a router: what was asked, what became of it, what it cost.

It is a run's log, so that `list`, `show`, `report`, `export` and `--history` can read it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.events import Asked, Event, Started, Stopped, Told
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Outcome
from bestarm_agent.engine.calls.reply_cache import ReplyCache
from bestarm_agent.engine.clock import Clock
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.run.event_log import EventLog, examples_added, judged
from bestarm_agent.engine.run.stopping import End
from bestarm_agent.engine.setup.study_parts import StudyParts
from bestarm_agent.preselection.mode import ROUTED
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.store import Store


class RoundLog:
    """Writes what happens to a run's log, from the first prompt to the last.

    Made by ``RoundLog.begin``. A pair is logged at most once, so an example that comes again joins
    as another column, and so does one that is not of the study's dataset.
    """

    def __init__(self, event_log: EventLog, run_id: str, clock: Clock, failed_score: float) -> None:
        self.run_id = run_id
        self.end: End | None = None
        self._event_log = event_log
        self._clock = clock
        self._failed_score = failed_score
        self._began = clock.now()
        state = event_log.state
        self._row = {candidate.label: i for i, candidate in enumerate(state.candidates)}
        self._unused: dict[tuple[str, str], deque[int]] = {}
        known = zip(state.example_ids, state.example_digests, strict=True)
        for column, example in enumerate(known):
            self._unused.setdefault(example, deque()).append(column)

    @classmethod
    async def begin(
        cls, store: Store, parts: StudyParts, events: Sequence[Event], router: str, clock: Clock
    ) -> RoundLog:
        """Begin a log; raise StoreError if it could not be written."""
        started, *others = events
        if not isinstance(started, Started) or not isinstance(started.config, Mapping):
            raise ValueError(f"a log begins with Started and a configuration, got {started}")
        config: Json = {**started.config, ROUTED: {"router": router}}
        name = f"{started.name}-{ROUTED}"
        log = await store.create(name)
        event_log = EventLog(log, RunState())
        for event in (replace(started, name=name, config=config), *others):
            event_log.record(event)
        await event_log.flush()
        return cls(event_log, log.run_id, clock, parts.config.limits.failed_score)

    @property
    def next_seq(self) -> int:
        """The number of the next ask."""
        return len(self._event_log.state.asks)

    async def asked(self, example: Example, candidates: Sequence[str], rule: str) -> None:
        """Log that candidates are asked, under the next numbers; durable on return."""
        unused = self._unused.get((example.id, example.digest))
        if unused:
            column = unused.popleft()
        else:
            column = len(self._event_log.state.example_ids)
            self._event_log.record(examples_added([example]))
        for name in candidates:
            self._event_log.record(Asked(self.next_seq, self._row[name], column, None, rule))
        await self._event_log.flush()

    def told(self, seq: int, outcome: Outcome) -> None:
        """Log what became of an ask."""
        _, score = judged(outcome, self._failed_score)
        self._event_log.record(Told(seq, outcome, score, self._seconds()))

    @asynccontextmanager
    async def closed_with(self, ledger: Ledger, replies: ReplyCache) -> AsyncIterator[None]:
        """Log at the end of the block why it ended, with the ledger and the replies' remarks."""
        end = End.INTERRUPTED
        try:
            yield
            end = self.end or End.SERVED
        except Exception:
            end = End.ERROR
            raise
        finally:
            told = (self._seconds(), ledger.close(), replies.remarks())
            self._event_log.record(Stopped(self._clock.utc(), end.value, *told))
            await self._event_log.flush()

    def _seconds(self) -> float:
        return self._clock.now() - self._began
