"""Keep the calls to one model of one account within its rate limits, first come, first served.

Every attempt takes a permit before it is sent: its expected use is reserved in each token bucket,
and replaced by its real use when it ends. A refusal (429) pauses all calls. After the pause one
call goes first as a probe, unless the answer to an earlier one has shown that calls are accepted.

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

import asyncio
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bestarm_agent.domain.rate_limits import Allowance, RateLimits, Resource
from bestarm_agent.engine.clock import Clock, sleep_unless
from bestarm_agent.engine.limits.concurrency_gates import Slot
from bestarm_agent.errors import ProviderError, counted

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


_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 16.0  # where a refusal does not say how long
_PROBE_SECONDS = 2.0  # a refusal comes at once; a call that takes longer was let in
_SHORTEST_WAIT = 1e-3
_UNITS = {
    Resource.REQUESTS: "request",
    Resource.TOKENS: "token",
    Resource.INPUT_TOKENS: "input token",
    Resource.OUTPUT_TOKENS: "output token",
}


@dataclass(slots=True, eq=False)
class Permit:
    """Permission to send one attempt."""

    holds: dict[Resource, Hold]  # what is reserved for it
    n_refusals: int = 0  # number of refusals before it was sent
    probe: bool = False  # true for the first call after a pause
    departure: Departure | None = None  # when it was sent, or None
    closed: bool = False  # true once it is settled or refunded


@dataclass(slots=True, eq=False)
class _Ticket:
    """A place in the queue."""

    need: Mapping[Resource, float]
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class RateLimiter:
    """The rate limits of one model of one account.

    Args:
        limits: the user's; the rest is learned from the provider's answers.
        clock: tells the time and sleeps.
        searching: search for the rate from the first call on, not only after a refusal.
    """

    def __init__(self, limits: RateLimits, clock: Clock, *, searching: bool = False) -> None:
        self._clock = clock
        self._given = frozenset(limits.per_minute)
        now = clock.now()
        stated = {**limits.assumed, **limits.per_minute}
        self.buckets = {name: TokenBucket(most, now) for name, most in stated.items()}
        self._queue: deque[_Ticket] = deque()
        self.search = RateSearch(now, searching=searching)
        self._paused_until = -math.inf
        self._n_refusals = 0
        self._pauses = 0  # in a row
        self._probe: Permit | None = None
        self._probed_at = -math.inf
        self._needs_probe = False  # after a refusal, until a call was accepted
        self._halt: ProviderError | None = None

    @property
    def engaged(self) -> bool:
        """True if a limit is known or was ever met."""
        return bool(self.buckets or self._queue or self._n_refusals) or not self.search.unlimited

    @property
    def queued(self) -> int:
        """The number of calls that wait."""
        return len(self._queue)

    @property
    def paused(self) -> float:
        """Seconds left of the pause after a refusal, >= 0."""
        return max(0.0, self._paused_until - self._clock.now())

    def wait(self, need: Mapping[Resource, float] | None = None) -> float:
        """Return the seconds until a call of this need could be sent; infinite if unknown.

        Without ``need``, the call is one request.
        """
        if self._queue:
            need = self._queue[0].need
        return self._wait(need or {Resource.REQUESTS: 1.0})

    def held_by(self, need: Mapping[Resource, float] | None) -> tuple[float, str]:
        """Return the seconds that ``wait`` returns, and what is waited for, for people."""
        seconds, now = self.wait(need), self._clock.now()
        if seconds <= 0:
            return seconds, "waiting for a free place"
        need = self._queue[0].need if self._queue else need or {Resource.REQUESTS: 1.0}
        for name, bucket in self.buckets.items():
            if bucket.wait(need.get(name, 0.0), now) == seconds:
                limit = counted(round(bucket.per_minute), _UNITS[name])
                return seconds, f"at its limit of {limit} a minute"
        if self.search.wait(now) == seconds:
            found = counted(round(60 * self.search.rate(now)), "request")
            return seconds, f"at {found} a minute, the rate found so far"
        return seconds, "until one call has shown that the pause is over"

    def room(self, need: Mapping[Resource, float] | None) -> float:
        """Return how many new calls with this ``need`` could be sent now; may be infinite."""
        if self._queue or self.wait(need) > 0:
            return 0
        if self._needs_probe:
            return 1
        if self.buckets and need is None:
            return 1
        now = self._clock.now()
        rooms = [bucket.room(need[name], now) for name, bucket in self.buckets.items() if need]
        return min([self.search.room(now), *rooms])

    def take(self, need: Mapping[Resource, float]) -> Permit | None:
        """Return a permit if no call waits and no limit is reached; otherwise None."""
        if self._queue or self._halt is not None or self._wait(need) > 0:
            return None
        return self._grant(need)

    async def acquire(self, need: Mapping[Resource, float], slot: Slot | None = None) -> Permit:
        """Wait in the queue for a permit; raise the error that the limiter was halted with.

        ``slot``, the call's place in the gates, is given up while it waits and taken again before
        the permit is given, so that no permit is held by a call that cannot be sent.
        """
        slot = slot or Slot()
        ticket = _Ticket(need)
        self._queue.append(ticket)
        try:
            while self._halt is None:
                first = self._queue[0] is ticket
                seconds = self._wait(need) if first else math.inf
                if seconds > 0:
                    slot.leave()
                    ticket.wake.clear()
                    await sleep_unless(self._clock, max(seconds, _SHORTEST_WAIT), ticket.wake)
                elif slot.inside:
                    return self._grant(need)
                else:
                    await slot.reenter()
            raise self._halt
        finally:
            self._queue.remove(ticket)
            self._wake_first()

    def send(self, permit: Permit) -> None:
        """Record that the attempt is sent now."""
        permit.n_refusals = self._n_refusals
        now = self._clock.now()
        for hold in permit.holds.values():
            hold.send(now)
        permit.departure = self.search.sent(now)

    def settle(self, permit: Permit, used: Mapping[Resource, float] | None) -> None:
        """Record that the attempt ended without a refusal; None: all that was reserved was used."""
        now = self._close(permit)
        if used is not None:
            for name, hold in permit.holds.items():
                hold.settle(used[name], now)
        self.search.accepted(now)
        if permit.n_refusals == self._n_refusals:
            self._pauses = 0
        if permit.n_refusals == self._n_refusals or now >= self._paused_until:
            self._needs_probe = False
        self._wake_first()

    def refund(self, permit: Permit) -> None:
        """Return a permit whose attempt was not sent; do nothing if it is closed already."""
        if permit.closed:
            return
        now = self._close(permit)
        for hold in permit.holds.values():
            hold.refund(now)
        self.search.give_back(now)
        self._wake_first()

    def refuse(self, permit: Permit, retry_after: float | None, *, at_most: float) -> bool:
        """Record a refusal (429): the request counts, its tokens do not, and all calls pause.

        The pause is half a second without ``retry_after``; when refused again 1 s, 2 s, and so on,
        or longer if the provider asks for it, up to ``at_most`` seconds.

        Return True if the call was sent after the last pause; False if it belongs to the same burst
        as an earlier refusal.
        """
        now = self._close(permit)
        for name, hold in permit.holds.items():
            if name is not Resource.REQUESTS:
                hold.settle(0.0, now)
        news = permit.n_refusals == self._n_refusals
        if news:
            self._n_refusals += 1
            self._needs_probe = True
            self._pauses += 1
        if news or retry_after is not None:
            seconds = min(max(self._own_pause(retry_after), retry_after or 0.0), at_most)
            self._paused_until = max(self._paused_until, now + seconds)
        if permit.departure is not None:
            self.search.refused(permit.departure, now, self.paused, news=news, probe=permit.probe)
        self._wake_first()
        return news

    def observe(self, permit: Permit, allowances: Sequence[Allowance]) -> None:
        """Apply what an answer says is left of each limit; ignore nonsense."""
        now = self._clock.now()
        for said in allowances:
            limit, remaining = _sensible(said.limit), _sensible(said.remaining)
            if limit and said.resource not in self._given:
                self._learn(said.resource, limit, now)
            bucket, hold = self.buckets.get(said.resource), permit.holds.get(said.resource)
            if bucket is None or hold is None or not hold.sent or remaining is None:
                continue
            if limit is None or remaining <= limit:
                bucket.lower(remaining, hold, now)

    def halt(self, error: ProviderError) -> None:
        """Fail all calls with ``error``, those in the queue too."""
        self._halt = error
        for ticket in self._queue:
            ticket.wake.set()

    def _own_pause(self, retry_after: float | None) -> float:
        if retry_after is not None and self._pauses == 1:
            return 0.0
        return min(_FIRST_PAUSE * 2.0 ** (self._pauses - 1), _LONGEST_PAUSE)

    def _learn(self, resource: Resource, limit: float, now: float) -> None:
        bucket = self.buckets.get(resource)
        if bucket is None:
            self.buckets[resource] = TokenBucket(limit, now)
        elif bucket.per_minute != limit:
            bucket.resize(limit)

    def _wait(self, need: Mapping[Resource, float]) -> float:
        now = self._clock.now()
        waits = [bucket.wait(need.get(name, 0.0), now) for name, bucket in self.buckets.items()]
        waits.append(self._paused_until - now)
        waits.append(self.search.wait(now))
        if self._needs_probe and self._probe is not None:
            waits.append(self._probed_at + _PROBE_SECONDS - now)
        return max(waits)

    def _grant(self, need: Mapping[Resource, float]) -> Permit:
        holds = {name: bucket.reserve(need[name]) for name, bucket in self.buckets.items()}
        permit = Permit(holds)
        self.search.take(self._clock.now())
        if self._needs_probe and self._probe is not None:
            self._needs_probe = False  # not refused for so long: it was accepted
        elif self._needs_probe:
            self._probe, self._probed_at = permit, self._clock.now()
            permit.probe = True
        return permit

    def _close(self, permit: Permit) -> float:
        """Close a permit; return the time."""
        if permit.closed:
            raise ValueError("this permit was settled or refunded before")
        permit.closed = True
        if permit is self._probe:
            self._probe = None
        return self._clock.now()

    def _wake_first(self) -> None:
        if self._queue:
            self._queue[0].wake.set()


def _sensible(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value >= 0 else None
