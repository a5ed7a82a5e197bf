"""Locks that end with the process that holds them: one writer per run, one buyer per reply."""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Function, func, select, text
from sqlalchemy.exc import DBAPIError, InvalidRequestError, SQLAlchemyError

from bestarm_agent.domain.digest import digest
from bestarm_agent.errors import StoreError

PATIENCE_SECONDS = 60.0
"""How long a server may be away, and a holder of claims without a sign of life."""
_PAUSE_SECONDS = 0.25
SIGN_OF_LIFE_SECONDS = 10.0

_T = TypeVar("_T")


class Locks:
    """Locks against other holders in this process; those of a store in memory need no more.

    A run's lock is for its writer, a claim for the buyer of a reply.
    """

    def __init__(self) -> None:
        self._held: set[str] = set()
        self._turn = Lock()

    def acquire(self, run_id: str) -> None:
        """Take a run's lock; raises StoreError if another live process holds it."""
        with self._turn:
            name = f"run {run_id}"
            # the system, or the server, would let one holder lock twice
            if name in self._held or not self._take(name):
                raise in_use(run_id, self._holder(name))
            self._held.add(name)

    def release(self, run_id: str) -> None:
        """Release a run's lock, if it is held."""
        self._give_back(f"run {run_id}")

    def claim(self, key: str) -> bool:
        """Try to claim a reply's key; return whether the claim is held now.

        A claim of a process that was stopped has ended.
        """
        with self._turn:
            name = f"reply {key}"
            if name in self._held or not (self._take(name) or self._take_over(name)):
                return False
            self._held.add(name)
            return True

    def unclaim(self, key: str) -> None:
        """Give a claim back, if it is held."""
        self._give_back(f"reply {key}")

    def renew(self) -> None:
        """Take again what a restart of a server released.

        Raises:
            StoreError: another process has a run's lock now.
        """

    def give_sign_of_life(self) -> None:
        """Let those who wait for a claim know that its holder works; raises as ``renew`` does."""

    def close(self) -> None:
        """Release everything; the locks are free when this returns."""
        with self._turn:
            self._held.clear()

    def _give_back(self, name: str) -> None:
        with self._turn:
            if name in self._held:
                self._held.remove(name)
                self._free(name)

    def _take(self, _name: str) -> bool:
        return True

    def _take_over(self, _name: str) -> bool:
        return False

    def _free(self, _name: str) -> None:
        return

    def _holder(self, _name: str) -> int:
        """Return the number of the process that holds a lock; 0 if that is not known."""
        return 0


_SLOTS = 1 << 20  # numbers of processes that the file of locks has room for
_PID = struct.Struct("=i")


class FileLocks(Locks):
    """Locked bytes of one file next to an SQLite store, which the system frees with their holder.

    A lock costs two system calls: one locks a byte far behind the end of the file, the other
    writes who holds it into a slot at its beginning.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._handle: int | None = None

    def close(self) -> None:
        """Release everything."""
        super().close()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _take(self, name: str) -> bool:
        return self._lock(_number(name))

    def _take_over(self, name: str) -> bool:
        """Take the byte behind that of a holder that is stopped, which cannot free its own."""
        return _is_stopped(self._holder(name)) and self._lock(_number(name) + 1)

    def _free(self, name: str) -> None:
        for number in (_number(name), _number(name) + 1):
            self._set(number, locked=False)

    def _holder(self, name: str) -> int:
        at = _number(name) // 2 % _SLOTS * _PID.size
        content = os.pread(self._file(), _PID.size, at)
        return int(_PID.unpack(content)[0]) if len(content) == _PID.size else 0

    def _lock(self, number: int) -> bool:
        try:
            self._set(number, locked=True)
        except (BlockingIOError, PermissionError):  # POSIX allows both for a lock that is taken
            return False
        if number % 2 == 0:
            at = number // 2 % _SLOTS * _PID.size
            os.pwrite(self._file(), _PID.pack(os.getpid()), at)
        return True

    def _set(self, number: int, *, locked: bool) -> None:
        try:
            import fcntl
        except ModuleNotFoundError as error:
            raise StoreError(
                "a store in a file needs the file locks of a POSIX system; on Windows, work in WSL "
                "or store in PostgreSQL (postgresql://...)"
            ) from error
        at = _SLOTS * _PID.size + number
        if hasattr(fcntl, "F_OFD_SETLK"):  # Linux: also between two stores of one process
            # struct flock: type, whence, start, length, process
            kind = fcntl.F_WRLCK if locked else fcntl.F_UNLCK
            request = struct.pack("hhqqi4x", kind, os.SEEK_SET, at, 1, 0)
            fcntl.fcntl(self._file(), fcntl.F_OFD_SETLK, request)
        else:
            kind = fcntl.LOCK_EX | fcntl.LOCK_NB if locked else fcntl.LOCK_UN
            fcntl.lockf(self._file(), kind, 1, at)

    def _file(self) -> int:
        if self._handle is None:
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        return self._handle


# who holds a lock and has not asked the server anything for too long
_STALE = text(
    "SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' "
    "AND granted AND objsubid = 1 AND classid::bigint = :high AND objid::bigint = :low "
    "AND now() - query_start > make_interval(secs => :patience) AND pid <> pg_backend_pid()"
)


class ServerLocks(Locks):
    """Session locks of PostgreSQL; the server drops them when the connection ends.

    A holder that gives no sign of life for a minute was stopped: who waits for its claim ends its
    session. It takes its locks again when it goes on.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
        self._session: Connection | None = None
        self._asked = 0.0  # when the server was asked something

    def give_sign_of_life(self) -> None:
        """Ask the server something if that was long ago."""
        if time.monotonic() - self._asked > SIGN_OF_LIFE_SECONDS:
            self.renew()

    def renew(self) -> None:
        """Ask the server something, over a new session if it ended the last one."""
        with self._turn:
            if self._held:
                self._ask(func.now())

    def close(self) -> None:
        """Release everything; the locks are free when this returns."""
        super().close()
        if self._session is not None:  # a server notices the end of a connection only later
            with contextlib.suppress(SQLAlchemyError):
                self._session.execute(select(func.pg_advisory_unlock_all()))
        self._end_session()

    def _take(self, name: str) -> bool:
        return self._ask(func.pg_try_advisory_lock(_signed(name)))

    def _take_over(self, name: str) -> bool:
        number = _number(name)
        found = {"high": number >> 32 ^ 1 << 31, "low": number & 0xFFFFFFFF}

        def stale() -> int | None:
            pid: int | None = self._open_session().scalar(
                _STALE, {**found, "patience": PATIENCE_SECONDS}
            )
            return pid

        pid = patiently(stale, self._end_session)
        return pid is not None and self._ask(func.pg_terminate_backend(pid)) and self._take(name)

    def _free(self, name: str) -> None:
        self._ask(func.pg_advisory_unlock(_signed(name)))

    def _ask(self, question: Function[Any]) -> bool:
        self._asked = time.monotonic()
        return patiently(
            lambda: bool(self._open_session().scalar(select(question))), self._end_session
        )

    def _open_session(self) -> Connection:
        if self._session is not None:
            return self._session
        connection = self._engine.connect()
        session = self._session = connection.execution_options(isolation_level="AUTOCOMMIT")
        for name in list(self._held):
            if not session.scalar(select(func.pg_try_advisory_lock(_signed(name)))):
                kind, _, rest = name.partition(" ")
                if kind == "run":
                    self._end_session()
                    raise in_use(rest, 0)
                self._held.remove(name)  # another process may buy the reply, too
        return session

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None and not session.closed:
            session.invalidate()  # its locks end with it
            session.close()


def patiently(work: Callable[[], _T], renew: Callable[[], None]) -> _T:
    """Do some work; while the server is away, wait, renew what was lost and do it again.

    An error of another kind, or the last one if the server stays away, is raised.

    Args:
        work: may be done twice, if the server went away before it answered.
        renew: lets go of what was lost; raises StoreError if the server still keeps the locks of
            the lost session.
    """
    lost: Exception | None = None
    for _ in range(1 + int(PATIENCE_SECONDS / _PAUSE_SECONDS)):
        try:
            if lost is not None:
                time.sleep(_PAUSE_SECONDS)
                renew()
        except StoreError as error:
            lost = error
            continue
        except SQLAlchemyError as error:
            lost = _as_lost(error)
            continue
        try:
            return work()
        except SQLAlchemyError as error:
            lost = _as_lost(error)
    assert lost is not None
    raise lost


def _as_lost(error: SQLAlchemyError) -> SQLAlchemyError:
    """Return an error that says that the server is away, or a connection lost; raise others."""
    if isinstance(error, DBAPIError):
        state = getattr(error.orig, "sqlstate", "")  # errors of SQLite have none
        # no state: the connection broke; class 08: connection errors; 57P: shutting down, starting
        if state is None or state.startswith(("08", "57P")):
            return error
    elif isinstance(error, InvalidRequestError):  # "This Connection is closed"
        return error
    raise error


def in_use(run_id: str, pid: int) -> StoreError:
    """Return the error of a second writer; ``pid`` is the first one's process, or 0."""
    holder = f"process {pid}" if pid else "another live process"
    return StoreError(
        f"run {run_id} is being written by {holder}; wait until it ends or stop it, then try "
        f"again (reading the run works meanwhile)"
    )


def _is_stopped(pid: int) -> bool:
    """Tell whether a process of this machine was stopped, as by SIGSTOP or Ctrl-Z."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it ended, or this system has no such files
        return False
    return status.rpartition(")")[2].split()[:1] in (["T"], ["t"])


def _number(name: str) -> int:
    """Return an even number below 2^61 for each name."""
    return int(digest(f"bestarm-agent {name}"), 16) >> 4 << 1


def _signed(name: str) -> int:
    return _number(name) - (1 << 63)  # as the server wants it
