"""Virtual time jumps over waits, and over nothing else."""

from __future__ import annotations

import asyncio

from tests.support.virtual_time import run_virtual


def test_time_stands_still_while_a_thread_works() -> None:
    async def main() -> float:
        async with asyncio.timeout(60.0):  # would be over at once if time jumped
            await asyncio.to_thread(sum, range(2_000_000))
        before = asyncio.get_running_loop().time()
        await asyncio.sleep(60)
        return asyncio.get_running_loop().time() - before

    assert run_virtual(main()) == 60
