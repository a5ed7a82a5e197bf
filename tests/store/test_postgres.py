from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from bestarm_agent import Study
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.options import Options
from bestarm_agent.errors import StoreError, StoreVersionError
from bestarm_agent.store import database
from bestarm_agent.store.store import Store
from bestarm_agent.study import Archive
from tests.support.store_runs import asked, begin, reply, started, told
from tests.support.store_suite import StoreSuite
from tests.support.studies import write_study

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")


class TestPostgresStore(StoreSuite):
    @pytest.fixture(autouse=True)
    def places(self, new_database: Callable[[], str]) -> None:
        self.urls: dict[Path, str] = {}
        self.new_database = new_database

    async def connect(self, place: Path) -> Store:
        if place not in self.urls:
            self.urls[place] = self.new_database()
        return await Store.connect(self.urls[place])


def test_another_programs_tables_are_left_alone(new_database: Callable[[], str]) -> None:
    beside, in_the_way = new_database(), new_database()
    with psycopg.connect(beside) as connection:
        connection.execute("CREATE TABLE mails (id INT)")
    with psycopg.connect(in_the_way) as connection:
        connection.execute("CREATE TABLE events (id INT)")

    async def put(url: str) -> None:
        async with await Store.connect(url) as store:
            await store.put_reply("key", reply())

    asyncio.run(put(beside))
    with pytest.raises(StoreError, match="tables of another program"):
        asyncio.run(put(in_the_way))


async def test_a_newer_store_is_refused(new_database: Callable[[], str]) -> None:
    url = new_database()
    async with await Store.connect(url):
        pass
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE meta SET value = '99'")
    with pytest.raises(StoreVersionError, match="schema version 99"):
        await Store.connect(url)


def end_other_sessions(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )


@pytest.mark.slow
async def test_a_restart_of_the_server_is_survived(
    new_database: Callable[[], str], restart_server: Callable[[], None]
) -> None:
    url = new_database()
    async with await Store.connect(url) as store, await Store.connect(url) as other:
        log = await begin(store)
        assert await store.claim_reply("key")
        await asyncio.to_thread(restart_server)
        log.append(asked(0))
        await store.put_reply("another", reply())
        await log.flush()
        assert await store.events_of(log.run_id) == [started(), asked(0)]
        assert await other.get_reply("another") == reply()
        with pytest.raises(StoreError, match="being written by process"):
            await other.open("latest")
        assert not await other.claim_reply("key")
        log.append(told(0))
    async with await Store.connect(url) as store:
        assert await store.events_of("latest") == [started(), asked(0), told(0)]


async def test_what_was_committed_without_an_answer_is_not_written_twice(
    new_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_database()
    run, ended = database.Database.run, 0

    def run_and_lose_the_connection(
        self: database.Database, work: Callable[[Connection], Any], *, writes: bool = False
    ) -> Any:  # noqa: ANN401 - whatever the work returns
        def losing(connection: Connection) -> object:
            nonlocal ended
            result = work(connection)
            if not ended:
                ended += 1
                connection.commit()
                end_other_sessions(url)
            return result

        return run(self, losing, writes=writes)

    async with await Store.connect(url) as store:
        log = await begin(store)
        monkeypatch.setattr(database.Database, "run", run_and_lose_the_connection)
        log.append(asked(0))
        log.append(told(0))
        await log.flush()
        assert ended == 1
        assert await store.events_of(log.run_id) == [started(), asked(0), told(0)]
        assert [(run.n_asked, run.n_told) for run in await store.runs()] == [(1, 1)]


async def test_a_server_that_stays_away_surfaces(
    new_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PATIENCE_SECONDS", 0.5)
    url = new_database()
    store = await Store.connect(url)
    log = await begin(store)
    name = url.partition("@/")[2].partition("?")[0]
    with psycopg.connect(url.replace(f"/{name}?", "/postgres?"), autocommit=True) as server:
        server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
        )
    log.append(asked(0))
    with pytest.raises(StoreError, match=r"cannot be used.*try again"):
        await log.flush()
    with pytest.raises(StoreError, match="cannot be used"):
        await store.close()


def test_a_server_that_is_not_there_is_named_at_once_and_without_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waits"))
    url = f"postgresql://me:hunter2@/runs?host={tmp_path}"
    with pytest.raises(StoreError, match=r"me:\*\*\*@.*cannot be used") as caught:
        asyncio.run(Store.connect(url))
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_twenty_runs_at_once_buy_every_reply_once_over_few_connections(
    new_database: Callable[[], str], tmp_path: Path
) -> None:
    url, n_runs = new_database(), 20
    rule = {"name": "uniform", "stop_when_separated": False}
    path = write_study(tmp_path, n_candidates=2, n_examples=6, changes={"selector": rule})
    most = 0

    async def one() -> Standing:
        async with Study.open(path, options=Options(store=url)) as study:
            return await study.run()

    async def watched() -> list[Standing]:
        nonlocal most
        count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        watch = await psycopg.AsyncConnection.connect(url, autocommit=True)
        async with watch, asyncio.TaskGroup() as group:
            runs = [group.create_task(one()) for _ in range(n_runs)]
            while not all(run.done() for run in runs):
                row = await (await watch.execute(count)).fetchone()
                assert row is not None
                most = max(most, row[0])
        return [run.result() for run in runs]

    standings = asyncio.run(watched())
    assert [standing.told for standing in standings] == [12] * n_runs
    assert sum(standing.spent.calls for standing in standings) == 12, "every reply is bought once"
    assert len(asyncio.run(Archive(url).runs())) == n_runs
    assert most < 97, "a server takes 100 connections by default, 3 of them for administrators"
    with psycopg.connect(url) as connection:
        query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        assert connection.execute(query).fetchone() == (0,)
