"""A store that ends with its process, for tests and throw-away studies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import datetime

from bestarm_agent.domain.events import Event
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.errors import StoreError
from bestarm_agent.store.base import RunInfo
from bestarm_agent.store.codec import (
    OF_PAIRS,
    dump_event,
    dump_reply,
    kind_of,
    load_event,
    load_reply,
)
from bestarm_agent.store.locks import in_use
from bestarm_agent.store.named_states import overtaken
from bestarm_agent.store.run_listing import Progress, new_run_id, resolve, utc_now


class MemoryStore:
    """Runs and replies in memory, encoded as in a file; ``now`` gives the UTC time for run ids."""

    def __init__(self, *, now: Callable[[], datetime] = utc_now) -> None:
        self._now = now
        self._logs: dict[str, MemoryLog] = {}  # in the order of beginning
        self._replies: dict[str, str] = {}
        self._claims: set[str] = set()
        self._states: dict[str, tuple[int, bytes]] = {}

    async def create(self, name: str) -> MemoryLog:
        """Begin a run with a fresh id; it is listed once its ``Started`` event is flushed."""
        while (run_id := new_run_id(self._now())) in self._logs:
            pass
        log = self._logs[run_id] = MemoryLog(run_id, name)
        return log

    async def open(self, run: str) -> MemoryLog:
        """Open a run for appending."""
        log = self._logs[(await self.find(run)).id]
        log.reopen()
        return log

    async def runs(self) -> Sequence[RunInfo]:
        """Return all runs, oldest first."""
        return [log.durable.info() for log in self._logs.values() if log.durable.n_events]

    async def find(self, run: str) -> RunInfo:
        """Find a run, to read it."""
        return resolve(run, await self.runs())

    async def events_of(self, run: str, *, since: int = 0) -> Sequence[Event]:
        """Return a run's flushed events from number ``since`` on."""
        return (await self._logs[(await self.find(run)).id].events())[since:]

    async def pages_of(self, run: str, *, since: int = 0) -> AsyncIterator[Sequence[Event]]:
        """Iterate over a run's flushed events from number ``since`` on, all at once."""
        if events := await self.events_of(run, since=since):
            yield events

    async def outline_of(self, run: str) -> Sequence[Event]:
        """Return a run's flushed events that are not about a pair."""
        return [one for one in await self.events_of(run) if kind_of(one) not in OF_PAIRS]

    async def get_reply(self, key: str) -> Reply | None:
        """Return the stored reply, or None."""
        payload = self._replies.get(key)
        return None if payload is None else load_reply(payload)

    async def put_reply(self, key: str, reply: Reply) -> None:
        """Store a reply. A second reply under a key is ignored."""
        self._replies.setdefault(key, dump_reply(reply))

    async def replies(self) -> AsyncIterator[tuple[str, Reply]]:
        """Iterate over all stored replies, by key."""
        for key in sorted(self._replies):
            yield key, load_reply(self._replies[key])

    async def claim_reply(self, key: str) -> bool:
        """Try to claim the right to buy the reply of a key."""
        if key in self._claims:
            return False
        self._claims.add(key)
        return True

    async def release_reply(self, key: str) -> None:
        """Give a claim back, if it is held."""
        self._claims.discard(key)

    async def get_state(self, name: str) -> tuple[int, bytes] | None:
        """Return a named state's newest version."""
        return self._states.get(name)

    async def put_state(self, name: str, data: bytes, *, after: int) -> int:
        """Store the version of a named state that follows ``after``."""
        present = self._states[name][0] if name in self._states else 0
        if present != after:
            raise overtaken(name, after, present)
        self._states[name] = (after + 1, data)
        return after + 1

    async def close(self) -> None:
        """Flush and close every log; the store stays readable."""
        self._claims.clear()
        for log in self._logs.values():
            await log.close()


class MemoryLog:
    """The log of one run."""

    def __init__(self, run_id: str, name: str) -> None:
        self.run_id = run_id
        self.durable = Progress(run_id, name)  # as of the last flush
        self._progress = Progress(run_id, name)
        self._queued: list[str] = []
        self._flushed: list[str] = []
        self._closed = False

    def append(self, event: Event) -> None:
        """Queue an event for the next flush."""
        if self._closed:
            raise StoreError(f"the log of run {self.run_id} is closed; open the run again")
        payload = dump_event(event)
        self._progress.note(event)
        self._queued.append(payload)

    async def flush(self) -> None:
        """Make everything queued so far readable."""
        self._flushed += self._queued
        self._queued = []
        self.durable = replace(self._progress)

    async def events(self) -> Sequence[Event]:
        """Return all flushed events, oldest first."""
        return [load_event(payload) for payload in self._flushed]

    async def close(self) -> None:
        """Flush, and let others open the run."""
        await self.flush()
        self._closed = True

    def reopen(self) -> None:
        """Allow appending again; raises StoreError if the log is open."""
        if not self._closed:
            raise in_use(self.run_id, "")
        self._closed = False
