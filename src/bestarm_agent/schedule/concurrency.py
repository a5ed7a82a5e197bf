"""How many calls a provider takes at once, found out while calling it.

The rules are those of inspect_ai's adaptive concurrency, with one change: a refusal cuts from what
was in flight when it came, where that is less than the limit, so that an overshoot is undone at
once instead of over several cool-downs.
"""

from __future__ import annotations

import math

from bestarm_agent.schedule.clock import Clock
from bestarm_agent.schedule.gate import Gate

_START = 20
_CUT = 0.8
_STEP = 0.05
_SATURATED = 0.8
_COOL_DOWN = 15.0  # seconds


class Concurrency:
    """Moves the capacity of a gate to what the provider behind it takes.

    Slow start: the capacity doubles with every round of answered calls, until the first refusal;
    from there a round adds 5 %. A round is as many calls as the capacity. It counts only if the
    gate was used: if at least 80 % of the capacity was in flight at some time in it. A refusal
    (429) cuts to 80 %, at most once in a cool-down of 15 s, or of the pause that the provider asked
    for if that is longer. Calls answered within a cool-down, or after a retry, count for nothing;
    other failures (5xx, time-outs) begin a cool-down and cut nothing. Replies from a cache never
    get here.

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
        self._cool_until = -math.inf
        self._slow_start = True

    @property
    def capacity(self) -> int:
        """How many calls may be in flight now."""
        return self.gate.capacity

    def sent(self) -> None:
        """An attempt leaves."""
        self._flying += 1
        self._peak = max(self._peak, self._flying)

    def answered(self, *, first: bool) -> None:
        """An attempt was answered; ``first`` if none at the same call failed before."""
        self._flying -= 1
        if not first or self._clock.now() < self._cool_until:
            return
        self._answered += 1
        if self._answered >= self.capacity:
            if self._peak >= _SATURATED * self.capacity:
                self._grow()
            self._new_round()

    def refused(self, pause: float, *, probe: bool = False) -> None:
        """An attempt was refused (429), and everybody pauses for ``pause`` seconds.

        A ``probe``, sent alone to see whether the door is open again, says nothing about how many
        may be in flight: it cuts nothing.
        """
        in_flight = self._flying
        self._flying -= 1
        now = self._clock.now()
        if now >= self._cool_until and not probe:
            kept = int(_CUT * min(self.capacity, in_flight))
            self.gate.resize(max(1, kept))
            self._slow_start = False
        self._cool_until = max(self._cool_until, now + max(_COOL_DOWN, pause))
        self._new_round()

    def failed(self) -> None:
        """An attempt failed for another reason than a refusal."""
        self._flying -= 1
        self._cool_until = max(self._cool_until, self._clock.now() + _COOL_DOWN)
        self._new_round()

    def gave_up(self) -> None:
        """An attempt was cancelled, or failed by the candidate's or the caller's own doing."""
        self._flying -= 1

    def _grow(self) -> None:
        step = self.capacity if self._slow_start else max(1, round(_STEP * self.capacity))
        self.gate.resize(min(self._most, self.capacity + step))

    def _new_round(self) -> None:
        self._answered = 0
        self._peak = self._flying
