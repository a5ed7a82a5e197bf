"""Snapshots of a run: what people are shown, kept beside the log so that it need not be replayed.

They are shortcuts: one that does not fit the log or this version of the package is ignored.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from zipfile import BadZipFile

from bestarm_agent._version import __version__
from bestarm_agent.domain.events import Started
from bestarm_agent.engine.results.failures import FailureLine
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.results.trajectory import Trajectory, dump_trajectory, load_trajectory
from bestarm_agent.errors import StoreError
from bestarm_agent.store.base import RunLog, RunStore
from bestarm_agent.store.codec import dump_value, load_value

_SHOWN, _TRAJECTORY = "shown", "course"


@dataclass(frozen=True, slots=True)
class Shown:
    """Everything that ``show`` says of a run."""

    version: str  # of the package
    started: Started
    standing: Standing
    failures: tuple[FailureLine, ...]


async def keep_snapshots(
    log: RunLog,
    started: Started,
    standing: Standing,
    failures: list[FailureLine],
    trajectory: Trajectory,
) -> None:
    """Keep what a run's whole log amounts to; raise StoreError if it cannot be written."""
    shown = Shown(__version__, started, standing, tuple(failures))
    await log.keep_snapshot(_SHOWN, zlib.compress(dump_value(shown, Shown).encode()))
    await log.keep_snapshot(_TRAJECTORY, dump_trajectory(trajectory))


async def read_shown(store: RunStore, run_id: str) -> Shown | None:
    """Return what a run showed at the end of its log; None if that is not known."""
    payload = await _latest(store, run_id, _SHOWN)
    if payload is None:
        return None
    try:
        shown = load_value(zlib.decompress(payload).decode(), Shown)
    except (StoreError, ValueError, zlib.error):
        return None
    return shown if shown.version == __version__ else None


async def read_trajectory(store: RunStore, run_id: str) -> Trajectory | None:
    """Return the trajectory of a run up to the end of its log; None if that is not known."""
    payload = await _latest(store, run_id, _TRAJECTORY)
    if payload is None:
        return None
    try:
        return load_trajectory(payload)
    except (ValueError, KeyError, OSError, EOFError, BadZipFile):
        return None


async def _latest(store: RunStore, run_id: str, part: str) -> bytes | None:
    found = await store.snapshot_of(run_id, part)
    return None if found is None or found.n_later else found.payload
