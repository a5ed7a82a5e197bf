from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path

import pytest

from bestarm_agent.errors import StoreError
from bestarm_agent.store import store as module
from bestarm_agent.store.run_state import fold
from bestarm_agent.store.store import Store, open_store
from tests.support.store_runs import asked, begin, grid, reply, started, told
from tests.support.store_suite import StoreSuite


class TestSqliteStore(StoreSuite):
    async def connect(self, place: Path) -> Store:
        return await Store.connect(place / "runs.db")


async def test_an_id_that_is_taken_is_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = iter(["20261121-093015-k3f9", "20261121-093015-k3f9", "20261121-093015-m2x7"])
    monkeypatch.setattr(module, "new_run_id", lambda _now: next(ids))

    async with await Store.connect(tmp_path / "runs.db") as store:
        assert (await begin(store)).run_id == "20261121-093015-k3f9"
        assert (await begin(store)).run_id == "20261121-093015-m2x7"


def test_a_store_in_memory_goes_on_where_it_was() -> None:
    async def begun(store: Store) -> None:
        log = await begin(store)
        log.append(asked(0))
        await log.close()
        await store.put_reply("key", reply())

    async def read(store: Store) -> None:
        log = await store.open("study")
        log.append(told(0))
        await log.flush()
        assert await store.events_of("latest") == [started(), asked(0), told(0)]
        assert await store.get_reply("key") == reply()
        with pytest.raises(StoreError, match="is being written"):
            await store.open("study")

    store = Store.in_memory()
    asyncio.run(begun(store))
    asyncio.run(read(store))


@pytest.mark.slow
def test_a_log_is_read_page_by_page(tmp_path: Path) -> None:
    """Reading a log of four times the length takes about the same memory at any moment."""

    async def scene(n: int) -> int:
        async with await Store.connect(tmp_path / f"{n}.sqlite") as store:
            log = await begin(store)
            for event in grid(1, n):
                log.append(event)
            for seq in range(n):
                log.append(asked(seq, 0, seq))
                log.append(told(seq))
            await log.close()
            tracemalloc.start()
            try:
                count = 0
                async for page in store.lines_of("latest"):
                    count += len(page)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert count == 2 * n + 3
            return peak

    asyncio.run(scene(10))  # compiles the statements
    short, long = (asyncio.run(scene(n)) for n in (3_000, 12_000))
    assert long < 1.5 * short  # a page more or less is alive while the next is read


def test_a_run_is_shown_in_few_words() -> None:
    """asyncio.run shows the result of its task to itself."""
    events = [started(), *grid(50, 1000)]
    for seq in range(2000):
        events += [asked(seq, seq % 50, seq // 50), told(seq)]
    assert repr(fold(events)) == "RunState('study', 50 x 1000, 4003 events)"


async def test_an_open_store_stays_open() -> None:
    store = Store.in_memory()
    async with open_store(store) as opened:
        assert opened is store
        await opened.put_reply("key", reply())
    await store.put_reply("other", reply())


async def test_an_error_inside_comes_before_that_of_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def close() -> None:
        raise StoreError("the disk is full")

    async def main() -> None:
        async with Store.in_memory() as store, await begin(store) as log:
            monkeypatch.setattr(log, "close", close)
            raise KeyError("inside")

    with pytest.raises(KeyError, match="inside") as caught:
        await main()
    assert caught.value.__notes__ == ["the disk is full"]
