"""Models behind OpenAI's API, or behind any server that speaks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bestarm_agent.domain.digest import Json
from bestarm_agent.providers.api.connection import (
    Endpoint,
    Response,
    Vendor,
    open_client,
)
from bestarm_agent.providers.api.openai_wire import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.providers.api.wire import Wire
from bestarm_agent.providers.catalog_entry import ModelFacts

_IN_BODY = ""  # placeholder for an argument that `create` requires and `extra_body` overrides


class OpenAIConnection:
    """OpenAI's own client over aiohttp."""

    def __init__(self, endpoint: Endpoint) -> None:
        from openai import AsyncOpenAI, DefaultAioHttpClient, OpenAIError

        self.errors: type[Exception] = OpenAIError
        self._client = open_client(AsyncOpenAI, DefaultAioHttpClient, endpoint)
        self._create = _methods(self._client.with_raw_response)

    async def send(self, wire: Wire, body: dict[str, Json]) -> Response:
        """Send one request; raises OpenAIError."""
        # `extra_body` is sent as it is and overrides the arguments, which `create` transforms by
        # their types: that takes 0.3 ms for a message and changes nothing
        named = dict.fromkeys(wire.prompt_fields, _IN_BODY)
        raw = await self._create[wire](**named, extra_body=body)
        response = raw.http_response
        return Response(response.headers, response.content)

    async def list_models(self) -> Response:
        """Return the server's list of models; raises OpenAIError."""
        raw = await self._client.models.with_raw_response.list()
        return Response(raw.headers, raw.content)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()


def _methods(client: Any) -> dict[Wire, Callable[..., Any]]:  # noqa: ANN401
    return {
        CHAT: client.chat.completions.create,
        COMPLETIONS: client.completions.create,
        RESPONSES: client.responses.create,
        EMBEDDINGS: client.embeddings.create,
    }


def _wire(facts: ModelFacts, chat: bool) -> Wire:
    if facts.api == "embeddings":
        return EMBEDDINGS
    if not chat and facts.text == "completions":
        return COMPLETIONS
    return RESPONSES if facts.api == "responses" else CHAT


OPENAI = Vendor(
    name="openai",
    url="https://api.openai.com/v1",
    url_variable="OPENAI_BASE_URL",
    key_variable="OPENAI_API_KEY",
    logprobs=True,
    wire=_wire,
    connect=OpenAIConnection,
)


class OpenAIProvider(ApiProvider):
    """Answers by the API of OpenAI, or of a server that is compatible with it."""

    vendor = OPENAI
