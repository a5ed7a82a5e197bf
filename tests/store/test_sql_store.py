from __future__ import annotations

import asyncio
import sqlite3
import tracemalloc
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest

from bestarm_agent.store import memory_store, sql_store
from bestarm_agent.store.codec import dump_event
from bestarm_agent.store.memory_store import MemoryStore
from bestarm_agent.store.named_states import KEPT_VERSIONS
from bestarm_agent.store.run_state import fold
from bestarm_agent.store.sql_store import SqlStore
from bestarm_agent.testing.store_runs import asked, begin, grid, started, told
from bestarm_agent.testing.store_suite import StoreSuite


class TestSqliteStore(StoreSuite):
    async def connect(self, place: Path) -> SqlStore:
        return await SqlStore.connect(place / "runs.db")


@pytest.mark.parametrize("module", [sql_store, memory_store])
def test_an_id_that_is_taken_is_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    ids = iter(["20261121-093015-k3f9", "20261121-093015-k3f9", "20261121-093015-m2x7"])
    monkeypatch.setattr(module, "new_run_id", lambda _now: next(ids))

    async def main() -> None:
        store = (
            MemoryStore()
            if module is memory_store
            else await SqlStore.connect(tmp_path / "runs.db")
        )
        assert (await begin(store)).run_id == "20261121-093015-k3f9"
        assert (await begin(store)).run_id == "20261121-093015-m2x7"
        await store.close()

    asyncio.run(main())


def test_run_ids_tell_the_time_of_the_injected_clock(tmp_path: Path) -> None:
    async def main() -> None:
        at = datetime(2026, 11, 21, 9, 30, 15, tzinfo=UTC)
        async with await SqlStore.connect(tmp_path / "runs.db", now=lambda: at) as store:
            assert (await begin(store)).run_id.startswith("20261121-093015-")

    asyncio.run(main())


@pytest.mark.slow
def test_a_log_is_read_page_by_page(tmp_path: Path) -> None:
    """Texts of events are held for one page, not for the whole log."""
    n = 3000

    async def scene() -> tuple[int, int]:
        async with await SqlStore.connect(tmp_path / "runs.sqlite") as store:
            log = await begin(store)
            for event in grid(1, n):
                log.append(event)
            for seq in range(n):
                log.append(asked(seq, 0, seq))
                log.append(told(seq))
            await log.flush()
            text = sum(len(dump_event(told(seq))) for seq in range(n))
            tracemalloc.start()
            try:
                events = await log.events()
                left, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert len(events) > 2 * n
            await log.close()
            return peak - left, text

    above, text = asyncio.run(scene())
    assert above < text / 2


def test_the_last_versions_of_a_state_are_kept(tmp_path: Path) -> None:
    async def main() -> None:
        async with await SqlStore.connect(tmp_path / "runs.db") as store:
            for version in range(KEPT_VERSIONS + 2):
                await store.put_state("router", b"", after=version)

    asyncio.run(main())
    with closing(sqlite3.connect(tmp_path / "runs.db")) as connection:
        versions = connection.execute("SELECT version FROM states ORDER BY version").fetchall()
    assert versions == [(version,) for version in range(3, KEPT_VERSIONS + 3)]


def test_the_events_of_pairs_are_noted_for_who_looks_closely(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger=sql_store.__name__)

    async def main() -> None:
        async with await SqlStore.connect(tmp_path / "runs.db") as store:
            (await begin(store)).append(asked(0))

    asyncio.run(main())
    noted = [record for record in caplog.records if record.name == sql_store.__name__]
    assert [record.levelname for record in noted] == ["INFO", "DEBUG"]


def test_a_run_is_shown_in_few_words() -> None:
    """asyncio.run shows the result of its task to itself."""
    events = [started(), *grid(50, 1000)]
    for seq in range(2000):
        events += [asked(seq, seq % 50, seq // 50), told(seq)]
    assert repr(fold(events)) == "RunState('study', 50 x 1000, 4003 events)"
