"""What all calls to one model of one account share: rate limits, concurrency, and fatal errors."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bestarm_agent.domain.allowance import RateLimits, Resource
from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.base import Provider
from bestarm_agent.providers.failures import may_be_billed
from bestarm_agent.schedule.clock import Clock, sleep_unless
from bestarm_agent.schedule.concurrency import Concurrency
from bestarm_agent.schedule.expectation import Expectation
from bestarm_agent.schedule.gate import Gate, Slot
from bestarm_agent.schedule.limiter import Limiter, Permit
from bestarm_agent.schedule.waits import Wait

_UNITS = {
    Resource.REQUESTS: "requests",
    Resource.TOKENS: "tokens",
    Resource.INPUT_TOKENS: "input tokens",
    Resource.OUTPUT_TOKENS: "output tokens",
}
_ONLY_THE_REQUEST = {**dict.fromkeys(Resource, 0.0), Resource.REQUESTS: 1.0}
_STRAINED = (FailureKind.OVERLOADED, FailureKind.SERVER, FailureKind.TIMEOUT)


@dataclass(frozen=True, slots=True)
class LaneRules:
    """How calls to a model are held back.

    Attributes:
        limits: the rate limits that are known beforehand.
        adaptive: the most calls that may be in flight where their number is to be found out; None
            where it is given.
    """

    limits: RateLimits = field(default_factory=RateLimits)
    adaptive: int | None = None


class Lane:
    """The way to one model of one account.

    Args:
        provider: answers.
        model: the model's name; "" if the lane is for all models of the account.
        rules: what is known about its limits.
        clock: tells the time and sleeps.
    """

    def __init__(self, provider: Provider, model: str, rules: LaneRules, clock: Clock) -> None:
        self.name = f"{provider.name}/{model}" if model else provider.name
        self.limiter = Limiter(rules.limits, clock, searching=rules.adaptive is not None)
        self.concurrency = None if rules.adaptive is None else Concurrency(rules.adaptive, clock)
        self.halted: ProviderError | None = None
        self._provider = provider
        self._clock = clock
        self._expected = Expectation(rules.limits.reserve_maximum)
        self._halting = asyncio.Event()

    @property
    def gates(self) -> tuple[Gate, ...]:
        """The gates that a call passes here."""
        return () if self.concurrency is None else (self.concurrency.gate,)

    @property
    def room(self) -> float:
        """How many more calls could be sent at once now, >= 0; may be infinite."""
        if self.halted is not None:
            return 0
        free = math.inf if self.concurrency is None else self.concurrency.gate.free
        if not free or not self.limiter.engaged:
            return free
        return min(free, self.limiter.room(self._expected.typical()))

    @property
    def opens_in(self) -> float:
        """Seconds until there may be room because time passes; infinite if it is not about time."""
        if self.halted is not None or (self.concurrency and not self.concurrency.gate.free):
            return math.inf
        return max(0.0, self.limiter.wait(self._expected.typical()))

    def take(self, request: Request, bound: Spend) -> Permit | None:
        """A permit for one attempt that costs at most ``bound``, if there is one at once."""
        return self.limiter.take(self._expected.need(request, bound.tokens))

    async def acquire(self, request: Request, bound: Spend, slot: Slot) -> Permit:
        """Wait in line for a permit, outside the gates of ``slot``.

        Raises:
            ProviderError: the lane was closed for good.
        """
        return await self.limiter.acquire(self._expected.need(request, bound.tokens), slot)

    def send(self, permit: Permit) -> None:
        """An attempt leaves now."""
        self.limiter.send(permit)
        if self.concurrency is not None:
            self.concurrency.sent()

    def answered(self, permit: Permit, request: Request, reply: Reply, *, first: bool) -> None:
        """An attempt was answered; ``first`` if none at the same call failed before."""
        self._expected.observe(request, reply.usage)
        reserved = {name: hold.amount for name, hold in permit.holds.items()}
        self.limiter.settle(permit, self._expected.used(reply.usage, reserved))
        self._listen(permit, request)
        if self.concurrency is not None:
            self.concurrency.answered(first=first)

    def refused(
        self, permit: Permit, request: Request, error: ProviderError, at_most: float
    ) -> None:
        """An attempt was refused (429): everybody pauses, ``at_most`` so many seconds."""
        news = self.limiter.refuse(permit, error.retry_after, at_most=at_most)
        self._listen(permit, request)
        if self.concurrency is not None:
            self.concurrency.refused(self.limiter.paused, news=news, probe=permit.probe)

    def failed(self, permit: Permit, request: Request, error: ProviderError) -> None:
        """An attempt failed otherwise.

        What was set aside for it stays used if it may have been billed. Else the request alone
        counts: providers count requests that they turn away too, but no tokens.
        """
        self.limiter.settle(permit, None if may_be_billed(error) else _ONLY_THE_REQUEST)
        self._listen(permit, request)
        if self.concurrency is None:
            return
        if error.kind in _STRAINED:
            self.concurrency.failed()
        else:
            self.concurrency.gave_up()

    def cut_off(self, permit: Permit) -> None:
        """An attempt was cancelled: it may have been answered."""
        self.limiter.settle(permit, None)
        if self.concurrency is not None:
            self.concurrency.gave_up()

    def halt(self, error: ProviderError) -> None:
        """Turn everybody away with ``error`` from now on, those that wait too."""
        self.halted = self.halted or error
        self._halting.set()
        self.limiter.halt(self.halted)

    def check(self) -> None:
        """Go on if the lane is open.

        Raises:
            ProviderError: the one that it was closed with.
        """
        if self.halted is not None:
            raise self.halted

    async def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass; less if the lane is closed meanwhile."""
        await sleep_unless(self._clock, seconds, self._halting)

    def waits(self) -> Wait | None:
        """Why calls wait here, for people; None if they do not."""
        if self.halted is not None:
            return None
        paused, queued = self.limiter.paused, self.limiter.queued
        if paused:
            until = datetime.fromisoformat(self._clock.utc()) + timedelta(seconds=paused)
            reason = f"rate limited until {until.astimezone():%H:%M:%S}"
            return Wait(self.name, reason, queued, paused)
        seconds = self.limiter.wait(self._expected.typical())
        if queued or seconds > 0:
            return Wait(self.name, self._at_limit(), queued, seconds if seconds < math.inf else 0.0)
        return None

    def _at_limit(self) -> str:
        quotas = self.limiter.quotas
        now = self._clock.now()
        if self.limiter.pace.wait(now) > 0:
            rate = self.limiter.pace.rate(now)
            return f"at {60 * rate:,.0f} requests a minute, the rate found so far"
        if not quotas:
            return "waiting in line"
        name = max(quotas, key=lambda n: quotas[n].used(now) / quotas[n].per_minute)
        return f"at its limit of {quotas[name].per_minute:,.0f} {_UNITS[name]} a minute"

    def _listen(self, permit: Permit, request: Request) -> None:
        said = self._provider.allowances(request.model)
        if said:
            self.limiter.observe(permit, said)
