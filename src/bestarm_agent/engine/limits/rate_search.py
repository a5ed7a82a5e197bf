"""Find a rate limit that no one states, from refusals.

The controller is CUBIC (Ha, Rhee and Xu 2008; RFC 9438), with calls per second in place of a window
of packets, as in the adaptive retry mode of AWS's SDKs.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

_MINUTE = 60.0
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
_TINY = 1e-3


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
        return math.inf if self.unlimited else 1 + math.floor(early * self.rate(now) + _TINY)

    def take(self, now: float) -> None:
        """Reserve a departure for one call."""
        self._due = max(self._due, now) + 1 / self.rate(now)

    def give_back(self, now: float) -> None:
        """Return the reservation of a call that does not leave."""
        self._due -= 1 / self.rate(now)

    def sent(self, now: float) -> Departure:
        """Record that a call leaves."""
        while self._departures and self._departures[0].at < now - _MINUTE:
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
        seconds = max(burst.at - burst.since, _TINY)
        return n_since / seconds, len(times) / _MINUTE

    def _seconds_to_return(self) -> float:
        """Return K of equation (1)."""
        return max(_RETURN_SECONDS, _RETURN_CALLS / self._plateau)
