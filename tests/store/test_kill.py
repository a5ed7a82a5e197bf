"""Real processes: killed at any moment, and several at once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bestarm_agent.errors import StoreError
from bestarm_agent.store.run_state import RunState, fold
from bestarm_agent.store.store import Store
from tests.store import kill_writer
from tests.support.processes import speaking
from tests.support.store_runs import reply

FOREVER = 20_000


def remaining(heard: Connection[Any, Any]) -> Iterator[tuple[str, int]]:
    """Yield what was said before the end of the process."""
    with suppress(EOFError):
        while True:
            yield heard.recv()


async def read(store: Path | str, run: str) -> tuple[RunState, dict[str, str]]:
    async with await Store.connect(store, create=False) as opened:
        replies = {key: value.text async for key, value in opened.replies()}
        return fold(await opened.events_of(run)), replies


def survive(store: Path | str, kills: int) -> None:
    """Kill a run that many times at seeded moments, and look after each."""
    rng = np.random.default_rng(20261121)
    said: dict[str, list[int]] = defaultdict(list)
    for n_lines in rng.integers(1, 600, size=kills):
        with speaking(kill_writer.main, str(store), "study", FOREVER) as (process, heard):
            lines = [heard.recv() for _ in range(n_lines)]
            process.kill()
            for kind, seq in [*lines, *remaining(heard)]:
                said[kind].append(seq)
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

    with speaking(kill_writer.main, str(path), "study", FOREVER) as (process, heard):
        heard.recv()
        with pytest.raises(StoreError, match=f"being written by process {process.pid}; wait until"):
            asyncio.run(open_it())
    asyncio.run(open_it())


@pytest.mark.slow
def test_processes_share_a_fresh_store(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    names = ("one", "two", "three")
    with ExitStack() as stack:
        started = [speaking(kill_writer.main, str(path), name, 200) for name in names]
        writers = list(map(stack.enter_context, started))
        for process, heard in writers:
            assert sum(kind == "outcome" for kind, _ in remaining(heard)) == 200
            process.join()
            assert process.exitcode == 0
    for name in names:
        state, replies = asyncio.run(read(path, name))
        assert state.n_told == len(replies) == 200
    assert reply("answer 7").text == replies["key-7"]
