"""What the store costs per call: a lookup, a reply, two events and two flushes.

    python -m benchmarks.engine.store_cost --calls 20000 --in-flight 200 [--store postgresql://...]

The bare line is the same number of asyncio tasks and switches without a store. CPU counts all
threads of this process, the writer's too.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bestarm_agent.store.base import RunLog, RunStore
from bestarm_agent.store.run_state import fold
from bestarm_agent.store.sql_store import SqlStore
from bestarm_agent.testing.store_runs import asked, grid, reply, started, told

SWITCHES = 4  # how often a call gives way to others, with a store or without


async def bare(_seq: int) -> None:
    """A call that only gives way."""
    for _ in range(SWITCHES):
        await asyncio.sleep(0)


def stored(store: RunStore, log: RunLog) -> Callable[[int], Awaitable[None]]:
    """A call as a run stores it."""

    async def one(seq: int) -> None:
        key = f"{seq:032x}"
        log.append(asked(seq))
        await log.flush()
        if await store.get_reply(key) is None:
            await store.put_reply(key, reply("The sum of both numbers is 46. " * 5))
        log.append(told(seq))
        await log.flush()

    return one


async def measure(
    name: str, call: Callable[[int], Awaitable[None]], calls: int, in_flight: int
) -> None:
    """Run the calls and print what one costs."""
    numbers = iter(range(calls))

    async def work() -> None:
        for seq in numbers:
            await call(seq)

    cpu, wall = time.process_time(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(work())
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(f"{name:8} {1e6 * cpu / calls:7.0f} us CPU {1e6 * wall / calls:7.0f} us wall, per call")


async def main(url: str, calls: int, in_flight: int) -> None:
    """Measure both, then read the log back."""
    async with await SqlStore.connect(url) as store:
        log = await store.create("study")
        for event in (started(), *grid(n_examples=calls)):
            log.append(event)
        await log.flush()
        await measure("bare", bare, calls, in_flight)
        await measure("stored", stored(store, log), calls, in_flight)
        cpu = time.process_time()
        state = fold(await log.events())
        print(f"{state.n_events} events read and folded in {time.process_time() - cpu:.2f} s CPU")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--in-flight", type=int, default=200)
    parser.add_argument("--store", help="URL or path of an empty store; else a temporary file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = given.store or str(Path(folder) / "runs.db")
        asyncio.run(main(place, given.calls, given.in_flight))
