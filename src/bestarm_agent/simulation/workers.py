"""Executors that share a score matrix with their workers: processes, or a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, ParamSpec, Protocol, TypeVar

import numpy as np

from bestarm_agent.cluster.ray_connection import connect, disconnect
from bestarm_agent.simulation.score_matrices import FloatArray, IntArray, ScoreMatrix

_P = ParamSpec("_P")
_T = TypeVar("_T")

# one thread per process: contended linear algebra is slower than none
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class SharedMatrix(Protocol):
    """A matrix that is kept once for all workers of a machine."""

    def open(self) -> ScoreMatrix:
        """Return the matrix, in a worker."""


@contextmanager
def process_workers(
    matrix: ScoreMatrix, n_processes: int
) -> Iterator[tuple[Executor, SharedMatrix]]:
    """Run tasks in spawned processes of one thread each; they end with this one."""
    with TemporaryDirectory(prefix="bestarm-") as folder, _one_thread_each():
        shared = _MatrixFile.save(matrix, Path(folder) / "scores.npy")
        context = get_context("spawn")
        with ProcessPoolExecutor(
            n_processes, mp_context=context, initializer=_end_with_parent
        ) as pool:
            yield pool, shared


@contextmanager
def ray_workers(matrix: ScoreMatrix) -> Iterator[tuple[Executor, SharedMatrix]]:
    """Run tasks on all cores of the Ray cluster at hand; raises ConfigError if there is none.

    Ray repeats tasks whose machine died.
    """
    must_disconnect = connect("auto")
    try:
        import ray

        yield _RayExecutor(), _MatrixObject(ray.put(matrix))
    finally:
        if must_disconnect:
            disconnect()


@dataclass(frozen=True, slots=True)
class _MatrixFile:
    """A matrix whose scores all workers map from one file."""

    path: Path
    names: tuple[str, ...]
    costs: FloatArray | None
    source: str
    axes: IntArray | None

    @classmethod
    def save(cls, matrix: ScoreMatrix, path: Path) -> _MatrixFile:
        np.save(path, matrix.scores)
        return cls(path, matrix.names, matrix.costs, matrix.source, matrix.axes)

    def open(self) -> ScoreMatrix:
        scores = np.asarray(np.load(self.path, mmap_mode="r", allow_pickle=False))
        return ScoreMatrix(scores, self.names, self.costs, self.source, self.axes)


@dataclass(frozen=True, slots=True)
class _MatrixObject:
    """A matrix in Ray's object store, whose scores all workers of a machine map."""

    reference: Any

    def open(self) -> ScoreMatrix:
        import ray

        matrix: ScoreMatrix = ray.get(self.reference)
        return matrix


class _RayExecutor(Executor):
    """Runs each call as a Ray task of one core."""

    def __init__(self) -> None:
        self._references: list[Any] = []

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Submit a call to the cluster."""
        import ray

        reference = ray.remote(fn).remote(*args, **kwargs)
        self._references.append(reference)
        future: Future[_T] = reference.future()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel all tasks that are not done, if ``cancel_futures``."""
        import ray

        references, self._references = self._references, []
        if cancel_futures:
            for reference in references:
                ray.cancel(reference)


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
