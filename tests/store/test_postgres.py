from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from bestarm_agent.errors import StoreError, StoreVersionError
from bestarm_agent.store.sql import SqlStore
from bestarm_agent.testing.store_runs import asked, reply
from bestarm_agent.testing.store_suite import StoreSuite, begin

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")


class TestPostgresStore(StoreSuite):
    @pytest.fixture(autouse=True)
    def places(self, new_database: Callable[[], str]) -> None:
        self.urls: dict[Path, str] = {}
        self.new_database = new_database

    async def connect(self, place: Path) -> SqlStore:
        if place not in self.urls:
            self.urls[place] = self.new_database()
        return await SqlStore.connect(self.urls[place])


def test_another_programs_tables_are_left_alone(new_database: Callable[[], str]) -> None:
    beside, in_the_way = new_database(), new_database()
    with psycopg.connect(beside) as connection:
        connection.execute("CREATE TABLE mails (id INT)")
    with psycopg.connect(in_the_way) as connection:
        connection.execute("CREATE TABLE events (id INT)")

    async def put(url: str) -> None:
        async with await SqlStore.connect(url) as store:
            await store.put_reply("key", reply())

    asyncio.run(put(beside))
    with pytest.raises(StoreError, match="tables of another program"):
        asyncio.run(put(in_the_way))


def test_a_newer_store_is_refused(new_database: Callable[[], str]) -> None:
    url = new_database()

    async def connect() -> None:
        async with await SqlStore.connect(url):
            pass

    asyncio.run(connect())
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE meta SET value = '99'")
    with pytest.raises(StoreVersionError, match="schema version 99"):
        asyncio.run(connect())


def test_processes_that_meet_in_an_empty_database_agree(new_database: Callable[[], str]) -> None:
    url = new_database()

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(SqlStore.connect(url)) for _ in range(8)]
        stores = [task.result() for task in tasks]
        await stores[0].put_reply("key", reply())
        assert await stores[7].get_reply("key") == reply()
        for store in stores:
            await store.close()

    asyncio.run(main())


def test_a_lost_connection_surfaces(new_database: Callable[[], str]) -> None:
    url = new_database()

    async def main() -> None:
        store = await SqlStore.connect(url)
        log = await begin(store)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
        log.append(asked(0))
        with pytest.raises(StoreError, match=r"cannot be used.*try again"):
            await log.flush()
        with pytest.raises(StoreError, match="cannot be used"):
            await store.close()

    asyncio.run(main())


def test_a_server_that_is_not_there_is_named_without_the_password(tmp_path: Path) -> None:
    url = f"postgresql://me:hunter2@/runs?host={tmp_path}"
    with pytest.raises(StoreError, match=r"me:\*\*\*@.*cannot be used") as caught:
        asyncio.run(SqlStore.connect(url))
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)
