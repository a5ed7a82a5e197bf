"""Opens the database of a store: SQLite by path, PostgreSQL by URL."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError

from bestarm_agent.errors import ConfigError, StoreError
from bestarm_agent.store.locks import AdvisoryLocks, FileLocks, RunLocks
from bestarm_agent.store.schema import MIGRATIONS, migrate, version

BUSY_SECONDS = 30.0
"""How long a writer waits for another process's transaction."""

_SQLITE_MAGIC = b"SQLite format 3\0"
_SQLITE_ADVICE = {
    "SQLITE_NOTADB": "it is not an SQLite database; give another `output_dir`, or move it away",
    "SQLITE_CORRUPT": "it is damaged; restore it from a copy, or move it away and start afresh",
    "SQLITE_FULL": "the disk is full; free some space, then resume: what was saved before is safe",
    "SQLITE_READONLY": "it may not be written; make it and its folder writable, or copy it",
    "SQLITE_CANTOPEN": "it cannot be opened; make it and its folder writable",
    "SQLITE_BUSY": "another process has been writing it for more than 30 s; stop that process",
    "SQLITE_IOERR": "the disk reports an error; check its space, quota and health, then resume",
}


@dataclass(frozen=True, slots=True)
class Database:
    """An open database in the present layout.

    Attributes:
        engine: gives connections; those with the execution option ``writes`` begin their
            transactions as the only writer.
        where: what it is called in messages; holds no password.
        locks: the runs' locks.
    """

    engine: Engine
    where: str
    locks: RunLocks

    def lock(self, run_id: str) -> None:
        """Take a run's lock; raises StoreError if somebody alive holds it."""
        with explaining(self.where):
            self.locks.acquire(run_id)

    def release(self, run_id: str) -> None:
        """Let go of a run's lock, if it is held."""
        with explaining(self.where):
            self.locks.release(run_id)

    def close(self) -> None:
        """Let go of the locks and of all connections."""
        with explaining(self.where):
            self.locks.close()
            self.engine.dispose()


def open_database(url_or_path: str | Path, *, create: bool) -> Database:
    """Open a store's database and bring it to the present layout.

    Raises:
        ConfigError: the URL is not understood, or its driver is not installed.
        StoreVersionError: a newer version of the package wrote it; nothing is changed.
        StoreError: it cannot be opened, or is not a store; or it is absent and not to be created.
    """
    url = _url(url_or_path)
    if url.get_backend_name() == "sqlite":
        path = Path(url.database or "")
        _make_file(path, create=create)
        database = Database(_sqlite_engine(url), f"the store {path}", FileLocks(path))
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
    """Turn whatever the database or the system raises into a StoreError that says the way out."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        raise StoreError(_explanation(error, where)) from error


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


def _make_file(path: Path, *, create: bool) -> None:
    """Create the file, and its folder, for the user alone; SQLite follows for those next to it."""
    if not create and not path.exists():
        raise StoreError(
            f"there is no store at {path}; begin a run, or give the right `output_dir`"
        )
    with explaining(f"the store {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "rb") as file:
            start = file.read(len(_SQLITE_MAGIC))
    if start and start != _SQLITE_MAGIC:  # SQLite would take a short file for an empty one
        raise StoreError(f"the store {path} cannot be used: {_SQLITE_ADVICE['SQLITE_NOTADB']}")


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
        return create_engine(url)
    except ModuleNotFoundError as error:
        raise ConfigError(
            "a store in PostgreSQL needs psycopg: pip install 'bestarm-agent[postgres]'"
        ) from error


def _prepare(database: Database) -> None:
    """Bring the tables to the present layout; turn SQLite's write-ahead log on."""
    with database.engine.connect() as connection:
        present = version(connection, database.where)
    if present != len(MIGRATIONS):
        with writing(database.engine) as connection, connection.begin():
            migrate(connection, database.where)
    if database.engine.dialect.name == "sqlite":
        with database.engine.connect() as connection:
            driver: Any = connection.connection
            driver.execute("PRAGMA journal_mode = WAL")
