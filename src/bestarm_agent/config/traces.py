"""Calls of a model recorded in production, as rows of a dataset.

Three forms are read, alone, in lists, and in the envelopes of their APIs (``data``,
``observations``, ``resourceSpans``):

- spans of OpenTelemetry's conventions for generative AI (``gen_ai.input.messages``,
  ``gen_ai.output.messages``, ``gen_ai.system_instructions``, ``gen_ai.tool.definitions``,
  ``gen_ai.usage.*``; the older ``gen_ai.prompt`` and ``gen_ai.completion``), as OTLP JSON or flat;
- spans of OpenInference, which Arize Phoenix exports (``llm.input_messages``,
  ``llm.output_messages``, ``llm.tools``, ``llm.token_count.*``, ``llm.cost.total``), with
  attributes in an object, in columns ``attributes.*``, or as OTLP JSON;
- observations of Langfuse, from its API (``usageDetails``), its files (``usage_details``), or its
  SDK's spans (``langfuse.observation.*``).

A row holds ``id`` (the span's), ``messages`` (the conversation before the answer, in OpenAI's
form), ``system`` and ``question`` (its system prompt, its last user turn), ``tools``,
``baseline_output`` (what the model answered), ``baseline_model``, ``baseline_input_tokens``,
``baseline_output_tokens`` and ``baseline_usd`` (null where the trace does not say), and
``baseline_calls`` where the answer calls tools. Nothing else of a trace is taken: no user, no
session, no metadata.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from bestarm_agent.config.conversations import read_conversation, read_tools
from bestarm_agent.domain.redaction import without_fields
from bestarm_agent.domain.values import arguments_of, calls_text
from bestarm_agent.errors import ConfigError

RECORDED = "recorded"  # the candidate that `replay` makes of the answers in traces
_ATTRIBUTES = ("attributes.", "gen_ai.", "llm.", "openinference.", "langfuse.")
# where each convention says what, the newer name first
_OPENTELEMETRY = {
    "system": ("system_instructions",),
    "input": ("input.messages", "prompt"),
    "output": ("output.messages", "completion"),
    "tools": ("tool.definitions",),
    "model": ("response.model", "request.model"),
    "read": ("usage.input_tokens", "usage.prompt_tokens"),
    "written": ("usage.output_tokens", "usage.completion_tokens"),
}
_OPENINFERENCE = {
    "input": ("input_messages",),
    "output": ("output_messages",),
    "tools": ("tools",),
    "model": ("model_name", "response.model_name"),
    "read": ("token_count.prompt",),
    "written": ("token_count.completion",),
    "usd": ("cost.total",),
}
# what asks a model for an answer; spans of agents and tools repeat the messages of these
_OPERATIONS = (None, "chat", "text_completion", "generate_content")
_ROLES = {"human": "user", "ai": "assistant", "model": "assistant", "developer": "system"}
_NOT_SAID = ("reasoning", "thinking", "redacted_thinking", "compaction")  # parts of an answer


def is_trace(values: Mapping[str, Any]) -> bool:
    """Return whether a row of a file is of one of these forms, rather than an example.

    Example:
        >>> is_trace({"question": "2 + 2?"}), is_trace({"resourceSpans": []})
        (False, True)
    """
    if "resourceSpans" in values or "resource_spans" in values:
        return True
    for name in ("data", "observations"):
        if isinstance(inner := values.get(name), list) and inner:
            return isinstance(inner[0], Mapping) and is_trace(inner[0])
    if "type" in values and "input" in values and {"traceId", "trace_id"} & values.keys():
        return True
    spoken = _attributes(values)
    return not {"gen_ai", "llm", "openinference", "langfuse"}.isdisjoint(spoken)


def calls_in(
    values: Mapping[str, Any], left_out: Counter[str], drop: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Yield a row for each call of a model in a row of a file, as the module says.

    Args:
        values: one span or observation, or an envelope of many.
        left_out: counts, by the reason, the calls that make no example, such as one with an image.
        drop: names of fields that are removed from messages at any depth, also from JSON in texts.
    """
    for span in _spans(values):
        try:
            recorded = _recorded(span)
            if recorded is None:
                left_out["are no call of a model"] += 1
            else:
                yield _row(recorded, drop)
        except (ValueError, ConfigError) as error:
            left_out[str(error)] += 1


def _spans(values: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for resource in _either(values, "resourceSpans", "resource_spans") or ():
        for scope in _either(resource, "scopeSpans", "scope_spans") or ():
            yield from scope.get("spans", ())
    inner = values.get("data", values.get("observations"))
    if isinstance(inner, list):
        for item in inner:
            yield from _spans(item)
    elif not {"resourceSpans", "resource_spans"} & values.keys():
        yield values


def _either(values: Mapping[str, Any], *names: str) -> Any:  # noqa: ANN401 - any JSON
    """Return what the first of these names holds that is there and not null."""
    return next((values[name] for name in names if values.get(name) is not None), None)


def _attributes(span: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a span, and of its events, nested by the dots in their names."""
    # Exports differ in where attributes stand: as columns "attributes.x", in an object, as OTLP's
    # list of pairs, and partly on events of the span. All are put into one flat mapping first.
    flat = {k.removeprefix("attributes."): v for k, v in span.items() if k.startswith(_ATTRIBUTES)}
    for source in (span, *(event for event in _items(span.get("events")) if _is_mapping(event))):
        given = arguments_of(source.get("attributes") or {})
        if isinstance(given, list):  # OTLP
            given = {pair["key"]: _any_value(pair.get("value")) for pair in given}
        flat |= given if _is_mapping(given) else {}
    return _nested(flat)


def _any_value(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return what OTLP's AnyValue stands for."""
    for kind, held in (value or {}).items():
        match kind.replace("_", "").lower():
            case "intvalue":
                return int(held)
            case "arrayvalue":
                return [_any_value(item) for item in held.get("values", ())]
            case "kvlistvalue":
                return {kv["key"]: _any_value(kv.get("value")) for kv in held.get("values", ())}
        return held
    return None


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Nest names with dots; where one is also a value, the first of both stays.

    Example:
        >>> _nested({"a.0.b": 1, "a.0.c": 2, "a": "text"})
        {'a': {'0': {'b': 1, 'c': 2}}}
    """
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        # A name that is both a value and a prefix ("a" and "a.0.b") cannot be nested; what came
        # first stays.
        *path, last = name.split(".")
        node: Any = tree
        for step in path:
            node = node.setdefault(step, {}) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node.setdefault(last, value)
    return tree


def _at(tree: Any, path: str) -> Any:  # noqa: ANN401 - any JSON
    for step in path.split("."):
        tree = tree.get(step) if _is_mapping(tree) else None
    return tree


def _is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def _items(value: Any) -> list[Any]:  # noqa: ANN401 - any JSON
    """Return the items of a list, of its JSON text, or of an object numbered from 0."""
    if isinstance(value, str):
        value = arguments_of(value)
    # OpenInference flattens lists: "messages.0.role" has become {"0": {"role": ...}} by now.
    if _is_mapping(value) and value and all(str(key).isdecimal() for key in value):
        value = [value[key] for key in sorted(value, key=int)]
    return value if isinstance(value, list) else [] if value is None else [value]


def _recorded(span: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a span says of a call, in its own form of messages; None if it is no call."""
    tree = _attributes(span)
    name = _either(span, "spanId", "span_id", "id") or _at(_nested(span), "context.span_id")
    # The most particular convention first: spans of Langfuse and OpenInference travel as
    # OpenTelemetry's, and may carry its attributes, too.
    if (seen := _at(tree, "langfuse.observation")) is not None:
        return _of_langfuse({"id": name, **seen, "model": _at(seen, "model.name")})
    if "input" in span and "type" in span:
        return _of_langfuse({"id": name, **span})
    if _at(tree, "llm.input_messages"):
        kind = span.get("span_kind") or _at(tree, "openinference.span.kind") or "LLM"
        given, seen = _OPENINFERENCE, tree["llm"] if kind.upper() == "LLM" else None
    else:
        given, seen = _OPENTELEMETRY, tree.get("gen_ai")
        seen = seen if _at(seen, "operation.name") in _OPERATIONS else None
    if not isinstance(seen, Mapping):
        return None
    fields = {key: next((x for p in ps if (x := _at(seen, p)) is not None), None)
             for key, ps in given.items()}  # fmt: skip
    return {"id": name, **fields}


def _of_langfuse(seen: Mapping[str, Any]) -> dict[str, Any] | None:
    if str(seen.get("type")).upper() != "GENERATION":
        return None
    asked, tools = seen.get("input"), _either(seen, "tool_definitions", "toolDefinitions")
    held: Any = arguments_of(asked) if isinstance(asked, str) else asked
    if _at(held, "messages"):  # what the SDK takes from a call with tools
        tools, asked = held.get("tools"), held["messages"]
    usage: Any = arguments_of(_either(seen, "usageDetails", "usage_details") or {})
    cost: Any = arguments_of(_either(seen, "costDetails", "cost_details") or {})
    return {
        "id": seen["id"],
        "input": asked,
        "output": seen.get("output"),
        "tools": tools,
        "model": _either(seen, "model", "provided_model_name", "providedModelName"),
        "read": _tokens(usage, "input", "prompt"),
        "written": _tokens(usage, "output", "completion"),
        "usd": _either(seen, "totalCost", "total_cost", "calculatedTotalCost") or cost.get("total"),
    }


def _tokens(usage: Mapping[str, Any], new: str, old: str) -> int | None:
    """Add up the kinds of Langfuse's tokens: ``input`` is without ``input_cached_tokens``."""
    kinds = [int(n) for kind, n in usage.items() if kind.startswith(new) and n is not None]
    return sum(kinds) if kinds else usage.get(f"{old}_tokens")


def _row(call: Mapping[str, Any], drop: Sequence[str]) -> dict[str, Any]:
    """Make a row of a recorded call; raises ValueError or ConfigError with what it lacks."""
    prompt = [*_turns(call.get("system"), "system"), *_turns(call["input"], "user")]
    answers = _turns(call.get("output"), "assistant")
    if not any(turn["role"] != "system" for turn in prompt):
        raise ValueError("have no prompt")
    if not answers or not (answers[0]["content"] or answers[0].get("tool_calls")):
        raise ValueError("have no answer")
    messages: Any = without_fields(prompt, drop)
    answer: Any = without_fields(answers[0], drop)
    made = answer.get("tool_calls", [])
    tools = [tool.get("function", tool) for tool in map(_tool, _items(call.get("tools")))]
    try:
        read_conversation(messages)
        read_tools(tools)
    except (ValueError, ConfigError) as error:
        raise ValueError(f"have a malformed conversation ({error})") from error
    of_user = [turn["content"] for turn in messages if turn["role"] == "user"]
    calls = [
        {**f, "arguments": arguments_of(f["arguments"])}
        for f in (tool["function"] for tool in made)
    ]
    return {
        **({} if call["id"] is None else {"id": str(call["id"])}),
        "system": "\n\n".join(t["content"] for t in messages if t["role"] == "system"),
        "question": of_user[-1] if of_user else "",
        "messages": messages,
        "tools": tools,
        "baseline_output": answer["content"] or calls_text([{"function": tool} for tool in calls]),
        "baseline_model": call["model"],
        "baseline_input_tokens": _number(call["read"]),
        "baseline_output_tokens": _number(call["written"]),
        "baseline_usd": _number(call.get("usd")),
        **({"baseline_calls": calls} if calls else {}),
    }


def _number(value: Any) -> int | float | None:  # noqa: ANN401 - any JSON
    """Return a count or a price, which tables write as text and with a point."""
    return None if value in (None, "") else int(n) if (n := float(value)).is_integer() else n


def _tool(given: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Return the definition of a tool, without the envelope of OpenInference."""
    tool = _nested(given).get("tool", given) if _is_mapping(given) else given
    tool = arguments_of(tool.get("json_schema", tool) if _is_mapping(tool) else tool)
    if not _is_mapping(tool):
        raise ValueError("have tools that are no functions")
    if "input_schema" in tool:  # Anthropic's form
        return {"name": tool["name"], "description": tool.get("description"),
                "parameters": tool["input_schema"]}  # fmt: skip
    return dict(tool)


def _turns(value: Any, role: str) -> list[dict[str, Any]]:  # noqa: ANN401 - any JSON
    """Return messages in OpenAI's form; ``role`` is that of a text, or of parts without one."""
    items = _items(value)
    # A list of parts without roles ({"type": "text", ...}) is one message. LangChain's messages
    # also have a type and no role, and it says who speaks.
    if items and all(_is_mapping(item) and "type" in item and "role" not in item for item in items):
        if not any(item["type"] in ("human", "ai", "system", "tool") for item in items):
            items = [{"role": role, "parts": items}]
    elif isinstance(value, str) and not any(_is_mapping(item) for item in items):
        items = [value]  # a text that happens to be JSON
    turns: list[dict[str, Any]] = []
    for item in items:
        turns += _turn(item, role)
    # Older traces record no ids of calls. Conversations need them, so they are made up here, and
    # answers are matched in order.
    waiting: list[str] = []  # calls without an id are answered in order
    for turn in turns:
        for number, made in enumerate(turn.get("tool_calls", ())):
            made["id"] = made["id"] or f"call_{len(waiting)}_{number}"
            waiting.append(made["id"])
        if turn["role"] == "tool":
            turn["tool_call_id"] = turn["tool_call_id"] or (waiting[0] if waiting else "")
            waiting = [name for name in waiting if name != turn["tool_call_id"]]
    return turns


def _turn(given: Any, role: str) -> list[dict[str, Any]]:  # noqa: ANN401 - any JSON
    """Return a message as one, or as several if it answers several calls of tools."""
    if not _is_mapping(given):
        given = {"content": given if isinstance(given, str) else json.dumps(given)}
    given = _nested(given).get("message") or given
    speaker = given.get("role") or given.get("type") or role
    speaker = _ROLES.get(speaker, speaker)
    content = _either(given, "parts", "contents", "content")
    calls = [_call(item) for item in _items(given.get("tool_calls"))]
    # One message of Anthropic's or OpenTelemetry's form may mix text, calls and results of tools.
    # In OpenAI's form each result is a message of its own, before the text that follows it.
    texts: list[str] = []
    answers: list[dict[str, Any]] = []
    parts: list[Any] = content if isinstance(content, list) else _numbered(content)
    for part in parts:
        if not _is_mapping(part):
            texts.append(_text(part))
            continue
        part = _nested(part).get("message_content", part)
        kind = part.get("type", "text")
        if kind in ("text", "input_text", "output_text"):
            texts.append(_text(_either(part, "content", "text") or ""))
        elif kind in ("tool_call", "tool_use"):
            calls.append(_call(part))
        elif kind in ("tool_call_response", "tool_result"):
            held = _either(part, "response", "result", "content")
            name = _either(part, "id", "tool_use_id")
            answers.append({"role": "tool", "content": _text(held), "tool_call_id": name})
        elif kind not in _NOT_SAID:
            raise ValueError(f"hold parts of the type {kind}, which are not read")
    turn = {"role": speaker, "content": "\n".join(texts)}
    if speaker == "tool" and not answers:
        return [{**turn, "tool_call_id": _either(given, "tool_call_id", "id")}]
    if calls:
        turn["tool_calls"] = calls
    return [*answers, turn] if texts or calls or not answers else answers


def _numbered(content: Any) -> list[Any]:  # noqa: ANN401 - any JSON
    """Return the parts of a content that is no list: a text, an object, parts numbered from 0."""
    if _is_mapping(content) and not all(str(key).isdecimal() for key in content):
        return [content if "type" in content else _text(content)]
    return [] if content is None else [content] if isinstance(content, str) else _items(content)


def _text(value: Any) -> str:  # noqa: ANN401 - any JSON
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _call(given: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Return a call of a tool in OpenAI's form."""
    given = _nested(given).get("tool_call", given)
    function = given.get("function", given)
    arguments = _either(function, "arguments", "input", "args")
    function = {"name": function.get("name"), "arguments": _text(arguments or {})}
    return {"id": given.get("id"), "type": "function", "function": function}
