"""Keep the calls to one model of one account within its rate limits, first come, first served.

Every attempt takes a permit before it is sent: its expected use is reserved in each token bucket,
and replaced by its real use when it ends. A refusal (429) pauses all calls. After the pause one
call goes first as a probe, unless the answer to an earlier one has shown that calls are accepted.
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
from bestarm_agent.engine.limits.rate_search import Departure, RateSearch
from bestarm_agent.engine.limits.token_bucket import Hold, TokenBucket
from bestarm_agent.errors import ProviderError, counted

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
