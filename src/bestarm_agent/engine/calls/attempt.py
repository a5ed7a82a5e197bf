"""One attempt at a call: in time, every failure a ``ProviderError``, and its cost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from bestarm_agent.domain.redaction import masked
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import Blame, FailureKind, ProviderError
from bestarm_agent.providers.base import Provider


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Number and length of a call's retries."""

    max_attempts: int = 5  # >= 1; those that a rate limit refused are not counted
    timeout_seconds: float = 120.0  # time-out of one attempt, > 0
    first_wait_seconds: float = 0.5  # wait after the first failure; doubles from there, jittered
    max_wait_seconds: float = 60.0  # a model whose provider asks for a longer wait is given up
    max_elapsed_seconds: float = 900.0  # no attempt begins later than this after the first one


async def generate(provider: Provider, request: Request, policy: RetryPolicy) -> Reply:
    """Make one attempt; raise ProviderError for everything that goes wrong."""
    seconds = policy.timeout_seconds
    queued = provider.capabilities(request.model).queued  # waits for its turn without time-out
    try:
        async with asyncio.timeout(None if queued else seconds):
            return await provider.generate(request)
    except ProviderError as error:
        lasts = error.retry_after or 0.0
        if error.kind is not FailureKind.RATE_LIMITED or lasts <= policy.max_wait_seconds:
            raise
        raise ProviderError(
            f"{provider.name}/{request.model} is rate limited for another {lasts:.0f} s, and a run "
            f"waits {policy.max_wait_seconds:.0f} s at most; `bestarm-agent resume` goes on with "
            f"it when that is over ({error})",
            kind=FailureKind.RATE_LIMITED,
            fatal=True,
            retry_after=error.retry_after,
        ) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        message = f"provider {provider.name} let a cancellation of its own get out"
        raise _internal(message) from error  # else the call would be waited for forever
    except TimeoutError as error:
        raise ProviderError(
            f"{provider.name}/{request.model} did not answer within {seconds:g} s; "
            f"raise limits.timeout_seconds if it is slow",
            kind=FailureKind.TIMEOUT,
            transient=True,
        ) from error
    except Exception as error:
        said = f"{type(error).__name__}: {masked(str(error))}"
        raise _internal(f"provider {provider.name} raised {said}") from error


def _internal(message: str) -> ProviderError:
    return ProviderError(message, kind=FailureKind.INTERNAL, blame=Blame.HARNESS)


def replied_spend(reply: Reply, *, pulls: int) -> Spend:
    """Return the cost of one answered attempt."""
    return Spend(
        pulls=pulls,
        calls=reply.calls,
        tokens=reply.usage.total,
        usd_nanos=reply.usd_nanos or 0,
        gpu_seconds=reply.gpu_seconds,
    )
