from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bestarm_agent.errors import ConfigError, PluginError, StoreError
from bestarm_agent.store.base import RunStore
from bestarm_agent.store.memory_store import MemoryStore
from bestarm_agent.store.registry import StorePlace, open_store
from bestarm_agent.store.sql_store import SqlStore
from bestarm_agent.testing.store_runs import reply
from tests.support.distributions import install

PLUGIN = """
    from bestarm_agent.store.memory_store import MemoryStore


    class Notes(MemoryStore):
        @classmethod
        async def connect(cls, where, *, create):
            store = cls()
            store.where, store.may_create, store.is_closed = where, create, False
            return store

        async def close(self):
            self.is_closed = True
"""


def opened(where: StorePlace, *, create: bool = True) -> RunStore:
    """Open a store, write a reply, leave it; return the store."""

    async def main() -> RunStore:
        async with open_store(where, create=create) as store:
            await store.put_reply("key", reply())
            return store

    return asyncio.run(main())


@pytest.mark.parametrize("scheme", ["", "sqlite:///"])
def test_a_path_is_a_file_of_sqlite(tmp_path: Path, scheme: str) -> None:
    where = f"{scheme}{tmp_path}/runs.sqlite"
    assert isinstance(opened(where), SqlStore)
    assert (tmp_path / "runs.sqlite").is_file()
    with pytest.raises(StoreError, match=r"none\.sqlite"):
        opened(tmp_path / "none.sqlite", create=False)


def test_an_open_store_stays_open() -> None:
    class Watched(MemoryStore):
        closed = 0

        async def close(self) -> None:
            self.closed += 1

    store = Watched()
    assert opened(store) is store
    assert store.closed == 0


def test_a_scheme_may_name_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry_points = {"stores": {"notes": "notes_store:Notes", "bad": "notes_store:Bad"}}
    install(
        tmp_path,
        monkeypatch,
        "notes-store",
        entry_points=entry_points,
        files={"notes_store.py": PLUGIN},
    )
    store = opened("notes://host/place", create=False)
    assert vars(store) | {"where": "notes://host/place", "is_closed": True} == vars(store)
    assert isinstance(opened("notes_store:Notes://anywhere"), MemoryStore)
    with pytest.raises(PluginError, match=r"store `bad` \(notes_store:Bad\) of notes-store 1\.2"):
        opened("bad://x")


def test_an_unknown_scheme_is_refused_without_showing_the_url() -> None:
    with pytest.raises(ConfigError, match="there is no store `mysql`; ") as caught:
        opened("mysql://me:hunter2@host/db")
    assert "hunter2" not in str(caught.value)


def test_an_error_inside_comes_before_that_of_closing() -> None:
    class Failing(MemoryStore):
        async def close(self) -> None:
            raise StoreError("the disk is full")

    async def main() -> None:
        async with open_store("failing://"):
            raise KeyError("inside")

    async def connect(where: str, /, *, create: bool) -> RunStore:
        return Failing()

    with pytest.MonkeyPatch.context() as patch:
        kind = type("Kind", (), {"connect": staticmethod(connect)})
        patch.setattr("bestarm_agent.store.registry.STORES.load", lambda name: kind)
        with pytest.raises(KeyError, match="inside") as caught:
            asyncio.run(main())
    assert caught.value.__notes__ == ["the disk is full"]
