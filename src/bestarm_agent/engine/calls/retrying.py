"""One request, sent until it is answered: rate limits, time-outs, retries, cost of attempts.

This is the only retry layer: the SDKs' own are switched off, since failures would multiply unseen.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Protocol

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception
from tenacity.wait import wait_exponential_jitter

from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.engine.calls.attempt import RetryPolicy, generate, replied_spend
from bestarm_agent.engine.clock import Clock
from bestarm_agent.engine.ledger import Ledger, Reservation, SharedReserve
from bestarm_agent.engine.limits.concurrency_gates import Gate, Slot
from bestarm_agent.engine.limits.model_limiter import AccountLimiters, LimiterRules, ModelLimiter
from bestarm_agent.engine.limits.rate_limiter import Permit
from bestarm_agent.engine.limits.wait_reasons import WaitBoard
from bestarm_agent.errors import BestarmError, FailureKind, ProviderError
from bestarm_agent.providers.base import Provider
from bestarm_agent.providers.failures import failed_spend


class BudgetEndedError(BestarmError):
    """No further attempt fits into the budget; a pair stays pending and can be resumed."""


class Origin(Enum):
    """History of a call: sent, and its reply bought, before or not."""

    FRESH = auto()  # never sent
    RESENT = auto()  # sent by this process, and its pair put off
    INHERITED = auto()  # asked by an earlier process of this run


class AttemptLog(Protocol):
    """Makes the attempts at a pair's calls durable before they are sent.

    ``lost`` holds, by key of the reply, the bound that was charged for the latest attempt of a
    process that ended before it recorded the cost.
    """

    lost: dict[str, Spend]

    async def attempt(self, key: str, cost: Spend, *, judge: bool) -> None:
        """Log an attempt that costs at most ``cost``; durable on return. ``key`` is the reply's."""


@dataclass(slots=True, eq=False)
class Call:
    """One request on its way to a model, a candidate's or a judge's."""

    client: ProviderClient
    fingerprint: str  # all that decides the model's replies besides the request
    request: Request
    origin: Origin = Origin.FRESH
    slot: Slot = field(default_factory=Slot)  # its place in the gates, given up while it waits
    reservation: Reservation | None = None  # for the next attempt; None: reserved when it is sent
    permit: Permit | None = None  # the rate limiter's, for the next attempt; None: to be waited for
    spend: Spend = field(default_factory=Spend)  # cost of the attempts so far, also after an error
    failure: FailureKind | None = None  # the last attempt's
    n_failures: int = 0  # without those that a rate limit refused
    failed_at: float = math.inf  # when the first of these was
    began: float | None = None  # time of the first attempt, in the clock's seconds
    key: str = ""  # the reply's key in the reply cache; "" before there is a reply
    found: bool = False  # whether the reply was in the cache
    log: AttemptLog | None = None  # where attempts are logged; None where no pair is paid for
    is_logged: bool = False  # whether the next attempt is in the log already
    is_first: bool = False  # whether its model never answered; a time-out is not repeated then
    judging: SharedReserve | None = None  # pays for judging a reply; None for a judge's call
    obstacle: Exception | None = None  # the fatal error that keeps a candidate's pair pending

    @property
    def pair_spend(self) -> Spend:
        """Cost of the pair so far, judging included."""
        return self.spend if self.judging is None else self.spend + self.judging.spent

    @property
    def limiter(self) -> ModelLimiter:
        """The limiter of the model."""
        return self.client.limiter(self.request.model)

    def bound(self) -> Spend:
        """Return the most that one attempt can cost."""
        return self.client.provider.bound(self.request)

    def take_reservation(self) -> Reservation | None:
        """Hand over what is reserved for the next attempt."""
        reservation, self.reservation = self.reservation, None
        return reservation

    def refund_permit(self) -> None:
        """Give back the rate limiter's permit for an attempt that is not sent."""
        permit, self.permit = self.permit, None
        if permit is not None:
            self.limiter.refund(permit)

    def let_go(self) -> None:
        """Give back all that it holds: places, permit, and what is reserved and was not spent."""
        self.slot.leave()
        self.refund_permit()
        if (reservation := self.take_reservation()) is not None:
            self.client.ledger.release(reservation)
        if self.judging is not None:
            self.judging.close()

    def renew(self) -> None:
        """Get ready to be sent again after the pair was put off."""
        if self.origin is Origin.FRESH and (self.pair_spend != Spend() or self.obstacle):
            self.origin = Origin.RESENT
        self.failure, self.n_failures, self.failed_at = None, 0, math.inf
        self.began, self.obstacle = None, None
        self.is_logged = self.is_first = False


class ProviderClient:
    """Sends requests to one provider, within the budget, and repeats what may yet succeed.

    Args:
        board: shows why a call waits.
        gate: limits the calls in flight.
        rules: limits of a model, by its name.
        shared: whether all models of the account share what ``rules`` says.
    """

    def __init__(
        self,
        provider: Provider,
        ledger: Ledger,
        policy: RetryPolicy,
        clock: Clock,
        board: WaitBoard,
        gate: Gate,
        *,
        rules: Callable[[str], LimiterRules] = lambda _model: LimiterRules(),
        shared: bool = False,
    ) -> None:
        self.provider = provider
        self.ledger = ledger
        self.gate = gate
        self.broken: str | None = None  # why the provider can no longer be used
        self.limiters = AccountLimiters(provider, clock, board, rules, gate, shared=shared)
        self._policy = policy
        self._clock = clock
        self.board = board
        self._backoff = wait_exponential_jitter(
            multiplier=policy.first_wait_seconds,
            max=policy.max_wait_seconds,
            jitter=policy.first_wait_seconds,
        )

    def limiter(self, model: str) -> ModelLimiter:
        """Return the limiter of a model."""
        return self.limiters.of(model)

    def gates(self, model: str) -> tuple[Gate, ...]:
        """Return the gates that every call to a model passes."""
        return (self.gate, *self.limiter(model).gates)

    def unrecorded(self) -> ProviderClient:
        """Return a client that shares the limits of this one, and records and repeats nothing.

        For calls that a program reserves and records itself. What a rate limit turned away is
        repeated: it costs nothing.
        """
        twin = copy(self)
        twin.ledger = Ledger(Budget())
        twin._policy = replace(self._policy, max_attempts=1)
        return twin

    async def send(self, call: Call) -> Reply:
        """Send a call until it is answered; the caller lets go of it in any case.

        Raises:
            ProviderError: it failed for good, or too often.
            BudgetEndedError: the next attempt does not fit into the budget.
        """
        failures: list[ProviderError] = []
        try:  # most calls need one attempt, and tenacity takes a fifth of a pull's CPU time
            return await self._attempt(call)
        except ProviderError as error:
            failures.append(error)

        async def attempt() -> Reply:
            if failures:  # tenacity has not seen the first one
                raise failures.pop()
            return await self._attempt(call)

        async def pause(seconds: float) -> None:
            await self._pause(seconds, call)

        retrying = AsyncRetrying(
            stop=lambda _state: self._exhausted(call),
            wait=self._wait,
            retry=retry_if_exception(self._worth_repeating),
            sleep=pause,
            reraise=True,
        )
        return await retrying(attempt)

    async def _attempt(self, call: Call) -> Reply:
        limiter, request = call.limiter, call.request
        permit, reservation = await self._cleared(call)
        pulls = reservation.amount.pulls
        cost = Spend(pulls=pulls, calls=1)
        call.began = self._clock.now() if call.began is None else call.began
        limiter.send(permit)
        try:
            reply = await generate(self.provider, request, self._policy)
            cost = replied_spend(reply, pulls=pulls)
            kept = cost == cost.capped(reservation.amount)
            limiter.answered(permit, request, reply, first=call.failure is None, kept_bound=kept)
            call.failure = None
        except ProviderError as error:
            cost = failed_spend(error, reservation.amount)
            self._note_failure(error, call, permit)
            if limiter.halted is not None and error.transient:
                raise limiter.halted from error
            raise
        except asyncio.CancelledError:
            cost = reservation.amount
            limiter.cut_off(permit)
            raise
        finally:
            self.ledger.settle(reservation, cost)
            call.spend += cost
        return reply

    async def _cleared(self, call: Call) -> tuple[Permit, Reservation]:
        """Return permit and reservation for the next attempt, once the log holds the attempt."""
        permit = await self._permit(call)
        call.reservation = call.reservation or self.ledger.reserve(call.bound())
        if call.reservation is None:
            raise BudgetEndedError("the budget cannot pay for another call; raise it")
        if call.log is not None and not call.is_logged:
            cost = replace(call.reservation.amount, pulls=0)
            await call.log.attempt(call.key, cost, judge=call.judging is None)
        reservation, call.reservation = call.reservation, None
        call.permit, call.is_logged = None, False
        return permit, reservation

    async def _permit(self, call: Call) -> Permit:
        """Return the permit for the next attempt; the call's slot is free while it waits."""
        limiter = call.limiter
        if call.permit is None:
            bound, again = call.bound(), call.n_failures > 0
            call.permit = await limiter.acquire(call.request, bound, call.slot, again=again)
        limiter.check()
        return call.permit

    def _note_failure(self, error: ProviderError, call: Call, permit: Permit) -> None:
        call.failure = error.kind
        if error.kind is FailureKind.RATE_LIMITED:
            call.limiter.refused(permit, call.request, error, self._policy.max_wait_seconds)
        else:
            call.n_failures += 1
            call.limiter.failed(permit, call.request, error, call.failed_at)
            call.failed_at = min(call.failed_at, self._clock.now())
        self.limiters.close(call.request.model, error)

    def _exhausted(self, call: Call) -> bool:
        elapsed = self._clock.now() - (call.began or 0.0)
        hangs = call.is_first and call.failure is FailureKind.TIMEOUT
        return (
            (hangs and elapsed >= self._policy.timeout_seconds)
            or call.n_failures >= self._policy.max_attempts
            or elapsed >= self._policy.max_elapsed_seconds
        )

    def _worth_repeating(self, error: BaseException) -> bool:
        if not isinstance(error, ProviderError) or not error.transient:
            return False
        return (error.retry_after or 0.0) <= self._policy.max_wait_seconds

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if not isinstance(error, ProviderError):
            return 0.0
        if error.kind is FailureKind.RATE_LIMITED:
            return 0.0  # it waits in the limiter's queue
        return max(error.retry_after or 0.0, self._backoff(state))

    async def _pause(self, seconds: float, call: Call) -> None:
        call.slot.leave()
        if call.failure is FailureKind.RATE_LIMITED:
            return
        until = self._clock.now() + seconds
        with self.board.waiting(self.provider.name, f"backing off after: {call.failure}", until):
            await call.limiter.sleep(seconds)
            await call.slot.reenter()
