"""Coroutines run at the same time; one error ends them and is raised as it is."""

from __future__ import annotations

import asyncio

import pytest

from bestarm_agent.domain.concurrent import most_connections, together
from tests.support.virtual_time import run_virtual


async def after(seconds: float, result: str) -> str:
    await asyncio.sleep(seconds)
    return result


def test_results_come_in_the_order_of_the_coroutines() -> None:
    async def run() -> tuple[list[str], float]:
        results = await together(after(3 - i, f"{i}") for i in range(3))
        return results, asyncio.get_running_loop().time()

    results, seconds = run_virtual(run())
    assert results == ["0", "1", "2"]
    assert seconds == pytest.approx(3)


def test_nothing_to_run_is_no_result() -> None:
    assert asyncio.run(together([])) == []


def test_the_first_error_is_raised_after_the_others_have_ended() -> None:
    ended = []

    async def long() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)  # such as closing a connection
            ended.append("long")

    async def fails() -> None:
        await asyncio.sleep(1)
        raise KeyError("first")

    with pytest.raises(KeyError, match="first"):
        run_virtual(together([long(), fails()]))
    assert ended == ["long"]


def test_the_soft_limit_of_open_files_is_raised_and_connections_stay_below_it() -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 512:
        pytest.skip("needs a limit that can be raised")
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        most = most_connections()
        now, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert now > 256
        assert 1 <= 2 * most + 64 <= now
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
