"""Answers as streams of server-sent events, made from the whole answers, and what cuts them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from aiohttp import web

from tests.support.fake_api.calls import Api, Call, pieces
from tests.support.fake_api.faults import Fault

Event: TypeAlias = dict[str, Any]

IN_THE_MIDDLE = (Fault.DROPPED, Fault.STALLED, Fault.ENDED_EARLY, Fault.ERROR_IN_STREAM)
_FOREVER = 3600.0


async def send(
    request: web.Request,
    call: Call,
    body: Event,
    headers: Mapping[str, str],
    fault: Fault | None,
    pace: float,
) -> web.StreamResponse:
    """Send an answer piece by piece, ``pace`` seconds between them, half of it under a fault."""
    events = events_of(call, body)
    if fault in IN_THE_MIDDLE:
        events = events[: len(events) // 2 + 1]
    if fault is Fault.ERROR_IN_STREAM:
        error = {"type": "overloaded_error", "message": "Overloaded."}
        events.append({"type": "error", "error": error} if call.api.anthropic else {"error": error})
    response = web.StreamResponse(headers={**headers, "content-type": "text/event-stream"})
    await response.prepare(request)
    for event in events:
        name = f"event: {event['type']}\n" if "type" in event else ""
        await response.write(f"{name}data: {json.dumps(event)}\n\n".encode())
        if pace:
            await asyncio.sleep(pace)
    if fault is Fault.STALLED:
        await asyncio.sleep(_FOREVER)
    if fault is Fault.DROPPED and request.transport is not None:
        request.transport.abort()
    elif fault is None and call.api in (Api.CHAT, Api.COMPLETIONS):
        await response.write(b"data: [DONE]\n\n")
    return response


def events_of(call: Call, body: Event) -> list[Event]:
    """The events of a whole answer, in the protocol of its call."""
    if call.api is Api.MESSAGES:
        return _message(body)
    return _response(body) if call.api is Api.RESPONSES else _completion(call, body)


def _completion(call: Call, body: Event) -> list[Event]:
    (choice,) = body["choices"]
    head = {**body, "usage": None}
    chat = call.api is Api.CHAT
    message = choice["message"] if chat else choice
    field = next(name for name in ("refusal", "content", "text") if message.get(name) is not None)
    found = [{"role": "assistant", "content": ""}] if chat else []
    found += [{field: piece} for piece in pieces(message[field])]
    chunks: list[Event] = [{"index": 0, "finish_reason": None, "logprobs": None} for _ in found]
    for chunk, part in zip(chunks, found, strict=True):
        chunk |= {"delta": part} if chat else part
    chunks[-1]["logprobs"] = choice["logprobs"]
    chunks.append({"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]})
    events: list[Event] = [{**head, "choices": [chunk]} for chunk in chunks]
    if "usage" in body and (call.body.get("stream_options") or {}).get("include_usage"):
        events.append({**body, "choices": []})
    return events


def _response(body: Event) -> list[Event]:
    texts = [
        (part["type"], part.get("text", part.get("refusal")))
        for item in body["output"]
        for part in item.get("content", ())
    ]
    deltas = [
        {"type": f"response.{kind}.delta", "delta": piece}
        for kind, said in texts
        for piece in pieces(said)
    ]
    last = {"type": f"response.{body['status']}", "response": body}
    return [{"type": "response.created", "response": {**body, "output": []}}, *deltas, last]


def _message(body: Event) -> list[Event]:
    usage = body.get("usage")
    start = {**body, "content": [], "stop_reason": None}
    end: Event = {"type": "message_delta", "delta": {"stop_reason": body["stop_reason"]}}
    if usage is not None:
        start["usage"] = {**usage, "output_tokens": min(1, usage["output_tokens"])}
        end["usage"] = {"input_tokens": None, "output_tokens": usage["output_tokens"]}
    events: list[Event] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for i, block in enumerate(body["content"]):
        kind = block["type"]
        events.append({"type": "content_block_start", "index": i, "content_block": {"type": kind}})
        events += [
            {
                "type": "content_block_delta",
                "index": i,
                "delta": {"type": f"{kind}_delta", kind: piece},
            }
            for piece in pieces(block[kind])
        ]
        events.append({"type": "content_block_stop", "index": i})
    return [*events, end, {"type": "message_stop"}]
