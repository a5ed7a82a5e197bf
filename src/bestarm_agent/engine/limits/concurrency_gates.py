"""Limit the number of calls in flight: gates, and a search for the number that is accepted.

The rules of the search are those of inspect_ai's adaptive concurrency, with two changes. A cut
starts from the number of calls that were accepted, so an overshoot is undone at once and the cut
can be small. And after a pause the calls return gradually, since a provider that counts calls over
time would refuse most of a sudden burst.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence

from bestarm_agent.engine.clock import Clock


class Gate:
    """A semaphore that can be resized and tells how many places are free.

    New work calls ``enter`` after checking ``free``. Work that returns from a backoff queues, and
    goes before new work: while anyone queues, no place is free.
    """

    def __init__(self, capacity: int) -> None:
        self.inside = 0
        self.queue: deque[Slot] = deque()  # return when a place is free
        self.resize(capacity)

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
        if capacity < 1:
            raise ValueError(f"in_flight must be at least 1, got {capacity}")
        self.capacity = capacity
        self._let_in()

    def _let_in(self) -> None:
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

    def __init__(self, *gates: Gate, when_left: Callable[[], None] | None = None) -> None:
        """Enter gates with free places; ``when_left`` is called when these may be free again."""
        self.inside = True
        self._gates = gates
        self._when_left = when_left
        self._returned: asyncio.Future[None] | None = None
        for gate in gates:
            gate.enter()

    @classmethod
    def outside(cls, *gates: Gate) -> Slot:
        """Return a slot that has not entered yet, for calls whose places were not checked."""
        slot = cls()
        slot._gates, slot.inside = gates, not gates
        return slot

    def keep_last(self) -> None:
        """Leave every gate but the last: the call is over, and its judging goes on."""
        if self.inside:
            left, self._gates = self._gates[:-1], self._gates[-1:]
            self._leave(left)

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
        full = next((gate for gate in self._gates if not gate.free), None)
        if full is not None:
            full.queue.append(self)
            return
        for gate in self._gates:
            gate.enter()
        self.inside = True
        self._returned.set_result(None)


_START = 20
_CUT = 0.9
_STEP = 0.05
_SATURATED = 0.8
_RESTART = 8  # an eighth: three doublings
_COOL_DOWN = 15.0  # seconds


class AdaptiveConcurrency:
    """Moves the capacity of a gate, at most ``most``, towards what the provider accepts.

    Slow start doubles the capacity with every round of answered calls until the first refusal;
    after that a round adds 5 %. A round is as many calls as the capacity, and counts only if at
    least 80 % of the capacity was in flight at some time in it.

    A refusal (429) cuts to 90 % of the accepted calls in flight, at most once in a cool-down of
    15 s, or of the pause that the provider asked for if that is longer; within it, to the accepted
    calls. After slow start it cuts nothing unless 80 % were in flight: then the rate was too high
    and not the number (``SearchedRate``). After the pause an eighth may be in flight, and every
    answer adds one until the number is reached again.

    Calls answered within a cool-down, or after a retry, count for no round; another failure (5xx,
    time-out) begins a new round. Cached replies do not count.
    """

    def __init__(self, most: int, clock: Clock) -> None:
        self.gate = Gate(min(_START, most))
        self._most = most
        self._clock = clock
        self._in_flight = 0
        self._peak = 0  # in this round
        self._answered = 0  # in this round
        self._accepted = 0  # in flight at the latest refusal, less those refused since
        self._kept = _CUT
        self._is_at_fault = False  # the number, for the latest refusal
        self.target = self.capacity  # to return to after a pause; else the capacity
        self._paused_until = -math.inf
        self._calm_until = -math.inf  # no growth before, and no further cut
        self._slow_start = True

    @property
    def capacity(self) -> int:
        """The number of calls that may be in flight now."""
        return self.gate.capacity

    def aim(self, capacity: int) -> None:
        """Set the capacity and the target, >= 1."""
        self.target = capacity
        self.gate.resize(capacity)

    def sent(self) -> None:
        """Record that an attempt is sent."""
        self._in_flight += 1
        self._peak = max(self._peak, self._in_flight)

    def answered(self, *, first: bool) -> None:
        """Record an answer; ``first`` if no attempt at the same call failed before."""
        self._in_flight -= 1
        now = self._clock.now()
        if self.capacity < self.target:
            if now >= self._paused_until:
                self.gate.resize(self.capacity + 1)
        elif first and now >= self._calm_until:
            self._answered += 1
            if self._answered >= self.capacity:
                if self._peak >= _SATURATED * self.capacity:
                    growth = 1.0 if self._slow_start else _STEP
                    self.aim(min(self._most, self.target + max(1, round(growth * self.target))))
                self._new_round()

    def refused(self, pause: float, *, news: bool = True, probe: bool = False) -> None:
        """Record a refusal (429), after which all calls pause; see ``SearchedRate.refused``.

        A refused probe says nothing about the number in flight.
        """
        now = self._clock.now()
        if news:
            is_full = self._in_flight >= _SATURATED * self.target
            self._is_at_fault = not probe and (self._slow_start or is_full)
            self._accepted = self._in_flight
            self._kept = 1.0 if now < self._calm_until else _CUT
        self._in_flight -= 1
        self._accepted -= 1
        if self._is_at_fault:
            self._slow_start = False
            self.target = max(1, min(self.target, int(self._kept * self._accepted)))
            if self._kept < 1.0:
                self._calm_until = max(self._calm_until, now + max(_COOL_DOWN, pause))
        lowest = self.target if pause <= 0 else max(1, self.target // _RESTART)
        self.gate.resize(min(self.capacity, lowest))
        self._paused_until = max(self._paused_until, now + pause)
        self._new_round()

    def failed(self) -> None:
        """Record a failure other than a refusal."""
        self._in_flight -= 1
        self._new_round()

    def gave_up(self) -> None:
        """Record an attempt that says nothing about the provider: cancelled, or a bad request."""
        self._in_flight -= 1

    def _new_round(self) -> None:
        self._answered = 0
        self._peak = self._in_flight
