"""Processes that share a score matrix."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import numpy as np

from bestarm_agent.simulation.score_matrices import FloatArray, IntArray, ScoreMatrix

# one thread per process: contended linear algebra is slower than none
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def process_workers(
    matrix: ScoreMatrix, n_processes: int
) -> Iterator[tuple[Executor, SharedMatrix]]:
    """Run tasks in spawned processes of one thread each; they end with this one."""
    with TemporaryDirectory(prefix="bestarm-") as folder, _one_thread_each():
        shared = SharedMatrix.save(matrix, Path(folder) / "scores.npy")
        context = get_context("spawn")
        with ProcessPoolExecutor(
            n_processes, mp_context=context, initializer=_end_with_parent
        ) as pool:
            yield pool, shared


@dataclass(frozen=True, slots=True)
class SharedMatrix:
    """A matrix whose scores all processes map from one file."""

    path: Path
    names: tuple[str, ...]
    costs: FloatArray | None
    source: str
    axes: IntArray | None

    @classmethod
    def save(cls, matrix: ScoreMatrix, path: Path) -> SharedMatrix:
        """Write the scores to a file."""
        np.save(path, matrix.scores)
        return cls(path, matrix.names, matrix.costs, matrix.source, matrix.axes)

    def open(self) -> ScoreMatrix:
        """Return the matrix, in a worker."""
        scores = np.asarray(np.load(self.path, mmap_mode="r", allow_pickle=False))
        return ScoreMatrix(scores, self.names, self.costs, self.source, self.axes)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Set the variables that processes inherit as they start."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


def _end_with_parent() -> None:
    """End this worker process when its parent ends, even if the parent is killed."""
    parent = parent_process()
    if parent is not None:
        Thread(target=_watch, args=(parent.sentinel,), daemon=True).start()


def _watch(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)  # the main thread may be deep in a replay, or wait for a task that never comes
