"""The store of runs and replies: SQLite in one file or in memory, PostgreSQL by URL.

What is appended, put, looked up or claimed in one moment goes into one batch. A thread
(``database.Writer``) commits it with whatever else came meanwhile and wakes those who wait. Readers
take a run's log page by page, from any process.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import sys
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from bestarm_agent.domain.events import Asked, Event, Resumed, Started, Stopped, Told
from bestarm_agent.domain.values import Reply
from bestarm_agent.errors import RunNotFoundError, StoreError
from bestarm_agent.store import codec

if TYPE_CHECKING:
    from bestarm_agent.store.database import Batch, Database, Writer

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # without i, l, o, u: easy to read out
_NAMED = 8  # runs that a message names
CONFIRMS = ".confirm"  # ends the name of a run that confirms the winner of another
_SHOWN_CHARACTERS = 200
_EVENTS_PAGE = 2000  # read at a time
_RUN = "run "  # begins the name of the lock of a run's writer
# Runs are read by clauses added to ``_RUNS``, the likeliest first, so that finding one of thousands
# reads few. One more than a message names tells whether there are older ones.
_RUNS = "SELECT id, name, at, n_asked, n_told, stopped, n_events FROM runs "
# A run that asked for nothing, as after a refusal of its study, stands behind all that did: so
# "latest", or a name, means it only where no other fits.
_NEWEST = f" ORDER BY n_asked > 0 DESC, ordinal DESC LIMIT {_NAMED + 1}"
# Conditions are tried in turn, and the first that fits any run decides. A run that confirms the
# winner of another is the latest only where there is no other: "latest" means what people began.
_BY_NAME = ("WHERE id = :run", "WHERE name = :run")
_LATEST = ("WHERE name NOT IN (SELECT id || :confirms FROM runs)", "")
_BY_PREFIX = "WHERE :run <> '' AND substr(id, 1, :length) = :run"
_OUTLINE = (
    "SELECT kind, payload FROM events "
    f"WHERE run_id = :run AND kind NOT IN {codec.OF_PAIRS} ORDER BY n"
)
_OUTCOMES = "SELECT n, payload FROM events WHERE run_id = :run AND n IN :numbers"
# One statement both compares and writes: it changes no row, and returns none, where another process
# has stored the version in the meantime.
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


_RUN_ID = r"[0-9A-Za-z][0-9A-Za-z-]*"
# of the fields of ``RunInfo``: SQLite takes any value in any column, so that a damaged or foreign
# file may hold others
_KINDS: tuple[Any, ...] = (str, str, str, int, int, (str, type(None)), int)


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

    async def __aexit__(self, _kind: object, error: BaseException | None, _at: object) -> None:
        """Close; a failed write is raised, or noted on the error that is being raised."""
        try:
            await self.close()
        except StoreError as failure:
            if error is None:
                raise
            if failure is not error:
                error.add_note(str(failure))


class Store(_Closing):
    """Runs, the reply cache that they share, and named states with versions.

    A run is referred to by its id, its name (the latest run of that name), a unique prefix of its
    id, or "latest"; the latest is one that has asked for answers, if any has. Reading works while
    other processes write. Texts in configurations and sampling parameters under a secret's name are
    stored as "[redacted]", except for "${VARIABLE}".

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

    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer
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
        from bestarm_agent.store.database import Database, Writer

        database = await asyncio.to_thread(Database.of, place, create=create)
        return cls(database, Writer(database))

    @classmethod
    def in_memory(cls) -> Self:
        """Make an empty store that ends with the process, for tests and throw-away studies."""
        from bestarm_agent.store.database import Database, Writer

        database = Database.of_memory()
        return cls(database, Writer(database))

    async def close(self) -> None:
        """Write what is queued and close; raise StoreError if something was not written."""
        await self._writer.close()

    # runs

    async def create(self, name: str) -> RunLog:
        """Begin a run with a fresh id; it is listed once its ``Started`` event is durable."""
        run_id = new_run_id(datetime.now(UTC))
        while await self._infos("WHERE id = :run", run=run_id):
            run_id = new_run_id(datetime.now(UTC))
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
        return await self._infos("ORDER BY ordinal")

    async def find(self, run: str) -> RunInfo:
        """Find a run, to read it; raises RunNotFoundError as ``open`` does."""
        for condition in _LATEST if run == "latest" else _BY_NAME:
            if infos := await self._infos(condition + _NEWEST, run=run, confirms=CONFIRMS):
                return infos[0]
        if len(fits := await self._infos(_BY_PREFIX + _NEWEST, run=run, length=len(run))) == 1:
            return fits[0]
        candidates = fits or await self._infos(_NEWEST)
        names = ", ".join(f"{info.id} ({info.name})" for info in candidates[:_NAMED])
        names += ", older ones" if len(candidates) > _NAMED else ""
        if fits:
            raise RunNotFoundError(f"{run!r} could be any of {names}; write more of the id")
        if candidates:
            raise RunNotFoundError(f'there is no run {run!r}; there is {names}, or "latest"')
        raise RunNotFoundError(
            f"there is no run {run!r}: {self._database.where} is empty; begin a run with "
            f"`bestarm-agent select`, or, if it was copied while it was in use, copy the file "
            f"ending in -wal too"
        )

    async def _infos(self, clauses: str, **values: str | int) -> list[RunInfo]:
        rows = await self._database.rows(_RUNS + clauses, values)
        for row in rows:
            # files are named by the id, and a store may be somebody else's: "../../../report"
            is_right = all(map(isinstance, row, _KINDS)) and re.fullmatch(_RUN_ID, row[0])
            if not is_right:
                raise StoreError(
                    f"{self._database.where} is damaged: {tuple(row)!r:.120} is no run of its "
                    f"list; restore the store from a copy"
                )
        return [RunInfo(*row) for row in rows]

    async def events_of(self, run: str) -> list[Event]:
        """Return a run's durable events; raises as ``find``, and StoreError for a damaged log."""
        events: list[Event] = []
        async for page in self.lines_of(run):
            events += await self._database.in_thread(partial(codec.events_in, page, len(events)))
        return events

    async def lines_of(
        self, run: str, *, since: int = 0, until: int = sys.maxsize
    ) -> AsyncIterator[list[codec.Line]]:
        """Iterate over its events from a number on, before another, some at a time, as stored."""
        run_id = (await self.find(run)).id
        query = (
            "SELECT n, kind, payload FROM events WHERE run_id = :run AND n >= :since "
            f"AND n < :until ORDER BY n LIMIT {_EVENTS_PAGE}"
        )
        # Pages are transactions of their own: a snapshot that stays open while a long log is read
        # would keep SQLite from writing its own log from the beginning again. Events are only ever
        # added at the end, so that pages read one after the other are one log. Numbers begin at 0
        # and leave none out: the last number of a page tells whether one is missing.
        values = {"run": run_id, "until": until}
        while rows := await self._database.rows(query, {**values, "since": since}):
            if rows[-1][0] != since + len(rows) - 1:
                raise StoreError(
                    f"the log of run {run_id} in {self._database.where} has a gap after event "
                    f"{since}; restore the store from a copy"
                )
            yield [(kind, payload) for _, kind, payload in rows]
            since += len(rows)

    async def outline_of(self, run: str) -> list[Event]:
        """Return the events that are not about a pair, oldest first; raises as ``events_of``."""
        rows = await self._database.rows(_OUTLINE, {"run": (await self.find(run)).id})
        return codec.events_in(rows)

    async def told(self, run_id: str, events: Sequence[int]) -> list[Told]:
        """Read outcomes of a run back, by the numbers of their events; raises as ``events_of``.

        What this process has queued is waited for.
        """
        await self._writer.wait()
        outcomes: dict[int, Told] = {}
        for start in range(0, len(events), _EVENTS_PAGE):
            numbers = {"run": run_id, "numbers": list(events[start : start + _EVENTS_PAGE])}
            for n, text in await self._database.rows(_OUTCOMES, numbers):
                event = codec.event_of(("told", text))
                assert isinstance(event, Told)  # by its tag
                outcomes[n] = event
        if not outcomes.keys() >= set(events):
            raise StoreError(f"the log of run {run_id} has a gap; restore the store from a copy")
        return [outcomes[n] for n in events]

    # replies

    async def get_reply(self, key: str) -> Reply | None:
        """Return the stored reply, or None; lookups of one moment share one query."""
        batch = self._writer.batch()
        batch.wanted.add(key)
        await self._writer.wait(batch)
        payload = batch.payloads.get(key)
        return None if payload is None else codec.load_reply(payload)

    async def put_reply(self, key: str, reply: Reply, payload: str | None = None) -> None:
        """Store a reply durably, even if the caller is cancelled; a second one is ignored.

        A claim on it ends with that. ``payload`` is the reply as it is stored, if it was written
        already.
        """
        # Reply and end of the claim go into one batch, hence into one transaction: whoever takes
        # the claim next finds the reply, and a process that dies in between has done neither.
        payload = payload or codec.dump_reply(reply)
        batch = self._writer.batch()
        self._unlock(f"reply {key}")
        batch.replies.append({"key": key, "payload": payload})
        # All replies that came in this turn of the loop share a commit. To wait for its end is no
        # more of a risk for what was paid for than the time that an answer waits in its socket.
        await self._writer.wait(batch)

    async def replies(self) -> AsyncIterator[tuple[str, Reply]]:
        """Iterate over all stored replies, by key."""
        for key, payload in await self._database.rows("SELECT * FROM replies ORDER BY key"):
            yield key, codec.load_reply(payload)

    def claim_reply(self, key: str) -> Claim:
        """Ask for the right to buy the reply of a key, with what is written next; await the claim.

        A claim keeps every other holder out, in this process and in others, until it is released,
        the store is closed or the process ends or is stopped, however that comes.
        """
        return Claim(self, key)

    def release_reply(self, key: str) -> None:
        """Give a claim back, if it is held; other processes see that a moment later."""
        self._unlock(f"reply {key}")

    # locks

    async def _lock(self, name: str) -> str | None:
        """Take a lock, or return its owner."""
        batch = self._ask_for(name)
        return self._database.owner if batch is None else await self._owner(name, batch)

    def _ask_for(self, name: str) -> Batch | None:
        """Ask for a lock with what is written next; return None if it is held in this process."""
        # Locks in the database belong to the process, so ``_locks`` keeps tasks of this process
        # apart. A name enters it before the first await and leaves it the moment it is given back,
        # not when that is durable: a task that wants it next need not wait. Its batch is the same
        # or a later one, batches are written in order, and of two orders in one transaction the
        # later counts, so that no other process can come between the two.
        if name in self._locks:
            return None
        batch = self._writer.batch()
        self._locks.add(name)
        batch.locks[name] = True
        return batch

    async def _owner(self, name: str, batch: Batch) -> str | None:
        """Return None once a lock that was asked for is ours; else its owner."""
        try:
            await self._writer.wait(batch)
        except BaseException:
            # cancelled: whether the lock was taken is not known, and giving back what another
            # process holds changes nothing
            self._unlock(name)
            raise
        # no owner: its holder released it in the same commit
        owner = batch.holders.get(name, "")
        if owner == self._database.owner:
            return None
        self._locks.discard(name)
        return owner

    def _unlock(self, name: str) -> None:
        if name in self._locks:
            self._locks.remove(name)
            with suppress(StoreError):  # it ends with the store
                self._writer.batch().locks[name] = False

    async def _lock_run(self, run_id: str) -> None:
        if (owner := await self._lock(f"{_RUN}{run_id}")) is not None:
            raise self._database.in_use(run_id, owner)

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
        if not await self._database.rows(_PUT_STATE, row, writes=True):
            raise StoreError(
                f"the state {name!r} is not at version {after}, from which this one was "
                f"learnt: another process stored it meanwhile; open it again and repeat that"
            )
        return after + 1


class Claim:
    """The right to buy a reply, asked for together with a look whether it is stored.

    Awaited, it tells whether the right is ours, and ``reply`` is what is stored, or None. Both are
    found in the transaction of what else was written in that moment: first the right, then the
    look, so that of all who buy the same reply the next finds what the one before has bought.
    """

    def __init__(self, store: Store, key: str) -> None:
        self.key = key
        self.reply: Reply | None = None
        self._store = store
        self._name = f"reply {key}"
        # First the right: it is refused to a second task of this process without a write.
        asked = store._ask_for(self._name)
        self._is_held = asked is not None
        self._batch = asked or store._writer.batch()
        self._batch.wanted.add(key)

    def __await__(self) -> Generator[Any, None, bool]:
        """Wait for both; raise StoreError if the store cannot be written."""
        return self._found().__await__()

    async def _found(self) -> bool:
        if self._is_held:
            owner = await self._store._owner(self._name, self._batch)
            self._is_held = owner is None
        else:
            await self._store._writer.wait(self._batch)
        if (payload := self._batch.payloads.get(self.key)) is not None:
            self.reply = codec.load_reply(payload)
        return self._is_held

    def release(self) -> None:
        """Give the right back, if it is ours; other processes see that a moment later."""
        if self._is_held:
            self._is_held = False
            self._store.release_reply(self.key)


class RunLog(_Closing):
    """One run's event log, written by one process at a time.

    Events become durable in the order of appending, at the latest when flushed: if one survives a
    crash, so do all before it.
    """

    def __init__(self, info: RunInfo, store: Store) -> None:
        self.run_id = info.id
        self._row = asdict(info)  # of the list of runs
        self.store = store
        self._writer = store._writer
        self._closed = False

    def append(self, event: Event, line: codec.Line | None = None) -> None:
        """Queue an event for the next group commit and return at once.

        ``line`` is the event as it is stored, if it was written already.

        Raises:
            ValueError: JSON cannot hold it.
            StoreError: an earlier write failed, or the log is closed.
        """
        if self._closed:
            raise StoreError(f"the log of run {self.run_id} is closed; open the run again")
        kind, payload = line or codec.line_of(event)
        batch, run = self._writer.batch(), self._row
        row = {"run_id": self.run_id, "n": run["n_events"], "kind": kind, "payload": payload}
        batch.events.append(row)
        run["n_events"] += 1
        match event:
            case Started():
                run["at"] = event.at
            case Asked():
                run["n_asked"] += 1
            case Told():
                run["n_told"] += 1
            case Stopped():
                run["stopped"] = event.reason
            case Resumed():
                run["stopped"] = None
        batch.runs[f"{_RUN}{self.run_id}"] = dict(run)
        level = logging.DEBUG if kind in ("asked", "told") else logging.INFO
        _logger.log(level, "run %s: %s %.*s", self.run_id, kind, _SHOWN_CHARACTERS, payload)

    async def flush(self) -> None:
        """Wait until everything queued so far is durable.

        Raises:
            StoreError: it could not be written; nothing after it will be.
        """
        await self._writer.wait()

    async def close(self) -> None:
        """Flush, and let others open the run; raise StoreError if something was not written."""
        if self._closed:
            return
        self._closed = True
        self.store._unlock(f"{_RUN}{self.run_id}")
        await self._writer.wait()


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
