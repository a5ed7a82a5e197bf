"""Pauses the calls to a model that fails again and again, and probes it with one call at a time."""

from __future__ import annotations

import asyncio
import math

from bestarm_agent.engine.clock import Clock, sleep_unless

_FAILURES_TO_OPEN = 10  # in a row
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0
_PROBES_OF_NEWCOMERS = 5  # of a model that never answered
_LONGEST_OUTAGE = 900.0
_SHORTEST_WAIT = 1e-3
_FIRST_TURN = 1.0  # seconds in which a call that never failed may become the probe


class CircuitBreaker:
    """Opens after failures in a row; then one call at a time goes, after growing pauses.

    An answer closes it. A model that never answered is given up after five failed probes, any other
    after an outage of 15 minutes.

    Some examples fail whenever they are sent, though the model answers all others. So a call that
    failed before leaves every other probe to new ones for a second, if the model ever answered, and
    its failures count only while nothing was answered since its first one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0  # in a row
        self._has_answered = False
        self._opened_at = math.inf
        self._next_probe = -math.inf
        self._n_probes = 0  # in a row
        self._probe: object | None = None
        self._sent_at = math.inf  # when the first call since an answer or a failure went
        self._answered_at = -math.inf
        self._changed = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """True while calls pause."""
        return self._opened_at < math.inf

    @property
    def room(self) -> float:
        """Number of calls that may be sent now: 0, 1 or infinite."""
        if not self.is_open:
            return math.inf
        return 0 if self.opens_in > 0 else 1

    @property
    def opens_in(self) -> float:
        """Seconds until there is room; infinite while a probe is in flight."""
        if not self.is_open:
            return 0.0
        if self._probe is not None:
            return math.inf
        return max(0.0, self._next_probe - self._clock.now())

    def wait_of(self, *, again: bool) -> float:
        """Return the seconds until a call may go that failed before (``again``), or never did."""
        is_turn_of_new = self.is_open and self._has_answered and self._n_probes % 2 == 0
        if not again or not is_turn_of_new or self._probe is not None:
            return self.opens_in
        return max(0.0, self._next_probe + _FIRST_TURN - self._clock.now())

    @property
    def silence(self) -> float:
        """Seconds that a model which never answered has left a call without an answer; else 0."""
        return 0.0 if self._has_answered else max(0.0, self._clock.now() - self._sent_at)

    @property
    def is_hopeless(self) -> bool:
        """True if the model is to be given up."""
        if not self.is_open:
            return False
        if not self._has_answered and self._n_probes >= _PROBES_OF_NEWCOMERS:
            return True
        return self._clock.now() - self._opened_at >= _LONGEST_OUTAGE

    def admit(self, call: object) -> None:
        """Record that a call may go; it is the probe if calls pause."""
        self._sent_at = min(self._sent_at, self._clock.now())
        if self.is_open:
            self._probe = call

    async def wait(self, *, again: bool) -> None:
        """Wait until a call may go, or ``wake`` is called."""
        # A shorter wait may not move a clock of floats.
        seconds = max(self.wait_of(again=again), _SHORTEST_WAIT)
        await sleep_unless(self._clock, seconds, self._changed)

    def wake(self) -> None:
        """Wake the calls that wait, so that they check again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def answered(self) -> None:
        """Record an answer: calls go on."""
        self._failures, self._has_answered = 0, True
        self._answered_at = self._clock.now()
        if self.is_open:
            self._opened_at, self._n_probes, self._probe = math.inf, 0, None
            self.wake()

    def failed(self, call: object, since: float = math.inf) -> None:
        """Record a failure that suggests the server is down; ``since`` its call's first one."""
        if since < self._answered_at:
            self.gave_up(call)
            return
        self._failures, self._sent_at = self._failures + 1, math.inf
        now = self._clock.now()
        if call is self._probe:
            self._n_probes += 1
            pause = min(_FIRST_PAUSE * 2.0**self._n_probes, _LONGEST_PAUSE)
            self._next_probe, self._probe = now + pause, None
            self.wake()
        elif not self.is_open and self._failures >= _FAILURES_TO_OPEN:
            self._opened_at, self._next_probe = now, now + _FIRST_PAUSE

    def gave_up(self, call: object) -> None:
        """Record a call that ended and says nothing about the model."""
        self._sent_at = math.inf
        if call is self._probe:
            self._probe = None
            self.wake()
