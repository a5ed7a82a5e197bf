"""Models behind OpenAI's API, or behind any server that speaks it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from bestarm_agent.domain.digest import Json
from bestarm_agent.providers.api import ApiProvider, parse_api_options
from bestarm_agent.providers.api_connection import Response
from bestarm_agent.providers.api_options import Endpoint
from bestarm_agent.providers.api_wire import Wire
from bestarm_agent.providers.entry import ModelFacts
from bestarm_agent.providers.openai_wires import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES

_IN_BODY = ""  # stands for what `create` insists on and `extra_body` holds


class OpenAIConnection:
    """OpenAI's own client over aiohttp; time-outs and retries are the scheduler's."""

    def __init__(self, endpoint: Endpoint) -> None:
        from openai import AsyncOpenAI, DefaultAioHttpClient, OpenAIError

        self.errors: type[Exception] = OpenAIError
        self._client = AsyncOpenAI(
            base_url=endpoint.url,
            api_key=endpoint.key,
            default_headers=endpoint.headers,
            max_retries=0,
            timeout=None,
            http_client=DefaultAioHttpClient(timeout=None),
        )
        raw = self._client.with_raw_response
        self._create: dict[Wire, Callable[..., Awaitable[Any]]] = {
            CHAT: raw.chat.completions.create,
            COMPLETIONS: raw.completions.create,
            RESPONSES: raw.responses.create,
            EMBEDDINGS: raw.embeddings.create,
        }

    async def send(self, wire: Wire, body: dict[str, Json]) -> Response:
        """Send one request; raises OpenAIError."""
        # `extra_body` goes as it is and comes before the arguments, which `create` rewrites by
        # their types: that takes 0.3 ms for a message, and changes nothing
        named = dict.fromkeys(wire.prompt_fields, _IN_BODY)
        raw = await self._create[wire](**named, extra_body=body)
        response = raw.http_response
        return Response(response.headers, response.content)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()


class OpenAI:
    """The vendor."""

    name = "openai"
    url = "https://api.openai.com/v1"
    url_variable = "OPENAI_BASE_URL"
    key_variable = "OPENAI_API_KEY"
    logprobs = True

    def wire(self, facts: ModelFacts, *, chat: bool) -> Wire:
        """Chat completions, unless the model's facts say otherwise."""
        if facts.api == "embeddings":
            return EMBEDDINGS
        if not chat and facts.text == "completions":
            return COMPLETIONS
        return RESPONSES if facts.api == "responses" else CHAT

    def connect(self, endpoint: Endpoint) -> OpenAIConnection:
        """Open a client."""
        return OpenAIConnection(endpoint)


def create(name: str, options: Mapping[str, Json], base_dir: Path) -> ApiProvider:
    """Build the provider; raises ConfigError if an option is wrong."""
    return ApiProvider(name, OpenAI(), parse_api_options(name, options))
