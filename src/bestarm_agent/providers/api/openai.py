"""Models behind OpenAI's API, or behind any server that speaks it: three protocols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from bestarm_agent.config.conversations import TOOL_CHOICES
from bestarm_agent.domain.values import Finish, Json, Part, Position, Request, content_of, tool_call
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.api.endpoints import Vendor
from bestarm_agent.providers.api.protocol import (
    MAX_TOKENS,
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
    response_format,
    text,
)
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.providers.base import EFFORT
from bestarm_agent.providers.catalog_entry import ModelFacts

_FINISH: Mapping[Json, Finish] = {
    "length": Finish.LENGTH,
    "max_output_tokens": Finish.LENGTH,
    "content_filter": Finish.CONTENT_FILTER,
}
_LOGPROBS = "message.output_text.logprobs"


def _encode_chat(request: Request, facts: ModelFacts, limit: int) -> dict[str, Json]:
    params = own_params(request)
    if (effort := params.pop(EFFORT, None)) is not None:
        params["reasoning_effort"] = effort
    body: dict[str, Json] = {
        "messages": chat_messages(request),
        **params,
        facts.max_tokens_field or MAX_TOKENS[1]: limit,
    }
    if (form := response_format(request)) is not None:
        body["response_format"] = form
    if request.tools:
        body["tools"] = [{"type": "function", "function": tool} for tool in request.tools]
    if (choice := request.tool_choice) is not None:
        named: Json = {"type": "function", "function": {"name": choice}}
        body["tool_choice"] = choice if choice in TOOL_CHOICES else named
    if request.top_logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    return body


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
        tool_calls=[
            tool_call(function.get("name"), function.get("arguments"), call.get("id"))
            for call in items(message.get("tool_calls"))
            if (function := mapping(call.get("function")))
        ],
    )


def _answer(
    body: Mapping[str, Json],
    content: str,
    *,
    refusal: str | None = None,
    reason: Json = None,
    logprobs: tuple[Position, ...] | None = None,
    prefix: tuple[str, str] = ("prompt", "completion"),
    tool_calls: Sequence[dict[str, Json]] = (),
) -> ApiAnswer:
    return ApiAnswer(
        text=refusal or content,
        finish=Finish.REFUSAL if refusal else _FINISH.get(reason, Finish.STOP),
        usage=openai_usage(mapping(body.get("usage")), prefix),
        model=text(body.get("model")) or "",
        tier=text(body.get("service_tier")),
        logprobs=logprobs,
        tool_calls=tuple(tool_calls),
    )


def _encode_completion(request: Request, facts: ModelFacts, limit: int) -> dict[str, Json]:
    if request.tools:
        raise ConfigError(
            f"{request.model} is asked for completions, which know no tools; write the prompt as "
            "`messages`, or leave the option `completion` out"
        )
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
    effort, verbosity = params.pop(EFFORT, None), params.pop("verbosity", None)
    body: dict[str, Json] = {
        "input": [*chain(*map(_input_items, chat_messages(request, _input_part)))],
        "store": False,
        **params,
        "max_output_tokens": limit,
    }
    if effort is not None:
        body["reasoning"] = {"effort": effort}
    written: dict[str, Json] = {} if verbosity is None else {"verbosity": verbosity}
    if (form := response_format(request)) is not None:
        written["format"] = {"type": form["type"], **mapping(form.get("json_schema"))}
    if written:
        body["text"] = written
    if request.tools:  # they are strict unless told otherwise, unlike those of chat completions
        body["tools"] = [{"type": "function", "strict": False, **one} for one in request.tools]
    if (choice := request.tool_choice) is not None:
        named: Json = {"type": "function", "name": choice}
        body["tool_choice"] = choice if choice in TOOL_CHOICES else named
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


def _input_items(message: dict[str, Json]) -> Iterator[dict[str, Json]]:
    """Yield a message as the items that it is here: each call, and its answer, is one."""
    call_id, calls = message.pop("tool_call_id", None), items(message.pop("tool_calls", None))
    if call_id is not None:
        output = message["content"]
        yield {"type": "function_call_output", "call_id": call_id, "output": output}
    elif message["content"] or not calls:
        yield message
    for call in calls:
        function = mapping(call["function"])
        yield {"type": "function_call", "call_id": call["id"], **function}


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
        tool_calls=[
            tool_call(item.get("name"), item.get("arguments"), item.get("call_id"))
            for item in items(output)
            if item.get("type") == "function_call"
        ],
    )


CHAT = Wire("chat/completions", frozenset(), _encode_chat, _decode_chat, renames_limit=True)
COMPLETIONS = Wire(
    "completions",
    frozenset({EFFORT, "thinking", "verbosity", "service_tier", "prompt_cache_key"})
    | {"response_format"},
    _encode_completion,
    _decode_completion,
)
RESPONSES = Wire(
    "responses",
    frozenset({"seed", "stop", "presence_penalty", "frequency_penalty", "logit_bias", "top_k"}),
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
        if not chat and facts.completion:
            return COMPLETIONS
        return RESPONSES if facts.api == "responses" else CHAT

    @staticmethod
    def open_client(**settings: Any) -> Any:  # noqa: ANN401
        """Open the client of OpenAI's package."""
        from openai import AsyncOpenAI

        return AsyncOpenAI(**settings)
