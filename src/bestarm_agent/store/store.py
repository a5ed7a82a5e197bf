"""The store of runs and replies: SQLite in one file or in memory, PostgreSQL by URL.

One thread writes. Whatever queues up while it commits shares the next transaction. SQLite works
with a write-ahead log and ``synchronous=NORMAL``: a killed process loses nothing that was flushed;
a power cut may lose the last moments, but never leaves a gap.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import RLock, Thread
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    Select,
    StaticPool,
    Table,
    Text,
    bindparam,
    create_engine,
    delete,
    event,
    func,
    insert,
    inspect,
    make_url,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError

from bestarm_agent.domain.events import Asked, Event, Resumed, Started, Stopped, Told
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.errors import ConfigError, RunNotFoundError, StoreError, StoreVersionError
from bestarm_agent.store.codec import (
    OF_PAIRS,
    Line,
    dump_reply,
    event_of,
    line_of,
    load_reply,
)
from bestarm_agent.store.locks import SIGN_OF_LIFE_SECONDS, FileLocks, Locks, ServerLocks, patiently

_T = TypeVar("_T")
_Row: TypeAlias = dict[str, Any]

# --- the tables ---------------------------------------------------------------------------------

SCHEMA = 5
"""Version of the layout below; a store of another one is refused."""
_VERSION_KEY = "bestarm-agent schema version"
_LOCK_KEY = 0x62657374_61726D00  # "bestarm": one process creates the tables of a PostgreSQL store
TABLES = MetaData()
_meta = Table(
    "meta",
    TABLES,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
_runs = Table(
    "runs",
    TABLES,
    Column("ordinal", Integer, primary_key=True, autoincrement=True),  # in order of beginning
    Column("id", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False, index=True),
    Column("at", Text, nullable=False),
    # what the list of runs shows; written with the events it sums up, in one transaction
    Column("n_asked", Integer, nullable=False),
    Column("n_told", Integer, nullable=False),
    Column("stopped", Text),
    Column("n_events", Integer, nullable=False),
)
_events = Table(
    "events",
    TABLES,
    Column("run_id", Text, primary_key=True),
    Column("n", Integer, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("payload", Text, nullable=False),
    sqlite_with_rowid=False,
)
_replies = Table(
    "replies",
    TABLES,
    Column("key", Text, primary_key=True),
    Column("payload", Text, nullable=False),
)
_states = Table(
    "states",
    TABLES,
    Column("name", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("payload", LargeBinary, nullable=False),
)

_LISTED = select(*(column for column in _runs.c if column.name != "ordinal"))
_OLDEST_FIRST, _LATEST_FIRST = _runs.c.ordinal, _runs.c.ordinal.desc()
# by dialect, table, and whether a row may be there already; made once: SQLAlchemy takes longer to
# compile a statement again than SQLite to carry it out
_INSERTS = {
    (dialect.__name__.rpartition(".")[2], table.name, may_exist): (
        statement.on_conflict_do_nothing() if may_exist else statement
    )
    for dialect in (sqlite, postgresql)
    for table in (_runs, _events, _replies)
    for statement in (dialect.insert(table),)
    for may_exist in (False, True)
}
_UPDATE_RUNS = (
    update(_runs)
    .where(_runs.c.id == bindparam("run"))
    .values({name: bindparam(name) for name in ("n_events", "n_asked", "n_told", "stopped")})
)
_FIND_REPLIES = select(_replies.c.key, _replies.c.payload).where(
    _replies.c.key.in_(bindparam("keys", expanding=True))
)
_LOOKUPS = 500  # keys in one SELECT; SQLite takes 32,766 parameters, PostgreSQL 65,535


# --- runs ---------------------------------------------------------------------------------------

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # without i, l, o, u: easy to read out
_NAMED = 8  # runs that a message names
CONFIRMS = ".confirm"  # ends the name of a run that confirms the winner of another
_FREQUENT = ("asked", "told")  # logged at debug level
_SHOWN_CHARACTERS = 200
_EVENTS_PAGE = 2000  # read at a time
_REPLIES_PAGE = 500
_KEPT_VERSIONS = 10  # of a state, the newest included, to go back to by hand

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class RunInfo:
    """One line of the list of runs."""

    id: str
    name: str  # of the study
    at: str = ""  # when it began, ISO 8601 in UTC
    n_asked: int = 0
    n_told: int = 0
    stopped: str | None = None  # reason of the last stop; None while running, or after a crash
    n_events: int = field(default=0, compare=False)  # of its log

    def note(self, event: Event) -> None:
        """Count the next event; raise ValueError unless the first, and no other, is ``Started``."""
        if (self.n_events == 0) != isinstance(event, Started):
            raise ValueError(
                f"a run's first event, and no other, is Started; event {self.n_events} of run "
                f"{self.id} would be {type(event).__name__}"
            )
        match event:
            case Started():
                if event.name != self.name:
                    raise ValueError(
                        f"run {self.id} was created as {self.name!r}, Started says {event.name!r}"
                    )
                self.at = event.at
            case Asked():
                self.n_asked += 1
            case Told():
                self.n_told += 1
            case Stopped():
                self.stopped = event.reason
            case Resumed():
                self.stopped = None
            case _:
                pass
        self.n_events += 1


def utc_now() -> datetime:
    """Return the time in UTC."""
    return datetime.now(UTC)


def new_run_id(now: datetime) -> str:
    """Make a unique id that sorts by time (in UTC): "20261121-093015-k3f9"."""
    suffix = "".join(secrets.choice(_ALPHABET) for _ in range(4))
    return f"{now:%Y%m%d-%H%M%S}-{suffix}"


class Store:
    """Runs, the reply cache that they share, and named states with versions.

    A run is referred to by its id, its name (the latest run of that name), a unique prefix of its
    id, or "latest". Reading works while other processes write. Texts in configurations and
    sampling parameters under a secret's name are stored as "[redacted]", except for "${VARIABLE}".

    Example:
        >>> async def demo(path):
        ...     async with await Store.connect(path) as store:
        ...         await store.put_reply("key", Reply("42"))
        ...         return (await store.get_reply("key")).text
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     asyncio.run(demo(f"{folder}/runs.db"))
        '42'
    """

    def __init__(self, database: _Database, now: Callable[[], datetime] = utc_now) -> None:
        self._database = database
        self._writer = _Writer(database)
        self._now = now
        self._closed = False

    @classmethod
    async def connect(
        cls,
        place: str | Path,
        *,
        create: bool = True,
        now: Callable[[], datetime] = utc_now,
    ) -> Self:
        """Open a store, or make an empty one (a file for the user alone, mode 0600).

        Args:
            place: path of an SQLite file, or ``postgresql://user@host/database``.
            create: make the file if there is none.
            now: returns the time in UTC, for run ids.

        Raises:
            ConfigError: the URL is not understood, or its driver is not installed.
            StoreVersionError: a version of the package with another layout wrote it.
            StoreError: it cannot be opened or is not a store; it is absent and not to be created.
        """
        return cls(await asyncio.to_thread(_open_database, place, create=create), now)

    @classmethod
    def in_memory(cls, *, now: Callable[[], datetime] = utc_now) -> Self:
        """Make an empty store that ends with the process, for tests and throw-away studies."""
        engine = create_engine(
            "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
        )
        database = _Database(engine, "the store in memory", Locks())
        database.prepare()
        return cls(database, now)

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

    async def close(self) -> None:
        """Write what is queued and close; raise StoreError if something was not written."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._writer.close()
        finally:
            await self._database.in_thread(self._database.close)
        if self._writer.failure is not None:
            raise self._writer.failure

    # runs

    async def create(self, name: str) -> RunLog:
        """Begin a run with a fresh id; it is listed once its ``Started`` event is durable."""
        while True:
            run_id = new_run_id(self._now())
            if not await self._read(_LISTED.where(_runs.c.id == run_id)):
                break
        await self._database.in_thread(lambda: self._database.lock(run_id))
        return RunLog(RunInfo(run_id, name), self, self._database, self._writer)

    async def open(self, run: str) -> RunLog:
        """Open a run for appending.

        Raises:
            RunNotFoundError: no such run, or several; the message lists the runs that exist.
            StoreError: another live process is writing it.
        """
        run_id = (await self.find(run)).id
        await self._database.in_thread(lambda: self._database.lock(run_id))
        # read only now: the last holder of the lock may have written since
        [row] = await self._read(_LISTED.where(_runs.c.id == run_id))
        return RunLog(RunInfo(*row), self, self._database, self._writer)

    async def runs(self) -> list[RunInfo]:
        """Return all runs, oldest first."""
        return [RunInfo(*row) for row in await self._read(_LISTED.order_by(_OLDEST_FIRST))]

    async def find(self, run: str) -> RunInfo:
        """Find a run, to read it; raises RunNotFoundError as ``open`` does."""
        return await self._database.in_thread(
            lambda: self._database.run(lambda connection: self._find(connection, run))
        )

    def _find(self, connection: Connection, run: str) -> RunInfo:
        latest = _LISTED.order_by(_LATEST_FIRST)
        chosen = latest.where(_runs.c.name.not_like(f"%{CONFIRMS}"))
        asked = [chosen, latest] if run == "latest" else []
        asked += [latest.where(_runs.c.id == run), latest.where(_runs.c.name == run)]
        for query in asked:
            if (row := connection.execute(query.limit(1)).first()) is not None:
                return RunInfo(*row)
        begins = latest.where(func.substr(_runs.c.id, 1, len(run)) == run)
        found = connection.execute(begins.limit(_NAMED + 1)).all() if run else []
        if len(found) == 1:
            return RunInfo(*found[0])
        if found:
            raise RunNotFoundError(
                f"{run!r} could be any of {_listing(connection, begins)}; write more of the id"
            )
        if connection.execute(latest.limit(1)).first() is not None:
            there = _listing(connection, latest)
            raise RunNotFoundError(f'there is no run {run!r}; there is {there}, or "latest"')
        raise RunNotFoundError(f"there is no run {run!r}: {self._database.emptiness()}")

    async def events_of(self, run: str, *, since: int = 0) -> list[Event]:
        """Return a run's durable events from number ``since`` >= 0 on, oldest first.

        Raises:
            RunNotFoundError: as ``open`` does.
            StoreError: the log is damaged.
        """
        return [one async for page in self.pages_of(run, since=since) for one in page]

    async def pages_of(self, run: str, *, since: int = 0) -> AsyncIterator[list[Event]]:
        """Iterate over the same events, some at a time; raises as ``events_of`` does."""
        run_id = (await self.find(run)).id
        where = f"run {run_id} in {self._database.where}"
        async for page in self.lines_of(run_id, since=since):
            yield await self._database.in_thread(partial(_decoded, page, since, where))
            since += len(page)

    async def lines_of(self, run: str, *, since: int = 0) -> AsyncIterator[list[Line]]:
        """Iterate over the same events as they are stored; raises as ``events_of``."""
        run_id = (await self.find(run)).id
        query = select(_events.c.n, _events.c.kind, _events.c.payload).order_by(_events.c.n)
        query = query.where(_events.c.run_id == run_id).limit(_EVENTS_PAGE)
        while rows := await self._read(query.where(_events.c.n >= since)):
            numbers, kinds, payloads = zip(*rows, strict=True)
            if numbers[-1] != since + len(rows) - 1:
                missing = next(n for n, found in enumerate(numbers, since) if found != n)
                raise StoreError(
                    f"event {missing} of run {run_id} in {self._database.where} is missing; "
                    f"restore the store from a copy"
                )
            yield list(zip(kinds, payloads, strict=True))
            since += len(rows)

    async def outline_of(self, run: str) -> list[Event]:
        """Return the events that are not about a pair, oldest first; raises as ``events_of``."""
        run_id = (await self.find(run)).id
        query = select(_events.c.kind, _events.c.payload).where(_events.c.run_id == run_id)
        query = query.where(_events.c.kind.not_in(OF_PAIRS)).order_by(_events.c.n)
        return [event_of((kind, payload)) for kind, payload in await self._read(query)]

    # replies

    async def get_reply(self, key: str) -> Reply | None:
        """Return the stored reply, or None; lookups of one moment share one query."""
        batch = self._writer.batch()
        batch.wanted.add(key)
        await self._writer.wait(batch)
        payload = batch.found.get(key)
        return None if payload is None else load_reply(payload)

    async def put_reply(self, key: str, reply: Reply) -> None:
        """Store a reply durably, even if the caller is cancelled; a second one is ignored."""
        payload = dump_reply(reply)
        batch = self._writer.batch()
        batch.replies.append({"key": key, "payload": payload})
        self._writer.hand_over()  # it was paid for: do not wait for the end of the loop's turn
        await self._writer.wait(batch)

    async def replies(self) -> AsyncIterator[tuple[str, Reply]]:
        """Iterate over all stored replies, by key."""
        last = ""
        query = select(_replies).order_by(_replies.c.key).limit(_REPLIES_PAGE)
        while page := await self._read(query.where(_replies.c.key > last)):
            for key, payload in page:
                yield key, load_reply(payload)
            last = page[-1].key

    async def claim_reply(self, key: str) -> bool:
        """Claim the right to buy the reply of a key; return at once, False if it is held.

        A claim keeps every other holder out, in this process and in others, until it is released,
        the store is closed or the process ends or is stopped, however that comes. It says nothing
        about whether the reply is stored: look again after a successful claim.
        """
        return await self._database.ask(self._database.locks.claim, key)

    async def release_reply(self, key: str) -> None:
        """Give a claim back, if it is held."""
        await self._database.ask(self._database.locks.unclaim, key)

    # named states, such as what a router has learnt: one row per version

    async def get_state(self, name: str) -> tuple[int, bytes] | None:
        """Return the number and the content of a named state's newest version, or None."""
        newest = _states.c.version.desc()
        query = select(_states.c.version, _states.c.payload).where(_states.c.name == name)
        rows = await self._read(query.order_by(newest).limit(1))
        return (int(rows[0].version), bytes(rows[0].payload)) if rows else None

    async def put_state(self, name: str, data: bytes, *, after: int) -> int:
        """Store a new version of a named state durably and return its number, ``after`` + 1.

        Args:
            name: of the state.
            data: its content.
            after: the version that it was made from; 0 for the first.

        Raises:
            StoreError: ``after`` is not the newest version: another process stored one.
        """
        version = after + 1
        row = {"name": name, "version": version, "payload": data}
        old = _states.c.version <= version - _KEPT_VERSIONS
        newest = select(func.max(_states.c.version)).where(_states.c.name == name)

        def write(connection: Connection) -> None:
            present = connection.scalar(newest) or 0
            if present != after:
                raise _overtaken(name, after, present)
            try:
                connection.execute(insert(_states).values(row))
            except IntegrityError as error:  # PostgreSQL lets two writers get this far
                raise _overtaken(name, after, version) from error
            connection.execute(delete(_states).where(_states.c.name == name, old))

        await self._database.in_thread(lambda: self._database.run(write, writes=True))
        return version

    async def _read(self, query: Select[Any]) -> Sequence[Any]:
        return await self._database.in_thread(
            lambda: self._database.run(lambda connection: connection.execute(query).all())
        )


class RunLog:
    """One run's event log, written by one process at a time.

    Events become durable in the order of appending, at the latest when flushed: if one survives a
    crash, so do all before it.
    """

    def __init__(self, info: RunInfo, store: Store, database: _Database, writer: _Writer) -> None:
        self.run_id = info.id
        self._info = info
        self._store = store
        self._database = database
        self._writer = writer
        self._closed = False

    def append(self, event: Event, line: Line | None = None) -> None:
        """Queue an event for the next group commit and return at once.

        ``line`` is the event as it is stored, if it was written already.

        Raises:
            ValueError: JSON cannot hold it, its ``base`` is an absolute path, or the first event
                is not ``Started`` under the run's name.
            StoreError: an earlier write failed, or the log is closed.
        """
        if self._closed:
            raise StoreError(f"the log of run {self.run_id} is closed; open the run again")
        kind, payload = line or line_of(event)
        batch, info = self._writer.batch(), self._info
        n = info.n_events
        info.note(event)
        if n == 0:
            batch.runs.append(asdict(info))
        batch.events.append({"run_id": self.run_id, "n": n, "kind": kind, "payload": payload})
        batch.progress[self.run_id] = {
            "run": self.run_id,
            "n_events": info.n_events,
            "n_asked": info.n_asked,
            "n_told": info.n_told,
            "stopped": info.stopped,
        }
        level = logging.DEBUG if kind in _FREQUENT else logging.INFO
        _logger.log(level, "run %s: %s %.*s", self.run_id, kind, _SHOWN_CHARACTERS, payload)

    async def flush(self) -> None:
        """Wait until everything queued so far is durable.

        Raises:
            StoreError: it could not be written; nothing after it will be.
        """
        await self._writer.wait()

    async def events(self) -> list[Event]:
        """Return all durable events, oldest first."""
        return await self._store.events_of(self.run_id)

    async def close(self) -> None:
        """Flush, and let others open the run; raise StoreError if something was not written."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._writer.wait()
        finally:
            await self._database.in_thread(lambda: self._database.release(self.run_id))


StorePlace: TypeAlias = str | Path | Store
"""A path or URL of a store, or an open store, which its owner closes."""


@asynccontextmanager
async def open_store(place: StorePlace, *, create: bool = True) -> AsyncIterator[Store]:
    """Open a store, and close it at the end if it was not open before.

    Args:
        place: as ``Store.connect`` takes it, or an open store.
        create: whether to make an empty store if there is none.

    Raises:
        ConfigError: the URL is not understood.
        StoreError: it cannot be opened, or closing it failed to write something.
    """
    if isinstance(place, Store):
        yield place
        return
    async with await Store.connect(place, create=create) as store:
        yield store


@asynccontextmanager
async def closing(log: RunLog) -> AsyncIterator[RunLog]:
    """Close a log at the end; note on an earlier error what could not be written."""
    try:
        yield log
    except BaseException as error:
        try:
            await log.close()
        except StoreError as failure:
            if failure is not error:
                error.add_note(str(failure))
        raise
    await log.close()


def folder_of(place: StorePlace) -> Path:
    """Return the folder of a store that is a file; the working directory for any other."""
    if isinstance(place, Path):
        return place.parent
    return Path(place).parent if isinstance(place, str) and "://" not in place else Path()


def _decoded(page: Sequence[Line], since: int, where: str) -> list[Event]:
    events: list[Event] = []
    for n, line in enumerate(page, since):
        try:
            events.append(event_of(line))
        except StoreError as error:
            raise type(error)(f"event {n} of {where}: {error}") from error
    return events


def _listing(connection: Connection, query: Select[Any]) -> str:
    rows = connection.execute(query.limit(_NAMED)).all()
    counting = select(func.count()).select_from(query.order_by(None).subquery())
    hidden = (connection.scalar(counting) or 0) - len(rows)
    shown = ", ".join(f"{row.id} ({row.name})" for row in rows)
    return f"{shown} and {hidden} older" if hidden > 0 else shown


def _overtaken(name: str, after: int, present: int) -> StoreError:
    """Return the error of a writer that did not start from the newest version."""
    return StoreError(
        f"the state {name!r} is at version {present}, not at {after} from which this one was "
        f"learnt: another process stored it meanwhile; open it again and repeat what was learnt"
    )


# --- group commit -------------------------------------------------------------------------------

_LONGEST_WAIT = 0.2  # seconds that rows are kept from other readers when nothing waits for them


@dataclass(slots=True)
class _Batch:
    """Rows that are committed together."""

    loop: asyncio.AbstractEventLoop
    runs: list[_Row] = field(default_factory=list)
    progress: dict[str, _Row] = field(default_factory=dict)  # by run: its counts after the events
    events: list[_Row] = field(default_factory=list)  # in the order of appending
    replies: list[_Row] = field(default_factory=list)
    wanted: set[str] = field(default_factory=set)  # keys of replies to look up after the writing
    found: dict[str, str] = field(default_factory=dict)  # payloads of those that are stored
    done: asyncio.Event = field(default_factory=asyncio.Event)  # all is durable, or has failed


class _Writer:
    """Writes batches, in order, in as few transactions as the traffic allows.

    While one transaction commits, the next batches share the following one. The methods run on
    the caller's event loop. The first failure is final: a log with a gap is worse than one that
    ends early. A server that restarts is no failure.
    """

    def __init__(self, database: _Database) -> None:
        self.failure: StoreError | None = None  # why nothing can be written any more
        self._database = database
        self._open: _Batch | None = None  # not handed over yet
        self._due: asyncio.Handle | None = None  # hands it over
        self._latest: _Batch | None = None  # the last one handed over
        self._closed = False
        self._inbox: SimpleQueue[_Batch | None] = SimpleQueue()
        self._thread: Thread | None = None  # a store in memory needs none
        if not database.in_memory:
            self._thread = Thread(target=self._drain, name="bestarm-store", daemon=True)
            self._thread.start()

    def batch(self) -> _Batch:
        """Return the batch to add to; raise StoreError after a failed write.

        It is handed over at the end of the turn of the loop in which something waits for it. What
        nothing waits for goes with the next batch, so that a call alone costs one commit less.
        """
        if self.failure is not None:
            raise self.failure
        if self._closed:
            raise StoreError(f"{self._database.where} is closed; connect to it again")
        if self._open is None:
            loop = asyncio.get_running_loop()
            self._open = _Batch(loop)
            self._due = loop.call_later(_LONGEST_WAIT, self.hand_over)
        return self._open

    async def wait(self, batch: _Batch | None = None) -> None:
        """Wait until a batch, or else all that is queued, is durable; raise StoreError if not."""
        batch = batch or self._open or self._latest
        if batch is not None and batch is self._open and isinstance(self._due, asyncio.TimerHandle):
            self._due.cancel()
            self._due = batch.loop.call_soon(self.hand_over)
        if batch is not None:
            await batch.done.wait()
        if self.failure is not None:
            raise self.failure

    def hand_over(self) -> None:
        """Give the open batch to the thread now."""
        if self._open is not None:
            self._latest, self._open = self._open, None
            if self._due is not None:
                self._due.cancel()
            if self._thread is None:
                self._finish([self._latest], *self._written([self._latest], self.failure))
            else:
                self._inbox.put(self._latest)

    async def close(self) -> None:
        """Write what is queued and end the thread; ``failure`` is set if that went wrong."""
        self._closed = True
        self.hand_over()
        self._inbox.put(None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _drain(self) -> None:
        failure: StoreError | None = None
        while batches := self._take():
            found, failure = self._written(batches, failure)
            for loop in {batch.loop for batch in batches}:
                own = [batch for batch in batches if batch.loop is loop]
                with suppress(RuntimeError):  # the loop has ended: nothing waits any more
                    loop.call_soon_threadsafe(self._finish, own, found, failure)

    def _take(self) -> list[_Batch]:
        """Return all batches that were handed over, at least one; none once it was closed."""
        taken = [self._next()]
        while taken[-1] is not None and not self._inbox.empty():
            taken.append(self._inbox.get())
        if taken[-1] is None:
            self._inbox.put(None)  # for the next time
        return [batch for batch in taken if batch is not None]

    def _next(self) -> _Batch | None:
        while True:
            try:
                return self._inbox.get(timeout=SIGN_OF_LIFE_SECONDS)
            except Empty:
                with suppress(StoreError, SQLAlchemyError):  # the next write meets it, too
                    self._database.locks.give_sign_of_life()

    def _written(
        self, batches: Sequence[_Batch], failure: StoreError | None
    ) -> tuple[dict[str, str], StoreError | None]:
        """Commit batches, unless an earlier write failed.

        Returns:
            The replies that were looked up, and the failure that all who wait now and later raise.
        """
        if failure is not None:
            return {}, failure
        try:
            return self._commit(batches), None
        except StoreError as error:
            return {}, error
        except Exception as error:  # whatever it is, the log must not go on with a gap
            return {}, StoreError(f"{self._database.where} could not be written: {error!r}")

    def _commit(self, batches: Sequence[_Batch]) -> dict[str, str]:
        """Write the rows in one transaction; return the replies that were looked up."""
        wanted = list(set[str]().union(*(batch.wanted for batch in batches)))
        writes = any(batch.events or batch.replies for batch in batches)
        attempts = 0

        def work(connection: Connection) -> dict[str, str]:
            nonlocal attempts
            attempts += 1
            if writes:  # the first attempt may have been committed, without an answer
                _write(connection, batches, again=attempts > 1)
            return _look_up(connection, wanted)

        found = self._database.run(work, writes=writes)
        self._database.after_commit()
        return found

    def _finish(
        self, batches: Sequence[_Batch], found: dict[str, str], failure: StoreError | None
    ) -> None:
        self.failure = self.failure or failure
        for batch in batches:
            batch.found = found
            batch.done.set()


def _write(connection: Connection, batches: Sequence[_Batch], *, again: bool) -> None:
    """Write the rows; ``again``: they may be there already."""
    dialect = connection.dialect.name
    rows_of = {
        _runs: [row for batch in batches for row in batch.runs],
        _events: [row for batch in batches for row in batch.events],
        _replies: [row for batch in batches for row in batch.replies],
    }
    for table, rows in rows_of.items():
        if rows:
            may_exist = again or table is _replies
            connection.execute(_INSERTS[dialect, table.name, may_exist], rows)
    progress = {run: row for batch in batches for run, row in batch.progress.items()}
    if progress:
        connection.execute(_UPDATE_RUNS, list(progress.values()))


def _look_up(connection: Connection, keys: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for start in range(0, len(keys), _LOOKUPS):
        some = {"keys": keys[start : start + _LOOKUPS]}
        found |= dict(connection.execute(_FIND_REPLIES, some).all())
    return found


# --- the database -------------------------------------------------------------------------------

PRIVATE = 0o600
"""Mode of every file that holds prompts, answers or scores."""
BUSY_SECONDS = 30.0  # that a writer waits for another process's transaction
_BUSY_PAUSE = 0.01  # seconds between two tries of what SQLite does not wait for
COMMITS_BETWEEN = 200  # checkpoints
LONGEST_LOG = 16_384  # pages of 4 kB; beyond, the writer waits for one checkpoint so that it ends
_MAGIC = b"SQLite format 3\0"
_SQLITE_ADVICE = {
    "SQLITE_NOTADB": "it is not an SQLite database; give another `output_dir`, or move it away",
    "SQLITE_CORRUPT": "it is damaged; if it was copied while in use, copy the file ending in -wal "
    "too, else restore it from a copy, or move it away and start afresh",
    "SQLITE_FULL": "the disk is full; free some space, then resume: what was saved before is safe",
    "SQLITE_READONLY": "it may not be written; make it and its folder writable, or copy it",
    "SQLITE_CANTOPEN": "it cannot be opened; make it and its folder writable",
    "SQLITE_BUSY": "another process has been writing it for more than 30 s; stop that process",
    "SQLITE_IOERR": "the disk reports an error; check its space, quota and health, then resume",
}


@dataclass(frozen=True, slots=True)
class _File:
    """The file of an SQLite store."""

    path: Path  # absolute: a study's functions may change the working directory
    read_only: bool
    has_log: bool  # a write-ahead log (-wal) lay next to it before it was opened
    identity: tuple[int, int]  # device and inode

    def is_in_place(self) -> bool:
        """Tell whether the file that was opened still lies at its path."""
        try:
            return _identity(self.path) == self.identity
        except OSError:
            return False

    def url(self) -> URL:
        """Return the URL; raise StoreError if it was not closed and cannot be written here."""
        if not self.read_only:
            return URL.create("sqlite", database=str(self.path))
        mode = {"uri": "true", "mode": "ro"}
        if not self.has_log:
            mode["immutable"] = "1"  # else SQLite wants to make files next to it
        elif not _next_to(self.path, "-shm").exists():
            raise StoreError(
                f"the store {self.path} was not closed, and reading it here would need to write: "
                f"copy it with the file ending in -wal into a writable folder and read it there"
            )
        return URL.create("sqlite", database=self.path.as_uri(), query=mode)


class _Database:
    """A database: transactions that survive a restart of its server, locks, checkpoints."""

    def __init__(self, engine: Engine, where: str, locks: Locks, file: _File | None = None) -> None:
        self.where = where  # its name in messages, without a password
        self.locks = locks
        self.file = file  # of an SQLite store that has one
        self._engine = engine
        self._is_server = engine.dialect.name == "postgresql"
        self.in_memory = file is None and not self._is_server
        self._turn = RLock()  # a store in memory has one connection
        self._commits = 0
        self._checkpoint: Thread | None = None
        self._is_overdue = False
        if not self._is_server:
            _configure_sqlite(engine)

    def run(self, work: Callable[[Connection], _T], *, writes: bool = False) -> _T:
        """Do some work in a transaction, again where a server restarts meanwhile.

        Raises:
            StoreError: the database refuses, or its server stays away.
        """

        def once() -> _T:
            with self._connection(writes=writes) as connection, connection.begin():
                return work(connection)

        with _explaining(self.where):
            return patiently(once, self._renew) if self._is_server else once()

    def after_commit(self) -> None:
        """Check that the store's file is in its place; copy the write-ahead log now and then.

        SQLite itself would copy it within a commit, which then waits for the disk: more than a
        second on a busy one. All that was paid for in that second would be lost with a crash.
        """
        self.locks.give_sign_of_life()
        if self.file is None:
            return
        if not self.file.is_in_place():
            raise StoreError(
                f"{self.where} was deleted or replaced while it was in use, and what was written "
                f"since is lost with it; put the file back, then resume, or begin a new run"
            )
        self._commits += 1
        if self._is_overdue:
            self._copy_log()
        elif self._commits % COMMITS_BETWEEN == 0:
            self._checkpoint = Thread(target=self._copy_log, name="bestarm-checkpoint", daemon=True)
            self._checkpoint.start()

    def lock(self, run_id: str) -> None:
        """Take a run's lock; raises StoreError if another live process holds it."""
        if self.file is not None and self.file.read_only:
            raise StoreError(
                f"{self.where} can only be read here, and a run writes; make the file and its "
                f"folder writable, or give another `output_dir`"
            )
        with _explaining(self.where):
            self.locks.acquire(run_id)

    def release(self, run_id: str) -> None:
        """Release a run's lock, if it is held."""
        with _explaining(self.where):
            self.locks.release(run_id)

    async def in_thread(self, work: Callable[[], _T]) -> _T:
        """Do what waits for the disk or a server in a thread; in memory, at once."""
        return work() if self.in_memory else await asyncio.to_thread(work)

    async def ask(self, question: Callable[[str], _T], key: str) -> _T:
        """Ask the locks about a key."""
        with _explaining(self.where):
            if self._is_server:
                return await asyncio.to_thread(question, key)
            return question(key)  # two system calls: quicker than a thread

    def emptiness(self) -> str:
        """Say that there is no run, and what may be missing."""
        if self.file is None or self.file.has_log:
            return "the store is empty; begin one with `bestarm-agent select`"
        return (
            f"{self.where} is empty; if it was copied while it was in use, copy the file "
            f"{self.file.path.name}-wal too, else begin a run with `bestarm-agent select`"
        )

    def close(self) -> None:
        """Release the locks and close all connections."""
        if self._checkpoint is not None:
            self._checkpoint.join()
        with _explaining(self.where):
            self.locks.close()
            if not self.in_memory:  # else it stays readable
                self._engine.dispose()

    def prepare(self) -> None:
        """Create the tables of an empty store.

        Raises:
            StoreVersionError: a version of the package with another layout wrote it.
            StoreError: it holds another program's tables.
        """
        with _explaining(self.where):
            with self._connection() as connection:
                is_there = _check_layout(connection, self.where)
            if self.file is not None and self.file.read_only:
                return
            if not is_there:
                with self._connection(writes=True) as connection, connection.begin():
                    self._create(connection)
            if self.file is not None:
                with self._connection() as connection:
                    write_ahead(connection)

    def _create(self, connection: Connection) -> None:
        if self._is_server:  # another process may be about to do the same
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK_KEY)))
        if not _check_layout(connection, self.where):
            TABLES.create_all(connection, checkfirst=False)
            connection.execute(insert(_meta).values(key=_VERSION_KEY, value=str(SCHEMA)))

    @contextmanager
    def _connection(self, *, writes: bool = False) -> Iterator[Connection]:
        with self._turn if self.in_memory else nullcontext(), self._engine.connect() as connection:
            yield connection.execution_options(writes=writes)

    def _renew(self) -> None:
        """Let go of all connections, which a restart of the server ended, and lock again."""
        self._engine.dispose()
        self.locks.renew()

    def _copy_log(self) -> None:
        """Copy as much of the write-ahead log as no reader needs into the database."""
        # the writer meets an error too, and reports it
        with suppress(sqlite3.Error, SQLAlchemyError), self._engine.connect() as connection:
            self._is_overdue = checkpoint(connection) > LONGEST_LOG


def checkpoint(connection: Connection) -> int:
    """Copy as much of the log as no reader needs; return its length in pages when that began.

    It starts again with the next commit, unless another came in the meantime.
    """
    _, pages, _ = _driver(connection).execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return int(pages)


def _open_database(place: str | Path, *, create: bool) -> _Database:
    url = _url(place)
    if url.get_backend_name() == "sqlite":
        path = Path(url.database or "")
        where = f"the store {path}"
        with _explaining(where):
            file = _open_file(path, create=create)
            locks = FileLocks(_next_to(file.path, ".locks"))
            engine = create_engine(file.url(), connect_args={"timeout": BUSY_SECONDS})
            database = _Database(engine, where, locks, file)
    else:
        try:
            engine = create_engine(url)
        except ModuleNotFoundError as error:
            raise ConfigError(
                "a store in PostgreSQL needs psycopg: pip install 'bestarm-agent[postgres]'"
            ) from error
        where = f"the store {url.render_as_string(hide_password=True)}"
        database = _Database(engine, where, ServerLocks(engine))
    try:
        database.prepare()
    except BaseException:
        engine.dispose()
        raise
    return database


def _url(place: str | Path) -> URL:
    if isinstance(place, Path) or "://" not in place:
        return URL.create("sqlite", database=str(place))
    try:
        url = make_url(place)
    except (ArgumentError, ValueError) as error:  # the text may hold a password: do not show it
        raise ConfigError("the store's URL is not understood; write postgresql://...") from error
    if url.drivername in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg")
    if url.drivername in ("sqlite", "postgresql+psycopg") and url.database not in (
        None,
        ":memory:",
    ):
        return url
    raise ConfigError(
        f"a store is the path of an SQLite file or postgresql://user@host/database, "
        f"got {url.render_as_string(hide_password=True)!r}"
    )


def _open_file(path: Path, *, create: bool) -> _File:
    """Check a store's file, or make an empty one and its folder for the user alone.

    SQLite gives the files next to it the same mode. Raises StoreError if it is no SQLite database.
    """
    if path.is_dir():
        raise StoreError(
            f"the store {path} is a folder; name a file in it, such as {path / 'runs.sqlite'}"
        )
    if not create and not path.exists():
        raise StoreError(
            f"there is no store at {path}; begin a run, or give the right `output_dir`"
        )
    read_only = not create and not (_may_write(path) and _may_write(path.parent))
    if not read_only:
        path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT
    with open(os.open(path, flags, PRIVATE), "rb") as file:
        start = file.read(len(_MAGIC))
    if start and start != _MAGIC:  # SQLite would take a short file for an empty one
        raise StoreError(
            f"the store {path} cannot be used: it is not an SQLite database; give another "
            f"`output_dir`, or move it away"
        )
    log = _next_to(path, "-wal")
    has_log = log.exists() and log.stat().st_size > 0
    return _File(path.absolute(), read_only, has_log, _identity(path))


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _next_to(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _configure_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # transactions begin where we say, tables included
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get("writes"):
            connection.exec_driver_sql("BEGIN IMMEDIATE")


def write_ahead(connection: Connection) -> None:
    """Turn the write-ahead log on, which SQLite's own time-out does not cover.

    Raises:
        sqlite3.OperationalError: other processes that open the file did not let go of it.
    """
    ends = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            _driver(connection).execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > ends:
                raise
            time.sleep(_BUSY_PAUSE)
        else:
            return


def _driver(connection: Connection) -> Any:  # noqa: ANN401 - SQLAlchemy's proxy of sqlite3.Connection
    return connection.connection


def _check_layout(connection: Connection, where: str) -> bool:
    """Return whether the tables are there; raise StoreError for others, or another layout."""
    present = set(inspect(connection).get_table_names())
    is_shared = connection.dialect.name == "postgresql"  # others may have tables there too
    if not (present & set(TABLES.tables) if is_shared else present):
        return False
    found = None
    if {column.name for column in _meta.columns} <= _columns(connection, present):
        found = connection.scalar(select(_meta.c.value).where(_meta.c.key == _VERSION_KEY))
    if found is None:
        raise StoreError(
            f"{where} holds tables of another program ({', '.join(sorted(present)[:4])}); "
            f"give bestarm-agent a store of its own"
        )
    if found != str(SCHEMA):
        older = found.isdecimal() and int(found) < SCHEMA
        newer = "a newer version wrote it: pip install --upgrade bestarm-agent, or "
        way_out = "" if older else newer
        raise StoreVersionError(
            f"{where} has schema version {found}, this version of bestarm-agent knows {SCHEMA} "
            f"alone; {way_out}give another `output_dir`"
        )
    return True


def _columns(connection: Connection, present: set[str]) -> set[str]:
    if _meta.name not in present:
        return set()
    return {column["name"] for column in inspect(connection).get_columns(_meta.name)}


@contextmanager
def _explaining(where: str) -> Iterator[None]:
    """Turn errors of the database or the system into a StoreError that names the way out."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        raise StoreError(_explanation(error, where)) from error


def _explanation(error: Exception, where: str) -> str:
    cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
    code = getattr(cause, "sqlite_errorname", "")
    if isinstance(error, IntegrityError):
        return (
            f"{where} refused a record that is already there ({_first_line(cause)}): another "
            f"process wrote the same run; see that only one does, then resume"
        )
    for prefix, advice in _SQLITE_ADVICE.items():
        if code.startswith(prefix):
            return f"{where} cannot be used: {advice} ({_first_line(cause)})"
    return f"{where} cannot be used: {_first_line(cause)}; put that right, then try again"


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
