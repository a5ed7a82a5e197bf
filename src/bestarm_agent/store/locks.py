"""Locks that end with the process that holds them: one writer per run, one buyer per reply."""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, Function, func, select
from sqlalchemy.exc import DBAPIError

from bestarm_agent.domain.digest import digest
from bestarm_agent.errors import StoreError
from bestarm_agent.store.server_restarts import patiently


class StoreLocks(Protocol):
    """Locks of a store against other holders, in this process or another."""

    def acquire(self, run_id: str) -> None:
        """Take a run's lock; raises StoreError if another live process holds it."""

    def release(self, run_id: str) -> None:
        """Release a run's lock, if it is held."""

    def claim(self, key: str) -> bool:
        """Try to claim a reply key; return whether the claim is held now."""

    def unclaim(self, key: str) -> None:
        """Give a claim back, if it is held."""

    def renew(self) -> None:
        """Take again what a restart of the server released; raise StoreError if another has it."""

    def close(self) -> None:
        """Release everything."""


class FileLocks:
    """Locks on files next to an SQLite store.

    A run's lock is a file of its own. A claim on a reply is one locked byte of a common file, so
    that it costs one system call and no file. The system drops both when the holder dies.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self._held: dict[str, int] = {}
        self._claims = _ByteLocks(store.with_name(f"{store.name}.claims"))

    def acquire(self, run_id: str) -> None:
        """Take a run's lock; raises StoreError if another live process holds it."""
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
        """Release a run's lock, if it is held, and remove its file."""
        if run_id in self._held:
            self._path(run_id).unlink(missing_ok=True)  # still locked: no other process has it
            os.close(self._held.pop(run_id))

    def claim(self, key: str) -> bool:
        """Try to claim a reply key; return whether the claim is held now."""
        return self._claims.take(_number(f"reply {key}") >> 2)  # an offset below 2^62

    def unclaim(self, key: str) -> None:
        """Give a claim back, if it is held."""
        self._claims.give_back(_number(f"reply {key}") >> 2)

    def renew(self) -> None:
        """Do nothing: no server can release these."""

    def close(self) -> None:
        """Release everything."""
        for run_id in list(self._held):
            self.release(run_id)
        self._claims.close()

    def _path(self, run_id: str) -> Path:
        return self._store.with_name(f"{self._store.name}.{run_id}.lock")


class _ByteLocks:
    """Exclusive locks on single bytes of a file, which are never written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None
        self._held: set[int] = set()

    def take(self, number: int) -> bool:
        if number in self._held:  # the system would let one holder lock twice
            return False
        import fcntl

        try:
            self._lock(number, fcntl.F_WRLCK)
        except (BlockingIOError, PermissionError):  # POSIX allows both for a lock that is taken
            return False
        self._held.add(number)
        return True

    def give_back(self, number: int) -> None:
        if number in self._held:
            import fcntl

            self._held.remove(number)
            self._lock(number, fcntl.F_UNLCK)

    def close(self) -> None:
        self._held.clear()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _lock(self, number: int, kind: int) -> None:
        import fcntl

        if self._handle is None:
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        if hasattr(fcntl, "F_OFD_SETLK"):  # Linux: also between two stores of one process
            # struct flock: type, whence, start, length, process
            request = struct.pack("hhqqi4x", kind, os.SEEK_SET, number, 1, 0)
            fcntl.fcntl(self._handle, fcntl.F_OFD_SETLK, request)
        elif kind == fcntl.F_UNLCK:
            fcntl.lockf(self._handle, fcntl.LOCK_UN, 1, number)
        else:
            fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)


class AdvisoryLocks:
    """Session locks of PostgreSQL; the server drops them when the connection ends."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session: Connection | None = None
        self._runs: dict[str, int] = {}  # held locks by run
        self._claims: set[int] = set()
        self._turn = Lock()

    def acquire(self, run_id: str) -> None:
        """Take a run's lock; raises StoreError if another live process holds it."""
        with self._turn:
            number = _signed(f"run {run_id}")
            # the server would let one session lock twice
            if run_id in self._runs or not self._ask(func.pg_try_advisory_lock(number)):
                raise in_use(run_id, "")
            self._runs[run_id] = number

    def release(self, run_id: str) -> None:
        """Release a run's lock, if it is held."""
        with self._turn:
            if run_id in self._runs:
                self._ask(func.pg_advisory_unlock(self._runs.pop(run_id)))

    def claim(self, key: str) -> bool:
        """Try to claim a reply key; return whether the claim is held now."""
        with self._turn:
            number = _signed(f"reply {key}")
            if number in self._claims or not self._ask(func.pg_try_advisory_lock(number)):
                return False
            self._claims.add(number)
            return True

    def unclaim(self, key: str) -> None:
        """Give a claim back, if it is held."""
        with self._turn:
            number = _signed(f"reply {key}")
            if number in self._claims:
                self._claims.remove(number)
                self._ask(func.pg_advisory_unlock(number))

    def renew(self) -> None:
        """Take again what a restart of the server released."""
        with self._turn:
            if self._runs or self._claims:
                self._ask(func.now())

    def close(self) -> None:
        """Release everything; the locks are free when this returns."""
        self._runs.clear()
        self._claims.clear()
        if self._session is not None:  # a server notices the end of a connection only later
            with contextlib.suppress(DBAPIError):
                self._session.execute(select(func.pg_advisory_unlock_all()))
        self._end_session()

    def _ask(self, question: Function[Any]) -> bool:
        return patiently(lambda: self._answer(question), self._end_session)

    def _answer(self, question: Function[Any]) -> bool:
        session = self._session or self._begin_session()
        return bool(session.scalar(select(question)))

    def _begin_session(self) -> Connection:
        connection = self._engine.connect()
        session = self._session = connection.execution_options(isolation_level="AUTOCOMMIT")
        for run_id, number in self._runs.items():
            if not session.scalar(select(func.pg_try_advisory_lock(number))):
                self._end_session()
                raise in_use(run_id, "")
        # a claim that another process took meanwhile is lost: a reply may be bought twice
        self._claims = {
            number
            for number in self._claims
            if session.scalar(select(func.pg_try_advisory_lock(number)))
        }
        return session

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.invalidate()  # its locks end with it
            self._session.close()
            self._session = None


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
    """Return the error of a second writer; ``pid`` is the first one's process id, or empty."""
    holder = f"process {pid}" if pid else "another live process"
    return StoreError(
        f"run {run_id} is being written by {holder}; wait until it ends or stop it, then try "
        f"again (reading the run works meanwhile)"
    )


def _number(name: str) -> int:
    return int(digest(f"bestarm-agent {name}"), 16)


def _signed(name: str) -> int:
    return _number(name) - (1 << 63)  # as the server wants it
