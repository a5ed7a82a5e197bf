"""Batches judge calls, so that the judge's model is loaded once per batch.

Every pair needs a judge's model. Where it fits into the memory together with each candidate's, it
stays there (``ModelTurns``). Where it does not, it would be swapped in and out every few replies,
so replies are gathered during a candidate's turn and judged together.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from bestarm_agent.engine.limits.concurrency_gates import Slot
from bestarm_agent.engine.model_turns.turns import ModelTurns
from bestarm_agent.providers.base import Provider


class JudgeTurns:
    """Holds replies until they can be judged together."""

    def __init__(self, members: Sequence[tuple[Provider, str]] = ()) -> None:
        self.waiting = 0  # replies that wait for the next session
        self._members = tuple(members)
        self._memories: list[ModelTurns] = []
        self._judging = 0
        self._opening = asyncio.Event()

    @property
    def is_judging(self) -> bool:
        """True while a session runs."""
        return self._judging > 0

    def models_of(self, provider: Provider) -> tuple[str, ...]:
        """Return the judge's models that a provider serves."""
        return tuple(model for other, model in self._members if other is provider)

    def watch(self, memory: ModelTurns) -> None:
        """Let replies wait from now on where a memory cannot hold judge and candidate together."""
        self._memories.append(memory)

    def open(self) -> None:
        """Begin a session for the replies that wait now; later ones wait for the next."""
        self._judging, self.waiting = self._judging + self.waiting, 0
        self._opening.set()
        self._opening = asyncio.Event()

    @asynccontextmanager
    async def session(self, slot: Slot) -> AsyncIterator[None]:
        """Judge one reply in the block: at once where there is room, else in the next session.

        While it waits, it gives up ``slot``.
        """
        if not any(memory.is_crowded for memory in self._memories):
            yield
            return
        slot.leave()
        await self._wait()
        try:
            await slot.reenter()
            yield
        finally:
            self._judging -= 1

    async def _wait(self) -> None:
        opening = self._opening
        self.waiting += 1
        try:
            await opening.wait()
        except asyncio.CancelledError:
            if opening.is_set():
                self._judging -= 1
            else:
                self.waiting -= 1
            raise
