"""Rates of calls: a limit that is known, and the search for one that nobody states.

A bucket keeps a limit that is known. Providers count in different ways: a bucket that refills
continuously, a sliding minute, a minute by the provider's clock. Two rules together satisfy all:

1. In any 60 s plus ``SLACK`` at most the minute's allowance is used: a window that slides.
2. Use is even: a bucket that holds ``BURST`` of the allowance and refills continuously.

Rule 1 alone satisfies the other two: a fixed minute is one of the sliding ones, and a refilling
bucket of the same size accepts everything that rule 1 does. A server that also enforces the
allowance by the second sees at most the burst too much, after a lull.

A search for one that nobody states: the controller is CUBIC (Ha, Rhee and Xu 2008; RFC 9438), with
calls per second in place of a window of packets, as in the adaptive retry mode of AWS's SDKs.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

MINUTE = 60.0
# A call is counted when it arrives, not when it is sent; arrivals of one minute may have been sent
# within this much more than a minute.
SLACK = 0.6
BURST = 0.01
_TINY = 1e-6


@dataclass(slots=True, eq=False)
class Hold:
    """An amount reserved in one bucket for one call."""

    amount: float  # reserved; later the amount used
    reserved: float  # in the bucket once this was, so what exceeds it is later calls'
    sent_at: float = math.inf  # seconds; infinite before it is sent
    in_window: bool = False  # sent within the last minute


class TokenBucket:
    """The allowance of one resource in a minute.

    Example:
        >>> bucket = TokenBucket(per_minute=6060, now=0.0)
        >>> hold = bucket.reserve(60.0)       # the burst of 1 % and a little
        >>> bucket.wait(10.0, now=0.0)        # 60.6 - 60 are left, 100 come in a second
        0.094
    """

    def __init__(self, per_minute: float, now: float) -> None:
        self.reserved = 0.0  # since the beginning, net of what was returned
        self._unsent = 0.0
        self._window: deque[Hold] = deque()
        self._used = 0.0  # in the window
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
        self._level = min(self._burst, self._level + self._rate * (now - self._at))
        self._at = now
        return self._level

    def used(self, now: float) -> float:
        """Return the known use in the last minute."""
        while self._window and self._window[0].sent_at <= now - MINUTE - SLACK:
            oldest = self._window.popleft()
            oldest.in_window = False
            self._used -= oldest.amount
        if not self._window:
            self._used = 0.0  # drop rounding errors
        return self._used

    def wait(self, need: float, now: float) -> float:
        """Return the seconds until ``need`` may be reserved, >= 0; infinite if unknown.

        A need above the bucket's size waits for a full bucket, one above the allowance for an empty
        window; no need is too large to be sent at all.
        """
        missing = min(need, self._burst) - self.level(now)
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
        self._level -= need
        self._unsent += need
        self.reserved += need
        return Hold(need, self.reserved)

    def send(self, hold: Hold, now: float) -> None:
        """Count a call in the window: it is sent now."""
        hold.sent_at, hold.in_window = now, True
        self._unsent -= hold.amount
        self._used += hold.amount
        self._window.append(hold)

    def settle(self, hold: Hold, used: float, now: float) -> None:
        """Replace the amount of a call that was sent; the difference is returned, or owed."""
        difference = used - hold.amount
        self._level = min(self._burst, self.level(now) - difference)
        self.used(now)
        if hold.in_window:
            self._used += difference
        self.reserved += difference
        hold.reserved += difference
        hold.amount = used

    def refund(self, hold: Hold, now: float) -> None:
        """Return the amount of a call that was not sent."""
        self._level = min(self._burst, self.level(now) + hold.amount)
        self._unsent -= hold.amount
        self.reserved -= hold.amount
        hold.amount = 0.0

    def lower(self, remaining: float, hold: Hold, now: float) -> None:
        """Lower the level to what a server says is left, if that is less.

        The answer may be as old as its call, whose ``hold`` it is, so what was reserved for later
        calls is subtracted, less what has been refilled since.
        """
        refilled = self._rate * (now - hold.sent_at)
        uncounted = max(0.0, self.reserved - hold.reserved - refilled)
        self._level = min(self.level(now), remaining - uncounted)

    def _wait_for_window(self, need: float, now: float) -> float:
        allowed = self.per_minute - min(need, self.per_minute)
        over = self.used(now) + self._unsent - allowed
        if over <= _TINY:
            return 0.0
        for hold in self._window:
            over -= hold.amount
            if over <= _TINY:
                return hold.sent_at + MINUTE + SLACK - now
        return math.inf  # what is reserved must be sent or returned first


_FIRST = 50.0  # calls per second
_GAIN = 2.0
_TALLY_SECONDS = 1.0
_CUT = 0.1
_RETURN_SECONDS, _RETURN_CALLS = 20.0, 100.0
_EXIT_SECONDS = 0.5  # slow start at most doubles in a second: the rate it ends with is its newest
_BUNCH_SECONDS = 0.1  # a call that leaves late by up to this much does not delay the next
_REMEMBERED = 60_000  # departures; at 1,000 calls a second a minute of them
_NEARLY = 0.95
_CUTS_TO_FIND = 4  # refusals; more of them find small rates better, and mistake chance for one
_SLOWEST = 1.0  # calls per second: below it, the pauses after refusals do the work
_CLOSE = 1e-3


@dataclass(slots=True, eq=False)
class Departure:
    """One call that left."""

    at: float  # time on the clock, in seconds
    refused: bool = False  # true once it is known to be refused


@dataclass(frozen=True, slots=True)
class _Burst:
    """The first refusal after those known before, and what held when it came.

    Later refusals of calls that had left by then belong to the same burst: each shows that one call
    fewer was accepted, so what the burst says of the rate is worked out anew with each.
    """

    at: float  # when the refused call left
    since: float  # begin of the time before it in which the accepted rate is measured
    rate: float  # that calls left at
    plateau: float  # before the burst; infinite in slow start
    is_returning: bool  # the rate was on its way back to the plateau


class RateSearch:
    """The rate at which calls may leave; without ``searching`` it is unlimited until a refusal.

    Slow start begins with 50 calls a second, then allows twice the highest rate of answers so far.

    A refusal cuts the rate to 90 % of what was accepted. From there it follows RFC 9438, equation
    (1),

        W(t) = C (t - K)^3 + W_max,

    back to the accepted rate W_max in K seconds, stays about there, and then probes upwards, faster
    and faster. K is 20 s or 100 calls, whichever is longer, so that a probe costs less than 1 % of
    the calls.

    The accepted rate is the larger of two averages: since the previous cut (how fast a server's
    bucket refills; over the last K seconds once the rate has left the plateau), and over the last
    minute (what a server that counts minutes accepts again).

    Where the first average is 95 % of the rate or more, the rate itself counts as accepted, and on
    the way back to the plateau such a refusal cuts nothing. After the first four new refusals, no
    refusal on the way back cuts, and the plateau falls by 10 % at most: otherwise a server that
    refuses calls at random, whatever the rate, would soon stop them.

    Example:
        >>> search = RateSearch(0.0, searching=True)
        >>> search.room(0.0)                    # 50 a second; 0.1 s of them may leave at once
        6
        >>> for _ in range(6):
        ...     search.take(0.0)
        >>> round(search.wait(0.0), 3)
        0.02
    """

    def __init__(self, now: float, *, searching: bool) -> None:
        self._ceiling = _FIRST if searching else math.inf
        self._tally, self._tally_since = 0, now
        self._due = now  # when the next call leaves, if calls are evenly spaced
        self._departures: deque[Departure] = deque(maxlen=_REMEMBERED)  # of the last minute
        self._plateau = math.inf  # W_max
        self._rising_since = now  # where t = 0
        self._cut_at = now  # when the call left whose refusal cut the rate last
        self._burst: _Burst | None = None  # the latest
        self._n_bursts = 0

    @property
    def unlimited(self) -> bool:
        """True if no limit is in force."""
        return self._ceiling == self._plateau == math.inf

    def rate(self, now: float) -> float:
        """Return the calls per second, > 0; may be infinite."""
        if self._plateau == math.inf:
            return self._ceiling
        k = self._seconds_to_return()
        t = max(0.0, now - self._rising_since)
        return min(self._ceiling, self._plateau * (1 + _CUT * (t / k - 1) ** 3))  # eq. (1)

    def wait(self, now: float) -> float:
        """Return the seconds until the next call may leave, >= 0."""
        return max(0.0, self._due - _BUNCH_SECONDS - now)

    def room(self, now: float) -> float:
        """Return the number of calls that may leave at once now, >= 0; may be infinite."""
        early = now + _BUNCH_SECONDS - max(self._due, now)
        if early < 0:
            return 0
        return math.inf if self.unlimited else 1 + math.floor(early * self.rate(now) + _CLOSE)

    def take(self, now: float) -> None:
        """Reserve a departure for one call."""
        self._due = max(self._due, now) + 1 / self.rate(now)

    def give_back(self, now: float) -> None:
        """Return the reservation of a call that does not leave."""
        self._due -= 1 / self.rate(now)

    def sent(self, now: float) -> Departure:
        """Record that a call leaves."""
        while self._departures and self._departures[0].at < now - MINUTE:
            self._departures.popleft()
        departure = Departure(now)
        self._departures.append(departure)
        return departure

    def accepted(self, now: float) -> None:
        """Record that a call ended without a refusal."""
        self._tally += 1
        seconds = now - self._tally_since
        if seconds >= _TALLY_SECONDS:
            self._ceiling = max(self._ceiling, _GAIN * self._tally / seconds)
            self._tally, self._tally_since = 0, now

    def refused(
        self, departure: Departure, now: float, pause: float, *, news: bool, probe: bool
    ) -> None:
        """Record a refusal; no call leaves for ``pause`` seconds, and the curve begins after it.

        ``news`` says that the call was sent after the known refusals; otherwise it belongs to the
        same burst, and shows that one call fewer of it was accepted. A ``probe`` was sent alone to
        test for the end of a pause; that says nothing about the rate.
        """
        departure.refused = True
        if not probe:
            if news or self._burst is None:
                self._burst = self._begin_burst(departure.at, now)
            plateau = self._plateau_after(self._burst)
            if plateau is None:
                return
            self._plateau, self._cut_at = plateau, self._burst.at
        self._rising_since = now + pause

    def _begin_burst(self, at: float, now: float) -> _Burst:
        self._n_bursts += 1
        rate, risen = self.rate(now), now - self._rising_since
        if self._plateau == math.inf:  # slow start: its newest rate
            return _Burst(at, max(self._cut_at, at - _EXIT_SECONDS), rate, self._plateau, False)
        k = self._seconds_to_return()
        if risen > k:
            return _Burst(at, at - k, rate, self._plateau, False)
        return _Burst(at, self._cut_at, rate, self._plateau, True)

    def _plateau_after(self, burst: _Burst) -> float | None:
        """Return the plateau that a burst leaves; None if it cuts nothing."""
        accepted, in_minute = self._accepted_rates(burst)
        is_all = accepted >= _NEARLY * burst.rate
        is_found = self._n_bursts > _CUTS_TO_FIND
        if burst.is_returning and (is_all or is_found):
            return None
        estimate = burst.rate if is_all else max(accepted, in_minute)
        lowest = (1 - _CUT) * burst.plateau if is_found else _SLOWEST
        return max(_SLOWEST, lowest, min(burst.rate, estimate))

    def _accepted_rates(self, burst: _Burst) -> tuple[float, float]:
        """Return the calls per second before a burst: since its begin, and in the last minute.

        Counts one more than is known to be accepted, since one more was tried.
        """
        times = [d.at for d in self._departures if d.at <= burst.at and not d.refused]
        n_since = 1 + sum(at >= burst.since for at in times)
        seconds = max(burst.at - burst.since, _CLOSE)
        return n_since / seconds, len(times) / MINUTE

    def _seconds_to_return(self) -> float:
        """Return K of equation (1)."""
        return max(_RETURN_SECONDS, _RETURN_CALLS / self._plateau)
