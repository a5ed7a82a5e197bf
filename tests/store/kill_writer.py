"""A process that writes until it is killed: ``python -m tests.store.kill_writer STORE RUN LIMIT``.

It begins or takes up the run of that name and says on stdout what is durable, one line each:
"ask 7" after the flush of an ask, "reply 7" after its reply was put, "outcome 7" after the flush of
its outcome. It ends by itself after LIMIT asks.
"""

from __future__ import annotations

import asyncio
import os
import sys

from bestarm_agent.errors import RunNotFoundError
from bestarm_agent.store.run_state import fold
from bestarm_agent.store.store import RunLog, Store
from tests.support.store_runs import asked, grid, reply, started, told

IN_FLIGHT = 16


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def take_up(store: Store, name: str) -> tuple[RunLog, list[int], int]:
    """Open or begin the run; return its log, the asks in flight at the kill, and the next ask."""
    try:
        log = await store.open(name)
    except RunNotFoundError:
        log = await store.create(name)
        log.append(started(name))
        for event in grid(n_examples=100_000):
            log.append(event)
        await log.flush()
    state = fold(await store.events_of(log.run_id))
    return log, list(state.pending), state.n_asked


async def evaluate(store: Store, log: RunLog, seq: int) -> None:
    """Bring an ask that was appended to its end, as a run does; never buy a stored reply again."""
    await log.flush()
    say(f"ask {seq}")
    if await store.get_reply(f"key-{seq}") is None:
        await store.put_reply(f"key-{seq}", reply(f"answer {seq}"))
        say(f"reply {seq}")
    log.append(told(seq))
    await log.flush()
    say(f"outcome {seq}")


async def main(url: str, name: str, limit: int) -> None:
    async with await Store.connect(url) as store:
        log, pending, following = await take_up(store, name)
        numbers = iter([*pending, *range(following, limit)])

        async def work() -> None:
            for seq in numbers:
                if seq >= following:
                    log.append(asked(seq))
                await evaluate(store, log, seq)

        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(work())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
