"""Opening a store by path or URL, or using one that is open."""

from __future__ import annotations

import asyncio

import pytest

from bestarm_agent.errors import StoreError
from bestarm_agent.store.store import Store, StorePlace, open_store
from tests.support.store_runs import begin, reply


def opened(where: StorePlace, *, create: bool = True) -> Store:
    """Open a store, write a reply, leave it; return the store."""

    async def main() -> Store:
        async with open_store(where, create=create) as store:
            await store.put_reply("key", reply())
            return store

    return asyncio.run(main())


def test_an_open_store_stays_open() -> None:
    store = Store.in_memory()
    assert opened(store) is store
    asyncio.run(store.put_reply("other", reply()))


def test_an_error_inside_comes_before_that_of_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Store.in_memory() as store, await begin(store) as log:

            async def close() -> None:
                raise StoreError("the disk is full")

            monkeypatch.setattr(log, "close", close)
            raise KeyError("inside")

    with pytest.raises(KeyError, match="inside") as caught:
        asyncio.run(main())
    assert caught.value.__notes__ == ["the disk is full"]
