"""One writer per run: locks that end with the process that holds them."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import Protocol

from sqlalchemy import Connection, Engine, Function, func, select

from bestarm_agent.domain.digest import digest
from bestarm_agent.errors import StoreError


class RunLocks(Protocol):
    """Locks runs against a second writer, in this process or another."""

    def acquire(self, run_id: str) -> None:
        """Take a run's lock.

        Raises:
            StoreError: somebody alive holds it.
        """
        ...

    def release(self, run_id: str) -> None:
        """Let go of a lock, if it is held."""
        ...

    def close(self) -> None:
        """Let go of all locks."""
        ...


class FileLocks:
    """Locks on files next to an SQLite store; the system drops them when the holder dies.

    Args:
        store: path of the SQLite file.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self._held: dict[str, int] = {}

    def acquire(self, run_id: str) -> None:
        """Take a run's lock; raises StoreError if somebody alive holds it."""
        path = self._path(run_id)
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                _lock_file(handle, run_id)
            except BaseException:
                os.close(handle)
                raise
            if _is_same_file(handle, path):
                break
            os.close(handle)  # the last holder removed the file between our open and our lock
        os.truncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        self._held[run_id] = handle

    def release(self, run_id: str) -> None:
        """Let go of a lock, if it is held, and of its file."""
        if run_id in self._held:
            self._path(run_id).unlink(missing_ok=True)  # while it is locked: nobody else has it
            os.close(self._held.pop(run_id))

    def close(self) -> None:
        """Let go of all locks."""
        for run_id in list(self._held):
            self.release(run_id)

    def _path(self, run_id: str) -> Path:
        return self._store.with_name(f"{self._store.name}.{run_id}.lock")


class AdvisoryLocks:
    """Session locks of PostgreSQL; the server drops them when the connection ends.

    Args:
        engine: where the store is.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None
        self._held: set[str] = set()
        self._turn = Lock()

    def acquire(self, run_id: str) -> None:
        """Take a run's lock; raises StoreError if somebody alive holds it."""
        with self._turn:
            # the server would let one session lock twice
            if run_id in self._held or not self._ask(func.pg_try_advisory_lock(_key(run_id))):
                raise in_use(run_id, "")
            self._held.add(run_id)

    def release(self, run_id: str) -> None:
        """Let go of a lock, if it is held."""
        with self._turn:
            if run_id in self._held:
                self._held.remove(run_id)
                self._ask(func.pg_advisory_unlock(_key(run_id)))

    def close(self) -> None:
        """Let go of all locks."""
        self._held.clear()
        if self._connection is not None:
            self._connection.invalidate()  # ends the session, and its locks with it
            self._connection.close()

    def _ask(self, question: Function[bool]) -> bool:
        if self._connection is None:
            connection = self._engine.connect()
            self._connection = connection.execution_options(isolation_level="AUTOCOMMIT")
        return bool(self._connection.scalar(select(question)))


def _lock_file(handle: int, run_id: str) -> None:
    try:
        import fcntl
    except ModuleNotFoundError as error:
        raise StoreError(
            "a store in a file needs the file locks of a POSIX system; on Windows, work in WSL or "
            "store in PostgreSQL (postgresql://...)"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise in_use(run_id, os.read(handle, 32).decode().strip()) from error


def _is_same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def in_use(run_id: str, pid: str) -> StoreError:
    """The error of a second writer; ``pid`` is the first one's process id, or empty."""
    holder = f"process {pid}" if pid else "another live process"
    return StoreError(
        f"run {run_id} is being written by {holder}; wait until it ends or stop it, then try "
        f"again (reading the run works meanwhile)"
    )


def _key(run_id: str) -> int:
    """A 64-bit signed number for an advisory lock."""
    return int(digest(f"bestarm-agent run {run_id}"), 16) - (1 << 63)
