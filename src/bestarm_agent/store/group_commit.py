"""Group commit: one thread owns the writing connection and commits all that queued meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeAlias

from sqlalchemy import Connection, bindparam, select, update
from sqlalchemy.dialects import postgresql, sqlite

from bestarm_agent.errors import StoreError
from bestarm_agent.store import tables
from bestarm_agent.store.database import Connections, Database, explaining

Row: TypeAlias = dict[str, Any]

_LONGEST_WAIT = 0.2  # seconds that rows are kept from other readers when nothing waits for them
_LOOKUPS = 500  # keys in one SELECT; SQLite takes 32,766 parameters, PostgreSQL 65,535

# by dialect, table, and whether a row may be there already; made once: SQLAlchemy takes longer to
# compile a statement again than SQLite to carry it out
_INSERTS = {
    (dialect.__name__.rpartition(".")[2], table.name, may_exist): (
        insert.on_conflict_do_nothing() if may_exist else insert
    )
    for dialect in (sqlite, postgresql)
    for table in (tables.runs, tables.events, tables.replies)
    for insert in (dialect.insert(table),)
    for may_exist in (False, True)
}
_UPDATE_RUNS = (
    update(tables.runs)
    .where(tables.runs.c.id == bindparam("run"))
    .values({name: bindparam(name) for name in ("n_events", "n_asked", "n_told", "stopped")})
)
_FIND_REPLIES = select(tables.replies.c.key, tables.replies.c.payload).where(
    tables.replies.c.key.in_(bindparam("keys", expanding=True))
)


@dataclass(slots=True)
class Batch:
    """Rows that are committed together."""

    runs: list[Row] = field(default_factory=list)
    progress: dict[str, Row] = field(default_factory=dict)  # by run: its counts after the events
    events: list[Row] = field(default_factory=list)  # in the order of appending
    replies: list[Row] = field(default_factory=list)
    wanted: set[str] = field(default_factory=set)  # keys of replies to look up after the writing
    found: dict[str, str] = field(default_factory=dict)  # payloads of those that are stored
    done: asyncio.Event = field(default_factory=asyncio.Event)  # all is durable, or has failed


class GroupWriter:
    """Writes batches, in order, in as few transactions as the traffic allows.

    While one transaction commits, the next batches share the following one. Every method runs on
    the event loop that made the writer, which owns ``connections``. The first failure is final: a
    log with a gap is worse than one that ends early. A server that restarts is no failure.
    """

    def __init__(self, database: Database, connections: Connections) -> None:
        self.failure: StoreError | None = None  # why nothing can be written any more
        self._database = database
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._open: Batch | None = None  # not handed over yet
        self._due: asyncio.Handle | None = None  # hands it over
        self._latest: Batch | None = None  # the last one handed over
        self._closed = False
        self._inbox: SimpleQueue[Batch | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="bestarm-store", daemon=True)
        self._thread.start()

    def batch(self) -> Batch:
        """Return the batch to add to; raise StoreError after a failed write.

        It is handed over at the end of the turn of the loop in which something waits for it. What
        nothing waits for goes with the next batch, so that a call alone costs one commit less.
        """
        if self.failure is not None:
            raise self.failure
        if self._closed:
            raise StoreError(f"{self._database.where} is closed; connect to it again")
        if self._open is None:
            self._open = Batch()
            self._due = self._loop.call_later(_LONGEST_WAIT, self.hand_over)
        return self._open

    async def wait(self, batch: Batch | None = None) -> None:
        """Wait until a batch, or else all that is queued, is durable; raise StoreError if not."""
        batch = batch or self._open or self._latest
        if batch is not None and batch is self._open and isinstance(self._due, asyncio.TimerHandle):
            self._due.cancel()
            self._due = self._loop.call_soon(self.hand_over)
        if batch is not None:
            await batch.done.wait()
        if self.failure is not None:
            raise self.failure

    async def close(self) -> None:
        """Write what is queued and end the thread; ``failure`` is set if that went wrong."""
        self._closed = True
        self.hand_over()
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join)

    def hand_over(self) -> None:
        """Give the open batch to the thread now."""
        if self._open is not None:
            self._latest, self._open = self._open, None
            if self._due is not None:
                self._due.cancel()
            self._inbox.put(self._latest)

    def _run(self) -> None:
        failure: StoreError | None = None
        with self._connections:
            while batches := self._take():
                found: dict[str, str] = {}
                if failure is None:
                    try:
                        found = self._transact(batches)
                    except Exception as error:  # raised by all that wait, now and later
                        failure = self._as_store_error(error)
                self._report(batches, found, failure)

    def _take(self) -> list[Batch]:
        batches = [self._inbox.get()]
        while batches[-1] is not None and not self._inbox.empty():
            batches.append(self._inbox.get())
        if batches[-1] is None:
            self._inbox.put(None)  # for the next time
        return [batch for batch in batches if batch is not None]

    def _transact(self, batches: Sequence[Batch]) -> dict[str, str]:
        wanted = list(set[str]().union(*(batch.wanted for batch in batches)))
        attempt = 0

        def work() -> dict[str, str]:
            nonlocal attempt
            attempt += 1
            if any(batch.events or batch.replies for batch in batches):
                with self._connections.writing.begin():
                    _write(self._connections.writing, batches, again=attempt > 1)
                self._connections.after_commit()
            return _look_up(self._connections.reading, wanted) if wanted else {}

        with explaining(self._database.where):
            found = self._database.patiently(work, self._connections)
        self._database.check_place()
        return found

    def _as_store_error(self, error: Exception) -> StoreError:
        if isinstance(error, StoreError):
            return error
        return StoreError(f"{self._database.where} could not be written: {error!r}")

    def _report(
        self, batches: Sequence[Batch], found: dict[str, str], failure: StoreError | None
    ) -> None:
        """Wake all that wait for these batches, by one call into the event loop."""
        with suppress(RuntimeError):  # the loop has ended: nothing waits any more
            self._loop.call_soon_threadsafe(self._finish, batches, found, failure)

    def _finish(
        self, batches: Sequence[Batch], found: dict[str, str], failure: StoreError | None
    ) -> None:
        self.failure = failure
        for batch in batches:
            batch.found = found
            batch.done.set()


def _write(connection: Connection, batches: Sequence[Batch], *, again: bool) -> None:
    """Write the rows; ``again``: they may be there already, from a commit that was not answered."""
    dialect = connection.dialect.name
    rows_of = {
        tables.runs: [row for batch in batches for row in batch.runs],
        tables.events: [row for batch in batches for row in batch.events],
        tables.replies: [row for batch in batches for row in batch.replies],
    }
    for table, rows in rows_of.items():
        if rows:
            may_exist = again or table is tables.replies
            connection.execute(_INSERTS[dialect, table.name, may_exist], rows)
    progress = {run: row for batch in batches for run, row in batch.progress.items()}
    if progress:
        connection.execute(_UPDATE_RUNS, list(progress.values()))


def _look_up(connection: Connection, keys: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    with connection.begin():
        for start in range(0, len(keys), _LOOKUPS):
            some = {"keys": keys[start : start + _LOOKUPS]}
            found |= dict(connection.execute(_FIND_REPLIES, some).all())
    return found
