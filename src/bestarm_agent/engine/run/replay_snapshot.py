"""Snapshots of a run that goes on: after a kill, only what came later has to be replayed.

A snapshot holds what the log amounts to, the rule as it is: its own state alone says what it would
ask next. It is a pickle, of which reading builds values of this package and of NumPy only. One
that names anything else, or that other code wrote, is ignored.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import pickle
import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from enum import EnumType
from functools import cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import IO, Any

from bestarm_agent._version import __version__
from bestarm_agent.engine.clock import Clock
from bestarm_agent.engine.confirmed_pairs import ConfirmedPairs
from bestarm_agent.engine.rule_pairs import RulePairs
from bestarm_agent.engine.run.replay import Replayed, RunReplay
from bestarm_agent.engine.run.run_loop import RunLoop
from bestarm_agent.errors import StoreError
from bestarm_agent.selectors.base import Selector
from bestarm_agent.store.base import RunLog, RunStore
from bestarm_agent.store.run_state import RunState

_PART = "replay"
_FEWEST_NEW = 500  # told pairs between two snapshots
# Pause after one, in terms of the CPU seconds that the run stood still for it: a hundredth of its
# time. A thread takes about four times as long to pack and write it.
_PAUSE = 100
_MOST_CELLS = 2_000_000  # of a grid: writing a snapshot takes about 60 bytes of memory for each
_CHUNK = 1 << 20  # bytes

_PACKAGE = "bestarm_agent"
_ROOMS = (
    *("config.study.", "domain.", "engine.confirmed_pairs", "engine.results.", "engine.run."),
    *("engine.rule_pairs", "errors", "selectors.", "stats.", "store.pair_records"),
    "store.run_state",
)
_BUILDERS = {  # by module
    "array": {"array", "_array_reconstructor"},
    "builtins": {"bytearray", "complex", "frozenset", "range", "set", "slice"},
    "collections": {"Counter", "OrderedDict", "defaultdict", "deque"},
    "numpy": {"dtype", "ndarray"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},  # NumPy 1
    "numpy.core.numeric": {"_frombuffer"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
    "scipy.sparse._csr": {"csr_array"},
}
_DAMAGE = (
    *(pickle.UnpicklingError, gzip.BadGzipFile, zlib.error, EOFError, ImportError),
    *(AttributeError, IndexError, KeyError, TypeError, ValueError),
)
_logger = logging.getLogger(__name__)


class SnapshotKeeper:
    """Keeps a snapshot now and then, in a small part of the run's time.

    Runs with a rule of a plug-in, of another mode than selection or with a very large grid keep
    none.
    """

    def __init__(self, log: RunLog, clock: Clock, replayed: Callable[[], Replayed]) -> None:
        self._log = log
        self._clock = clock
        self._replayed = replayed
        self._told = 0  # pairs in the last snapshot of this process
        self._due = clock.now()  # when the next one may be written
        self._writing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def attached_to(self, loop: RunLoop) -> AsyncIterator[None]:
        """Look, within this context and in each turn of the loop, whether one is due."""
        loop.each_turn.append(self._look)
        try:
            yield
        finally:
            loop.each_turn.remove(self._look)
            if self._writing is not None:
                await self._writing

    def _look(self) -> None:
        is_writing = self._writing is not None and not self._writing.done()
        now, replayed = self._clock.now(), self._replayed()
        n_told = len(replayed.state.told)
        if is_writing or now < self._due or n_told < self._told + _FEWEST_NEW:
            return
        self._told = n_told
        if _can_be_kept(replayed):
            began = time.thread_time()
            try:
                content = _dump(replayed)
            except OSError as error:
                self._due = now + _PAUSE
                self._warn(error)
                return
            self._due = now + _PAUSE * (time.thread_time() - began)
            self._writing = asyncio.create_task(self._write(content, replayed.state.n_events))

    async def _write(self, content: IO[bytes], n_events: int) -> None:
        try:
            packed = await asyncio.to_thread(_packed, content)
            await self._log.keep_snapshot(_PART, packed, n_events)
        except (OSError, StoreError) as error:
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        """A snapshot is a shortcut; the run itself finds out that the store is gone."""
        _logger.warning("run %s keeps no snapshot: %s", self._log.run_id, error)


async def go_on(replay: RunReplay, store: RunStore, run_id: str, outline: RunState) -> None:
    """Let a new replay begin behind a run's snapshot; do nothing without one that fits.

    ``outline`` holds the run's candidates, which are not kept twice. Feed the events from number
    ``replay.state.n_events`` on.
    """
    found = await store.snapshot_of(run_id, _PART)
    if found is None or not found.payload.startswith(_code()):
        return
    try:
        with gzip.open(BytesIO(found.payload.removeprefix(_code()))) as content:
            replayed = await asyncio.to_thread(_Reader(content).load)
    except _DAMAGE as error:
        _logger.warning("run %s: its snapshot cannot be read: %r", run_id, error)
        return
    if isinstance(replayed, Replayed) and _can_be_kept(replayed):
        state = replayed.state
        state.started = outline.started
        state.candidates = outline.candidates[: len(state.costs)]
        replay.go_on_from(replayed)


def _can_be_kept(replayed: Replayed) -> bool:
    pairs = replayed.pairs
    if isinstance(pairs, ConfirmedPairs) and pairs.is_confirming:
        return False  # how far that is, the run works out when it goes on
    rule = pairs.rule if isinstance(pairs, RulePairs) else pairs
    kind = type(rule)
    is_ours = isinstance(rule, Selector) and kind.__module__.startswith(f"{_PACKAGE}.")
    if "<locals>" in kind.__qualname__:
        return False  # made for one run alone, as GEPA's is
    return is_ours and pairs.table.n_candidates * pairs.table.n_examples <= _MOST_CELLS


def _dump(replayed: Replayed) -> IO[bytes]:
    """Write what a log amounts to, without the study, whose secrets the log alone leaves out.

    Return a temporary file: memory would hold half as much again as the run itself.
    """
    state = replace(replayed.state, started=None, candidates=[])
    file = TemporaryFile()  # noqa: SIM115 - its reader closes it
    pickle.dump(replace(replayed, state=state), file, protocol=5)
    return file


def _packed(content: IO[bytes]) -> bytes:
    """Return the payload that holds a file's content, and close the file."""
    payload = BytesIO()
    payload.write(_code())
    with content, gzip.GzipFile(fileobj=payload, mode="wb", compresslevel=1) as packed:
        content.seek(0)
        copyfileobj(content, packed, _CHUNK)
    return payload.getvalue()


class _Reader(pickle.Unpickler):
    """Builds nothing but values: reading a store that somebody sent must run no code of theirs."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        """Return a class or builder; raises UnpicklingError for one that is not allowed."""
        if (module, name) == ("builtins", "getattr"):
            return _attribute
        package, _, room = module.partition(".")
        if package == _PACKAGE and room.startswith(_ROOMS):
            found = super().find_class(module, name)
            # not what a module of the package merely imports, such as a class that opens files
            if isinstance(found, type) and (found.__module__, found.__name__) == (module, name):
                return found
        if name in _BUILDERS.get(module, ()):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"a snapshot must not hold {module}.{name}")


def _attribute(owner: Any, name: str) -> object:  # noqa: ANN401
    """Return a method of a rule, which its evidence holds, or an enum's member."""
    if isinstance(owner, Selector) and not name.startswith("__"):
        return getattr(owner, name)
    if isinstance(owner, EnumType):
        return owner[name]
    raise pickle.UnpicklingError(f"a snapshot must not take {name} of a {type(owner).__name__}")


@cache
def _code() -> bytes:
    """Return a line that tells this code from other code, and from that of another release."""
    package = Path(__file__).parents[2]
    files = [(str(p.relative_to(package)), p.stat()) for p in sorted(package.rglob("*.py"))]
    seen = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in files]
    return f"{__version__} {sha256(repr(seen).encode()).hexdigest()}\n".encode()
