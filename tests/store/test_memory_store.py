from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from bestarm_agent.store.memory_store import MemoryStore
from bestarm_agent.testing.store_suite import StoreSuite


class TestMemoryStore(StoreSuite):
    @pytest.fixture(autouse=True)
    def places(self) -> None:
        self.stores: defaultdict[Path, MemoryStore] = defaultdict(MemoryStore)

    async def connect(self, place: Path) -> MemoryStore:
        return self.stores[place]
