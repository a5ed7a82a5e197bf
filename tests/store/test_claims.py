"""Locks: who may buy a reply, or write a run; they end with their process, however that ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.exc import ResourceClosedError

from bestarm_agent.errors import StoreError
from bestarm_agent.store import database
from bestarm_agent.store.store import Store
from tests.support.processes import becomes_true, is_in_state, speaking
from tests.support.store_runs import asked, begin, started


def hold(place: str, pipe: Connection[Any, Any]) -> None:
    """Claim "key" and keep it for ever."""

    async def claim() -> None:
        store = await Store.connect(place)
        pipe.send(await store.claim_reply("key"))
        await asyncio.Event().wait()

    asyncio.run(claim())


@contextmanager
def holder(place: str) -> Iterator[int]:
    """Start a process that holds the claim of "key" until it is killed; give its number."""
    with speaking(hold, place) as (process, heard):
        assert heard.recv() is True
        assert process.pid is not None
        yield process.pid


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "runs.db")
    create: Callable[[], str] = request.getfixturevalue("new_database")
    return create()


@pytest.mark.slow
async def test_the_claim_of_a_killed_process_is_free(place: str) -> None:
    async with await Store.connect(place) as store:
        with holder(place):
            assert not await store.claim_reply("key")
        async with asyncio.timeout(20):
            while not await store.claim_reply("key"):  # noqa: ASYNC110 - the server takes a moment
                await asyncio.sleep(0)


@pytest.mark.slow
async def test_the_claim_of_a_stopped_process_ends_and_stays_lost_to_it(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PATIENCE_SECONDS", 0.5)

    async with await Store.connect(place) as store:
        with holder(place) as pid:
            os.kill(pid, signal.SIGSTOP)
            await asyncio.to_thread(becomes_true, partial(is_in_state, pid, "T"))
            async with asyncio.timeout(20):
                while not await store.claim_reply("key"):  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0)
            os.kill(pid, signal.SIGCONT)
            async with await Store.connect(place) as other:
                assert not await other.claim_reply("key")


async def test_claims_leave_the_writing_of_runs_alone(place: str) -> None:
    """Claims of many keys neither wait for the writer nor keep each other out."""

    async with await Store.connect(place) as one, await Store.connect(place) as other:
        keys = [str(number) for number in range(200)]
        assert all([await one.claim_reply(key) for key in keys])
        assert not any([await other.claim_reply(key) for key in keys])
        for key in keys[:100]:
            one.release_reply(key)
        await one.get_reply("durable with what was queued before")
        taken = [await other.claim_reply(key) for key in keys]
        assert taken == [True] * 100 + [False] * 100


async def test_a_run_that_another_process_took_is_not_written_any_more(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await Store.connect(place) as other:
        store = await Store.connect(place)
        log = await begin(store)
        monkeypatch.setattr(database, "PATIENCE_SECONDS", -1.0)  # as after a long stop
        taken = await other.open("latest")
        log.append(asked(0))
        for attempt in (log.flush, log.close, store.close):
            with pytest.raises(StoreError, match=f"being written by process {os.getpid()}; "):
                await attempt()
        assert await other.events_of("latest") == [started()]
        taken.append(asked(0))


async def test_the_claim_of_another_machine_lasts_until_its_lease_ends(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, boot, namespace = socket.gethostname(), "8b6c", "pid:[4026531836]"
    here = f"{host}/{boot}/{namespace}"
    monkeypatch.setattr(database, "_place", lambda: here)
    async with await Store.connect(place) as store:
        put = "INSERT INTO locks VALUES (:name, :owner, :seen) RETURNING name"
        for name, owner, seen in (
            ("reply lives", "999999999:x@elsewhere", 1e12),
            ("reply silent", "999999999:x@elsewhere", 0.0),
            ("reply ended", f"999999999:x@{here}", 1e12),
            ("reply other's", f"1:x@{here}", 1e12),
            ("reply earlier", f"{os.getpid()}:x@{here}", 1e12),
            ("reply of a container", f"999999999:x@{socket.gethostname()}/boot/pid:[2]", 1e12),
            ("reply of our number there", f"{os.getpid()}:x@{host}/{boot}/pid:[2]", 1e12),
            ("reply of another boot", f"{os.getpid()}:x@{host}/boot/{namespace}", 1e12),
        ):
            values = {"name": name, "owner": owner, "seen": seen}
            await store._database.rows(put, values, writes=True)
        keys = ("lives", "silent", "ended", "other's", "earlier")
        claimed = [await store.claim_reply(key) for key in keys]
        assert claimed == [False, True, True, False, True]
        for key in ("of a container", "of our number there", "of another boot"):
            assert not await store.claim_reply(key), "whether it lives cannot be seen from here"


async def test_locks_are_renewed_while_nothing_is_written(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may wait for one slow call for hours; nobody takes it from a live process meanwhile."""
    monkeypatch.setattr(database, "_SIGN_OF_LIFE_SECONDS", 0.02)
    async with await Store.connect(place) as store, await begin(store) as log:
        await log.flush()
        writes = store._database._commits

        async def seen() -> float:
            [(moment,)] = await store._database.rows("SELECT seen FROM locks")
            return float(moment)

        before = await seen()
        async with asyncio.timeout(20):
            while await seen() == before:  # noqa: ASYNC110 - the writer's thread tells nobody
                await asyncio.sleep(0)
        assert store._database._commits == writes


@pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="Linux has such namespaces")
async def test_a_claim_that_closing_could_not_free_has_ended_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "runs.db")
    async with await Store.connect(path) as store:
        assert await store.claim_reply("key")
        async with await Store.connect(path) as other:
            assert not await other.claim_reply("key")
        monkeypatch.setattr(database, "_FREE", "DELETE FROM nowhere WHERE owner = :owner")
    async with await Store.connect(path) as store:
        assert await store.claim_reply("key")


async def test_a_place_is_a_boot_and_a_namespace_of_a_host() -> None:
    host, boot, namespace = database._place().split("/")
    assert (host, namespace[:5]) == (socket.gethostname(), "pid:[")
    assert len(boot) == 36


def test_a_connection_that_was_closed_meanwhile_is_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLAlchemy has an error of its own for it, which is none of the driver's."""
    monkeypatch.setattr(database, "_PAUSE_SECONDS", 0.001)
    opened = database.Database.of(tmp_path / "runs.sqlite", create=True)
    errors = [ResourceClosedError("This Connection is closed") for _ in range(2)]

    def work(_connection: sqlalchemy.Connection) -> str:
        if errors:
            raise errors.pop()
        return "done"

    assert opened.run(work) == "done"
    opened.close()
