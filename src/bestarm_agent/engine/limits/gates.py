"""Places for calls in flight: gates with a number of places, and the places that a call holds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence


class Gate:
    """A semaphore that tells how many places are free.

    New work calls ``enter`` after checking ``free``. Work that returns from a backoff queues, and
    goes before new work: while anyone queues, no place is free.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"in_flight must be at least 1, got {capacity}")
        self.capacity = capacity
        self.inside = 0
        self.queue: deque[Slot] = deque()  # return when a place is free

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
        # The one let in may find another of its gates full, and queue there instead: then this
        # place goes to the next.
        while self.queue and self.free:
            self.queue.popleft().enter_or_queue()


class Slot:
    """One call's places in several gates, given up while it waits for something else.

    Its places are taken at once. Were they taken one by one and given back when another is full,
    two calls that return could hand a place to each other forever; were they kept, a judge call,
    which keeps one gate's place and waits for another's, could be a deadlock.

    Attributes:
        inside: whether every gate is entered.
    """

    def __init__(
        self, *gates: Gate, inside: bool = True, when_left: Callable[[], None] | None = None
    ) -> None:
        """Enter gates with free places, or not yet; ``when_left`` is called at each leaving."""
        self.inside = inside
        self._gates = gates
        self._when_left = when_left
        self._returned: asyncio.Future[None] | None = None
        for gate in gates if inside else ():
            gate.enter()

    def keep_last(self) -> None:
        """Leave every gate but the last: the call is over, and its judging goes on."""
        if self.inside:
            # The order of a slot's gates matters for this alone: the run's is the last.
            others, self._gates = self._gates[:-1], self._gates[-1:]
            self._leave(others)

    def leave(self) -> None:
        """Leave every gate; do nothing if outside."""
        if self.inside:
            self.inside = not self._gates
            self._leave(self._gates)

    def _leave(self, gates: Sequence[Gate]) -> None:
        for gate in gates:
            gate.leave()
        if self._when_left is not None:
            self._when_left()

    async def reenter(self) -> None:
        """Wait until every gate has a free place, then enter all."""
        if self.inside:
            return
        # Whoever leaves a place enters all gates for this call in the same step
        # (``enter_or_queue``), so that nobody else can take one before this call wakes up.
        self._returned = asyncio.get_running_loop().create_future()
        self.enter_or_queue()
        try:
            await self._returned
        except asyncio.CancelledError:
            self.leave()  # the places may have been handed over already
            raise

    def enter_or_queue(self) -> None:
        """Enter every gate, or queue at one that is full; do nothing if nobody waits any more."""
        if self._returned is None or self._returned.done():
            return
        # It queues at one full gate only. When that has a place, all are looked at again, so a call
        # may queue several times, at the end each time.
        full = next((gate for gate in self._gates if not gate.free), None)
        if full is not None:
            full.queue.append(self)
            return
        for gate in self._gates:
            gate.enter()
        self.inside = True
        self._returned.set_result(None)
