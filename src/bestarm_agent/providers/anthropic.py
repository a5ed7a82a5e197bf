"""Models behind Anthropic's API, or behind any server that speaks it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bestarm_agent.domain.digest import Json
from bestarm_agent.providers.anthropic_wire import LEGACY_MESSAGES, MESSAGES
from bestarm_agent.providers.api import ApiProvider, parse_api_options
from bestarm_agent.providers.api_connection import Response
from bestarm_agent.providers.api_options import Endpoint
from bestarm_agent.providers.api_wire import Wire
from bestarm_agent.providers.entry import ModelFacts

# The last version of the API that takes temperature, top_p and top_k.
_LEGACY_HEADERS = {"anthropic-version": "2023-06-01"}


class AnthropicConnection:
    """Anthropic's own client over aiohttp; time-outs and retries are the scheduler's."""

    def __init__(self, endpoint: Endpoint) -> None:
        from anthropic import AnthropicError, AsyncAnthropic, DefaultAioHttpClient

        self.errors: type[Exception] = AnthropicError
        self._client = AsyncAnthropic(
            base_url=endpoint.url,
            api_key=endpoint.key,
            default_headers=endpoint.headers,
            max_retries=0,
            timeout=None,
            http_client=DefaultAioHttpClient(timeout=None),
        )
        self._create: Any = self._client.messages.with_raw_response.create

    async def send(self, wire: Wire, body: dict[str, Json]) -> Response:
        """Send one request; raises AnthropicError."""
        # `extra_body` goes as it is and comes before the arguments, which `create` rewrites
        headers = _LEGACY_HEADERS if wire is LEGACY_MESSAGES else {}
        raw = await self._create(
            model=body["model"], messages=[], max_tokens=0, extra_body=body, extra_headers=headers
        )
        return Response(raw.headers, await raw.read())

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()


class Anthropic:
    """The vendor."""

    name = "anthropic"
    url = "https://api.anthropic.com"
    url_variable = "ANTHROPIC_BASE_URL"
    key_variable = "ANTHROPIC_API_KEY"
    logprobs = False

    def wire(self, facts: ModelFacts, *, chat: bool) -> Wire:
        """Messages, with sampling parameters where the model still takes them."""
        return LEGACY_MESSAGES if facts.legacy_sampling else MESSAGES

    def connect(self, endpoint: Endpoint) -> AnthropicConnection:
        """Open a client."""
        return AnthropicConnection(endpoint)


def create(name: str, options: Mapping[str, Json], base_dir: Path) -> ApiProvider:
    """Build the provider; raises ConfigError if an option is wrong."""
    return ApiProvider(name, Anthropic(), parse_api_options(name, options))
