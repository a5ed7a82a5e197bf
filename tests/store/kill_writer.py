"""A process that writes until it is killed.

It begins or takes up a run and says through a pipe what is durable: ("ask", 7) after the flush of
an ask, ("reply", 7) after its reply was put, ("outcome", 7) after the flush of its outcome.
"""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection
from typing import Any

from bestarm_agent.errors import RunNotFoundError
from bestarm_agent.store.run_state import fold
from bestarm_agent.store.store import RunLog, Store
from tests.support.store_runs import asked, grid, reply, started, told

IN_FLIGHT = 16


async def take_up(store: Store, name: str) -> tuple[RunLog, list[int], int]:
    """Open or begin the run; return its log, the asks in flight at the kill, and the next ask."""
    try:
        log = await store.open(name)
    except RunNotFoundError:
        log = await store.create(name)
        log.append(started(name))
        for event in grid(n_examples=20_000):
            log.append(event)
        await log.flush()
    state = fold(await store.events_of(log.run_id))
    return log, list(state.pending), state.n_asked


async def evaluate(store: Store, log: RunLog, seq: int, pipe: Connection[Any, Any]) -> None:
    """Bring an ask that was appended to its end, as a run does; never buy a stored reply again."""
    await log.flush()
    pipe.send(("ask", seq))
    if await store.get_reply(f"key-{seq}") is None:
        await store.put_reply(f"key-{seq}", reply(f"answer {seq}"))
        pipe.send(("reply", seq))
    log.append(told(seq))
    await log.flush()
    pipe.send(("outcome", seq))


async def write(url: str, name: str, limit: int, pipe: Connection[Any, Any]) -> None:
    async with await Store.connect(url) as store:
        log, pending, following = await take_up(store, name)
        numbers = iter([*pending, *range(following, limit)])

        async def work() -> None:
            for seq in numbers:
                if seq >= following:
                    log.append(asked(seq))
                await evaluate(store, log, seq, pipe)

        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(work())


def main(url: str, name: str, limit: int, pipe: Connection[Any, Any]) -> None:
    """Write the run of that name until it has ``limit`` asks."""
    asyncio.run(write(url, name, limit, pipe))
