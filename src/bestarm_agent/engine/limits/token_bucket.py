"""One resource of a rate limit: the allowance of a minute, spread evenly over it.

Providers count in different ways: a bucket that refills continuously, a sliding minute, a minute
by the provider's clock. Two rules together satisfy all three:

1. In any 60 s plus ``SLACK`` at most the minute's allowance is used: a window that slides.
2. Use is even: a bucket that holds ``BURST`` of the allowance and refills continuously.

Rule 1 alone satisfies the other two: a fixed minute is one of the sliding ones, and a refilling
bucket of the same size accepts everything that rule 1 does. A server that also enforces the
allowance by the second sees at most the burst too much, after a lull.
"""

from __future__ import annotations

import math
from collections import deque

MINUTE = 60.0
# A call is counted when it arrives, not when it is sent; arrivals of one minute may have been sent
# within this much more than a minute.
SLACK = 0.6
BURST = 0.01
_TINY = 1e-6


class Hold:
    """An amount reserved in one bucket for one call."""

    __slots__ = ("_bucket", "_since", "amount", "at", "in_window", "sent")

    def __init__(self, bucket: TokenBucket, amount: float, since: float) -> None:
        self._bucket = bucket
        self._since = since
        self.amount = amount  # reserved; later the amount used
        self.at = 0.0  # time of sending
        self.sent = False
        self.in_window = False  # sent within the last minute

    def send(self, now: float) -> None:
        """Record that the call is sent: from now on its amount counts in the window."""
        self.sent = self.in_window = True
        self.at = now
        self._bucket.enter_window(self)

    def settle(self, used: float, now: float) -> None:
        """Replace the reserved amount by the used one; the difference is returned, or owed."""
        difference = used - self.amount
        self._bucket.correct(self, difference, now)
        self._since += difference
        self.amount = used

    def refund(self, now: float) -> None:
        """Return everything: the call was not sent."""
        self._bucket.release(self, now)
        self.amount = 0.0

    @property
    def reserved_since(self) -> float:
        """The amount reserved for later calls, net of what was returned."""
        return self._bucket.reserved - self._since


class TokenBucket:
    """The allowance of one resource in a minute.

    Example:
        >>> bucket = TokenBucket(per_minute=6060, now=0.0)
        >>> hold = bucket.reserve(60.0)       # the burst of 1 % and a little
        >>> bucket.wait(10.0, now=0.0)        # 60.6 - 60 are left, 100 come in a second
        0.094
    """

    def __init__(self, per_minute: float, now: float) -> None:
        self.reserved = 0.0
        self._unsent = 0.0
        self._window: deque[Hold] = deque()
        self._used = 0.0
        self._at = now
        self._level = math.inf
        self.resize(per_minute)

    def resize(self, per_minute: float) -> None:
        """Change the allowance."""
        self.per_minute = per_minute
        self._rate = per_minute / (MINUTE + SLACK)
        self._burst = max(1.0, BURST * per_minute)
        self._level = min(self._level, self._burst)

    def level(self, now: float) -> float:
        """Return the level; below 0 after a call that needed more than the bucket holds."""
        self._refill(now)
        return self._level

    def used(self, now: float) -> float:
        """Return the known use in the last minute."""
        self._slide(now)
        return self._used

    def wait(self, need: float, now: float) -> float:
        """Return the seconds until ``need`` may be reserved, >= 0; infinite if unknown.

        A need above the bucket's size waits for a full bucket, one above the allowance for an empty
        window; no need is too large to be sent at all.
        """
        self._refill(now)
        self._slide(now)
        missing = min(need, self._burst) - self._level
        for_bucket = missing / self._rate if missing > _TINY else 0.0
        return round(max(for_bucket, self._wait_for_window(need, now)), 6)

    def room(self, need: float, now: float) -> float:
        """Return how many times ``need`` > 0 can be reserved now, >= 0."""
        if self.wait(need, now) > 0:
            return 0
        by_bucket = (self._level - min(need, self._burst) + _TINY) // need
        by_window = (self.per_minute - self._used - self._unsent - need + _TINY) // need
        return 1 + max(0.0, min(by_bucket, by_window))

    def reserve(self, need: float) -> Hold:
        """Reserve ``need``; the caller has checked ``wait``."""
        need = min(need, self.per_minute)
        hold = Hold(self, need, self.reserved + need)
        self._level -= need
        self._unsent += need
        self.reserved += need
        return hold

    def lower(self, remaining: float, since: Hold, now: float) -> None:
        """Lower the level to what a server says is left, if that is less.

        The answer may be as old as its call, so the amount reserved for later calls is subtracted,
        less what has been refilled since.
        """
        uncounted = since.reserved_since - self._rate * (now - since.at)
        self._refill(now)
        self._level = min(self._level, remaining - max(0.0, uncounted))

    def enter_window(self, hold: Hold) -> None:
        """Count a call that is sent now."""
        self._unsent -= hold.amount
        self._used += hold.amount
        self._window.append(hold)

    def correct(self, hold: Hold, difference: float, now: float) -> None:
        """Charge how much more a call used than was reserved for it."""
        self._refill(now)
        self._slide(now)
        self._level = min(self._burst, self._level - difference)
        self.reserved += difference
        if hold.in_window:
            self._used += difference

    def release(self, hold: Hold, now: float) -> None:
        """Return the amount reserved for a call that was not sent."""
        self._refill(now)
        self._unsent -= hold.amount
        self._level = min(self._burst, self._level + hold.amount)
        self.reserved -= hold.amount

    def _refill(self, now: float) -> None:
        gained = self._rate * (now - self._at)
        self._level = min(self._burst, self._level + gained)
        self._at = now

    def _slide(self, now: float) -> None:
        while self._window and self._window[0].at <= now - MINUTE - SLACK:
            oldest = self._window.popleft()
            oldest.in_window = False
            self._used -= oldest.amount
        if not self._window:
            self._used = 0.0  # drop rounding errors

    def _wait_for_window(self, need: float, now: float) -> float:
        over = self._used + self._unsent + min(need, self.per_minute) - self.per_minute
        if over <= _TINY:
            return 0.0
        for hold in self._window:
            over -= hold.amount
            if over <= _TINY:
                return hold.at + MINUTE + SLACK - now
        return math.inf  # what is reserved must be sent or returned first
