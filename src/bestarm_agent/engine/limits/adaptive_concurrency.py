"""Find the number of calls that a provider accepts at once.

The rules are those of inspect_ai's adaptive concurrency, with two changes. A cut starts from the
number of calls that were accepted, so an overshoot is undone at once and the cut can be small. And
after a pause the calls return gradually, since a provider that counts calls over time would refuse
most of a sudden burst.
"""

from __future__ import annotations

import math

from bestarm_agent.engine.clock import Clock
from bestarm_agent.engine.limits.concurrency_gates import Gate

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
    and not the number (``RateSearch``). During the pause, calls that end are not replaced, down to
    an eighth; afterwards every answer adds one until the number is reached again.

    Calls answered within a cool-down, or after a retry, count for no round; other failures (5xx,
    time-outs) begin a cool-down and cut nothing. Cached replies do not count.
    """

    def __init__(self, most: int, clock: Clock) -> None:
        self.gate = Gate(min(_START, most))
        self._most = most
        self._clock = clock
        self._in_flight = 0
        self._peak = 0
        self._answered = 0
        self.target = self.gate.capacity  # to return to after a refusal; else the capacity
        self._accepted = 0
        self._kept = _CUT
        self._paused_until = -math.inf
        self._cut_until = -math.inf  # no further cut before
        self._cool_until = -math.inf  # no growth before
        self._slow_start = True
        self._is_at_fault = False

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
        if now < self._paused_until:
            self._drain()
        elif self.capacity < self.target:
            self.gate.resize(self.capacity + 1)  # doubles in a round
        elif first and now >= self._cool_until:
            self._answered += 1
            if self._answered >= self.capacity:
                if self._peak >= _SATURATED * self.capacity:
                    self._grow()
                self._new_round()

    def refused(self, pause: float, *, news: bool = True, probe: bool = False) -> None:
        """Record a refusal (429), after which all calls pause; see ``RateSearch.refused``.

        A refused probe says nothing about the number in flight.
        """
        now = self._clock.now()
        if news:
            self._accepted = self._in_flight
            self._is_at_fault = self._slow_start or self._in_flight >= _SATURATED * self.target
            self._kept = 1.0 if now < self._cut_until else _CUT
        self._in_flight -= 1
        self._accepted -= 1
        self._paused_until = max(self._paused_until, now + pause)
        cool = now + max(_COOL_DOWN, pause) if self._kept < 1.0 else now
        if not probe and self._is_at_fault:
            self.target = max(1, min(self.target, int(self._kept * self._accepted)))
            self._slow_start = False
            self._cut_until = max(self._cut_until, cool)
        self._drain()
        self._cool_until = max(self._cool_until, cool)
        self._new_round()

    def failed(self) -> None:
        """Record a failure other than a refusal."""
        self._in_flight -= 1
        self._cool_until = max(self._cool_until, self._clock.now() + _COOL_DOWN)
        self._new_round()

    def gave_up(self) -> None:
        """Record an attempt that says nothing about the provider: cancelled, or a bad request."""
        self._in_flight -= 1

    def _drain(self) -> None:
        """Do not replace calls that end in a pause, down to the restart level."""
        lowest = max(1, self.target // _RESTART)
        self.gate.resize(min(self.capacity, self.target, max(lowest, self._in_flight)))

    def _grow(self) -> None:
        step = self.capacity if self._slow_start else max(1, round(_STEP * self.capacity))
        self.aim(min(self._most, self.target + step))

    def _new_round(self) -> None:
        self._answered = 0
        self._peak = self._in_flight
