"""Keeps the calls to one model of one account within its rate limits, first come, first served.

Every attempt takes a permit before it is sent: what it is expected to use is set aside in each
quota, and replaced by what it did use when it ends. A refusal (429) stops everybody, not just the
call that met it, and when the pause is over one call goes first to see whether the door is open,
unless an answer to an earlier one has shown it.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bestarm_agent.domain.allowance import Allowance, RateLimits, Resource
from bestarm_agent.errors import ProviderError
from bestarm_agent.schedule.clock import Clock, sleep_unless
from bestarm_agent.schedule.gate import Slot
from bestarm_agent.schedule.pace import Departure, Pace
from bestarm_agent.schedule.quota import Hold, Quota

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 16.0  # where a refusal does not say how long
_PROBE_SECONDS = 2.0  # a refusal comes at once; a call that takes longer was let in
_SHORTEST_WAIT = 1e-3


@dataclass(slots=True, eq=False)
class Permit:
    """Leave for one attempt.

    Attributes:
        holds: what is set aside for it.
        era: number of refusals before it was sent.
        probe: whether it was the first after a pause, to see whether the door is open.
        departure: when it was sent, or None.
        closed: whether it was settled or refunded.
    """

    holds: dict[Resource, Hold]
    era: int = 0
    probe: bool = False
    departure: Departure | None = None
    closed: bool = False


@dataclass(slots=True, eq=False)
class _Ticket:
    """A place in the queue."""

    need: Mapping[Resource, float]
    poked: asyncio.Event = field(default_factory=asyncio.Event)


class Limiter:
    """The rate limits of one model of one account.

    Args:
        limits: what the user set; the rest is learned from the provider's answers.
        clock: tells the time and sleeps.
        searching: whether the rate is to be found out from the first call on, not only after a
            refusal.
    """

    def __init__(self, limits: RateLimits, clock: Clock, *, searching: bool = False) -> None:
        self._clock = clock
        self._given = frozenset(limits.per_minute)
        now = clock.now()
        known = {**limits.assumed, **limits.per_minute}
        self.quotas = {name: Quota(most, now) for name, most in known.items()}
        self._queue: deque[_Ticket] = deque()
        self.pace = Pace(now, searching=searching)
        self._paused_until = -math.inf
        self._era = 0
        self._pauses = 0  # in a row
        self._probe: Permit | None = None
        self._probed_at = -math.inf
        self._doubtful = False  # after a refusal, until a call was let in
        self._halt: ProviderError | None = None

    @property
    def engaged(self) -> bool:
        """Whether anything is, or ever was, in anybody's way."""
        return bool(self.quotas or self._queue or self._era) or not self.pace.unlimited

    @property
    def queued(self) -> int:
        """How many calls wait."""
        return len(self._queue)

    @property
    def paused(self) -> float:
        """Seconds that a refusal still stops everybody for, >= 0."""
        return max(0.0, self._paused_until - self._clock.now())

    def wait(self, need: Mapping[Resource, float] | None = None) -> float:
        """Seconds until the next newcomer could be sent; infinite if no time can be named.

        Args:
            need: what it would use; None: just a request.
        """
        if self._queue:
            need = self._queue[0].need
        return self._wait(need or {Resource.REQUESTS: 1.0})

    def room(self, need: Mapping[Resource, float] | None) -> float:
        """How many newcomers with this ``need`` could be sent at once now; may be infinite."""
        if self._queue or self.wait(need) > 0:
            return 0
        if self._doubtful:
            return 1
        if self.quotas and need is None:
            return 1
        now = self._clock.now()
        rooms = [quota.room(need[name], now) for name, quota in self.quotas.items() if need]
        return min([self.pace.room(now), *rooms])

    def take(self, need: Mapping[Resource, float]) -> Permit | None:
        """Give a permit if nobody is before and nothing is in the way; else None."""
        if self._queue or self._halt is not None or self._wait(need) > 0:
            return None
        return self._grant(need)

    async def acquire(self, need: Mapping[Resource, float], slot: Slot | None = None) -> Permit:
        """Wait in line for a permit.

        Args:
            need: what the call is expected to use.
            slot: its place in the gates, given up while it waits and taken again before the permit
                is given, so that no permit is held by a call that cannot leave.

        Raises:
            ProviderError: the one that the limiter was halted with.
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
                    ticket.poked.clear()
                    await sleep_unless(self._clock, max(seconds, _SHORTEST_WAIT), ticket.poked)
                elif slot.inside:
                    return self._grant(need)
                else:
                    await slot.reenter()
            raise self._halt
        finally:
            self._queue.remove(ticket)
            self._poke()

    def send(self, permit: Permit) -> None:
        """The attempt leaves now."""
        permit.era = self._era
        now = self._clock.now()
        for hold in permit.holds.values():
            hold.send(now)
        permit.departure = self.pace.sent(now)

    def settle(self, permit: Permit, used: Mapping[Resource, float] | None) -> None:
        """The attempt ended without a refusal.

        Args:
            permit: its permit.
            used: what it used; None: nobody knows, so all that was set aside stays used.
        """
        now = self._close(permit)
        if used is not None:
            for name, hold in permit.holds.items():
                hold.settle(used[name], now)
        self.pace.let_in(now)
        if permit.era == self._era:
            self._pauses = 0
        if permit.era == self._era or now >= self._paused_until:
            self._doubtful = False
        self._poke()

    def refund(self, permit: Permit) -> None:
        """Nothing was sent: everything goes back. Does nothing if the permit is closed already."""
        if permit.closed:
            return
        now = self._close(permit)
        for hold in permit.holds.values():
            hold.refund(now)
        self.pace.give_back(now)
        self._poke()

    def refuse(self, permit: Permit, retry_after: float | None, *, at_most: float) -> bool:
        """The attempt was refused (429): a request counts, tokens do not; everybody pauses.

        Without ``retry_after`` for half a second; refused again, for 1 s, 2 s, and so on, or
        longer if the provider asks for it. Refusals of calls that were sent before the pause began
        are the same news again.

        Args:
            permit: its permit.
            retry_after: seconds that the provider asks for, or None.
            at_most: longest pause in seconds.

        Returns:
            Whether it was news.
        """
        now = self._close(permit)
        for name, hold in permit.holds.items():
            if name is not Resource.REQUESTS:
                hold.settle(0.0, now)
        news = permit.era == self._era
        if news:
            self._era += 1
            self._doubtful = True
            self._pauses += 1
        if news or retry_after is not None:
            seconds = min(max(self._own_pause(retry_after), retry_after or 0.0), at_most)
            self._paused_until = max(self._paused_until, now + seconds)
        if permit.departure is not None:
            self.pace.refused(permit.departure, now, self.paused, news=news, probe=permit.probe)
        self._poke()
        return news

    def observe(self, permit: Permit, allowances: Sequence[Allowance]) -> None:
        """Take in what the answer to an attempt said is left; nonsense is ignored."""
        now = self._clock.now()
        for said in allowances:
            limit, remaining = _sensible(said.limit), _sensible(said.remaining)
            if limit and said.resource not in self._given:
                self._learn(said.resource, limit, now)
            quota, hold = self.quotas.get(said.resource), permit.holds.get(said.resource)
            if quota is None or hold is None or not hold.sent or remaining is None:
                continue
            if limit is None or remaining <= limit:
                quota.lower(remaining, hold, now)

    def halt(self, error: ProviderError) -> None:
        """Turn everybody away with ``error``, those in the queue too."""
        self._halt = error
        for ticket in self._queue:
            ticket.poked.set()

    def _own_pause(self, retry_after: float | None) -> float:
        if retry_after is not None and self._pauses == 1:
            return 0.0
        return min(_FIRST_PAUSE * 2.0 ** (self._pauses - 1), _LONGEST_PAUSE)

    def _learn(self, resource: Resource, limit: float, now: float) -> None:
        quota = self.quotas.get(resource)
        if quota is None:
            self.quotas[resource] = Quota(limit, now)
        elif quota.per_minute != limit:
            quota.resize(limit)

    def _wait(self, need: Mapping[Resource, float]) -> float:
        now = self._clock.now()
        waits = [quota.wait(need.get(name, 0.0), now) for name, quota in self.quotas.items()]
        waits.append(self._paused_until - now)
        waits.append(self.pace.wait(now))
        if self._doubtful and self._probe is not None:
            waits.append(self._probed_at + _PROBE_SECONDS - now)
        return max(waits)

    def _grant(self, need: Mapping[Resource, float]) -> Permit:
        holds = {name: quota.reserve(need[name]) for name, quota in self.quotas.items()}
        permit = Permit(holds)
        self.pace.take(self._clock.now())
        if self._doubtful and self._probe is not None:
            self._doubtful = False  # it was not refused for so long: it was let in
        elif self._doubtful:
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

    def _poke(self) -> None:
        if self._queue:
            self._queue[0].poked.set()


def _sensible(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value >= 0 else None
