"""The database of a store: SQLite by path, PostgreSQL by URL."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError

from bestarm_agent.errors import ConfigError, StoreError
from bestarm_agent.store.locks import AdvisoryLocks, FileLocks, StoreLocks
from bestarm_agent.store.server_restarts import patiently
from bestarm_agent.store.sqlite_file import (
    BUSY_SECONDS,
    Checkpointer,
    SqliteFile,
    open_file,
    write_ahead,
)
from bestarm_agent.store.tables import check_layout, prepare

_T = TypeVar("_T")
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
class Database:
    """An open database in the present layout."""

    engine: Engine  # connections with the option ``writes`` begin as the only writer
    where: str  # its name in messages, without a password
    locks: StoreLocks
    file: SqliteFile | None = None  # of an SQLite store

    @property
    def is_read_only(self) -> bool:
        """Tell whether the store can only be read here."""
        return self.file is not None and self.file.read_only

    def patiently(self, work: Callable[[], _T], connections: Connections) -> _T:
        """Do some work with connections, again where a server restarts meanwhile."""
        if self.file is not None:
            return work()  # no server that could

        def renew() -> None:
            connections.renew()
            self.locks.renew()

        return patiently(work, renew)

    def check_place(self) -> None:
        """Check that the store's file was neither deleted nor replaced; raises StoreError."""
        if self.file is not None and not self.file.is_in_place():
            raise StoreError(
                f"{self.where} was deleted or replaced while it was in use, and what was written "
                f"since is lost with it; put the file back, then resume, or begin a new run"
            )

    def lock(self, run_id: str) -> None:
        """Take a run's lock; raises StoreError if another live process holds it."""
        if self.is_read_only:
            raise StoreError(
                f"{self.where} can only be read here, and a run writes; make the file and its "
                f"folder writable, or give another `output_dir`"
            )
        with explaining(self.where):
            self.locks.acquire(run_id)

    def release(self, run_id: str) -> None:
        """Release a run's lock, if it is held."""
        with explaining(self.where):
            self.locks.release(run_id)

    async def claim(self, key: str) -> bool:
        """Try to claim a reply key; return whether the claim is held now."""
        return await self._ask(self.locks.claim, key)

    async def unclaim(self, key: str) -> None:
        """Give a claim back, if it is held."""
        await self._ask(self.locks.unclaim, key)

    async def _ask(self, question: Callable[[str], _T], key: str) -> _T:
        with explaining(self.where):
            if isinstance(self.locks, FileLocks):
                return question(key)  # one system call: quicker than a thread
            return await asyncio.to_thread(question, key)

    def close(self) -> None:
        """Release the locks and close all connections."""
        with explaining(self.where):
            self.locks.close()
            self.engine.dispose()


def open_database(url_or_path: str | Path, *, create: bool) -> Database:
    """Open a store's database and bring it to the present layout; errors: see ``SqlStore``."""
    url = _url(url_or_path)
    if url.get_backend_name() == "sqlite":
        path = Path(url.database or "")
        with explaining(f"the store {path}"):
            file = open_file(path, create=create)
        database = Database(_sqlite_engine(file.url()), f"the store {path}", FileLocks(path), file)
    else:
        where = f"the store {url.render_as_string(hide_password=True)}"
        engine = _postgres_engine(url)
        database = Database(engine, where, AdvisoryLocks(engine))
    with explaining(database.where):
        try:
            _prepare(database)
        except BaseException:
            database.engine.dispose()
            raise
    return database


@contextmanager
def explaining(where: str) -> Iterator[None]:
    """Turn errors of the database or the system into a StoreError that names the way out."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        raise StoreError(_explanation(error, where)) from error


class Connections:
    """Two connections of one owner: one that writes and one that reads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.writing = writing(engine)
        self.reading = engine.connect()
        self._checkpointer: Checkpointer | None = None
        if engine.dialect.name == "sqlite":
            self._checkpointer = Checkpointer(engine, self.writing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._checkpointer is not None:
            self._checkpointer.close()
        self.writing.close()
        self.reading.close()

    def after_commit(self) -> None:
        """Note a commit, for the checkpoints of SQLite."""
        if self._checkpointer is not None:
            self._checkpointer.after_commit()

    def renew(self) -> None:
        """Replace both connections, which a restart of the server ended."""
        for connection in (self.writing, self.reading):
            connection.invalidate()
            connection.close()
        self.writing = writing(self._engine)
        self.reading = self._engine.connect()


def writing(engine: Engine) -> Connection:
    """Connect for writing."""
    return engine.connect().execution_options(writes=True)


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


def _url(url_or_path: str | Path) -> URL:
    if isinstance(url_or_path, Path) or "://" not in url_or_path:
        return URL.create("sqlite", database=str(url_or_path))
    try:
        url = make_url(url_or_path)
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


def _sqlite_engine(url: URL) -> Engine:
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # transactions begin where we say, tables included
        connection.execute("PRAGMA synchronous = NORMAL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get("writes"):
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _postgres_engine(url: URL) -> Engine:
    try:
        return create_engine(url, pool_pre_ping=True)  # the server may restart
    except ModuleNotFoundError as error:
        raise ConfigError(
            "a store in PostgreSQL needs psycopg: pip install 'bestarm-agent[postgres]'"
        ) from error


def _prepare(database: Database) -> None:
    with database.engine.connect() as connection:
        is_there = check_layout(connection, database.where)
    if database.is_read_only:
        return
    if not is_there:
        with writing(database.engine) as connection, connection.begin():
            prepare(connection, database.where)
    if database.engine.dialect.name == "sqlite":
        with database.engine.connect() as connection:
            write_ahead(connection)
