"""Group commit: one thread owns the writing connection and commits all that queued meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeAlias

from sqlalchemy import Connection, bindparam, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from bestarm_agent.errors import StoreError
from bestarm_agent.store import schema
from bestarm_agent.store.database import Database, explaining

Row: TypeAlias = dict[str, Any]

_LOOKUPS = 500  # keys in one SELECT; SQLite takes 32,766 parameters, PostgreSQL 65,535

_ADD_RUNS = insert(schema.runs)
_ADD_EVENTS = insert(schema.events)
_UPDATE_RUNS = (
    update(schema.runs)
    .where(schema.runs.c.id == bindparam("run"))
    .values({name: bindparam(name) for name in ("n_events", "n_asked", "n_told", "stopped")})
)
_ADD_REPLIES = {
    "sqlite": sqlite.insert(schema.replies).on_conflict_do_nothing(),
    "postgresql": postgresql.insert(schema.replies).on_conflict_do_nothing(),
}
_FIND_REPLIES = select(schema.replies.c.key, schema.replies.c.payload).where(
    schema.replies.c.key.in_(bindparam("keys", expanding=True))
)


@dataclass(slots=True)
class Batch:
    """What one turn of the event loop queued; its parts are committed together.

    Attributes:
        runs: rows of runs that begin.
        progress: by run id, the run's counts after the events of this batch.
        events: rows of events, in the order of appending.
        replies: rows of replies.
        wanted: keys of replies to look up, after the writing.
        found: payloads of those that there are.
        done: set when all this is durable, or has failed.
    """

    runs: list[Row] = field(default_factory=list)
    progress: dict[str, Row] = field(default_factory=dict)
    events: list[Row] = field(default_factory=list)
    replies: list[Row] = field(default_factory=list)
    wanted: set[str] = field(default_factory=set)
    found: dict[str, str] = field(default_factory=dict)
    done: asyncio.Event = field(default_factory=asyncio.Event)


class GroupWriter:
    """Writes batches, in order, in as few transactions as the traffic allows.

    While one transaction commits, the next batches queue up and share the following one. Every
    method runs on the event loop that made the writer. The first failure is final: a log with a
    gap is worse than one that ends early.

    Args:
        database: where to write.
        connections: one that writes and one that reads; the writer's own from now on.

    Attributes:
        failure: why nothing can be written any more, or None.
    """

    def __init__(self, database: Database, connections: tuple[Connection, Connection]) -> None:
        self.failure: StoreError | None = None
        self._where = database.where
        self._for_writing, self._for_reading = connections
        self._loop = asyncio.get_running_loop()
        self._open: Batch | None = None  # to be handed over at the end of this turn of the loop
        self._latest: Batch | None = None  # the last one handed over
        self._closed = False
        self._inbox: SimpleQueue[Batch | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="bestarm-store", daemon=True)
        self._thread.start()

    def batch(self) -> Batch:
        """The batch to add to; it is handed over at the end of this turn of the event loop.

        Raises:
            StoreError: an earlier write failed, or the writer is closed.
        """
        if self.failure is not None:
            raise self.failure
        if self._closed:
            raise StoreError(f"{self._where} is closed; connect to it again")
        if self._open is None:
            self._open = Batch()
            self._loop.call_soon(self._hand_over)
        return self._open

    async def wait(self, batch: Batch | None = None) -> None:
        """Wait until a batch, or else everything queued so far, is durable.

        Raises:
            StoreError: it could not be written.
        """
        batch = batch or self._open or self._latest
        if batch is not None:
            await batch.done.wait()
        if self.failure is not None:
            raise self.failure

    async def close(self) -> None:
        """Write what is queued and end the thread; ``failure`` says whether that went well."""
        self._closed = True
        self._hand_over()
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join)

    def _hand_over(self) -> None:
        if self._open is not None:
            self._latest, self._open = self._open, None
            self._inbox.put(self._latest)

    def _run(self) -> None:
        """The thread: take, write, report, until the store closes."""
        failure: StoreError | None = None
        with self._for_writing, self._for_reading:
            while batches := self._take():
                found: dict[str, str] = {}
                if failure is None:
                    try:
                        found = self._transact(batches)
                    except Exception as error:  # handed to all who wait, now and later
                        failure = self._as_store_error(error)
                self._report(batches, found, failure)

    def _take(self) -> list[Batch]:
        """All batches that there are, at least one; none once the store closes."""
        batches = [self._inbox.get()]
        while batches[-1] is not None and not self._inbox.empty():
            batches.append(self._inbox.get())
        if batches[-1] is None and len(batches) > 1:
            self._inbox.put(None)  # for the next time
        return [batch for batch in batches if batch is not None]

    def _transact(self, batches: Sequence[Batch]) -> dict[str, str]:
        """Write the batches, then look up what they want; return what there is."""
        with explaining(self._where):
            if any(batch.events or batch.replies for batch in batches):
                with self._for_writing.begin():
                    _write(self._for_writing, batches)
            wanted = list(set[str]().union(*(batch.wanted for batch in batches)))
            return _look_up(self._for_reading, wanted) if wanted else {}

    def _as_store_error(self, error: Exception) -> StoreError:
        if isinstance(error, StoreError):
            return error
        return StoreError(f"{self._where} could not be written: {error!r}")

    def _report(
        self, batches: Sequence[Batch], found: dict[str, str], failure: StoreError | None
    ) -> None:
        """Wake all who wait for these batches, by one call into the event loop."""
        with suppress(RuntimeError):  # the loop has ended: nobody waits any more
            self._loop.call_soon_threadsafe(self._finish, batches, found, failure)

    def _finish(
        self, batches: Sequence[Batch], found: dict[str, str], failure: StoreError | None
    ) -> None:
        self.failure = failure
        for batch in batches:
            batch.found = found
            batch.done.set()


def _write(connection: Connection, batches: Sequence[Batch]) -> None:
    runs = [row for batch in batches for row in batch.runs]
    events = [row for batch in batches for row in batch.events]
    replies = [row for batch in batches for row in batch.replies]
    progress = {run: row for batch in batches for run, row in batch.progress.items()}
    if runs:
        connection.execute(_ADD_RUNS, runs)
    if events:
        connection.execute(_ADD_EVENTS, events)
        connection.execute(_UPDATE_RUNS, list(progress.values()))
    if replies:
        connection.execute(_ADD_REPLIES[connection.dialect.name], replies)


def _look_up(connection: Connection, keys: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    with connection.begin():
        for start in range(0, len(keys), _LOOKUPS):
            some = {"keys": keys[start : start + _LOOKUPS]}
            found |= dict(connection.execute(_FIND_REPLIES, some).all())
    return found
