"""Limit the number of calls in flight, first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Gate:
    """A semaphore that can be resized and tells how many places are free.

    New work calls ``enter`` after checking ``free``; work that returns from a backoff queues in
    ``reenter`` and goes before new work.
    """

    def __init__(self, capacity: int) -> None:
        _check(capacity)
        self.capacity = capacity
        self.inside = 0
        self._returning: deque[asyncio.Future[None]] = deque()

    @property
    def free(self) -> int:
        """The number of calls that may enter now, >= 0."""
        return max(0, self.capacity - self.inside - len(self._returning))

    def enter(self) -> None:
        """Enter without waiting; the caller has checked ``free``."""
        self.inside += 1

    async def reenter(self) -> None:
        """Wait for a free place, then enter."""
        if self.inside < self.capacity and not self._returning:
            self.inside += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._returning.append(turn)
        try:
            await turn  # set by _let_in, which has counted this call as inside
        except asyncio.CancelledError:
            if not turn.cancelled():  # the place had been handed over already
                self.leave()
            raise

    def leave(self) -> None:
        """Leave, and let the longest-waiting call in."""
        self.inside -= 1
        self._let_in()

    def resize(self, capacity: int) -> None:
        """Change the capacity; calls inside beyond a smaller one stay until they leave."""
        _check(capacity)
        self.capacity = capacity
        self._let_in()

    def _let_in(self) -> None:
        while self._returning and self.inside < self.capacity:
            turn = self._returning.popleft()
            if not turn.done():
                turn.set_result(None)
                self.inside += 1


def _check(capacity: int) -> None:
    if capacity < 1:
        raise ValueError(f"in_flight must be at least 1, got {capacity}")


class Slot:
    """One call's places in several gates, given up while it waits for something else.

    ``when_left`` is called when places may be free again.
    """

    def __init__(self, *gates: Gate, when_left: Callable[[], None] | None = None) -> None:
        self._gates = self._all = gates
        self._when_left = when_left
        self._inside = 0  # number of gates entered, from the first
        for gate in gates:
            gate.enter()
            self._inside += 1

    @classmethod
    def outside(cls, *gates: Gate) -> Slot:
        """Return a slot that has not entered yet, for calls whose places were not checked."""
        slot = cls()
        slot._gates = slot._all = gates
        return slot

    def keep_last(self) -> None:
        """Leave every gate but the last: the call is over, and its judging goes on."""
        while self._inside > 1:
            self._inside -= 1
            self._gates[0].leave()
            self._gates = self._gates[1:]
        self._tell()

    async def begin_again(self) -> None:
        """Wait until every gate is entered, those left for good included: another call begins."""
        if self._gates != self._all:
            self.leave()
            self._gates = self._all
        if not self.inside:
            await self.reenter()

    @property
    def inside(self) -> bool:
        """True if every gate is entered."""
        return self._inside == len(self._gates)

    def leave(self) -> None:
        """Leave every gate; do nothing if outside."""
        while self._inside:
            self._inside -= 1
            self._gates[self._inside].leave()
        self._tell()

    def _tell(self) -> None:
        if self._when_left is not None:
            self._when_left()

    async def reenter(self) -> None:
        """Wait until every gate has a free place, then enter all.

        No place is held while waiting for another: a judge call keeps one gate's place and waits
        for another's, so holding the second and waiting for the first could be a deadlock.
        """
        missing = self._gates[self._inside :]
        while (full := next((gate for gate in missing if not gate.free), None)) is not None:
            await full.reenter()
            others = [gate for gate in missing if gate is not full]
            if all(gate.free for gate in others):
                missing = tuple(others)
            else:
                full.leave()
        for gate in missing:
            gate.enter()
        self._inside = len(self._gates)
