"""The store of runs and replies: SQLite in one file or in memory, PostgreSQL by URL.

One thread writes. Whatever queues up while it commits shares the next transaction.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

from bestarm_agent.domain.events import Asked, Event, Resumed, Started, Stopped, Told
from bestarm_agent.domain.values import Reply
from bestarm_agent.errors import RunNotFoundError, StoreError
from bestarm_agent.store.codec import (
    OF_PAIRS,
    SIGN_OF_LIFE_SECONDS,
    Line,
    Transaction,
    dump_reply,
    event_of,
    events_in,
    line_of,
    load_reply,
)

if TYPE_CHECKING:
    from bestarm_agent.store.database import Database

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # without i, l, o, u: easy to read out
_NAMED = 8  # runs that a message names
CONFIRMS = ".confirm"  # ends the name of a run that confirms the winner of another
_FREQUENT = ("asked", "told")  # logged at debug level
_SHOWN_CHARACTERS = 200
_EVENTS_PAGE = 2000  # read at a time
_LONGEST_WAIT = 0.2  # seconds that rows are kept from other readers when nothing waits for them
RUN = "run "  # begins the name of the lock of a run's writer
_RUNS = "SELECT id, name, at, n_asked, n_told, stopped, n_events FROM runs"
_OUTCOMES = "SELECT n, payload FROM events WHERE run_id = :run AND n IN :numbers"
_PUT_STATE = (
    "INSERT INTO states (name, version, payload) VALUES (:name, :version, :data) "
    "ON CONFLICT (name) DO UPDATE SET version = excluded.version, payload = excluded.payload "
    "WHERE states.version = :version - 1 RETURNING version"
)

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
                self.at = event.at
            case Asked():
                self.n_asked += 1
            case Told():
                self.n_told += 1
            case Stopped():
                self.stopped = event.reason
            case Resumed():
                self.stopped = None
        self.n_events += 1


def new_run_id(now: datetime) -> str:
    """Make a unique id that sorts by time (in UTC): "20261121-093015-k3f9"."""
    suffix = "".join(secrets.choice(_ALPHABET) for _ in range(4))
    return f"{now:%Y%m%d-%H%M%S}-{suffix}"


class _Closing:
    """Closes itself at the end of ``async with``."""

    async def close(self) -> None:
        """Close; raise StoreError if something was not written."""
        raise NotImplementedError

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


class Store(_Closing):
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

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writer = _Writer(database)
        self._closed = False
        self._locks: set[str] = set()  # names of those that are held, or asked for

    @classmethod
    async def connect(cls, place: str | Path, *, create: bool = True) -> Self:
        """Open a store, or make an empty one (a file for the user alone, mode 0600).

        Args:
            place: path of an SQLite file, or ``postgresql://user@host/database``.
            create: make the file if there is none.

        Raises:
            ConfigError: the URL is not understood, or its driver is not installed.
            StoreVersionError: a version of the package with another layout wrote it.
            StoreError: it cannot be opened or is not a store; it is absent and not to be created.
        """
        from bestarm_agent.store.database import Database

        return cls(await asyncio.to_thread(Database.of, place, create=create))

    @classmethod
    def in_memory(cls) -> Self:
        """Make an empty store that ends with the process, for tests and throw-away studies."""
        from bestarm_agent.store.database import Database

        return cls(Database.of_memory())

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
            run_id = new_run_id(datetime.now(UTC))
            if not await self._database.rows(f"{_RUNS} WHERE id = :run", {"run": run_id}):
                break
        await self._lock_run(run_id)
        return RunLog(RunInfo(run_id, name), self)

    async def open(self, run: str) -> RunLog:
        """Open a run for appending.

        Raises:
            RunNotFoundError: no such run, or several; the message lists the runs that exist.
            StoreError: another live process is writing it.
        """
        run_id = (await self.find(run)).id
        await self._lock_run(run_id)
        # read only now: the last holder of the lock may have written since
        return RunLog(await self.find(run_id), self)

    async def runs(self) -> list[RunInfo]:
        """Return all runs, oldest first."""
        rows = await self._database.rows(f"{_RUNS} ORDER BY ordinal")
        return [RunInfo(*row) for row in rows]

    async def find(self, run: str) -> RunInfo:
        """Find a run, to read it; raises RunNotFoundError as ``open`` does."""
        values = {"run": run, "length": len(run), "confirms": f"%{CONFIRMS}"}

        async def latest(where: str) -> list[RunInfo]:
            query = f"{_RUNS} WHERE {where} ORDER BY ordinal DESC LIMIT {_NAMED + 1}"
            return [RunInfo(*row) for row in await self._database.rows(query, values)]

        wheres = ["name NOT LIKE :confirms", "1 = 1"] if run == "latest" else []
        for where in (*wheres, "id = :run", "name = :run"):
            if rows := await latest(where):
                return rows[0]
        found = await latest("substr(id, 1, :length) = :run") if run else []
        if len(found) == 1:
            return found[0]
        there = found or await latest("1 = 1")
        names = [f"{one.id} ({one.name})" for one in there[:_NAMED]]
        shown = ", ".join([*names, *(["older ones"] if len(there) > _NAMED else [])])
        if found:
            raise RunNotFoundError(f"{run!r} could be any of {shown}; write more of the id")
        if there:
            raise RunNotFoundError(f'there is no run {run!r}; there is {shown}, or "latest"')
        raise RunNotFoundError(f"there is no run {run!r}: {self._database.emptiness()}")

    async def events_of(self, run: str) -> list[Event]:
        """Return a run's durable events, oldest first.

        Raises:
            RunNotFoundError: as ``open`` does.
            StoreError: the log is damaged.
        """
        events: list[Event] = []
        async for page in self.lines_of(run):
            events += await self._database.in_thread(partial(events_in, page, len(events)))
        return events

    async def lines_of(self, run: str, *, since: int = 0) -> AsyncIterator[list[Line]]:
        """Iterate over its events from a number on as they are stored, some at a time."""
        run_id = (await self.find(run)).id
        query = (
            "SELECT n, kind, payload FROM events WHERE run_id = :run AND n >= :since "
            f"ORDER BY n LIMIT {_EVENTS_PAGE}"
        )
        while rows := await self._database.rows(query, {"run": run_id, "since": since}):
            if rows[-1][0] != since + len(rows) - 1:
                raise StoreError(
                    f"the log of run {run_id} in {self._database.where} has a gap after event "
                    f"{since}; restore the store from a copy"
                )
            yield [(kind, payload) for _, kind, payload in rows]
            since += len(rows)

    async def outline_of(self, run: str) -> list[Event]:
        """Return the events that are not about a pair, oldest first; raises as ``events_of``."""
        run_id = (await self.find(run)).id
        query = (
            f"SELECT kind, payload FROM events WHERE run_id = :run AND kind NOT IN {OF_PAIRS} "
            "ORDER BY n"
        )
        rows = await self._database.rows(query, {"run": run_id})
        return events_in(rows)

    async def told(self, run_id: str, events: Sequence[int]) -> list[Told]:
        """Read outcomes of a run back, by the numbers of their events; raises as ``events_of``.

        What this process has queued is waited for.
        """
        await self._writer.wait()
        found: dict[int, Told] = {}
        for start in range(0, len(events), _EVENTS_PAGE):
            numbers = {"run": run_id, "numbers": list(events[start : start + _EVENTS_PAGE])}
            for n, text in await self._database.rows(_OUTCOMES, numbers):
                event = event_of(("told", text))
                assert isinstance(event, Told)  # by its tag
                found[n] = event
        if not found.keys() >= set(events):
            raise StoreError(f"the log of run {run_id} has a gap; restore the store from a copy")
        return [found[n] for n in events]

    # replies

    async def get_reply(self, key: str) -> Reply | None:
        """Return the stored reply, or None; lookups of one moment share one query."""
        batch = self._writer.batch()
        batch.rows.wanted.add(key)
        await self._writer.wait(batch)
        payload = batch.found.get(key)
        return None if payload is None else load_reply(payload)

    async def put_reply(self, key: str, reply: Reply) -> None:
        """Store a reply durably, even if the caller is cancelled; a second one is ignored.

        A claim on it ends with that.
        """
        payload = dump_reply(reply)
        batch = self._writer.batch()
        self._unlock(f"reply {key}")
        batch.rows.replies.append({"key": key, "payload": payload})
        self._writer.hand_over()  # it was paid for: do not wait for the end of the loop's turn
        await self._writer.wait(batch)

    async def replies(self) -> AsyncIterator[tuple[str, Reply]]:
        """Iterate over all stored replies, by key."""
        for key, payload in await self._database.rows("SELECT * FROM replies ORDER BY key"):
            yield key, load_reply(payload)

    async def claim_reply(self, key: str) -> bool:
        """Claim the right to buy the reply of a key; return False if it is held.

        A claim keeps every other holder out, in this process and in others, until it is released,
        the store is closed or the process ends or is stopped, however that comes. It says nothing
        about whether the reply is stored: look again after a successful claim.
        """
        return await self._lock(f"reply {key}")

    async def release_reply(self, key: str) -> None:
        """Give a claim back, if it is held; other processes see that a moment later."""
        self._unlock(f"reply {key}")

    # locks

    async def _lock(self, name: str) -> bool:
        if name in self._locks:
            return False
        batch = self._writer.batch()
        self._locks.add(name)
        batch.rows.locks[name] = True
        try:
            await self._writer.wait(batch)
        except BaseException:
            self._unlock(name)
            raise
        if name not in batch.taken:
            self._locks.discard(name)
        return name in batch.taken

    def _unlock(self, name: str) -> None:
        if name in self._locks:
            self._locks.remove(name)
            with suppress(StoreError):  # it ends with the store
                self._writer.batch().rows.locks[name] = False

    async def _lock_run(self, run_id: str) -> None:
        if self._database.read_only:
            raise StoreError(
                f"{self._database.where} can only be read here, and a run writes; make the file "
                f"and its folder writable, or give another `output_dir`"
            )
        name = f"{RUN}{run_id}"
        if not await self._lock(name):
            raise await self._database.in_thread(lambda: self._database.in_use(name, run_id))

    # named states, such as what a router has learnt

    async def get_state(self, name: str) -> tuple[int, bytes] | None:
        """Return the number of a named state's version, and its content, or None."""
        query = "SELECT version, payload FROM states WHERE name = :name"
        rows = await self._database.rows(query, {"name": name})
        return (int(rows[0][0]), bytes(rows[0][1])) if rows else None

    async def put_state(self, name: str, data: bytes, *, after: int) -> int:
        """Store a new version of a named state durably and return its number, ``after`` + 1.

        Args:
            name: of the state.
            data: its content.
            after: the version that it was made from; 0 for the first.

        Raises:
            StoreError: ``after`` is not the newest version: another process stored one.
        """
        row = {"name": name, "version": after + 1, "data": data}
        stored = await self._database.rows(_PUT_STATE, row, writes=True)
        if not stored:
            newest = await self.get_state(name)
            raise StoreError(
                f"the state {name!r} is at version {newest[0] if newest else 0}, not at {after} "
                f"from which this one was learnt: another process stored it meanwhile; open it "
                f"again and repeat what was learnt"
            )
        return after + 1


class RunLog(_Closing):
    """One run's event log, written by one process at a time.

    Events become durable in the order of appending, at the latest when flushed: if one survives a
    crash, so do all before it.
    """

    def __init__(self, info: RunInfo, store: Store) -> None:
        self.run_id = info.id
        self._info = info
        self._store = store
        self._writer = store._writer
        self._closed = False

    def append(self, event: Event, line: Line | None = None) -> None:
        """Queue an event for the next group commit and return at once.

        ``line`` is the event as it is stored, if it was written already.

        Raises:
            ValueError: JSON cannot hold it, or the first event, and no other, is not ``Started``.
            StoreError: an earlier write failed, or the log is closed.
        """
        if self._closed:
            raise StoreError(f"the log of run {self.run_id} is closed; open the run again")
        kind, payload = line or line_of(event)
        batch, n = self._writer.batch(), self._info.n_events
        self._info.note(event)
        row = {"run_id": self.run_id, "n": n, "kind": kind, "payload": payload}
        batch.rows.events.append(row)
        batch.runs[f"{RUN}{self.run_id}"] = self._info
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
        self._store._unlock(f"{RUN}{self.run_id}")
        await self._writer.wait()


@dataclass(slots=True)
class _Batch:
    """Rows that are committed together."""

    loop: asyncio.AbstractEventLoop
    rows: Transaction = field(default_factory=Transaction)
    runs: dict[str, RunInfo] = field(default_factory=dict)  # counts, until it is handed over
    found: Mapping[str, str] = field(default_factory=dict)  # payloads of the replies wanted
    taken: Collection[str] = ()  # locks
    done: asyncio.Event = field(default_factory=asyncio.Event)  # all is durable, or has failed


class _Writer:
    """Writes batches, in order, in as few transactions as the traffic allows.

    While one transaction commits, the next batches share the following one. The methods run on
    the caller's event loop. The first failure is final: a log with a gap is worse than one that
    ends early. A server that restarts is no failure.
    """

    def __init__(self, database: Database) -> None:
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
        batch, self._open = self._open, None
        if batch is None:
            return
        self._latest = batch
        batch.rows.runs = {name: asdict(run) for name, run in batch.runs.items()}
        if self._due is not None:
            self._due.cancel()
        if self._thread is None:
            self._commit([batch])
            batch.done.set()
        else:
            self._inbox.put(batch)

    async def close(self) -> None:
        """Write what is queued and end the thread; ``failure`` is set if that went wrong."""
        self._closed = True
        self.hand_over()
        self._inbox.put(None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _drain(self) -> None:
        """Commit what was handed over until the writer is closed."""
        latest: _Batch | None
        closed = False
        while not closed:
            batches: list[_Batch] = []
            try:
                latest = self._inbox.get(timeout=SIGN_OF_LIFE_SECONDS)
            except Empty:
                with suppress(StoreError):  # the next write meets it, too
                    self._database.give_sign_of_life()
                continue
            while latest is not None:
                batches.append(latest)
                if self._inbox.empty():
                    break
                latest = self._inbox.get()
            closed = latest is None
            self._commit(batches)
            for loop in {batch.loop for batch in batches}:
                with suppress(RuntimeError):  # the loop has ended: nothing waits any more
                    loop.call_soon_threadsafe(
                        _wake, [batch for batch in batches if batch.loop is loop]
                    )

    def _commit(self, batches: Sequence[_Batch]) -> None:
        """Write batches in one transaction, unless an earlier write failed."""
        rows = Transaction()
        for batch in batches:
            rows.add(batch.rows)
        try:
            if self.failure is None and batches:
                found, taken = self._database.commit(rows)
                for batch in batches:
                    batch.found, batch.taken = found, taken
        except StoreError as error:
            self.failure = error
        except Exception as error:  # whatever it is, the log must not go on with a gap
            self.failure = StoreError(f"{self._database.where} could not be written: {error!r}")


def _wake(batches: Sequence[_Batch]) -> None:
    for batch in batches:
        batch.done.set()


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


def folder_of(place: StorePlace) -> Path:
    """Return the folder of a store that is a file; the working directory for any other."""
    if isinstance(place, Path):
        return place.parent
    return Path(place).parent if isinstance(place, str) and "://" not in place else Path()
