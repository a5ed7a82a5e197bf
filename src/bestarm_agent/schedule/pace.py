"""How fast calls leave where nobody says how fast they may: found out from refusals.

The control is CUBIC (Ha, Rhee and Xu 2008; RFC 9438), with calls per second in place of a window of
packets, as in the adaptive retry mode of AWS's SDKs.
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
_BUNCH_SECONDS = 0.1  # who leaves late by up to this much does not hold up those behind
_REMEMBERED = 60_000  # departures; at 1,000 calls a second a minute of them
_NEARLY = 0.95
_CUTS_TO_FIND = 4  # refusals; more of them find small rates better, and mistake chance for one
_SLOWEST = 1.0  # calls per second: who allows less is left to the pauses
_TINY = 1e-3


@dataclass(slots=True, eq=False)
class Departure:
    """One call that left.

    Attributes:
        at: when, in the clock's seconds.
        refused: whether it was turned away, as far as is known.
    """

    at: float
    refused: bool = False


class Pace:
    """The rate at which calls may leave.

    Slow start: 50 calls a second, then twice the highest rate of answers so far. That much is never
    passed; it also spreads out what a round of equally fast answers would send in one herd.

    A refusal cuts the rate to 90 % of what was let in. From there it follows RFC 9438, equation
    (1),

        W(t) = C (t - K)^3 + W_max,

    back to the rate that was let in, W_max, in K seconds, hardly moves about there, and then probes
    upwards, faster and faster. K is 20 s or 100 calls, whichever is longer: where one call is
    refused before the others are held back, that is less than 1 % of them.

    What was let in is the larger of two averages. One goes back to the cut before, which tells how
    fast a server's bucket refills; where the rate has left its plateau, it goes back K seconds
    only. The other is that of the last minute, which a server that counts minutes lets in again.

    Where the first average is 95 % of the rate or more, it is no better than the rate itself, which
    then counts as let in; and on the way back to the plateau such a refusal cuts nothing. After the
    first four refusals that were news no refusal on that way does, and the plateau falls by 10 %
    at most. A server that refuses calls by chance, whatever the rate, would else soon stop them.

    Args:
        now: the clock's seconds.
        searching: whether to begin with a slow start; else the rate is unlimited until a refusal.

    Example:
        >>> pace = Pace(0.0, searching=True)
        >>> pace.room(0.0)                      # 50 a second; 0.1 s of them may leave at once
        6
        >>> for _ in range(6):
        ...     pace.take(0.0)
        >>> round(pace.wait(0.0), 3)
        0.02
    """

    def __init__(self, now: float, *, searching: bool) -> None:
        self._ceiling = _FIRST if searching else math.inf
        self._tally, self._tally_since = 0, now
        self._due = now  # when the next call leaves, if nobody bunches
        self._departures: deque[Departure] = deque(maxlen=_REMEMBERED)  # of the last minute
        self._plateau = math.inf  # W_max
        self._rising_since = now  # where t = 0
        self._cut_at = now
        self._since = self._until = now  # what was let in is measured in between
        self._rate_then = math.inf
        self._is_returning = False  # to the plateau
        self._plateau_then = math.inf
        self._cuts = 0

    @property
    def unlimited(self) -> bool:
        """Whether calls may leave as fast as they like."""
        return self._ceiling == self._plateau == math.inf

    def rate(self, now: float) -> float:
        """Calls per second, > 0; may be infinite."""
        if self._plateau == math.inf:
            return self._ceiling
        k = self._seconds_to_return()
        t = max(0.0, now - self._rising_since)
        return min(self._ceiling, self._plateau * (1 + _CUT * (t / k - 1) ** 3))  # eq. (1)

    def wait(self, now: float) -> float:
        """Seconds until the next call may leave, >= 0."""
        return max(0.0, self._due - _BUNCH_SECONDS - now)

    def room(self, now: float) -> float:
        """How many calls may leave at once now, >= 0; may be infinite."""
        early = now + _BUNCH_SECONDS - max(self._due, now)
        if early < 0:
            return 0
        return math.inf if self.unlimited else 1 + math.floor(early * self.rate(now) + _TINY)

    def take(self, now: float) -> None:
        """Set a place aside for one call."""
        self._due = max(self._due, now) + 1 / self.rate(now)

    def give_back(self, now: float) -> None:
        """A call that had a place does not leave."""
        self._due -= 1 / self.rate(now)

    def sent(self, now: float) -> Departure:
        """A call leaves."""
        while self._departures and self._departures[0].at < now - _MINUTE:
            self._departures.popleft()
        departure = Departure(now)
        self._departures.append(departure)
        return departure

    def let_in(self, now: float) -> None:
        """A call ended that was not refused."""
        self._tally += 1
        seconds = now - self._tally_since
        if seconds >= _TALLY_SECONDS:
            self._ceiling = max(self._ceiling, _GAIN * self._tally / seconds)
            self._tally, self._tally_since = 0, now

    def refused(
        self, departure: Departure, now: float, pause: float, *, news: bool, probe: bool
    ) -> None:
        """A call was turned away.

        Args:
            departure: of the call.
            now: the clock's seconds.
            pause: seconds that nobody leaves for, >= 0; the curve begins after it.
            news: whether it was sent after the refusals that are known; else it belongs to the
                same burst, and shows that one fewer of it was let in.
            probe: whether it was sent alone to see whether the door is open again; that says
                nothing about the rate.
        """
        departure.refused = True
        if not probe:
            if news:
                self._measure(departure.at, now)
            let_in, in_minute = self._was_let_in()
            is_all = let_in >= _NEARLY * self._rate_then
            is_found = self._cuts > _CUTS_TO_FIND
            if self._is_returning and (is_all or is_found):
                return
            estimate = self._rate_then if is_all else max(let_in, in_minute)
            lowest = (1 - _CUT) * self._plateau_then if is_found else _SLOWEST
            self._plateau = max(_SLOWEST, lowest, min(self._rate_then, estimate))
            self._cut_at = self._until
        self._rising_since = now + pause

    def _measure(self, until: float, now: float) -> None:
        """Look at what was let in up to the call that was refused."""
        self._cuts += 1
        self._rate_then, self._plateau_then, self._until = self.rate(now), self._plateau, until
        self._is_returning = False
        if self._plateau == math.inf:
            self._since = max(self._cut_at, until - _EXIT_SECONDS)
        elif now - self._rising_since > self._seconds_to_return():
            self._since = until - self._seconds_to_return()
        else:
            self._since, self._is_returning = self._cut_at, True

    def _was_let_in(self) -> tuple[float, float]:
        """Calls per second before the refusal: since the cut before, and in the last minute.

        One more than is known, since one more was tried.
        """
        times = [d.at for d in self._departures if d.at <= self._until and not d.refused]
        n_since = 1 + sum(at >= self._since for at in times)
        seconds = max(self._until - self._since, _TINY)
        return n_since / seconds, len(times) / _MINUTE

    def _seconds_to_return(self) -> float:
        """K of equation (1)."""
        return max(_RETURN_SECONDS, _RETURN_CALLS / self._plateau)
