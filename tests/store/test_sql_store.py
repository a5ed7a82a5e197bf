from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest

from bestarm_agent.store import memory_store, sql_store
from bestarm_agent.store.memory_store import MemoryStore
from bestarm_agent.store.sql_store import SqlStore
from bestarm_agent.testing.store_runs import begin
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
