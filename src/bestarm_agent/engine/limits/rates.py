"""Rates and numbers of calls: a limit that is known, and the search for one that nobody states.

A bucket keeps a limit that is known. Providers count in different ways: a bucket that refills
continuously, a sliding minute, a minute by the provider's clock. Two rules together satisfy all:

1. In any 60 s plus ``SLACK`` at most the minute's allowance is used: a window that slides.
2. Use is even: a bucket that holds ``BURST`` of the allowance and refills continuously.

Rule 1 alone satisfies the other two: a fixed minute is one of the sliding ones, and a refilling
bucket of the same size accepts everything that rule 1 does. A server that also enforces the
allowance by the second sees at most the burst too much, after a lull.

A search for one that nobody states: the controller is CUBIC (Ha, Rhee and Xu 2008; RFC 9438), with
calls per second in place of a window of packets, as in the adaptive retry mode of AWS's SDKs. Its
evidence is not the single refusal, as a lost packet is CUBIC's, but the share of calls that are
refused, compared at two rates (``refusals.py``).

A server without a rate may have a number of places instead (``SearchedPlaces``), and refuses a call
when all are taken, whatever the rate. A rate that suits it leaves places empty: replies differ in
length, so the number of calls under way goes up and down, and the rate must be low enough for its
peaks. Such a server is asked as fast as it answers, with so many calls under way at most.

What tells it apart from a limit on the rate: calls that leave beside fewer others than any refused
one make up nearly all, and hardly one of them is refused. A limit on the rate refuses calls
whatever is under way. In slow start that tells nothing: there the rate and the number under way
grow together, and the first refusal comes at the most of both.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from itertools import islice

from bestarm_agent.engine.limits.refusals import Hold, Meaning, Refusals

MINUTE = 60.0
# A call is counted when it arrives, not when it is sent; arrivals of one minute may have been sent
# within this much more than a minute.
SLACK = 0.6
BURST = 0.01
_TINY = 1e-6


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
        self._updated_at = now
        self.per_minute = per_minute
        self._level = self.burst(now)

    def rate(self, now: float) -> float:
        """Return how much comes back in a second, > 0."""
        return self.per_minute / (MINUTE + SLACK)

    def burst(self, now: float) -> float:
        """Return the most that the bucket holds, at least one."""
        return max(1.0, BURST * self.per_minute)

    def level(self, now: float) -> float:
        """Return the level; below 0 after a call that needed more than the bucket holds."""
        if now > self._updated_at:
            self._level += self.rate(now) * (now - self._updated_at)
            self._updated_at = now
        self._level = min(self.burst(now), self._level)
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
        missing = min(need, self.burst(now)) - self.level(now)
        for_bucket = missing / self.rate(now) if missing > _TINY else 0.0
        return round(max(for_bucket, self._wait_for_window(need, now)), 6)

    def room(self, need: float, now: float) -> float:
        """Return how many times ``need`` > 0 can be reserved now, >= 0."""
        if self.wait(need, now) > 0:
            return 0
        in_window = self.per_minute - self._used - self._unsent - need
        spare = min(self._level - min(need, self.burst(now)), in_window) + _TINY
        return 1 + max(0.0, spare // need) if spare < math.inf else math.inf

    def is_full(self, need: float, now: float) -> bool:
        """Return whether ``room`` stays what it is until something is reserved."""
        burst, in_window = self.burst(now), self.per_minute - self.used(now) - self._unsent
        return self.level(now) >= burst and in_window - need >= burst - min(need, burst)

    def reserve(self, need: float) -> Hold:
        """Reserve ``need``; the caller has checked ``wait``."""
        need = min(need, self.per_minute)
        self._level -= need
        self._unsent += need
        self.reserved += need
        return Hold(need, self.reserved)

    def send(self, hold: Hold, now: float) -> None:
        """Count a call in the window: it is sent now."""
        # reserved amounts count before they are sent, in ``_unsent``: time does not free those
        hold.sent_at, hold.in_window = now, True
        self._unsent -= hold.amount
        self._used += hold.amount
        self._window.append(hold)

    def settle(self, hold: Hold, used: float, now: float) -> None:
        """Replace the amount of a call that was sent; the difference is returned, or owed."""
        difference = used - hold.amount
        self._level = self.level(now) - difference
        self.used(now)
        # A call of more than a minute has left the window, with the amount that was reserved.
        if hold.in_window:
            self._used += difference
        self.reserved += difference
        hold.reserved += difference
        hold.amount = used

    def refund(self, hold: Hold, now: float) -> None:
        """Return the amount of a call that was not sent."""
        self._level = self.level(now) + hold.amount
        self._unsent -= hold.amount
        self.reserved -= hold.amount
        hold.amount = 0.0

    def lower(self, remaining: float, hold: Hold, now: float) -> None:
        """Lower the level to what a server says is left, if that is less.

        The answer may be as old as its call, whose ``hold`` it is, so what was reserved for later
        calls is subtracted, less what has been refilled since.
        """
        refilled = self.rate(now) * (now - hold.sent_at)
        uncounted = max(0.0, self.reserved - hold.reserved - refilled)
        self._level = min(self.level(now), remaining - uncounted)

    def _wait_for_window(self, need: float, now: float) -> float:
        allowed = self.per_minute - min(need, self.per_minute)
        # What must leave the window before ``need`` fits, the oldest calls first.
        over = self.used(now) + self._unsent - allowed
        if over <= _TINY:
            return 0.0
        for hold in self._window:
            over -= hold.amount
            if over <= _TINY:
                return hold.sent_at + MINUTE + SLACK - now
        return math.inf  # what is reserved must be sent or returned first


# RFC 9438 has W(t) = C (t - K)^3 + W_max with K = cbrt(W_max (1 - beta) / C), so that W(0) is beta
# W_max. There C is a constant and K follows. Here K is chosen and C follows, C = .1 W_max / K^3,
# which gives ``rate`` its form: W(t) = W_max (1 + .1 (t / K - 1)^3), at first 90 % of the plateau.
_FIRST = 50.0  # calls per second
_GAIN = 2.0
_TALLY_SECONDS = 1.0
_CUT = 0.1
_RETURN_SECONDS, _RETURN_CALLS = 20.0, 100.0
_SOON_CALLS, _SOONEST, _SOON_CUTS = 400.0, 6.0, 2
_LOWERED = 0.6  # of the time of return: until then the rate is 0.6 % or more below the plateau
_EXIT_SECONDS = 0.5  # slow start doubles in a second: only its last calls show what was refused
_BURST_SECONDS = 0.05  # of calls may leave at once
_CUTS_TO_FIND = 8  # fewer do not find small rates; more mistake chance for a limit
_LEAST_KEPT = 0.15  # of the rate by one early cut: a full server lets in a trickle that misleads
_SLOWEST = 0.5  # calls per second: below it, the pauses after refusals do the work
_SHORT = 1e-3
_FULL = 2.0  # calls under way at once, from which a server may be full of them
_NEW = 0.1  # the weight of an answer in the average of how long they take


class SearchedRate(TokenBucket):
    """The rate at which calls may leave where nobody states it.

    Slow start begins with 50 calls a second, then allows twice the highest rate of answers so far.

    A cut lowers the rate to 90 % of what was accepted. From there follows RFC 9438, equation (1),

        W(t) = C (t - K)^3 + W_max,

    back to the accepted rate W_max in K seconds, stays about there, and then probes upwards, faster
    and faster. K is 20 s or 100 calls, whichever is longer, so that a probe costs less than 1 % of
    the calls; after the first two cuts 400 calls, but no less than 6 s, where these are fewer. Then
    refusals of calls that left within the time of an answer after a cut cut no more: the server is
    still full of what left before it.

    The accepted rate is the average since the previous cut (how fast a server's bucket refills;
    over the last K seconds once the rate has left the plateau), or, if that is larger and nobody is
    let in, over the last minute (what a server that counts minutes accepts again). After the first
    eight cuts the plateau falls by 10 % at most.

    ``SearchedPlaces`` finds out where refusals come of the number of calls under way: then that is
    limited in place of the rate. ``Refusals`` decides what any other refusal means. After a cut the
    share refused is compared with the share before it: where it is the same, the search goes back
    to where it was.

    Attributes:
        places: how many calls may be under way, and are.

    Example:
        >>> search = SearchedRate(0.0)
        >>> search.room(1.0, 0.0)               # 50 a second; 0.05 s of them may leave at once
        2.0
        >>> holds = [search.reserve(1.0) for _ in range(3)]
        >>> search.wait(1.0, 0.0)
        0.03
    """

    def __init__(self, now: float) -> None:
        self._ceiling = _FIRST
        self._plateau = math.inf  # W_max
        self._since = now  # where t = 0
        self._tally, self._tally_since = 0, now
        self._cut_at = now  # when the call left whose refusal cut the rate last
        self._n_cuts = 0
        self._answer_seconds, self._empty_at = 0.0, -math.inf
        self._refusals = Refusals()
        self.places = SearchedPlaces()
        self._before_cuts = self._plateau, self._since  # which may yet be taken back
        self._before_first = self._before_cuts  # before the first of cuts in a row
        super().__init__(math.inf, now)

    def rate(self, now: float) -> float:
        """Return the calls per second, > 0."""
        if self._is_free:
            return self._ceiling
        t = max(0.0, now - self._since)
        returned = self._plateau * (1 + _CUT * (t / self._seconds_to_return() - 1) ** 3)  # eq. (1)
        return min(self._ceiling, returned)

    @property
    def _is_free(self) -> bool:
        """True where the rate limits nothing: in slow start, and while places are kept instead."""
        return self._plateau == math.inf or self.places.most < math.inf

    def burst(self, now: float) -> float:
        """Return how many calls may leave at once, at least one."""
        return max(1.0, _BURST_SECONDS * self.rate(now))

    def send(self, hold: Hold, now: float) -> None:
        """Count a call that is sent now, and number it."""
        super().send(hold, now)
        # whether the rate is clearly lower than before the last cut
        is_lowered = now - self._since < _LOWERED * self._seconds_to_return()
        hold.number = self._refusals.sent(is_lowered=is_lowered)
        self.places.sent(hold)

    def wait(self, need: float, now: float) -> float:
        """Return the seconds until ``need`` may be reserved; infinite while places are taken."""
        if self.places.under_way + self._unsent >= self.places.most:
            return math.inf
        return super().wait(need, now)

    def room(self, need: float, now: float) -> float:
        """Return how many times ``need`` > 0 can be reserved now, >= 0."""
        free = self.places.most - self.places.under_way - self._unsent
        return max(0.0, min(free, super().room(need, now)))

    def is_full(self, need: float, now: float) -> bool:
        """Return whether ``room`` stays what it is until something is reserved."""
        # once it was cut, the rate follows a curve for as long as nothing else happens
        is_searching = self._plateau < math.inf or self.places.most < math.inf
        return not is_searching and super().is_full(need, now)

    def accepted(self, hold: Hold, now: float) -> None:
        """Record that a call ended without a refusal."""
        hold.has_ended = True
        self.places.accepted(hold)
        self._tally += 1
        self._answer_seconds += _NEW * (now - hold.sent_at - self._answer_seconds)
        seconds = now - self._tally_since
        if seconds >= _TALLY_SECONDS:
            self._ceiling = max(self._ceiling, _GAIN * self._tally / seconds)
            self._tally, self._tally_since = 0, now

    def refused(self, hold: Hold, now: float, *, sure: bool = False) -> bool:
        """Record a refusal; return whether the server lets nobody in any more.

        ``sure``: the server says itself that the account is above its rate.
        """
        self.settle(hold, 0.0, now)
        verdict = self._refusals.refused(hold, reversed(self._window), now, sure=sure)
        is_limit, was_free = verdict in (Meaning.MORE, Meaning.SHUT), self._is_free
        if not sure and self.places.explain(hold, reversed(self._window), is_limit=is_limit):
            self._refusals.begin()
            return False
        if was_free:
            self._since = now  # the rate that suited it before the places were found
        if verdict is Meaning.AS_BEFORE:
            self._plateau, self._since = self._before_cuts
        elif verdict is Meaning.NEVER_SHUT:
            self._plateau, self._since = self._before_first
        elif is_limit:
            self.places.slow_start_over()
            # What is gone back to is the rate before the first of several cuts in a row: only then
            # is the share of refusals known at that rate.
            if not self._refusals.is_compared:
                self._before_cuts = self._before_first = self._plateau, self._since
            if hold.sent_at >= self._empty_at or self._n_cuts < _SOON_CUTS:
                self._cut(hold.sent_at, now, verdict)
            self._refusals.lowered(verdict)
            if self._refusals.share_before == 1.0:  # a limit that is met: nothing to go back to
                self._before_cuts = self._plateau, self._since
        return verdict is Meaning.SHUT

    def held(self, until: float) -> None:
        """Let the curve begin at ``until``: no call leaves before."""
        self._since = max(self._since, until)

    def _cut(self, left_at: float, now: float, verdict: Meaning) -> None:
        """Set the plateau to the accepted rate; counts one call more, since one more was tried.

        ``left_at``: when the call left whose refusal it is for.
        """
        # Over what time the accepted calls are counted: since the last cut, but no longer than the
        # rate has been about what it is now.
        k, rate, lowest = self._seconds_to_return(), self.rate(now), _SLOWEST
        since = max(self._cut_at, left_at - (_EXIT_SECONDS if self._plateau == math.inf else k))
        n = 1 + sum(hold.amount for hold in self._window if since <= hold.sent_at <= left_at)
        accepted = n / max(left_at - since, _SHORT)
        if verdict is Meaning.SHUT:
            # a server that counts minutes has let in what a minute allows, however fast they came
            accepted = max(accepted, self.used(now) / MINUTE)
        self._cut_at, self._n_cuts = left_at, self._n_cuts + 1
        if self._plateau < math.inf:
            kept = _LEAST_KEPT if self._n_cuts <= _CUTS_TO_FIND else 1 - _CUT
            lowest = max(lowest, kept * self._plateau)
        self._plateau, self._since = max(lowest, min(rate, accepted)), now
        # What fills a server now left at the higher rate: it has room once that was answered. Where
        # hardly a call is under way at once, no server is full: it counts calls by time.
        is_full = self._plateau * self._answer_seconds >= _FULL
        self._empty_at = now + self._answer_seconds if is_full else -math.inf

    def _seconds_to_return(self) -> float:
        """Return K of equation (1)."""
        calls = _SOON_CALLS if self._n_cuts >= _SOON_CUTS else math.inf
        soon = max(_SOONEST, calls / self._plateau)
        return max(min(_RETURN_SECONDS, soon), _RETURN_CALLS / self._plateau)


_LATEST = 1000  # calls that are looked at
_ENOUGH, _REFUSED = 3, 5  # refusals to judge by: so many, and the latest of them
_FEWEST = 4  # places: with fewer calls under way their number tells too little
_FEWER, _BELOW = 0.9, 0.01  # share that leaves beside fewer, at least; refused of these, at most
_STEP_CALLS = 150  # let in with all places taken, before more are tried
_STEPS = 16  # a step is a sixteenth of the places at most
_LAST = 30  # calls: if half of them are refused, something else is the matter


class SearchedPlaces:
    """Counts the calls under way, and finds how many of them a server takes.

    After 150 calls that took the last place and were let in, one place more is tried; then two,
    and twice as many each time, until a call is refused. A refusal takes one place back. Where it
    refuses most of its calls all the same, the search for a rate begins again.

    Attributes:
        most: the calls that may be under way; infinite until a refusal is explained by their
            number.
        under_way: the calls that were sent and have not ended.
    """

    def __init__(self) -> None:
        self.most = math.inf
        self.under_way = 0
        self._found = 0  # what ``most`` was at first
        self._step, self._n_full = 1.0, 0
        self._latest = 0  # the number of the call that was sent last
        self._changed = 0  # ... when ``most`` changed: what left before tells nothing of it
        self._slow_start = math.inf  # ... when slow start was over
        self._refused: deque[int] = deque(maxlen=_REFUSED)  # how many calls were beside each

    def sent(self, call: Hold) -> None:
        """Count a call that is sent now, and has its number."""
        call.beside, self._latest = self.under_way, call.number
        self.under_way += 1

    def ended(self) -> None:
        """Count the end of a call that was sent."""
        self.under_way -= 1

    def accepted(self, call: Hold) -> None:
        """Try more places after many calls that took the last one and were let in."""
        if call.number <= self._changed or call.beside + 1 < self.most:
            return
        self._n_full += 1
        if self._n_full >= _STEP_CALLS:
            self.most += self._step
            self._step = min(2 * self._step, max(1.0, self.most // _STEPS))
            self._n_full, self._changed = 0, self._latest

    def slow_start_over(self) -> None:
        """Record that the rate is cut: what leaves from now on is looked at."""
        self._slow_start = min(self._slow_start, self._latest)

    def explain(self, call: Hold, calls: Iterable[Hold], *, is_limit: bool) -> bool:
        """Return whether a call was refused since all places were taken; learn from it.

        Args:
            call: the refused one.
            calls: all calls of late, the newest first.
            is_limit: whether so many are refused that the rate would be cut.
        """
        if call.number > self._slow_start:
            self._refused.append(call.beside)
        if self.most == math.inf:
            return is_limit and self._find(calls)
        is_shut = 2 * sum(other.is_refused for other in islice(calls, _LAST)) > _LAST
        if is_shut or self.most <= self._found / 2:
            self.most, self._slow_start = math.inf, self._latest
            self._refused.clear()
            return False
        if call.number > self._changed:
            self._keep(max(1.0, self.most - 1.0))
        return True

    def _find(self, calls: Iterable[Hold]) -> bool:
        """Return whether the refusals of late come of the number under way; keep it if they do."""
        if len(self._refused) < _ENOUGH or (taken := min(self._refused)) < _FEWEST:
            return False
        seen = [call for call in islice(calls, _LATEST) if call.number > self._slow_start]
        fewer = [call.is_refused for call in seen if call.beside < taken]
        if len(fewer) < _FEWER * len(seen) or sum(fewer) > _BELOW * len(fewer):
            return False
        self._found = taken
        self._keep(float(taken))
        return True

    def _keep(self, most: float) -> None:
        self.most, self._changed, self._step, self._n_full = most, self._latest, 1.0, 0
