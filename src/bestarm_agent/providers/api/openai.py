"""Models behind OpenAI's API, or behind any server that speaks it: three protocols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bestarm_agent.domain.values import Finish, Json, Part, Position, Request, content_of
from bestarm_agent.providers.api.endpoints import Vendor
from bestarm_agent.providers.api.protocol import (
    ApiAnswer,
    MalformedError,
    Wire,
    chat_messages,
    items,
    joined,
    mapping,
    openai_usage,
    own_params,
    positions,
    text,
)
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.providers.catalog_entry import ModelFacts

_FINISH: Mapping[Json, Finish] = {
    "length": Finish.LENGTH,
    "max_output_tokens": Finish.LENGTH,
    "content_filter": Finish.CONTENT_FILTER,
}
_LOGPROBS = "message.output_text.logprobs"


def _encode_chat(request: Request, facts: ModelFacts, limit: int) -> dict[str, Json]:
    body: dict[str, Json] = {
        "messages": chat_messages(request),
        **own_params(request),
        facts.max_tokens_field or "max_completion_tokens": limit,
    }
    if request.response_schema is not None:
        schema = _named_schema(request.response_schema)
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if request.top_logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    return body


def _named_schema(schema: Mapping[str, Json]) -> dict[str, Json]:
    title = schema.get("title")
    return {"name": title if isinstance(title, str) else "answer", "schema": schema, "strict": True}


def _decode_chat(body: Mapping[str, Json]) -> ApiAnswer:
    choice = _first_choice(body)
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise MalformedError("its choice holds no message")
    refusal, content = text(message.get("refusal")), message.get("content")
    return _answer(
        body,
        content if isinstance(content, str) else joined(content, "text"),
        refusal=refusal,
        reason=choice.get("finish_reason"),
        logprobs=positions(mapping(choice.get("logprobs")).get("content")),
    )


def _answer(
    body: Mapping[str, Json],
    content: str,
    *,
    refusal: str | None = None,
    reason: Json = None,
    logprobs: tuple[Position, ...] | None = None,
    prefix: tuple[str, str] = ("prompt", "completion"),
) -> ApiAnswer:
    return ApiAnswer(
        text=refusal or content,
        finish=Finish.REFUSAL if refusal else _FINISH.get(reason, Finish.STOP),
        usage=openai_usage(mapping(body.get("usage")), prefix),
        model=text(body.get("model")) or "",
        tier=text(body.get("service_tier")),
        logprobs=logprobs,
    )


def _encode_completion(request: Request, facts: ModelFacts, limit: int) -> dict[str, Json]:
    return {"prompt": request.text, **own_params(request), "max_tokens": limit}


def _decode_completion(body: Mapping[str, Json]) -> ApiAnswer:
    choice = _first_choice(body)
    content = text(choice.get("text"))
    if content is None:
        raise MalformedError("its choice holds no text")
    return _answer(body, content, reason=choice.get("finish_reason"))


def _first_choice(body: Mapping[str, Json]) -> Mapping[str, Json]:
    choices = items(body.get("choices"))
    if not choices:
        raise MalformedError("it holds no choices")
    return choices[0]


def _encode_response(request: Request, facts: ModelFacts, limit: int) -> dict[str, Json]:
    params = own_params(request)
    effort, verbosity = params.pop("reasoning_effort", None), params.pop("verbosity", None)
    body: dict[str, Json] = {
        "input": chat_messages(request, _input_part),
        "store": False,
        **params,
        "max_output_tokens": limit,
    }
    if effort is not None:
        body["reasoning"] = {"effort": effort}
    form: dict[str, Json] = {} if verbosity is None else {"verbosity": verbosity}
    if request.response_schema is not None:
        form["format"] = {"type": "json_schema", **_named_schema(request.response_schema)}
    if form:
        body["text"] = form
    if request.top_logprobs is not None:
        body |= {"include": [_LOGPROBS], "top_logprobs": request.top_logprobs}
    return body


def _input_part(part: Part) -> Part:
    match part.get("type"):
        case "image_url":
            return {"type": "input_image", "image_url": content_of(part)}
        case "file":
            return {"type": "input_file", **mapping(part["file"])}
    return {**part, "type": "input_text"}


def _decode_response(body: Mapping[str, Json]) -> ApiAnswer:
    output = body.get("output")
    if not isinstance(output, list):
        raise MalformedError("it holds no output")
    parts = [
        part
        for item in items(output)
        if item.get("type") == "message"
        for part in items(item.get("content"))
    ]
    refusal = "".join(text(part.get("refusal")) or "" for part in parts)
    tokens = [token for part in parts for token in items(part.get("logprobs"))]
    return _answer(
        body,
        joined(parts, "output_text"),
        refusal=refusal,
        reason=mapping(body.get("incomplete_details")).get("reason"),
        logprobs=positions(tokens),
        prefix=("input", "output"),
    )


_COMMON = frozenset({"temperature", "top_p", "max_tokens", "max_completion_tokens", "service_tier"})
_SAMPLED = _COMMON | {"seed", "stop", "presence_penalty", "frequency_penalty", "logit_bias"}

CHAT = Wire(
    "chat/completions",
    _SAMPLED | {"reasoning_effort", "verbosity", "prompt_cache_key"},
    _encode_chat,
    _decode_chat,
)
COMPLETIONS = Wire(
    "completions", _SAMPLED - {"service_tier"}, _encode_completion, _decode_completion
)
RESPONSES = Wire(
    "responses",
    _COMMON | {"reasoning_effort", "verbosity", "prompt_cache_key"},
    _encode_response,
    _decode_response,
)


class OpenAIProvider(ApiProvider):
    """Answers by the API of OpenAI, or of a server that is compatible with it."""

    vendor = Vendor("openai", "https://api.openai.com/v1", "OPENAI_BASE_URL", "OPENAI_API_KEY")
    logprobs = True
    models_path = "models"

    @staticmethod
    def wire(facts: ModelFacts, *, chat: bool) -> Wire:
        """Return the protocol of a model's ``api``; plain prompts may be sent for completion."""
        if not chat and facts.text == "completions":
            return COMPLETIONS
        return RESPONSES if facts.api == "responses" else CHAT

    @staticmethod
    def open_client(**settings: Any) -> Any:  # noqa: ANN401
        """Open the client of OpenAI's package."""
        from openai import AsyncOpenAI

        return AsyncOpenAI(**settings)
