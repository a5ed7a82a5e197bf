"""The log of prompts answered under a router: what was asked, what became of it, what it cost.

It is a run's log, so that `list`, `show`, `report`, `export` and `--history` can read it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from bestarm_agent.assembly import Parts
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.events import Asked, Event, Started, Stopped, Told
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Outcome
from bestarm_agent.endings import End
from bestarm_agent.journal import Journal, examples_added, judged
from bestarm_agent.replies import Replies
from bestarm_agent.routing.recorded import ROUTED
from bestarm_agent.schedule.clock import Clock
from bestarm_agent.schedule.ledger import Ledger
from bestarm_agent.store.base import RunStore
from bestarm_agent.store.fold import RunState


class RoundLog:
    """Writes what happens to a run's log, from the first prompt to the last.

    Made by ``RoundLog.begin``. A pair is logged at most once, so an example that comes again joins
    as another column, and so does one that is not of the study's dataset.

    Attributes:
        run_id: the run's id in the store.
        end: why prompts were refused last, or None.
    """

    def __init__(self, journal: Journal, run_id: str, clock: Clock, failed_score: float) -> None:
        self.run_id = run_id
        self.end: End | None = None
        self._journal = journal
        self._clock = clock
        self._failed_score = failed_score
        self._began = clock.now()
        state = journal.state
        self._row = {candidate.label: i for i, candidate in enumerate(state.candidates)}
        self._unused: dict[tuple[str, str], deque[int]] = {}
        known = zip(state.example_ids, state.example_digests, strict=True)
        for column, example in enumerate(known):
            self._unused.setdefault(example, deque()).append(column)

    @classmethod
    async def begin(
        cls, store: RunStore, parts: Parts, events: Sequence[Event], router: str, clock: Clock
    ) -> RoundLog:
        """Begin a log.

        Args:
            store: where it is kept.
            parts: the study.
            events: what the log of a run of the study begins with.
            router: name of the router.
            clock: tells the time.

        Raises:
            StoreError: it could not be written.
        """
        started, *others = events
        if not isinstance(started, Started) or not isinstance(started.config, Mapping):
            raise ValueError(f"a log begins with Started and a configuration, got {started}")
        config: Json = {**started.config, ROUTED: {"router": router}}
        name = f"{started.name}-{ROUTED}"
        log = await store.create(name)
        journal = Journal(log, RunState())
        for event in (replace(started, name=name, config=config), *others):
            journal.record(event)
        await journal.flush()
        return cls(journal, log.run_id, clock, parts.config.limits.failed_score)

    @property
    def next_seq(self) -> int:
        """The number of the next ask."""
        return len(self._journal.state.asks)

    async def asked(self, example: Example, candidates: Sequence[str], rule: str) -> None:
        """Log that candidates are asked, under the next numbers; durable on return.

        Raises:
            StoreError: it could not be written.
        """
        unused = self._unused.get((example.id, example.digest))
        if unused:
            column = unused.popleft()
        else:
            column = len(self._journal.state.example_ids)
            self._journal.record(examples_added([example]))
        for name in candidates:
            self._journal.record(Asked(self.next_seq, self._row[name], column, None, rule))
        await self._journal.flush()

    def told(self, seq: int, outcome: Outcome) -> None:
        """Log what became of an ask."""
        _, score = judged(outcome, self._failed_score)
        self._journal.record(Told(seq, outcome, score, self._sitting()))

    @asynccontextmanager
    async def closed_with(self, ledger: Ledger, replies: Replies) -> AsyncIterator[None]:
        """Log at the end of the block why it ended, with the books and the replies' remarks."""
        end = End.INTERRUPTED
        try:
            yield
            end = self.end or End.SERVED
        except Exception:
            end = End.ERROR
            raise
        finally:
            told = (self._sitting(), ledger.close(), replies.remarks())
            self._journal.record(Stopped(self._clock.utc(), end.value, *told))
            await self._journal.flush()

    def _sitting(self) -> float:
        return self._clock.now() - self._began
