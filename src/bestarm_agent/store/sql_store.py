"""The store that runs use: SQLite in one file by default, PostgreSQL by URL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from bestarm_agent.domain.events import Event
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.errors import RunNotFoundError, StoreError
from bestarm_agent.store.base import RunInfo
from bestarm_agent.store.codec import dump_event, dump_reply, kind_of, load_reply
from bestarm_agent.store.database import Connections, Database, explaining, open_database
from bestarm_agent.store.group_commit import GroupWriter
from bestarm_agent.store.named_states import read_state, write_state
from bestarm_agent.store.reader import Reader
from bestarm_agent.store.run_listing import Progress, new_run_id, resolve, utc_now

_logger = logging.getLogger(__name__)
_FREQUENT = ("asked", "told")  # logged at debug level
_SHOWN_CHARACTERS = 200


class SqlStore:
    """Runs and replies in a database; see ``RunStore`` for the methods.

    One thread writes; everything that queues up while it commits shares the next transaction.
    Every method runs on the event loop that connected the store. SQLite works in WAL mode with
    ``synchronous=NORMAL``: a killed process loses nothing that was flushed; a power cut may lose
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
            create: make the file if there is none.
            now: returns the time in UTC, for run ids.

        Raises:
            ConfigError: the URL is not understood, or its driver is not installed.
            StoreVersionError: a newer version of the package wrote it.
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
        """Close; a failed write is raised, or noted on the error that is being raised."""
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
        """Open a run for appending."""
        run_id = (await self.find(run)).id
        await asyncio.to_thread(self._database.lock, run_id)
        # read only now: the last holder of the lock may have written since
        progress = await self._reader.progress(run_id)
        return SqlLog(progress, self._database, self._writer)

    async def runs(self) -> Sequence[RunInfo]:
        """Return all runs, oldest first."""
        return await self._reader.runs()

    async def find(self, run: str) -> RunInfo:
        """Find a run, to read it."""
        runs = await self._reader.runs()
        file = self._database.file
        if not runs and file is not None and not file.has_log:
            raise RunNotFoundError(
                f"there is no run {run!r}: {self._database.where} is empty; if it was copied while "
                f"it was in use, copy the file {file.path.name}-wal too, else begin a run with "
                f"`bestarm-agent select`"
            )
        return resolve(run, runs)

    async def events_of(self, run: str, *, since: int = 0) -> Sequence[Event]:
        """Return a run's durable events from number ``since`` on."""
        return await self._reader.events((await self.find(run)).id, since)

    async def pages_of(self, run: str, *, since: int = 0) -> AsyncIterator[Sequence[Event]]:
        """Iterate over a run's durable events from number ``since`` on, some at a time."""
        run_id = (await self.find(run)).id
        async for page in self._reader.pages(run_id, since):
            yield page

    async def outline_of(self, run: str) -> Sequence[Event]:
        """Return a run's durable events that are not about a pair."""
        return await self._reader.outline((await self.find(run)).id)

    async def get_reply(self, key: str) -> Reply | None:
        """Return the stored reply, or None; lookups of one moment share one query."""
        batch = self._writer.batch()
        batch.wanted.add(key)
        await self._writer.wait(batch)
        payload = batch.found.get(key)
        return None if payload is None else load_reply(payload)

    async def put_reply(self, key: str, reply: Reply) -> None:
        """Store a reply; it is durable on return."""
        payload = dump_reply(reply)
        batch = self._writer.batch()
        batch.replies.append({"key": key, "payload": payload})
        self._writer.hand_over()  # it was paid for: do not wait for the end of the loop's turn
        await self._writer.wait(batch)

    def replies(self) -> AsyncIterator[tuple[str, Reply]]:
        """Iterate over all stored replies, by key."""
        return self._reader.replies()

    async def claim_reply(self, key: str) -> bool:
        """Try to claim the right to buy the reply of a key."""
        return await self._database.claim(key)

    async def release_reply(self, key: str) -> None:
        """Give a claim back, if it is held."""
        await self._database.unclaim(key)

    async def get_state(self, name: str) -> tuple[int, bytes] | None:
        """Return a named state's newest version."""
        return await asyncio.to_thread(read_state, self._database, name)

    async def put_state(self, name: str, data: bytes, *, after: int) -> int:
        """Store the version of a named state that follows ``after``."""
        return await asyncio.to_thread(write_state, self._database, name, data, after)

    async def close(self) -> None:
        """Write what is queued and close the store."""
        if self._closed:
            return
        self._closed = True
        await self._writer.close()
        await asyncio.to_thread(self._database.close)
        if self._writer.failure is not None:
            raise self._writer.failure


class SqlLog:
    """The log of one run; it holds the run's lock until it or its store is closed."""

    def __init__(self, progress: Progress, database: Database, writer: GroupWriter) -> None:
        self.run_id = progress.id
        self._progress = progress
        self._database = database
        self._writer = writer
        self._reader = Reader(database)
        self._closed = False

    def append(self, event: Event) -> None:
        """Queue an event for the next group commit and return at once."""
        if self._closed:
            raise StoreError(f"the log of run {self.run_id} is closed; open the run again")
        payload, kind = dump_event(event), kind_of(event)
        batch, progress = self._writer.batch(), self._progress
        n = progress.n_events
        progress.note(event)
        if n == 0:
            batch.runs.append(asdict(progress))
        row = {"run_id": self.run_id, "n": n, "kind": kind, "payload": payload}
        batch.events.append({**row, "seq": getattr(event, "seq", None)})
        batch.progress[self.run_id] = progress.counts()
        level = logging.DEBUG if kind in _FREQUENT else logging.INFO
        _logger.log(level, "run %s: %.*s", self.run_id, _SHOWN_CHARACTERS, payload)

    async def flush(self) -> None:
        """Wait until everything queued so far is durable."""
        await self._writer.wait()

    async def events(self) -> Sequence[Event]:
        """Return all durable events, oldest first."""
        return await self._reader.events(self.run_id, 0)

    async def close(self) -> None:
        """Flush, and let others open the run."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._writer.wait()
        finally:
            await asyncio.to_thread(self._database.release, self.run_id)


def _connect(url_or_path: str | Path, create: bool) -> tuple[Database, Connections]:
    database = open_database(url_or_path, create=create)
    with explaining(database.where):
        return database, Connections(database.engine)
