"""Calls of a provider, in a loop of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.errors import ProviderError
from bestarm_agent.providers.base import Provider

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def answers(
    provider: Provider[Any], *requests: Request, run: Run = asyncio.run
) -> list[Reply | ProviderError]:
    """Answer requests one after the other."""

    async def main() -> list[Reply | ProviderError]:
        async with provider:
            return [await attempt(provider, request) for request in requests]

    found: list[Reply | ProviderError] = run(main())
    return found


async def attempt(provider: Provider[Any], request: Request) -> Reply | ProviderError:
    """The answer to a request, or its failure."""
    try:
        return await provider.generate(request)
    except ProviderError as error:
        return error


def replies(provider: Provider[Any], *requests: Request, run: Run = asyncio.run) -> list[Reply]:
    """The answers to requests, none of which may fail."""
    found = answers(provider, *requests, run=run)
    good = [one for one in found if isinstance(one, Reply)]
    assert len(good) == len(found), found
    return good


def reply(provider: Provider[Any], request: Request, run: Run = asyncio.run) -> Reply:
    """The answer to one request, which must not fail."""
    return replies(provider, request, run=run)[0]


def error(provider: Provider[Any], request: Request, run: Run = asyncio.run) -> ProviderError:
    """The failure of one request."""
    (found,) = answers(provider, request, run=run)
    assert isinstance(found, ProviderError), found
    return found
