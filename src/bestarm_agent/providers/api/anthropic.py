"""Models behind Anthropic's API, or behind any server that speaks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bestarm_agent.domain.spend import Usage
from bestarm_agent.domain.values import Finish, Json, Message, Part, Request, content_of, tool_call
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.api.endings import ending
from bestarm_agent.providers.api.endpoints import Vendor
from bestarm_agent.providers.api.protocol import (
    ApiAnswer,
    Counts,
    Wire,
    as_count,
    as_object,
    as_text,
    marked,
    objects_in,
    own_params,
    response_format,
    spoken,
)
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.providers.base import EFFORT
from bestarm_agent.providers.catalog_entry import ModelFacts

_THOUGHTS = ("thinking", "redacted_thinking")
_MARK: Mapping[str, Json] = {"cache_control": {"type": "ephemeral"}}
_PATH = "v1/messages"
# Efforts as budgets of thinking tokens, for models that know no words: LiteLLM's choice.
_BUDGETS: Mapping[Json, int] = {"minimal": 1024, "low": 1024, "medium": 2048, "high": 4096}
_LACKS = frozenset({"seed", "presence_penalty", "frequency_penalty", "logit_bias", "verbosity"})
_LACKS |= {"prompt_cache_key"}
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}


def _encode(request: Request, facts: ModelFacts, limit: int) -> dict[str, Json]:
    system, turns = _split_system(request)
    params = own_params(request)
    effort, stop = params.pop(EFFORT, None), params.pop("stop", None)
    # An effort is a word of ``output_config``, a budget of thinking tokens, or "none". A number is
    # always a budget; a word becomes one only for models that do not know words.
    tokens = _BUDGETS.get(effort, effort) if facts.effort_tokens else effort
    if effort == "none":
        effort, params["thinking"] = None, {"type": "disabled"}
    elif isinstance(tokens, int):
        effort, params["thinking"] = None, {"type": "enabled", "budget_tokens": tokens}
        if tokens >= limit:  # it is a part of the answer
            raise ConfigError(
                f"{request.model} thinks for up to {tokens:,} tokens at this effort, and its "
                f"answer may have {limit:,} with these; raise `max_tokens`, or lower the effort"
            )
    body: dict[str, Json] = {"messages": turns, "max_tokens": limit, **params}
    if system:
        body["system"] = system
    if request.prefix:
        _mark_prefix(body, turns, request)
    if stop is not None:
        body["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    config: dict[str, Json] = {} if effort is None else {"effort": effort}
    if (form := response_format(request)) is not None:
        if form["type"] != "json_schema":
            raise ConfigError(
                f"{request.model} takes `response_format` only with `type: json_schema`, got "
                f"`{form['type']}`; give a schema, or exclude the model from this value"
            )
        schema = as_object(form["json_schema"])["schema"]
        config["format"] = {"type": "json_schema", "schema": schema}
    if config:
        body["output_config"] = config
    if request.uses_tools and not request.tools:
        raise ConfigError(
            f"{request.model} refuses conversations with calls of tools where the prompt has no "
            "`tools`; list those that are called"
        )
    if request.tools:
        body["tools"] = [
            {"input_schema" if key == "parameters" else key: value for key, value in tool.items()}
            for tool in request.tools
        ]
    if (choice := request.tool_choice) is not None:
        tool_choice: dict[str, Json] = {"type": "tool", "name": choice}
        body["tool_choice"] = {"type": _CHOICES[choice]} if choice in _CHOICES else tool_choice
    return body


def _mark_prefix(body: dict[str, Json], turns: Sequence[dict[str, Json]], request: Request) -> None:
    """Mark what all examples begin with, to be cached: of the system's part, and of all."""
    # The API caches a prompt up to a mark, and nothing without one. At most two places are marked:
    # the end of what all examples share of the system's part, and of what they share of the whole
    # conversation. A mark covers everything before it, so the turns are searched from the end, and
    # the first that can be marked is enough.
    n = sum(message.role == "system" for message in request.messages)
    if "system" in body:
        body["system"] = marked(body["system"], "\n\n".join(request.prefix[:n]), _MARK)
    heads: list[tuple[dict[str, Json], str]] = []
    place, in_results = -1, False  # of the message's turn: results of tools in a row are one
    messages = request.messages[n:] or (Message("user", request.text or ""),)
    # The prefix ends with the first message that differs by example, so there may be fewer heads.
    for message, head in zip(messages, request.prefix[n:], strict=False):
        is_result = message.tool_call_id is not None
        place += not (is_result and in_results)
        in_results = is_result
        heads.append((turns[place], head))
    for turn, head in reversed(heads):
        if head.strip() and (blocks := marked(turn["content"], head, _MARK)) != turn["content"]:
            turn["content"] = blocks
            return


def _split_system(request: Request) -> tuple[str, list[dict[str, Json]]]:
    messages = request.messages or (Message("user", request.text or ""),)
    n = next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
    # Here the system's part is a field of its own, so its place among the turns would be lost.
    if not messages[n:] or any(message.role == "system" for message in messages[n:]):
        raise ConfigError(
            f"{request.model} takes system messages only at the beginning, and at least one other "
            "message after them; change the prompt"
        )
    return "\n\n".join(message.text for message in messages[:n]), _turns(messages[n:])


def _turns(messages: Sequence[Message]) -> list[dict[str, Json]]:
    """Return messages with calls and results of tools as blocks; results in a row are one turn."""
    turns: list[dict[str, Json]] = []
    results: list[Json] = []  # of the last turn
    for message in messages:
        content = given if isinstance(given := message.content, str) else [*map(_block, given)]
        if message.tool_call_id is not None:
            if not results:
                turns.append({"role": "user", "content": results})
            call_id = message.tool_call_id
            results.append({"type": "tool_result", "tool_use_id": call_id, "content": content})
            continue
        results = []
        block: Json = {"type": "text", "text": content}
        blocks = [block] if content and message.tool_calls else []
        for call in message.tool_calls:
            function = as_object(call["function"])
            used: Json = {"name": function["name"], "input": function["arguments"]}
            blocks.append({"type": "tool_use", "id": call["id"], **as_object(used)})
        turns.append({"role": message.role, "content": blocks or content})
    return turns


def _block(part: Part) -> Part:
    kind = {"image_url": "image", "file": "document"}.get(str(part["type"]))
    if kind is None:
        return part
    url = content_of(part)
    source: dict[str, Json] = {"type": "url", "url": url}
    if url.startswith("data:"):
        head, _, data = url.partition(";base64,")
        source = {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
    return {"type": kind, "source": source}


def _decode(body: Mapping[str, Json], words: Mapping[str, Finish]) -> ApiAnswer:
    content, usage = body.get("content"), as_object(body.get("usage"))
    blocks = objects_in(content)
    # an empty list is an answer without a word, as Claude may give after results of tools
    answer = "" if content == [] else spoken(content, "text")
    calls = tuple(
        tool_call(block.get("name"), block.get("input"), block.get("id"))
        for block in blocks
        if block.get("type") == "tool_use"
    )
    thinks = any(block.get("type") in _THOUGHTS for block in blocks)
    return ApiAnswer(
        ending(
            body.get("stop_reason"),
            words,
            text=answer,
            calls=bool(calls),
            thinks=thinks,
            error=body.get("error"),
        ),
        text=answer or "",
        counts=_counts(usage),
        model=as_text(body.get("model")) or "",
        tier=as_text(usage.get("service_tier")),
        tool_calls=calls,
        reasoning="\n".join(filter(None, (as_text(block.get("thinking")) for block in blocks))),
    )


def _counts(usage: Mapping[str, Json]) -> Counts:
    """Read token counts; Anthropic's ``input_tokens`` excludes cache reads and writes."""
    fresh, output = as_count(usage.get("input_tokens")), as_count(usage.get("output_tokens"))
    if fresh is None or output is None:
        return Counts()
    cached = as_count(usage.get("cache_read_input_tokens")) or 0
    stated = as_count(usage.get("cache_creation_input_tokens")) or 0
    # The sum of writes and its parts by lifetime are stated apart, and the larger is charged.
    # Likewise reasoning belongs to the output, unless there is more of it, so that it cannot be
    # included.
    kinds = as_object(usage.get("cache_creation")).values()
    written = max(stated, sum(as_count(n) or 0 for n in kinds))
    thought = as_object(usage.get("output_tokens_details")).get("thinking_tokens")
    reasoning = as_count(thought) or 0
    most = output + reasoning if reasoning > output else output
    return Counts(
        Usage(fresh + cached + written, cached, written, most, reasoning),
        contradict=most != output or written != stated,
    )


MESSAGES = Wire(_PATH, _LACKS, _encode, _decode)
LEGACY_MESSAGES = Wire(
    _PATH,
    _LACKS,
    _encode,
    _decode,
    headers={"anthropic-version": "2023-06-01"},  # the last that takes these parameters
)


class AnthropicProvider(ApiProvider):
    """Answers by the API of Anthropic, or of a server that is compatible with it."""

    vendor = Vendor(
        "anthropic", "https://api.anthropic.com", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"
    )
    logprobs = False
    models_path = "v1/models"
    marks_prefix = True

    @staticmethod
    def wire(facts: ModelFacts, *, chat: bool) -> Wire:
        """Return the protocol of today, or that of older models."""
        return LEGACY_MESSAGES if facts.legacy_sampling else MESSAGES

    @staticmethod
    def open_client(**settings: Any) -> Any:  # noqa: ANN401
        """Open the client of Anthropic's package."""
        from anthropic import AsyncAnthropic

        return AsyncAnthropic(**settings)
