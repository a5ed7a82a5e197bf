"""The store that runs use: SQLite in one file by default, PostgreSQL by URL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import Connection

from bestarm_agent.domain.events import Event
from bestarm_agent.domain.exchange import Reply
from bestarm_agent.errors import StoreError
from bestarm_agent.store.base import RunInfo
from bestarm_agent.store.codec import dump_event, dump_reply, kind_of, load_reply
from bestarm_agent.store.database import Database, explaining, open_database, writing
from bestarm_agent.store.listing import Progress, new_run_id, resolve, utc_now
from bestarm_agent.store.reader import Reader
from bestarm_agent.store.states import read_state, write_state
from bestarm_agent.store.writer import GroupWriter


class SqlStore:
    """Runs and replies in a database.

    One thread writes; whatever queues up while it commits shares the next transaction. Every
    method runs on the event loop that connected the store. SQLite works in WAL mode with
    ``synchronous=NORMAL``: a killed process loses nothing that was flushed; a power cut may take
    the last moments, but never leaves a gap.

    Example:
        >>> async def demo(path):
        ...     async with await SqlStore.connect(path) as store:
        ...         await store.put_reply("key", Reply("42"))
        ...         return (await store.get_reply("key")).text
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     asyncio.run(demo(f"{folder}/runs.db"))
        '42'
    """

    def __init__(
        self, database: Database, writer: GroupWriter, now: Callable[[], datetime]
    ) -> None:
        self._database = database
        self._writer = writer
        self._reader = Reader(database)
        self._now = now
        self._closed = False

    @classmethod
    async def connect(
        cls,
        url_or_path: str | Path,
        *,
        create: bool = True,
        now: Callable[[], datetime] = utc_now,
    ) -> Self:
        """Open a store, or make an empty one (a file for the user alone, mode 0600).

        Args:
            url_or_path: path of an SQLite file, or ``postgresql://user@host/database``.
            create: whether to make the file if there is none.
            now: tells the time in UTC, for run ids.

        Raises:
            ConfigError: the URL is not understood, or its driver is not installed.
            StoreVersionError: a newer version of the package wrote it; nothing is changed.
            StoreError: it cannot be opened or is not a store; it is absent and not to be created.
        """
        database, connections = await asyncio.to_thread(_connect, url_or_path, create)
        return cls(database, GroupWriter(database, connections), now)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; a failed write is raised, or noted on the error that is already on its way."""
        try:
            await self.close()
        except StoreError as failure:
            if exc is None:
                raise
            if failure is not exc:
                exc.add_note(str(failure))

    async def create(self, name: str) -> SqlLog:
        """Begin a run with a fresh id; it is listed once its ``Started`` event is durable."""
        taken = {info.id for info in await self._reader.runs()}
        while (run_id := new_run_id(self._now())) in taken:
            pass
        await asyncio.to_thread(self._database.lock, run_id)
        return SqlLog(Progress(run_id, name), self._database, self._writer)

    async def open(self, run: str) -> SqlLog:
        """Open a run for appending.

        Raises:
            RunNotFoundError: no such run, or several; the message lists what there is.
            StoreError: another live process is writing it.
        """
        run_id = (await self.find(run)).id
        await asyncio.to_thread(self._database.lock, run_id)
        # read only now: whoever held the lock before may have written since
        progress = await self._reader.progress(run_id)
        return SqlLog(progress, self._database, self._writer)

    async def runs(self) -> Sequence[RunInfo]:
        """All runs, oldest first."""
        return await self._reader.runs()

    async def find(self, run: str) -> RunInfo:
        """Look a run up, to read it.

        Raises:
            RunNotFoundError: no such run, or several; the message lists what there is.
        """
        return resolve(run, await self._reader.runs())

    async def events_of(self, run: str, *, since: int = 0) -> Sequence[Event]:
        """A run's durable events from number ``since`` >= 0 on, oldest first.

        Raises:
            RunNotFoundError: no such run, or several; the message lists what there is.
            StoreError: the log is damaged.
        """
        return await self._reader.events((await self.find(run)).id, since)

    async def get_reply(self, key: str) -> Reply | None:
        """Look a reply up; lookups of one moment share one query."""
        batch = self._writer.batch()
        batch.wanted.add(key)
        await self._writer.wait(batch)
        payload = batch.found.get(key)
        return None if payload is None else load_reply(payload)

    async def put_reply(self, key: str, reply: Reply) -> None:
        """Store a reply; it is durable on return. A second reply under a key is ignored.

        It is stored even if the caller is cancelled while it waits.
        """
        payload = dump_reply(reply)
        batch = self._writer.batch()
        batch.replies.append({"key": key, "payload": payload})
        await self._writer.wait(batch)

    def replies(self) -> AsyncIterator[tuple[str, Reply]]:
        """All cached replies, by key."""
        return self._reader.replies()

    async def get_state(self, name: str) -> tuple[int, bytes] | None:
        """Look a named state up: its newest version's number and content, or None."""
        return await asyncio.to_thread(read_state, self._database, name)

    async def put_state(self, name: str, data: bytes, *, after: int) -> int:
        """Store the version of a named state that follows ``after``; durable on return.

        Raises:
            StoreError: ``after`` is not the newest version, for another process stored one.
        """
        return await asyncio.to_thread(write_state, self._database, name, data, after)

    async def close(self) -> None:
        """Write what is queued and let go of the store.

        Raises:
            StoreError: something could not be written, now or before.
        """
        if self._closed:
            return
        self._closed = True
        await self._writer.close()
        await asyncio.to_thread(self._database.close)
        if self._writer.failure is not None:
            raise self._writer.failure


class SqlLog:
    """The log of one run, whose lock it holds until it or its store is closed.

    Attributes:
        run_id: the run's id.
    """

    def __init__(self, progress: Progress, database: Database, writer: GroupWriter) -> None:
        self.run_id = progress.id
        self._progress = progress
        self._database = database
        self._writer = writer
        self._reader = Reader(database)
        self._closed = False

    def append(self, event: Event) -> None:
        """Queue an event for the next group commit; returns at once.

        Raises:
            ValueError: JSON cannot hold it, its ``base`` is an absolute path, or the first event
                is not ``Started`` under the run's name.
            StoreError: an earlier write failed, or the log is closed.
        """
        if self._closed:
            raise StoreError(f"the log of run {self.run_id} is closed; open the run again")
        payload = dump_event(event)
        batch, progress = self._writer.batch(), self._progress
        n = progress.n_events
        progress.note(event)
        if n == 0:
            batch.runs.append(asdict(progress))
        row = {"run_id": self.run_id, "n": n, "kind": kind_of(event), "payload": payload}
        batch.events.append({**row, "seq": getattr(event, "seq", None)})
        batch.progress[self.run_id] = {
            "run": self.run_id,
            "n_events": progress.n_events,
            "n_asked": progress.n_asked,
            "n_told": progress.n_told,
            "stopped": progress.stopped,
        }

    async def flush(self) -> None:
        """Wait until everything queued so far is durable.

        Raises:
            StoreError: it could not be written; nothing after it will be.
        """
        await self._writer.wait()

    async def events(self) -> Sequence[Event]:
        """All durable events, oldest first."""
        return await self._reader.events(self.run_id, 0)

    async def close(self) -> None:
        """Flush, and let others open the run.

        Raises:
            StoreError: something could not be written.
        """
        if self._closed:
            return
        self._closed = True
        try:
            await self._writer.wait()
        finally:
            await asyncio.to_thread(self._database.release, self.run_id)


def _connect(
    url_or_path: str | Path, create: bool
) -> tuple[Database, tuple[Connection, Connection]]:
    """Open the database and the writer's two connections."""
    database = open_database(url_or_path, create=create)
    with explaining(database.where):
        return database, (writing(database.engine), database.engine.connect())
