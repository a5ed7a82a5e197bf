"""Checkpoints of SQLite's write-ahead log, beside the writer.

SQLite itself would copy the log into the database within a commit, which then waits for the disk:
more than a second on a busy one. All that was paid for in that second would be lost with a crash.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from threading import Event, Thread
from typing import Any

from sqlalchemy import Connection, Engine

COMMITS_BETWEEN = 200
LONGEST_LOG = 16_384  # pages of 4 kB; beyond, the writer waits for one checkpoint so that it ends


class Checkpointer:
    """A thread that copies the log into the database after every so many commits."""

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
    """Copy as much of the log as no reader needs; return the pages that are left in it."""
    _, pages, copied = _driver(connection).execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    # a log that was copied in full begins anew with the next commit
    return 0 if pages == copied else int(pages)


def _driver(connection: Connection) -> Any:  # noqa: ANN401 - SQLAlchemy's proxy of sqlite3.Connection
    return connection.connection
