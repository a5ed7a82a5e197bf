"""Instructions that other processes leave in the store for a run that goes on."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

from bestarm_agent.domain.spend import NANOS_PER_USD, Budget
from bestarm_agent.engine.clock import Clock
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
    """Leave an instruction; a run that goes on obeys soon, any other never.

    Raises:
        StoreError: it cannot be stored, or another one was left at the same moment.
    """
    version, known = await _left(store, run_id)
    data = json.dumps([asdict(one) for one in (*known, instruction)]).encode()
    await store.put_state(_name(run_id), data, after=version)


class InstructionReader:
    """Looks for new instructions whenever answers came back, at most once a second."""

    def __init__(self, store: RunStore, run_id: str, clock: Clock) -> None:
        self._store = store
        self._run_id = run_id
        self._clock = clock
        self._done = 0  # instructions that were obeyed, or left before the run went on
        self._looked = clock.now()
        self._looking: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def obeyed_by(self, loop: RunLoop) -> AsyncIterator[None]:
        """Let a loop obey, within this context, what is left from now on."""
        _, before = await _left(self._store, self._run_id)
        self._done = len(before)
        loop.each_turn = lambda: self._look(loop)
        try:
            yield
        finally:
            if self._looking is not None:
                await self._looking

    def _look(self, loop: RunLoop) -> None:
        is_looking = self._looking is not None and not self._looking.done()
        if not is_looking and self._clock.now() >= self._looked + _LOOK_SECONDS:
            self._looked = self._clock.now()
            self._looking = asyncio.create_task(self._obey(loop))

    async def _obey(self, loop: RunLoop) -> None:
        try:
            _, left = await _left(self._store, self._run_id)
        except StoreError as error:  # the run itself finds out whether the store is gone for good
            _logger.warning("run %s: instructions could not be read: %s", self._run_id, error)
            return
        for instruction in left[self._done :]:
            _logger.info("run %s obeys %s", self._run_id, instruction)
            instruction.apply(loop)
        self._done = len(left)


async def _left(store: RunStore, run_id: str) -> tuple[int, Sequence[Instruction]]:
    """Return the number of the list's version and all instructions ever left, oldest first."""
    found = await store.get_state(_name(run_id))
    if found is None:
        return 0, ()
    version, data = found
    return version, [Instruction(**one) for one in json.loads(data)]


def _name(run_id: str) -> str:
    return f"instructions for run {run_id}"
