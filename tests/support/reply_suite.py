"""Conformance tests of replies, named states and claims; part of ``StoreSuite``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bestarm_agent.domain.values import Reply
from bestarm_agent.errors import StoreError
from bestarm_agent.store.store import Store
from tests.support.store_runs import reply


class ReplySuite:
    """Conformance tests of a store beyond its logs, and ways to open a store."""

    async def connect(self, place: Path) -> Store:
        """Open the store of this place, empty the first time.

        It is closed and opened again within one test, and opened twice at once.
        """
        raise NotImplementedError

    @asynccontextmanager
    async def opened(self, place: Path) -> AsyncIterator[Store]:
        """The store of this place, closed at the end."""
        store = await self.connect(place)
        try:
            yield store
        finally:
            await store.close()

    async def test_a_state_is_there_once_stored(self, tmp_path: Path) -> None:
        data = bytes(range(256)) * 1000

        async with self.opened(tmp_path) as store:
            assert await store.get_state("router") is None
            assert await store.put_state("router", data, after=0) == 1
            assert await store.get_state("router") == (1, data)
        async with self.opened(tmp_path) as store:
            assert await store.get_state("router") == (1, data)
            assert await store.get_state("other") is None

    async def test_versions_count_up_by_name(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            for version in range(25):
                assert await store.put_state("a", b"%d" % version, after=version) == version + 1
            assert await store.put_state("b", b"", after=0) == 1
            assert await store.get_state("a") == (25, b"24")
            assert await store.get_state("b") == (1, b"")

    @pytest.mark.parametrize("after", [0, 1, 3])
    async def test_a_state_is_not_overwritten_by_who_did_not_see_it(
        self, tmp_path: Path, after: int
    ) -> None:
        async with self.opened(tmp_path) as store:
            for version in range(2):
                await store.put_state("router", b"%d" % version, after=version)
            with pytest.raises(StoreError, match=rf"is not at version {after}.*open it again"):
                await store.put_state("router", b"late", after=after)
            assert await store.get_state("router") == (2, b"1")

    async def test_of_many_that_store_at_once_one_succeeds(self, tmp_path: Path) -> None:
        async def attempt(store: Store, data: bytes) -> bool:
            try:
                await store.put_state("router", data, after=0)
            except StoreError:
                return False
            return True

        async with self.opened(tmp_path) as store:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(attempt(store, b"%d" % i)) for i in range(8)]
            won = [i for i, task in enumerate(tasks) if task.result()]
            assert len(won) == 1
            assert await store.get_state("router") == (1, b"%d" % won[0])

    # claims

    async def test_a_claim_keeps_others_out_until_it_is_released(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store, self.opened(tmp_path) as other:
            assert await store.claim_reply("key")
            assert await other.claim_reply("another key")
            for taker in (store, other):
                assert not await taker.claim_reply("key")
            store.release_reply("key")
            await store.get_reply("key")  # durable with what was queued before
            assert await other.claim_reply("key")
            assert not await store.claim_reply("key")

    async def test_closing_releases_claims(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            async with self.opened(tmp_path) as other:
                assert await other.claim_reply("key")
            assert await store.claim_reply("key")

    async def test_a_claim_ends_with_the_reply(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store, self.opened(tmp_path) as other:
            assert await store.claim_reply("key")
            await store.put_reply("key", reply())
            assert await other.claim_reply("key")
            assert await other.get_reply("key") == reply()
            store.release_reply("key")
            assert not await store.claim_reply("key")

    async def test_only_the_holder_releases_a_claim(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            store.release_reply("key")
            assert await store.claim_reply("key")
            store.release_reply("another key")
            assert not await store.claim_reply("key")

    async def test_of_many_claims_at_once_one_succeeds(self, tmp_path: Path) -> None:
        async def claimed(store: Store) -> bool:
            return await store.claim_reply("key")

        async with self.opened(tmp_path) as store:
            async with self.opened(tmp_path) as other, asyncio.TaskGroup() as group:
                takers = [store, other] * 10
                tasks = [group.create_task(claimed(taker)) for taker in takers]
            assert sum(task.result() for task in tasks) == 1

    async def test_a_reply_is_there_once_stored(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            assert await store.get_reply("key") is None
            await store.put_reply("key", reply())
            assert await store.get_reply("key") == reply()
        async with self.opened(tmp_path) as store:
            assert await store.get_reply("key") == reply()
            assert await store.get_reply("other") is None

    async def test_the_first_reply_under_a_key_stays(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            await store.put_reply("key", reply("first"))
            await store.put_reply("key", reply("second"))
            async with asyncio.TaskGroup() as group:
                for text in ("one", "two"):
                    group.create_task(store.put_reply("at once", reply(text)))
            assert (await must_get(store, "key")).text == "first"
            assert (await must_get(store, "at once")).text == "one"

    async def test_all_replies_are_listed(self, tmp_path: Path) -> None:
        keys = [f"{i:032x}" for i in range(1203)]

        async with self.opened(tmp_path) as store:
            async with asyncio.TaskGroup() as group:
                for key in keys:
                    group.create_task(store.put_reply(key, reply(key)))
            assert [(key, r.text) async for key, r in store.replies()] == [(k, k) for k in keys]
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(must_get(store, key)) for key in keys]
            assert [task.result().text for task in tasks] == keys

    async def test_a_reply_whose_storing_was_cancelled_is_stored_all_the_same(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            task = asyncio.create_task(store.put_reply("key", reply()))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await store.put_reply("later", reply())
            assert await store.get_reply("key") == reply()


async def must_get(store: Store, key: str) -> Reply:
    """Return a stored reply that has to be there."""
    found = await store.get_reply(key)
    assert found is not None
    return found
