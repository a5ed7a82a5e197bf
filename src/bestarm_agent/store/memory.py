"""A store that ends with its process, for tests and throw-away studies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import datetime

from bestarm_agent.domain.events import Event
from bestarm_agent.domain.exchange import Reply
from bestarm_agent.errors import StoreError
from bestarm_agent.store.base import RunInfo
from bestarm_agent.store.codec import dump_event, dump_reply, load_event, load_reply
from bestarm_agent.store.listing import Progress, new_run_id, resolve, utc_now
from bestarm_agent.store.locks import in_use
from bestarm_agent.store.states import overtaken


class MemoryStore:
    """Runs and replies in memory, in the form in which they would be stored.

    Args:
        now: tells the time in UTC, for run ids.
    """

    def __init__(self, *, now: Callable[[], datetime] = utc_now) -> None:
        self._now = now
        self._logs: dict[str, MemoryLog] = {}  # in the order of beginning
        self._replies: dict[str, str] = {}
        self._states: dict[str, tuple[int, bytes]] = {}

    async def create(self, name: str) -> MemoryLog:
        """Begin a run with a fresh id; it is listed once its ``Started`` event is flushed."""
        while (run_id := new_run_id(self._now())) in self._logs:
            pass
        log = self._logs[run_id] = MemoryLog(run_id, name)
        return log

    async def open(self, run: str) -> MemoryLog:
        """Open a run for appending.

        Raises:
            RunNotFoundError: no such run, or several; the message lists what there is.
            StoreError: it is open already.
        """
        log = self._logs[(await self.find(run)).id]
        log.reopen()
        return log

    async def runs(self) -> Sequence[RunInfo]:
        """All runs, oldest first."""
        return [log.durable.info() for log in self._logs.values() if log.durable.n_events]

    async def find(self, run: str) -> RunInfo:
        """Look a run up, to read it.

        Raises:
            RunNotFoundError: no such run, or several; the message lists what there is.
        """
        return resolve(run, await self.runs())

    async def events_of(self, run: str, *, since: int = 0) -> Sequence[Event]:
        """A run's flushed events from number ``since`` >= 0 on, oldest first.

        Raises:
            RunNotFoundError: no such run, or several; the message lists what there is.
        """
        return (await self._logs[(await self.find(run)).id].events())[since:]

    async def get_reply(self, key: str) -> Reply | None:
        """Look a reply up."""
        payload = self._replies.get(key)
        return None if payload is None else load_reply(payload)

    async def put_reply(self, key: str, reply: Reply) -> None:
        """Store a reply. A second reply under a key is ignored."""
        self._replies.setdefault(key, dump_reply(reply))

    async def replies(self) -> AsyncIterator[tuple[str, Reply]]:
        """All cached replies, by key."""
        for key in sorted(self._replies):
            yield key, load_reply(self._replies[key])

    async def get_state(self, name: str) -> tuple[int, bytes] | None:
        """Look a named state up: its newest version's number and content, or None."""
        return self._states.get(name)

    async def put_state(self, name: str, data: bytes, *, after: int) -> int:
        """Store the version of a named state that follows ``after``.

        Raises:
            StoreError: ``after`` is not the newest version.
        """
        present = self._states[name][0] if name in self._states else 0
        if present != after:
            raise overtaken(name, after, present)
        self._states[name] = (after + 1, data)
        return after + 1

    async def close(self) -> None:
        """Flush and close every log; what the store holds stays readable."""
        for log in self._logs.values():
            await log.close()


class MemoryLog:
    """The log of one run.

    Attributes:
        run_id: the run's id.
        durable: the run's progress as of the last flush.
    """

    def __init__(self, run_id: str, name: str) -> None:
        self.run_id = run_id
        self.durable = Progress(run_id, name)
        self._progress = Progress(run_id, name)
        self._queued: list[str] = []
        self._flushed: list[str] = []
        self._closed = False

    def append(self, event: Event) -> None:
        """Queue an event for the next flush.

        Raises:
            ValueError: JSON cannot hold it, its ``base`` is an absolute path, or the first event
                is not ``Started`` under the run's name.
            StoreError: the log is closed.
        """
        if self._closed:
            raise StoreError(f"the log of run {self.run_id} is closed; open the run again")
        payload = dump_event(event)
        self._progress.note(event)
        self._queued.append(payload)

    async def flush(self) -> None:
        """Keep everything queued so far."""
        self._flushed += self._queued
        self._queued = []
        self.durable = replace(self._progress)

    async def events(self) -> Sequence[Event]:
        """All flushed events, oldest first."""
        return [load_event(payload) for payload in self._flushed]

    async def close(self) -> None:
        """Flush, and let others open the run."""
        await self.flush()
        self._closed = True

    def reopen(self) -> None:
        """Take up appending again; raises StoreError if the log is open."""
        if not self._closed:
            raise in_use(self.run_id, "")
        self._closed = False
