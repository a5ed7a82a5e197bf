"""One request, sent until it is answered: time-outs, retries and what every attempt costs.

This is the only retry layer: the SDKs' own are switched off, else failures multiply unseen.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt
from tenacity.wait import wait_exponential_jitter

from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import Blame, FailureKind, ProviderError
from bestarm_agent.providers.base import Provider
from bestarm_agent.providers.failures import failed_spend
from bestarm_agent.schedule.clock import Clock
from bestarm_agent.schedule.gate import Slot
from bestarm_agent.schedule.ledger import Ledger, Reservation
from bestarm_agent.schedule.waits import WaitBoard


class BudgetEndedError(Exception):
    """No further attempt fits into the budget; the pair stays pending and can be resumed."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how patiently a call is repeated.

    Attributes:
        max_attempts: attempts in all, >= 1.
        timeout_seconds: time-out of one attempt, > 0.
        first_wait_seconds: wait after the first failure; doubles from there, jittered.
        max_wait_seconds: longest wait; a provider that asks for more has failed.
    """

    max_attempts: int = 5
    timeout_seconds: float = 120.0
    first_wait_seconds: float = 0.5
    max_wait_seconds: float = 60.0


@dataclass(slots=True)
class Attempts:
    """The attempts at one request.

    Attributes:
        reservation: set aside for the next attempt, or None if that is still to be done.
        spend: what the attempts so far have cost.
        failure: what the last one ended with, or None.
    """

    reservation: Reservation | None
    spend: Spend = field(default_factory=Spend)
    failure: FailureKind | None = None


class Caller:
    """Sends requests to one provider, within the budget, repeating what may yet succeed.

    Args:
        provider: answers.
        ledger: every attempt is reserved and settled here.
        policy: how often to repeat.
        clock: tells the time and sleeps.
        board: is told why a call waits.
    """

    def __init__(
        self,
        provider: Provider,
        ledger: Ledger,
        policy: RetryPolicy,
        clock: Clock,
        board: WaitBoard,
    ) -> None:
        self.provider = provider
        self._ledger = ledger
        self._policy = policy
        self._clock = clock
        self._board = board
        self._backoff = wait_exponential_jitter(
            multiplier=policy.first_wait_seconds,
            max=policy.max_wait_seconds,
            jitter=policy.first_wait_seconds,
        )

    async def call(self, request: Request, slot: Slot, attempts: Attempts) -> Reply:
        """Return the answer to ``request``.

        Args:
            request: what to send.
            slot: the call's place, given up while it backs off.
            attempts: holds the first attempt's reservation; its ``spend`` tells, also after an
                error, what was spent.

        Raises:
            ProviderError: it failed for good, or too often.
            BudgetEndedError: the next attempt does not fit into the budget.
        """

        async def pause(seconds: float) -> None:
            await self._pause(seconds, slot, attempts)

        retrying = AsyncRetrying(
            stop=stop_after_attempt(self._policy.max_attempts),
            wait=self._wait,
            retry=retry_if_exception(self._worth_repeating),
            sleep=pause,
            reraise=True,
        )
        return await retrying(self._attempt, request, attempts)

    async def _attempt(self, request: Request, attempts: Attempts) -> Reply:
        reservation = attempts.reservation
        attempts.reservation = None
        if reservation is None:
            reservation = self._ledger.reserve(self.provider.bound(request))
            if reservation is None:
                raise BudgetEndedError
        pulls = reservation.amount.pulls
        cost = Spend(pulls=pulls, calls=1)
        try:
            reply = await self._generate(request)
            cost = replied_spend(reply, pulls=pulls)
        except ProviderError as error:
            attempts.failure = error.kind
            cost = failed_spend(error, reservation.amount)
            raise
        except asyncio.CancelledError:
            cost = reservation.amount
            raise
        finally:
            self._ledger.settle(reservation, cost)
            attempts.spend += cost
        return reply

    async def _generate(self, request: Request) -> Reply:
        queued = self.provider.capabilities(request.model).queued
        try:
            async with asyncio.timeout(None if queued else self._policy.timeout_seconds):
                return await self.provider.generate(request)
        except ProviderError:
            raise
        except TimeoutError as error:
            raise ProviderError(
                f"{self.provider.name}/{request.model} did not answer within "
                f"{self._policy.timeout_seconds:g} s; raise limits.timeout_seconds if it is slow",
                kind=FailureKind.TIMEOUT,
                transient=True,
            ) from error
        except Exception as error:
            raise ProviderError(
                f"provider {self.provider.name} raised {type(error).__name__}: {error}",
                kind=FailureKind.INTERNAL,
                blame=Blame.HARNESS,
            ) from error

    def _worth_repeating(self, error: BaseException) -> bool:
        if not isinstance(error, ProviderError) or not error.transient:
            return False
        return (error.retry_after or 0.0) <= self._policy.max_wait_seconds

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = error.retry_after if isinstance(error, ProviderError) else None
        return max(asked or 0.0, self._backoff(state))

    async def _pause(self, seconds: float, slot: Slot, attempts: Attempts) -> None:
        slot.leave()
        until = self._clock.now() + seconds
        reason = f"backing off after: {attempts.failure}"
        with self._board.waiting(self.provider.name, reason, until):
            await self._clock.sleep(seconds)
            await slot.reenter()


def replied_spend(reply: Reply, *, pulls: int) -> Spend:
    """What one answered attempt cost."""
    return Spend(
        pulls=pulls,
        calls=reply.calls,
        tokens=reply.usage.total,
        usd_nanos=reply.usd_nanos or 0,
        gpu_seconds=reply.gpu_seconds,
    )
