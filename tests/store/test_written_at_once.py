"""Files that several write at once: nothing is lost, and no half of one is ever read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Barrier
from typing import Any, TypeVar

import numpy as np
import pytest

from bestarm_agent.engine.results.judge_check import human_labels, labels_path, put_label
from bestarm_agent.engine.setup.history import learn_once

T = TypeVar("T")

WRITERS, EACH = 2, 60
LABELLER = """
import sys
from bestarm_agent.engine.results.judge_check import put_label
print("ready", flush=True)
sys.stdin.readline()
for i in range(int(sys.argv[3])):
    put_label(sys.argv[1], "run", f"{sys.argv[2]}-{i}", "yes", 1.0)
"""


def labelled(store: Path) -> set[str]:
    return {label.example for label in human_labels(store, "run")}


def test_two_processes_that_label_one_run_lose_no_label(tmp_path: Path) -> None:
    store = tmp_path / "runs.sqlite"
    command = [sys.executable, "-c", LABELLER, str(store)]
    with ExitStack() as stack:
        writers = [
            stack.enter_context(Popen([*command, f"{n}", f"{EACH}"], stdin=PIPE, stdout=PIPE))
            for n in range(WRITERS)
        ]
        for writer in writers:  # both have loaded all: they write at the same time
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write(b"go\n")
            writer.stdin.flush()
    assert [writer.returncode for writer in writers] == [0] * WRITERS
    assert labelled(store) == {f"{n}-{i}" for n in range(WRITERS) for i in range(EACH)}
    assert labels_path(store, "run").stat().st_mode & 0o777 == 0o600


def at_once(works: list[Callable[[], T]]) -> list[T]:
    """Do things in threads that begin together; return what they return."""
    start = Barrier(len(works))

    def wait_and(work: Callable[[], T]) -> T:
        start.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(wait_and, works))


def test_threads_that_label_one_run_lose_no_label(tmp_path: Path) -> None:
    def labeller(number: int) -> Callable[[], None]:
        def label() -> None:
            for i in range(EACH // 4):
                put_label(tmp_path / "runs.sqlite", "run", f"{number}-{i}", "yes", 1.0)

        return label

    at_once([labeller(number) for number in range(4)])
    assert len(labelled(tmp_path / "runs.sqlite")) == 4 * (EACH // 4)


def test_two_that_keep_one_history_at_once_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = np.random.default_rng(1).integers(0, 2, (6, 40)).astype(float)
    save, both_saved = np.savez_compressed, Barrier(2)

    def save_and_wait(*args: Any, **arrays: Any) -> None:  # noqa: ANN401 - as numpy's
        save(*args, **arrays)
        both_saved.wait()  # neither has put its file in place yet

    monkeypatch.setattr(np, "savez_compressed", save_and_wait)
    (_, one), (_, other) = at_once([lambda: learn_once(scores, tmp_path)] * 2)
    assert one == other
    assert [path.name for path in tmp_path.iterdir()] == [f"{one}.npz"]
