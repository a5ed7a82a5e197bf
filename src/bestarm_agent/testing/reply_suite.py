"""Conformance tests of stored replies; part of ``StoreSuite``."""
# ruff: noqa: D102 - what a test checks is its name

from __future__ import annotations

import asyncio
from pathlib import Path

from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.store.base import RunStore
from bestarm_agent.testing.state_suite import StateSuite
from bestarm_agent.testing.store_runs import reply


class ReplySuite(StateSuite):
    """Conformance tests of a store's replies."""

    def test_a_reply_is_there_once_stored(self, tmp_path: Path) -> None:
        async def write(store: RunStore) -> None:
            assert await store.get_reply("key") is None
            await store.put_reply("key", reply())
            assert await store.get_reply("key") == reply()

        async def read(store: RunStore) -> None:
            assert await store.get_reply("key") == reply()
            assert await store.get_reply("other") is None

        self.run(tmp_path, write)
        self.run(tmp_path, read)

    def test_the_first_reply_under_a_key_stays(self, tmp_path: Path) -> None:
        async def test(store: RunStore) -> None:
            await store.put_reply("key", reply("first"))
            await store.put_reply("key", reply("second"))
            async with asyncio.TaskGroup() as group:
                for text in ("one", "two"):
                    group.create_task(store.put_reply("at once", reply(text)))
            assert (await must_get(store, "key")).text == "first"
            assert (await must_get(store, "at once")).text == "one"

        self.run(tmp_path, test)

    def test_all_replies_are_listed(self, tmp_path: Path) -> None:
        keys = [f"{i:032x}" for i in range(1203)]

        async def test(store: RunStore) -> None:
            async with asyncio.TaskGroup() as group:
                for key in keys:
                    group.create_task(store.put_reply(key, reply(key)))
            assert [(key, r.text) async for key, r in store.replies()] == [(k, k) for k in keys]
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(must_get(store, key)) for key in keys]
            assert [task.result().text for task in tasks] == keys

        self.run(tmp_path, test)

    def test_a_reply_whose_storing_was_cancelled_is_stored_all_the_same(
        self, tmp_path: Path
    ) -> None:
        async def test(store: RunStore) -> None:
            task = asyncio.create_task(store.put_reply("key", reply()))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await store.put_reply("later", reply())
            assert await store.get_reply("key") == reply()

        self.run(tmp_path, test)


async def must_get(store: RunStore, key: str) -> Reply:
    """Return a stored reply that has to be there."""
    found = await store.get_reply(key)
    assert found is not None
    return found
