from __future__ import annotations

from pathlib import Path

from bestarm_agent.store.sql import SqlStore
from bestarm_agent.testing.store_suite import StoreSuite


class TestSqliteStore(StoreSuite):
    async def connect(self, place: Path) -> SqlStore:
        return await SqlStore.connect(place / "runs.db")
