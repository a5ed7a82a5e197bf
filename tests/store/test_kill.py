"""Real processes: killed at any moment, and several at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.errors import StoreError
from bestarm_agent.store.run_state import RunState, fold
from bestarm_agent.store.store import Store
from tests.support.store_runs import reply

ROOT = Path(__file__).parents[2]
FOREVER = 100_000


def writer(store: Path | str, run: str, limit: int = FOREVER) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.store.kill_writer", str(store), run, str(limit)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def kill_after(process: subprocess.Popen[str], n_lines: int) -> list[str]:
    """Read that many lines, kill -9, and return all lines said before the end."""
    assert process.stdout is not None
    with process, process.stdout as stdout:
        lines = [stdout.readline() for _ in range(n_lines)]
        process.kill()
        lines += stdout
    return [line.strip() for line in lines if line.endswith("\n")]


def acknowledged(lines: Iterable[str]) -> dict[str, list[int]]:
    """By kind of line, the ask numbers."""
    numbers = defaultdict(list)
    for line in lines:
        kind, seq = line.split()
        numbers[kind].append(int(seq))
    return numbers


async def read(store: Path | str, run: str) -> tuple[RunState, dict[str, str]]:
    async with await Store.connect(store, create=False) as opened:
        replies = {key: value.text async for key, value in opened.replies()}
        return fold(await opened.events_of(run)), replies


def survive(store: Path | str, kills: int) -> None:
    """Kill a run that many times at seeded moments, and look after each."""
    rng = np.random.default_rng(20261121)
    lines: list[str] = []
    for n_lines in rng.integers(1, 600, size=kills):
        lines += kill_after(writer(store, "study"), int(n_lines))
        said = acknowledged(lines)
        state, replies = asyncio.run(read(store, "study"))  # fold is strict: no gap, no second end
        assert set(said["ask"]) <= set(range(state.n_asked))
        assert set(said["outcome"]) <= set(state.order.tolist())
        assert {f"key-{seq}": f"answer {seq}" for seq in said["reply"]}.items() <= replies.items()
        assert {f"key-{seq}" for seq in state.order.tolist()} <= replies.keys()
    assert len(said["reply"]) == len(set(said["reply"]))  # none was bought a second time
    assert len(said["outcome"]) > 100  # else it was killed before it did anything


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_at_kill_minus_9(tmp_path: Path) -> None:
    survive(tmp_path / "runs.db", kills=8)


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_in_postgres(new_database: Callable[[], str]) -> None:
    survive(new_database(), kills=2)


@pytest.mark.slow
def test_a_killed_writers_lock_never_blocks_and_a_live_ones_always(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    async def open_it() -> None:
        async with await Store.connect(path) as store:
            await store.open("study")

    process = writer(path, "study")
    assert process.stdout is not None
    process.stdout.readline()
    with pytest.raises(StoreError, match=f"being written by process {process.pid}; wait until"):
        asyncio.run(open_it())
    kill_after(process, 1)
    asyncio.run(open_it())


@pytest.mark.slow
def test_processes_share_a_fresh_store(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    names = ("one", "two", "three")
    processes = [writer(path, name, limit=200) for name in names]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    for name in names:
        state, replies = asyncio.run(read(path, name))
        assert state.n_told == len(replies) == 200
    assert reply("answer 7").text == replies["key-7"]
