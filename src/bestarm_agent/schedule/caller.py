"""One request, sent until it is answered: rate limits, time-outs, retries, what attempts cost.

This is the only retry layer: the SDKs' own are switched off, else failures multiply unseen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception
from tenacity.wait import wait_exponential_jitter

from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.base import Provider
from bestarm_agent.providers.failures import failed_spend
from bestarm_agent.schedule.attempt import attempt
from bestarm_agent.schedule.clock import Clock
from bestarm_agent.schedule.gate import Slot
from bestarm_agent.schedule.lane import Lane, LaneRules
from bestarm_agent.schedule.lanes import Lanes
from bestarm_agent.schedule.ledger import Ledger, Reservation
from bestarm_agent.schedule.limiter import Permit
from bestarm_agent.schedule.waits import WaitBoard


class BudgetEndedError(Exception):
    """No further attempt fits into the budget; the pair stays pending and can be resumed."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how patiently a call is repeated.

    Attributes:
        max_attempts: attempts in all, >= 1; those that a rate limit refused are not counted.
        timeout_seconds: time-out of one attempt, > 0.
        first_wait_seconds: wait after the first failure; doubles from there, jittered.
        max_wait_seconds: longest wait; a model whose provider asks for more is given up.
        max_elapsed_seconds: no attempt begins later than this after the first one.
    """

    max_attempts: int = 5
    timeout_seconds: float = 120.0
    first_wait_seconds: float = 0.5
    max_wait_seconds: float = 60.0
    max_elapsed_seconds: float = 900.0


@dataclass(slots=True)
class Attempts:
    """The attempts at one request.

    Attributes:
        reservation: set aside for the next attempt, or None if that is still to be done.
        spend: what the attempts so far have cost.
        permit: the rate limiter's leave for the next attempt, or None likewise.
        failure: what the last one ended with, or None.
        counted: how many failed, refused ones left out.
        began: when the first one was sent, in the clock's seconds, or None.
    """

    reservation: Reservation | None
    spend: Spend = field(default_factory=Spend)
    permit: Permit | None = None
    failure: FailureKind | None = None
    counted: int = 0
    began: float | None = None


@dataclass(frozen=True, slots=True)
class _Sending:
    """One request on its way."""

    request: Request
    slot: Slot
    attempts: Attempts
    lane: Lane


class Caller:
    """Sends requests to one provider, within the budget, repeating what may yet succeed.

    Args:
        provider: answers.
        ledger: every attempt is reserved and settled here.
        policy: how often to repeat.
        clock: tells the time and sleeps.
        board: is told why a call waits.
        rules: how calls to a model are held back, by name of the model.
        shared: whether all models of the account share what ``rules`` says.
    """

    def __init__(
        self,
        provider: Provider,
        ledger: Ledger,
        policy: RetryPolicy,
        clock: Clock,
        board: WaitBoard,
        *,
        rules: Callable[[str], LaneRules] = lambda _model: LaneRules(),
        shared: bool = False,
    ) -> None:
        self.provider = provider
        self._lanes = Lanes(provider, clock, board, rules, shared=shared)
        self._ledger = ledger
        self._policy = policy
        self._clock = clock
        self._board = board
        self._backoff = wait_exponential_jitter(
            multiplier=policy.first_wait_seconds,
            max=policy.max_wait_seconds,
            jitter=policy.first_wait_seconds,
        )

    def lane(self, model: str) -> Lane:
        """The way to a model."""
        return self._lanes.of(model)

    def apart(self) -> Caller:
        """One that shares the lanes of this one, and has its own books.

        For calls that somebody else reserves and books: nothing is repeated but what a rate limit
        turned away, which costs nothing.
        """
        twin = copy(self)
        twin._ledger = Ledger(Budget())
        twin._policy = replace(self._policy, max_attempts=1)
        return twin

    async def call(self, request: Request, slot: Slot, attempts: Attempts) -> Reply:
        """Return the answer to ``request``.

        Args:
            request: what to send.
            slot: the call's place, given up while it backs off or waits for the rate limit.
            attempts: holds the first attempt's reservation, and its permit if it has one; its
                ``spend`` tells, also after an error, what was spent.

        Raises:
            ProviderError: it failed for good, or too often.
            BudgetEndedError: the next attempt does not fit into the budget.
        """
        sending = _Sending(request, slot, attempts, self.lane(request.model))

        async def pause(seconds: float) -> None:
            await self._pause(seconds, sending)

        retrying = AsyncRetrying(
            stop=lambda _state: self._exhausted(attempts),
            wait=self._wait,
            retry=retry_if_exception(self._worth_repeating),
            sleep=pause,
            reraise=True,
        )
        return await retrying(self._attempt, sending)

    async def _attempt(self, sending: _Sending) -> Reply:
        request, attempts, lane = sending.request, sending.attempts, sending.lane
        permit = await self._permit(sending)
        reservation = self._reservation(sending)
        if reservation is None:
            lane.limiter.refund(permit)
            raise BudgetEndedError
        pulls = reservation.amount.pulls
        cost = Spend(pulls=pulls, calls=1)
        attempts.began = self._clock.now() if attempts.began is None else attempts.began
        lane.send(permit)
        try:
            reply = await attempt(
                self.provider,
                request,
                timeout_seconds=self._policy.timeout_seconds,
                max_wait_seconds=self._policy.max_wait_seconds,
            )
            cost = replied_spend(reply, pulls=pulls)
            lane.answered(permit, request, reply, first=attempts.failure is None)
        except ProviderError as error:
            cost = failed_spend(error, reservation.amount)
            self._book_failure(error, sending, permit)
            raise
        except asyncio.CancelledError:
            cost = reservation.amount
            lane.cut_off(permit)
            raise
        finally:
            self._ledger.settle(reservation, cost)
            attempts.spend += cost
        return reply

    async def _permit(self, sending: _Sending) -> Permit:
        """The leave for the next attempt; the call's place is given up while it waits in line."""
        lane = sending.lane
        permit, sending.attempts.permit = sending.attempts.permit, None
        if permit is None:
            bound = self.provider.bound(sending.request)
            permit = await lane.acquire(sending.request, bound, sending.slot)
        try:
            lane.check()
        except ProviderError:
            lane.limiter.refund(permit)
            raise
        return permit

    def _reservation(self, sending: _Sending) -> Reservation | None:
        attempts = sending.attempts
        reservation, attempts.reservation = attempts.reservation, None
        return reservation or self._ledger.reserve(self.provider.bound(sending.request))

    def _book_failure(self, error: ProviderError, sending: _Sending, permit: Permit) -> None:
        sending.attempts.failure = error.kind
        if error.kind is FailureKind.RATE_LIMITED:
            sending.lane.refused(permit, sending.request, error, self._policy.max_wait_seconds)
        else:
            sending.attempts.counted += 1
            sending.lane.failed(permit, sending.request, error)
        self._lanes.close(sending.request.model, error)

    def _exhausted(self, attempts: Attempts) -> bool:
        elapsed = self._clock.now() - (attempts.began or 0.0)
        return (
            attempts.counted >= self._policy.max_attempts
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
            return 0.0  # it waits in the limiter's line, with everybody else
        return max(error.retry_after or 0.0, self._backoff(state))

    async def _pause(self, seconds: float, sending: _Sending) -> None:
        sending.slot.leave()
        if sending.attempts.failure is FailureKind.RATE_LIMITED:
            return
        until = self._clock.now() + seconds
        reason = f"backing off after: {sending.attempts.failure}"
        with self._board.waiting(self.provider.name, reason, until):
            await sending.lane.sleep(seconds)
            await sending.slot.reenter()


def replied_spend(reply: Reply, *, pulls: int) -> Spend:
    """What one answered attempt cost."""
    return Spend(
        pulls=pulls,
        calls=reply.calls,
        tokens=reply.usage.total,
        usd_nanos=reply.usd_nanos or 0,
        gpu_seconds=reply.gpu_seconds,
    )
