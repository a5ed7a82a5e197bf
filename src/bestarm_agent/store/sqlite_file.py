"""The file of an SQLite store: made private, watched, its log copied beside the writer."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

from sqlalchemy import URL, Connection, Engine

from bestarm_agent.errors import StoreError
from bestarm_agent.store.whole_files import PRIVATE

BUSY_SECONDS = 30.0  # that a writer waits for another process's transaction
_BUSY_PAUSE = 0.01  # seconds between two tries of what SQLite does not wait for
_MAGIC = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """A file that was opened as a store."""

    path: Path
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
        return URL.create("sqlite", database=self.path.absolute().as_uri(), query=mode)


def open_file(path: Path, *, create: bool) -> SqliteFile:
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
    return SqliteFile(path, read_only, has_log, _identity(path))


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _next_to(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


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


COMMITS_BETWEEN = 200
LONGEST_LOG = 16_384  # pages of 4 kB; beyond, the writer waits for one checkpoint so that it ends


class Checkpointer:
    """A thread that copies the write-ahead log into the database after every so many commits.

    SQLite itself would copy it within a commit, which then waits for the disk: more than a second
    on a busy one. All that was paid for in that second would be lost with a crash.
    """

    def __init__(self, engine: Engine, writing: Connection) -> None:
        self._writing = writing
        self._beside = engine.connect()
        _driver(writing).execute("PRAGMA wal_autocheckpoint = 0")
        self._commits = 0
        self._is_overdue = False
        self._wanted = Event()
        self._closed = False
        self._thread = Thread(target=self._run, name="bestarm-checkpoints", daemon=True)
        self._thread.start()

    def after_commit(self) -> None:
        """Note a commit; called by the writer."""
        self._commits += 1
        if self._is_overdue:
            self._is_overdue = False
            checkpoint(self._writing)
        elif self._commits % COMMITS_BETWEEN == 0:
            self._wanted.set()

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._wanted.set()
        self._thread.join()
        self._beside.close()

    def _run(self) -> None:
        while not self._closed:
            self._wanted.wait()
            self._wanted.clear()
            if not self._closed:
                with suppress(sqlite3.Error):  # the writer meets it too, and reports it
                    self._is_overdue = checkpoint(self._beside) > LONGEST_LOG


def checkpoint(connection: Connection) -> int:
    """Copy as much of the log as no reader needs; return its length in pages when that began.

    It starts again with the next commit, unless another came in the meantime.
    """
    _, pages, _ = _driver(connection).execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return int(pages)


def _driver(connection: Connection) -> Any:  # noqa: ANN401 - SQLAlchemy's proxy of sqlite3.Connection
    return connection.connection
