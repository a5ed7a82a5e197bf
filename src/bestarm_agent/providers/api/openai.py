"""Models behind OpenAI's API, or behind any server that speaks it."""

from __future__ import annotations

from bestarm_agent.providers.api.connection import Sdk, Vendor
from bestarm_agent.providers.api.openai_wire import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.providers.api.wire import Wire
from bestarm_agent.providers.catalog_entry import ModelFacts


def _wire(facts: ModelFacts, chat: bool) -> Wire:
    if facts.api == "embeddings":
        return EMBEDDINGS
    if not chat and facts.text == "completions":
        return COMPLETIONS
    return RESPONSES if facts.api == "responses" else CHAT


def _load() -> Sdk:
    from openai import AsyncOpenAI, DefaultAioHttpClient, OpenAIError

    return Sdk(AsyncOpenAI, DefaultAioHttpClient, OpenAIError)


OPENAI = Vendor(
    name="openai",
    url="https://api.openai.com/v1",
    url_variable="OPENAI_BASE_URL",
    key_variable="OPENAI_API_KEY",
    logprobs=True,
    wire=_wire,
    load=_load,
    models_path="models",
)


class OpenAIProvider(ApiProvider):
    """Answers by the API of OpenAI, or of a server that is compatible with it."""

    vendor = OPENAI
