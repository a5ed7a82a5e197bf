"""Models behind OpenAI's API, or behind any server that speaks it: three protocols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from bestarm_agent.config.conversations import TOOL_CHOICES
from bestarm_agent.domain.values import Finish, Json, Part, Position, Request, content_of, tool_call
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.api.endings import ending
from bestarm_agent.providers.api.endpoints import Vendor
from bestarm_agent.providers.api.protocol import (
    MAX_TOKENS,
    ApiAnswer,
    Wire,
    as_object,
    as_text,
    chat_messages,
    marked,
    objects_in,
    openai_usage,
    own_params,
    positions,
    response_format,
    spoken,
)
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.providers.base import EFFORT
from bestarm_agent.providers.catalog_entry import ModelFacts

# Fields of a message that hold what the model thought: DeepSeek's, vLLM's and OpenRouter's names.
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_REFUSED = "refusal"
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
        tool_choice: Json = {"type": "function", "function": {"name": choice}}
        body["tool_choice"] = choice if choice in TOOL_CHOICES else tool_choice
    if request.top_logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    return body


_BREAKPOINT: Mapping[str, Json] = {"prompt_cache_breakpoint": {"mode": "explicit"}}


def _mark_chat(body: dict[str, Json], request: Request) -> None:
    _mark(objects_in(body["messages"]), request, "text")


def _mark_response(body: dict[str, Json], request: Request) -> None:
    _mark([item for item in objects_in(body["input"]) if "role" in item], request, "input_text")


def _mark(messages: Sequence[Mapping[str, Json]], request: Request, kind: str) -> None:
    """Mark the end of what all examples begin with: models from GPT-5.6 on bill what is cached.

    The last message that begins alike for all is marked; an assistant's has parts of another type.
    """
    sent = [
        (message, head)
        for message, head in zip(request.messages or (None,), request.prefix, strict=False)
        if message is None or message.tool_call_id is None
    ]
    for message, (_, head) in reversed([*zip(messages, sent, strict=False)]):
        if message["role"] == "assistant" or not head.strip():
            continue
        message["content"] = marked(message["content"], head, _BREAKPOINT, kind)  # type: ignore[index] # a dict
        return


def _decode_chat(body: Mapping[str, Json], words: Mapping[str, Finish]) -> ApiAnswer:
    choice = _first_choice(body)
    message = as_object(choice.get("message"))
    # ``function_call`` is the older form, of one call; without either, the mapping below is empty.
    calls = objects_in(message.get("tool_calls")) or [{"function": message.get("function_call")}]
    content = message.get("content")
    return _answer(
        body,
        spoken(content, "text", "output_text"),
        words,
        refusal=_refusal([message, *objects_in(content)]),
        choice=choice,
        logprobs=positions(as_object(choice.get("logprobs")).get("content")),
        tool_calls=[
            tool_call(function.get("name"), function.get("arguments"), call.get("id"))
            for call in calls
            if (function := as_object(call.get("function")))
        ],
        thoughts=next(filter(None, (as_text(message.get(name)) for name in _THOUGHTS)), ""),
        # OpenRouter's details are all that there is of thoughts that come encrypted
        thinks=bool(message.get("reasoning_details"))
        or any(part.get("type") in _THOUGHTS for part in objects_in(content)),
    )


def _refusal(parts: Sequence[Mapping[str, Json]]) -> str:
    return "".join(as_text(part.get("refusal")) or "" for part in parts)


def _answer(
    body: Mapping[str, Json],
    content: str | None,
    words: Mapping[str, Finish],
    *,
    choice: Mapping[str, Json],
    refusal: str = "",
    logprobs: tuple[Position, ...] | None = None,
    tool_calls: Sequence[dict[str, Json]] = (),
    thoughts: str = "",
    thinks: bool = False,
) -> ApiAnswer:
    """Put an answer together; ``choice`` holds the reason to stop, and what failed if it did."""
    # what a gateway tells about the server behind it: OpenRouter beside the reason, LiteLLM apart
    sides = (choice, as_object(choice.get("message")))
    gateway = [as_object(side.get("provider_specific_fields")) for side in sides]
    places = (*gateway, choice)
    errors = [place.get("error") for place in (*places, body)]
    end = ending(
        _REFUSED if refusal else choice.get("finish_reason"),
        words,
        text=refusal or content,
        calls=bool(tool_calls),
        thinks=bool(thoughts or thinks),
        error=next(filter(None, errors), None),
        native=next(filter(None, (place.get("native_finish_reason") for place in places)), None),
    )
    return ApiAnswer(
        end,
        text=refusal or content or "",
        counts=openai_usage(as_object(body.get("usage"))),
        model=as_text(body.get("model")) or "",
        tier=as_text(body.get("service_tier")),
        logprobs=logprobs,
        tool_calls=tuple(tool_calls),
        reasoning=thoughts,
    )


def _encode_completion(request: Request, facts: ModelFacts, limit: int) -> dict[str, Json]:
    if request.tools:
        raise ConfigError(
            f"{request.model} is asked for completions, which know no tools; write the prompt as "
            "`messages`, or leave the option `completion` out"
        )
    return {"prompt": request.text, **own_params(request), "max_tokens": limit}


def _decode_completion(body: Mapping[str, Json], words: Mapping[str, Finish]) -> ApiAnswer:
    choice = _first_choice(body)
    return _answer(body, as_text(choice.get("text")), words, choice=choice)


def _first_choice(body: Mapping[str, Json]) -> Mapping[str, Json]:
    return next(iter(objects_in(body.get("choices"))), {})


def _encode_response(request: Request, facts: ModelFacts, limit: int) -> dict[str, Json]:
    params = own_params(request)
    effort, verbosity = params.pop(EFFORT, None), params.pop("verbosity", None)
    body: dict[str, Json] = {
        "input": [*chain(*map(_input_items, chat_messages(request, _input_part)))],
        # Each request holds its whole conversation, so the vendor need not keep any of it.
        "store": False,
        **params,
        "max_output_tokens": limit,
    }
    if effort is not None:
        body["reasoning"] = {"effort": effort}
    # Here the form and the verbosity share the field ``text``, which is left out if neither is
    # given.
    written: dict[str, Json] = {} if verbosity is None else {"verbosity": verbosity}
    if (form := response_format(request)) is not None:
        written["format"] = {"type": form["type"], **as_object(form.get("json_schema"))}
    if written:
        body["text"] = written
    if request.tools:  # they are strict unless told otherwise, unlike those of chat completions
        body["tools"] = [{"type": "function", "strict": False, **tool} for tool in request.tools]
    if (choice := request.tool_choice) is not None:
        tool_choice: Json = {"type": "function", "name": choice}
        body["tool_choice"] = choice if choice in TOOL_CHOICES else tool_choice
    if request.top_logprobs is not None:
        body |= {"include": [_LOGPROBS], "top_logprobs": request.top_logprobs}
    return body


def _input_part(part: Part) -> Part:
    match part.get("type"):
        case "image_url":
            return {"type": "input_image", "image_url": content_of(part)}
        case "file":
            return {"type": "input_file", **as_object(part["file"])}
    return {**part, "type": "input_text"}


def _input_items(message: dict[str, Json]) -> Iterator[dict[str, Json]]:
    """Yield a message as the items that it is here: each call, and its answer, is one."""
    call_id, calls = message.pop("tool_call_id", None), objects_in(message.pop("tool_calls", None))
    if call_id is not None:
        output = message["content"]
        yield {"type": "function_call_output", "call_id": call_id, "output": output}
    elif message["content"] or not calls:
        yield message
    for call in calls:
        function = as_object(call["function"])
        yield {"type": "function_call", "call_id": call["id"], **function}


def _decode_response(body: Mapping[str, Json], words: Mapping[str, Finish]) -> ApiAnswer:
    output = objects_in(body.get("output"))
    # What a model remarks between its calls of tools is no part of its answer.
    answered = [item for item in output if item.get("phase") != "commentary"]
    parts: list[Mapping[str, Json]] = []
    for item in answered:
        own = objects_in(item.get("content")) if item.get("type") == "message" else ()
        # Each of several messages is a text of its own: "42" behind "I check 6 * 7." is no 7.42.
        if any("text" in part for part in parts) and any("text" in part for part in own):
            parts.append({"type": "output_text", "text": "\n"})
        parts += own
    tokens = [token for part in parts for token in objects_in(part.get("logprobs"))]
    status, cut = body.get("status"), as_object(body.get("incomplete_details")).get("reason")
    return _answer(
        body,
        spoken(parts, "output_text"),
        words,
        refusal=_refusal(parts),
        # "incomplete" alone does not tell a full answer's limit from a filter: the details do.
        choice={"finish_reason": cut if cut and status == "incomplete" else status},
        logprobs=positions(tokens),
        tool_calls=[
            tool_call(item.get("name"), item.get("arguments"), item.get("call_id"))
            for item in output
            if item.get("type") == "function_call"
        ],
        thinks=any(item.get("type") == "reasoning" for item in output),
    )


CHAT = Wire(
    "chat/completions", frozenset(), _encode_chat, _decode_chat, mark=_mark_chat, renames_limit=True
)
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
    mark=_mark_response,
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
