"""Models behind Anthropic's API, or behind any server that speaks it."""

from __future__ import annotations

from typing import Any

from bestarm_agent.domain.digest import Json
from bestarm_agent.providers.api.anthropic_wire import LEGACY_MESSAGES, MESSAGES
from bestarm_agent.providers.api.connection import (
    Endpoint,
    Response,
    Vendor,
    open_client,
)
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.providers.api.wire import Wire


class AnthropicConnection:
    """Anthropic's own client over aiohttp."""

    def __init__(self, endpoint: Endpoint) -> None:
        from anthropic import AnthropicError, AsyncAnthropic, DefaultAioHttpClient

        self.errors: type[Exception] = AnthropicError
        self._client = open_client(AsyncAnthropic, DefaultAioHttpClient, endpoint)
        self._create: Any = self._client.messages.with_raw_response.create

    async def send(self, wire: Wire, body: dict[str, Json]) -> Response:
        """Send one request; raises AnthropicError."""
        # `extra_body` is sent as it is and overrides the arguments, which `create` transforms
        raw = await self._create(
            model=body["model"],
            messages=[],
            max_tokens=0,
            extra_body=body,
            extra_headers=dict(wire.headers),
        )
        return Response(raw.headers, await raw.read())

    async def list_models(self) -> Response:
        """Return the server's list of models; raises AnthropicError."""
        raw = await self._client.models.with_raw_response.list()
        return Response(raw.headers, await raw.read())

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()


ANTHROPIC = Vendor(
    name="anthropic",
    url="https://api.anthropic.com",
    url_variable="ANTHROPIC_BASE_URL",
    key_variable="ANTHROPIC_API_KEY",
    logprobs=False,
    wire=lambda facts, chat: LEGACY_MESSAGES if facts.legacy_sampling else MESSAGES,
    connect=AnthropicConnection,
)


class AnthropicProvider(ApiProvider):
    """Answers by the API of Anthropic, or of a server that is compatible with it."""

    vendor = ANTHROPIC
