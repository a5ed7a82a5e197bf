"""Models behind Anthropic's API, or behind any server that speaks it."""

from __future__ import annotations

from bestarm_agent.providers.api.anthropic_wire import LEGACY_MESSAGES, MESSAGES
from bestarm_agent.providers.api.connection import Sdk, Vendor
from bestarm_agent.providers.api.provider import ApiProvider


def _load() -> Sdk:
    from anthropic import AnthropicError, AsyncAnthropic, DefaultAioHttpClient

    return Sdk(AsyncAnthropic, DefaultAioHttpClient, AnthropicError)


ANTHROPIC = Vendor(
    name="anthropic",
    url="https://api.anthropic.com",
    url_variable="ANTHROPIC_BASE_URL",
    key_variable="ANTHROPIC_API_KEY",
    logprobs=False,
    wire=lambda facts, chat: LEGACY_MESSAGES if facts.legacy_sampling else MESSAGES,
    load=_load,
    models_path="v1/models",
)


class AnthropicProvider(ApiProvider):
    """Answers by the API of Anthropic, or of a server that is compatible with it."""

    vendor = ANTHROPIC
