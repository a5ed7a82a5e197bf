"""How many calls a provider takes at once, found out while calling it.

The rules are those of inspect_ai's adaptive concurrency, with two changes. A cut starts from the
calls that were let in, which a burst of refusals tells: an overshoot is undone at once instead of
over several cool-downs, and so the cut need not be as deep. And after a pause the calls come back
by and by instead of all at once, since a provider that counts calls in time would turn most of such
a herd away.
"""

from __future__ import annotations

import math

from bestarm_agent.schedule.clock import Clock
from bestarm_agent.schedule.gate import Gate

_START = 20
_CUT = 0.9
_STEP = 0.05
_SATURATED = 0.8
_RESTART = 8  # an eighth: three doublings
_COOL_DOWN = 15.0  # seconds


class Concurrency:
    """Moves the capacity of a gate to what the provider behind it takes.

    Slow start: the capacity doubles with every round of answered calls, until the first refusal;
    from there a round adds 5 %. A round is as many calls as the capacity. It counts only if the
    gate was used: if at least 80 % of the capacity was in flight at some time in it.

    A refusal (429) cuts to 90 % of the calls in flight that were let in, at most once in a
    cool-down of 15 s, or of the pause that the provider asked for if that is longer; within it,
    to those let in. After slow start it cuts nothing unless 80 % were in flight: what is too high
    is then not their number but their rate (``Pace``). Who leaves during the pause is not replaced,
    down to an eighth of that; after it every answer adds one until the number is reached again.

    Calls answered within a cool-down, or after a retry, count for no round; other failures (5xx,
    time-outs) begin a cool-down and cut nothing. Replies from a cache never get here.

    Args:
        most: the capacity never passes this, >= 1.
        clock: tells the time.
    """

    def __init__(self, most: int, clock: Clock) -> None:
        self.gate = Gate(min(_START, most))
        self._most = most
        self._clock = clock
        self._flying = 0
        self._peak = 0
        self._answered = 0
        self._target = self.gate.capacity
        self._let_in = 0
        self._kept = _CUT
        self._paused_until = -math.inf
        self._cut_until = -math.inf  # no further cut before
        self._cool_until = -math.inf  # no growth before
        self._slow_start = True
        self._is_at_fault = False

    @property
    def target(self) -> int:
        """The capacity that it goes back to after a refusal; else the capacity."""
        return self._target

    @property
    def capacity(self) -> int:
        """How many calls may be in flight now."""
        return self.gate.capacity

    def aim(self, capacity: int) -> None:
        """Let ``capacity`` >= 1 calls in at once."""
        self._target = capacity
        self.gate.resize(capacity)

    def sent(self) -> None:
        """An attempt leaves."""
        self._flying += 1
        self._peak = max(self._peak, self._flying)

    def answered(self, *, first: bool) -> None:
        """An attempt was answered; ``first`` if none at the same call failed before."""
        self._flying -= 1
        now = self._clock.now()
        if now < self._paused_until:
            self._drain()
        elif self.capacity < self._target:
            self.gate.resize(self.capacity + 1)  # doubles in a round
        elif first and now >= self._cool_until:
            self._answered += 1
            if self._answered >= self.capacity:
                if self._peak >= _SATURATED * self.capacity:
                    self._grow()
                self._new_round()

    def refused(self, pause: float, *, news: bool = True, probe: bool = False) -> None:
        """An attempt was refused (429), and everybody pauses for ``pause`` seconds.

        Args:
            pause: seconds, >= 0.
            news: whether it was sent after the refusals that are known; else it belongs to the
                same burst as those, and shows that one fewer of it was let in.
            probe: whether it was sent alone to see whether the door is open again; that says
                nothing about how many may be in flight.
        """
        now = self._clock.now()
        if news:
            self._let_in = self._flying
            self._is_at_fault = self._slow_start or self._flying >= _SATURATED * self._target
            self._kept = 1.0 if now < self._cut_until else _CUT
        self._flying -= 1
        self._let_in -= 1
        self._paused_until = max(self._paused_until, now + pause)
        cool = now + max(_COOL_DOWN, pause) if self._kept < 1.0 else now
        if not probe and self._is_at_fault:
            self._target = max(1, min(self._target, int(self._kept * self._let_in)))
            self._slow_start = False
            self._cut_until = max(self._cut_until, cool)
        self._drain()
        self._cool_until = max(self._cool_until, cool)
        self._new_round()

    def failed(self) -> None:
        """An attempt failed for another reason than a refusal."""
        self._flying -= 1
        self._cool_until = max(self._cool_until, self._clock.now() + _COOL_DOWN)
        self._new_round()

    def gave_up(self) -> None:
        """An attempt was cancelled, or failed by the candidate's or the caller's own doing."""
        self._flying -= 1

    def _drain(self) -> None:
        """Let nobody in for those who leave in a pause, down to a restart from the bottom."""
        lowest = max(1, self._target // _RESTART)
        self.gate.resize(min(self.capacity, self._target, max(lowest, self._flying)))

    def _grow(self) -> None:
        step = self.capacity if self._slow_start else max(1, round(_STEP * self.capacity))
        self.aim(min(self._most, self._target + step))

    def _new_round(self) -> None:
        self._answered = 0
        self._peak = self._flying
