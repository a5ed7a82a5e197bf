"""One attempt at a request: in time, and with every failure a ``ProviderError``."""

from __future__ import annotations

import asyncio

from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.redaction import masked
from bestarm_agent.errors import Blame, FailureKind, ProviderError
from bestarm_agent.providers.base import Provider


async def attempt(
    provider: Provider, request: Request, *, timeout_seconds: float, max_wait_seconds: float
) -> Reply:
    """Send a request once.

    Args:
        provider: answers.
        request: what to send.
        timeout_seconds: time-out, > 0; not for providers that queue calls themselves.
        max_wait_seconds: a rate limit that lasts longer is a fatal error.

    Raises:
        ProviderError: it failed, whatever the provider raised.
        asyncio.CancelledError: the task was cancelled.
    """
    queued = provider.capabilities(request.model).queued
    try:
        async with asyncio.timeout(None if queued else timeout_seconds):
            return await provider.generate(request)
    except ProviderError as error:
        lasts = error.retry_after or 0.0
        if error.kind is not FailureKind.RATE_LIMITED or lasts <= max_wait_seconds:
            raise
        raise _beyond_patience(error, provider, request, max_wait_seconds) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ProviderError(  # else the call would vanish, and be waited for forever
            f"provider {provider.name} let a cancellation of its own get out",
            kind=FailureKind.INTERNAL,
            blame=Blame.HARNESS,
        ) from error
    except TimeoutError as error:
        raise ProviderError(
            f"{provider.name}/{request.model} did not answer within "
            f"{timeout_seconds:g} s; raise limits.timeout_seconds if it is slow",
            kind=FailureKind.TIMEOUT,
            transient=True,
        ) from error
    except Exception as error:
        raise ProviderError(
            f"provider {provider.name} raised {type(error).__name__}: {masked(str(error))}",
            kind=FailureKind.INTERNAL,
            blame=Blame.HARNESS,
        ) from error


def _beyond_patience(
    error: ProviderError, provider: Provider, request: Request, most: float
) -> ProviderError:
    return ProviderError(
        f"{provider.name}/{request.model} is rate limited for another {error.retry_after:.0f} s, "
        f"and a run waits {most:.0f} s at most; `bestarm-agent resume` goes on with it when that "
        f"is over ({error})",
        kind=FailureKind.RATE_LIMITED,
        fatal=True,
        retry_after=error.retry_after,
    )
