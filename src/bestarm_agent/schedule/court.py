"""Judgements that wait until their model may be in memory: the judge's part in models' turns.

A judge's model that shares a memory with the candidates' is wanted by every pair. Where it fits
beside each of them it stays (``Turns``). Where it does not, every few replies would have it swapped
in and out; so replies are gathered while a candidate's model has its turn, and judged together.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from bestarm_agent.providers.base import Provider
from bestarm_agent.schedule.gate import Slot
from bestarm_agent.schedule.turns import Turns


class Court:
    """Where replies wait to be judged together.

    Args:
        members: providers and names of the judge's models.

    Attributes:
        waiting: how many replies wait for the next session.
    """

    def __init__(self, members: Sequence[tuple[Provider, str]] = ()) -> None:
        self.waiting = 0
        self._members = tuple(members)
        self._memories: list[Turns] = []
        self._sitting = 0
        self._opening = asyncio.Event()

    @property
    def is_sitting(self) -> bool:
        """Whether replies are being judged together now."""
        return self._sitting > 0

    def models_of(self, provider: Provider) -> tuple[str, ...]:
        """The judge's models that a provider serves."""
        return tuple(model for other, model in self._members if other is provider)

    def watch(self, memory: Turns) -> None:
        """Wait from now on, if a memory has no room for the judge beside the candidates."""
        self._memories.append(memory)

    def open(self) -> None:
        """Begin a session for all replies that wait now; later ones wait for the next."""
        self._sitting, self.waiting = self._sitting + self.waiting, 0
        self._opening.set()
        self._opening = asyncio.Event()

    @asynccontextmanager
    async def session(self, slot: Slot, waits: Callable[[], None]) -> AsyncIterator[None]:
        """Judge one reply: at once where there is room, else when a session is opened.

        Args:
            slot: its place, given up while it waits.
            waits: called when it waits.
        """
        if not any(memory.is_crowded for memory in self._memories):
            yield
            return
        slot.leave()
        await self._wait(waits)
        try:
            await slot.reenter()
            yield
        finally:
            self._sitting -= 1

    async def _wait(self, waits: Callable[[], None]) -> None:
        opening = self._opening
        self.waiting += 1
        waits()
        try:
            await opening.wait()
        except asyncio.CancelledError:
            if opening.is_set():
                self._sitting -= 1
            else:
                self.waiting -= 1
            raise
