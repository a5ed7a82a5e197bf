"""What the tests of the API providers share."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bestarm_agent.domain.values import Json, Message, Reply, Request
from bestarm_agent.errors import ProviderError
from bestarm_agent.providers.api.anthropic import AnthropicProvider
from bestarm_agent.providers.api.openai import OpenAIProvider
from bestarm_agent.providers.api.provider import ApiProvider
from tests.support.fake_api import FakeApi

PRICE: Json = {"input": 1, "output": 5, "cached": 0.1, "cache_write": 1.25}


def asked(question: str, model: str = "good", **params: Json) -> Request:
    """A chat request."""
    return Request(model, messages=(Message("user", question),), params=params)


VENDORS = ("openai", "anthropic")


def provider_of(vendor: str, server: FakeApi, **options: Json) -> ApiProvider:
    """A provider of one of the VENDORS that asks the fake server, and is called like it."""
    url = server.openai_url if vendor == "openai" else server.url
    given = {"base_url": url, "api_key": server.key or "none", "price": PRICE}
    kind = OpenAIProvider if vendor == "openai" else AnthropicProvider
    return kind.create(vendor, {**given, **options}, Path())


def answers(provider: ApiProvider, *requests: Request) -> list[Reply | ProviderError]:
    """Answer requests one after the other, with a loop of their own."""

    async def main() -> list[Reply | ProviderError]:
        async with provider:
            return [await _answer(provider, request) for request in requests]

    return asyncio.run(main())


async def _answer(provider: ApiProvider, request: Request) -> Reply | ProviderError:
    try:
        return await provider.generate(request)
    except ProviderError as error:
        return error


def reply(provider: ApiProvider, request: Request) -> Reply:
    """The answer to one request, which must not fail."""
    (found,) = answers(provider, request)
    assert isinstance(found, Reply), found
    return found


def error(provider: ApiProvider, request: Request) -> ProviderError:
    """The failure of one request."""
    (found,) = answers(provider, request)
    assert isinstance(found, ProviderError), found
    return found
