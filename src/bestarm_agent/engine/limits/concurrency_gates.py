"""Limit the number of calls in flight, first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass


class Gate:
    """A semaphore that can be resized and tells how many places are free.

    New work calls ``enter`` after checking ``free``. Work that returns from a backoff queues, and
    goes before new work: while anyone queues, no place is free.
    """

    def __init__(self, capacity: int) -> None:
        _check(capacity)
        self.capacity = capacity
        self.inside = 0
        self._queue: deque[_Returning] = deque()

    @property
    def free(self) -> int:
        """The number of calls that may enter now, >= 0."""
        return max(0, self.capacity - self.inside)

    def enter(self) -> None:
        """Enter without waiting; the caller has checked ``free``."""
        self.inside += 1

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
        while self._queue and self.free:
            self._queue.popleft().enter()

    def queue(self, waiting: _Returning) -> None:
        """Let a call wait at this gate, which is full."""
        self._queue.append(waiting)


@dataclass(eq=False)
class _Returning:
    """A call that waits, in the queue of one full gate, until all its gates have a free place.

    Its places are taken at once. Were they taken one by one and given back when another is full,
    two such calls could hand a place to each other forever.
    """

    gates: Sequence[Gate]
    entered: asyncio.Future[None]

    def enter(self) -> None:
        """Enter every gate, or queue at one that is full; do nothing if the wait was cancelled."""
        if self.entered.cancelled():
            return
        full = next((gate for gate in self.gates if not gate.free), None)
        if full is not None:
            full.queue(self)
            return
        for gate in self.gates:
            gate.enter()
        self.entered.set_result(None)


def _check(capacity: int) -> None:
    if capacity < 1:
        raise ValueError(f"in_flight must be at least 1, got {capacity}")


class Slot:
    """One call's places in several gates, given up while it waits for something else.

    ``when_left`` is called when places may be free again.
    """

    def __init__(self, *gates: Gate, when_left: Callable[[], None] | None = None) -> None:
        self._gates = gates
        self._when_left = when_left
        self._inside = 0  # number of gates entered, from the first
        for gate in gates:
            gate.enter()
            self._inside += 1

    @classmethod
    def outside(cls, *gates: Gate) -> Slot:
        """Return a slot that has not entered yet, for calls whose places were not checked."""
        slot = cls()
        slot._gates = gates
        return slot

    def keep_last(self) -> None:
        """Leave every gate but the last: the call is over, and its judging goes on."""
        while self._inside > 1:
            self._inside -= 1
            self._gates[0].leave()
            self._gates = self._gates[1:]
        self._tell()

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
        waiting = _Returning(
            self._gates[self._inside :], asyncio.get_running_loop().create_future()
        )
        waiting.enter()
        try:
            await waiting.entered
        except asyncio.CancelledError:
            if not waiting.entered.cancelled():  # the places had been handed over already
                for gate in waiting.gates:
                    gate.leave()
            raise
        self._inside = len(self._gates)
