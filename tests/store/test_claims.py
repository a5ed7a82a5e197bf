"""A claim on a reply ends with the process that holds it, however that ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bestarm_agent.store import database
from bestarm_agent.store.store import Store

HOLDER = """
import asyncio, sys
from bestarm_agent.store.store import Store

async def main():
    store = await Store.connect(sys.argv[1])
    print(await store.claim_reply("key"), flush=True)
    await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@contextmanager
def holder(place: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds the claim of "key" until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "runs.db")
    create: Callable[[], str] = request.getfixturevalue("new_database")
    return create()


@pytest.mark.slow
def test_the_claim_of_a_killed_process_is_free(place: str) -> None:
    async def main() -> None:
        async with await Store.connect(place) as store:
            with holder(place):
                assert not await store.claim_reply("key")
            async with asyncio.timeout(20):
                while not await store.claim_reply("key"):  # noqa: ASYNC110 - the server takes a moment
                    await asyncio.sleep(0)

    asyncio.run(main())


@pytest.mark.slow
def test_the_claim_of_a_stopped_process_ends_and_stays_lost_to_it(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PATIENCE_SECONDS", 0.5)  # in PostgreSQL, without a sign of life

    async def main() -> None:
        async with await Store.connect(place) as store:
            with holder(place) as process:
                os.kill(process.pid, signal.SIGSTOP)
                await asyncio.to_thread(os.waitpid, process.pid, os.WUNTRACED)
                async with asyncio.timeout(20):
                    while not await store.claim_reply("key"):  # noqa: ASYNC110 - as above
                        await asyncio.sleep(0)
                os.kill(process.pid, signal.SIGCONT)
                async with await Store.connect(place) as other:
                    assert not await other.claim_reply("key")

    asyncio.run(main())


def test_claims_leave_the_writing_of_runs_alone(place: str) -> None:
    """Claims of many keys neither wait for the writer nor keep each other out."""

    async def main() -> None:
        async with await Store.connect(place) as one, await Store.connect(place) as other:
            keys = [str(number) for number in range(200)]
            assert all([await one.claim_reply(key) for key in keys])
            assert not any([await other.claim_reply(key) for key in keys])
            for key in keys[:100]:
                await one.release_reply(key)
            taken = [await other.claim_reply(key) for key in keys]
            assert taken == [True] * 100 + [False] * 100

    asyncio.run(main())
