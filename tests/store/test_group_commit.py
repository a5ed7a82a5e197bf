"""Group commit, and what happens when a write fails."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
from sqlalchemy import Engine, event

from bestarm_agent.errors import StoreError
from bestarm_agent.store import database as module
from bestarm_agent.store.store import Store
from tests.support.store_runs import asked, begin, reply, started, told


@contextmanager
def listening(name: str, note: Callable[..., object]) -> Iterator[None]:
    """Tell a function of every event of SQLAlchemy's engines with that name."""
    event.listen(Engine, name, note)
    try:
        yield
    finally:
        event.remove(Engine, name, note)


def full_disk() -> AbstractContextManager[None]:
    """Let SQLite find the disk full after 40 pages."""

    def configure(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA max_page_count = 40")

    return listening("connect", configure)


async def test_what_is_queued_at_once_shares_a_transaction_and_a_wake_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await Store.connect(tmp_path / "runs.db") as store:
        log = await begin(store)
        loop = asyncio.get_running_loop()
        wake_ups = Mock(side_effect=loop.call_soon_threadsafe)
        monkeypatch.setattr(loop, "call_soon_threadsafe", wake_ups)

        async def one(seq: int) -> None:
            log.append(asked(seq))
            await store.put_reply(f"key-{seq}", reply())
            log.append(told(seq))
            await log.flush()

        noted: list[object] = []
        with listening("commit", noted.append):
            async with asyncio.TaskGroup() as group:
                for seq in range(200):
                    group.create_task(one(seq))
            # the first put at once, the others and their outcomes in a few transactions more
            assert len(noted) == wake_ups.call_count
            assert len(noted) < 10


def test_what_is_waited_for_is_written_in_the_same_turn_on_any_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a web server, which often runs uvloop: its timers are no handles of asyncio's."""
    monkeypatch.setattr(module, "_LONGEST_WAIT", 3600.0)

    async def write() -> None:
        async with asyncio.timeout(60), await Store.connect(tmp_path / "runs.db") as store:
            log = await begin(store)
            log.append(asked(0))  # which nothing waits for: it sets the timer
            await log.flush()

    pytest.importorskip("uvloop").run(write())


async def test_a_full_disk_surfaces_everywhere_and_spares_what_was_flushed(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    full = pytest.raises(StoreError, match="the disk is full; free some space, then resume")
    with full_disk():
        store = await Store.connect(path)
        log = await begin(store)
        await store.put_reply("small", reply())
        log.append(asked(0))
        with full:
            await store.put_reply("large", reply("x" * 1_000_000))
        with full:
            log.append(asked(1))
        for attempt in (log.flush, lambda: store.put_reply("k", reply()), log.close, store.close):
            with full:
                await attempt()
    async with await Store.connect(path) as store:
        assert await store.events_of("study") == [started()]
        assert await store.get_reply("small") == reply()
        assert await store.get_reply("large") is None


@pytest.mark.parametrize("error", [None, pytest.param(KeyError(1), marks=pytest.mark.slow)])
async def test_a_failed_write_that_nobody_waited_for_surfaces_at_close(
    tmp_path: Path, error: Exception | None
) -> None:
    """Or as a note on the error that ends the session."""

    async def session() -> None:
        async with await Store.connect(tmp_path / "runs.db") as store:
            log = await begin(store)
            for seq in range(10_000):
                log.append(asked(seq))
            if error is not None:
                raise error

    with full_disk(), pytest.raises(StoreError if error is None else KeyError) as caught:
        await session()
    said = str(caught.value) if error is None else caught.value.__notes__[0]
    assert "disk is full" in said


async def test_a_store_that_another_process_keeps_busy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUSY_SECONDS", 0.01)
    path = tmp_path / "runs.db"
    store = await Store.connect(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert await store.runs() == []  # reading goes on
        with pytest.raises(StoreError, match="another process has been writing it"):
            await store.put_reply("key", reply())
    with pytest.raises(StoreError, match="another process"):
        await store.close()


def test_an_error_that_nobody_foresaw_surfaces_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with await Store.connect(tmp_path / "runs.db") as store:
            await store.put_reply("no digest: \ud83d", reply())

    with pytest.raises(StoreError, match="could not be written: UnicodeEncodeError"):
        asyncio.run(main())


async def test_what_comes_while_a_store_closes_is_refused(tmp_path: Path) -> None:
    store = await Store.connect(tmp_path / "runs.sqlite")
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)  # it waits for its thread
    with pytest.raises(StoreError, match="is closed"):
        await asyncio.wait_for(store.put_reply("key", reply()), 10.0)
    await closing


async def test_a_closed_store_takes_nothing_and_closes_twice(tmp_path: Path) -> None:
    store = await Store.connect(tmp_path / "runs.db")
    log = await begin(store)
    await store.close()
    await store.close()
    for attempt in (store.put_reply("key", reply()), store.get_reply("key")):
        with pytest.raises(StoreError, match="is closed"):
            await attempt
    with pytest.raises(StoreError, match="is closed"):
        log.append(asked(0))
    await log.close()


async def test_damage_in_a_log_is_named_by_its_event(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with await Store.connect(path) as store:
        log = await begin(store)
        for seq in range(3):
            log.append(asked(seq))
    for harm, match in (
        ("UPDATE events SET payload = '{' WHERE n = 2", "event 2 of the log: .* is damaged"),
        ("DELETE FROM events WHERE n = 2", "has a gap after event 0"),
    ):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(harm)
            connection.commit()
        async with await Store.connect(path) as store:
            with pytest.raises(StoreError, match=match):
                await store.events_of("study")


async def test_a_slow_checkpoint_does_not_hold_up_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes its time to copy the log; replies become durable meanwhile."""
    begun, goes_on = threading.Event(), threading.Event()
    copy = module.Database._copy_log

    def slow(database: module.Database) -> None:
        begun.set()
        assert goes_on.wait(60)
        copy(database)

    monkeypatch.setattr(module.Database, "_copy_log", slow)
    monkeypatch.setattr(module, "COMMITS_BETWEEN", 15)

    async with await Store.connect(tmp_path / "runs.db") as store:
        for number in range(20):
            await store.put_reply(f"key-{number}", reply())
        assert await asyncio.to_thread(begun.wait, 60)
        await store.put_reply("key", reply())
        goes_on.set()


def size(path: Path) -> int:
    return path.stat().st_size


async def test_the_log_is_copied_into_the_database_while_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.db"
    monkeypatch.setattr(module, "COMMITS_BETWEEN", 10)

    async with await Store.connect(path) as store, asyncio.timeout(60):
        before = size(path)
        number = 0
        while size(path) == before:
            await store.put_reply(f"key-{number}", reply("x" * 10_000))
            number += 1


async def test_a_log_is_ended_though_commits_come_during_every_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was copied in full, as of when that began, would not begin anew."""
    copy = module.Database._copy_log

    def overtaken(database: module.Database) -> None:
        if threading.current_thread().name == "bestarm-store":
            copy(database)

    monkeypatch.setattr(module.Database, "_copy_log", overtaken)
    monkeypatch.setattr(module, "COMMITS_BETWEEN", 5)
    path = tmp_path / "runs.db"
    async with await Store.connect(path) as store:
        for number in range(300):  # 3 MB
            await store.put_reply(f"key-{number}", reply("x" * 10_000))
        assert size(path.with_name("runs.db-wal")) < 1_500_000


@pytest.mark.parametrize("queues_more", [False, True])
def test_what_an_event_loop_left_behind_is_written_when_the_next_one_waits(
    tmp_path: Path, queues_more: bool
) -> None:
    store = asyncio.run(Store.connect(tmp_path / "runs.db"))

    async def leave() -> None:
        (await begin(store)).append(asked(0))  # without a flush

    async def go_on() -> list[str]:
        async with asyncio.timeout(30):
            if queues_more:
                await store.put_reply("key", reply())
            await store.told("latest", [])  # waits for what is queued
            kinds = [type(event).__name__ for event in await store.events_of("latest")]
        await store.close()
        return kinds

    asyncio.run(leave())
    assert asyncio.run(go_on())[-1] == "Asked"
