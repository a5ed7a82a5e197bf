"""Instructions that other processes leave in the store for a run that goes on."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

from bestarm_agent.domain.spend import NANOS_PER_USD, Budget
from bestarm_agent.engine.run.run_loop import RunLoop
from bestarm_agent.errors import StoreError
from bestarm_agent.store.base import RunStore

_LOOK_SECONDS = 1.0

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Instruction:
    """A wish for a run: to stop once what is in flight has ended, or to spend more from now on."""

    stop: bool = False
    pulls: int | None = None  # more pairs
    usd: float | None = None  # more dollars

    def apply(self, loop: RunLoop) -> None:
        """Obey."""
        if self.stop:
            loop.stop()
        else:
            nanos = None if self.usd is None else round(self.usd * NANOS_PER_USD)
            loop.raise_budget(Budget(pulls=self.pulls, usd_nanos=nanos))


async def leave_instruction(store: RunStore, run_id: str, instruction: Instruction) -> None:
    """Leave an instruction; a run that goes on obeys within about a second, another one never.

    Raises:
        StoreError: it cannot be stored, or another one was left at the same moment.
    """
    version, known = await _left(store, run_id)
    data = json.dumps([asdict(one) for one in (*known, instruction)]).encode()
    await store.put_state(_name(run_id), data, after=version)


@asynccontextmanager
async def obeying(store: RunStore, run_id: str, loop: RunLoop) -> AsyncIterator[None]:
    """Obey, within this context, what is left for the run from now on."""
    _, before = await _left(store, run_id)
    over = asyncio.Event()
    watching = asyncio.create_task(_watch(store, run_id, loop, len(before), over))
    try:
        yield
    finally:
        over.set()
        await watching


async def _watch(
    store: RunStore, run_id: str, loop: RunLoop, done: int, over: asyncio.Event
) -> None:
    while not over.is_set():
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await over.wait()
        except TimeoutError:
            done = await _obey(store, run_id, loop, done)


async def _obey(store: RunStore, run_id: str, loop: RunLoop, done: int) -> int:
    try:
        _, left = await _left(store, run_id)
    except StoreError as error:  # the run itself finds out whether the store is gone for good
        _logger.warning("run %s: instructions could not be read: %s", run_id, error)
        return done
    for instruction in left[done:]:
        _logger.info("run %s obeys %s", run_id, instruction)
        instruction.apply(loop)
    return len(left)


async def _left(store: RunStore, run_id: str) -> tuple[int, Sequence[Instruction]]:
    """Return the number of the list's version and all instructions ever left, oldest first."""
    found = await store.get_state(_name(run_id))
    if found is None:
        return 0, ()
    version, data = found
    return version, [Instruction(**one) for one in json.loads(data)]


def _name(run_id: str) -> str:
    return f"instructions for run {run_id}"
