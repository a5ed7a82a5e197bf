"""What the tests of the API providers share."""

from __future__ import annotations

from pathlib import Path

from bestarm_agent.domain.values import Json, Message, Request
from bestarm_agent.providers.api.anthropic import AnthropicProvider
from bestarm_agent.providers.api.openai import OpenAIProvider
from bestarm_agent.providers.api.provider import ApiProvider
from tests.support.fake_api import FakeApi

PRICE: Json = {"input": 1, "output": 5, "cached": 0.1, "cache_write": 1.25}
VENDORS = ("openai", "anthropic")


def asked(question: str, model: str = "good", **params: Json) -> Request:
    """A chat request."""
    return Request(model, messages=(Message("user", question),), params=params)


def provider_of(vendor: str, server: FakeApi, **options: Json) -> ApiProvider:
    """A provider of one of the VENDORS that asks the fake server, and is called like it."""
    url = server.openai_url if vendor == "openai" else server.url
    given = {"base_url": url, "api_key": server.key or "none", "price": PRICE}
    kind = OpenAIProvider if vendor == "openai" else AnthropicProvider
    return kind.create(vendor, {**given, **options}, Path())
