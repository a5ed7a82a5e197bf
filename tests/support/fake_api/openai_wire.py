"""What OpenAI's API sends: chat completions, completions, responses and errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from tests.support.fake_api.calls import Api, Call, arguments_text
from tests.support.fake_api.faults import Fault
from tests.support.fake_api.spoken import Spoken, token_logprobs

Body: TypeAlias = dict[str, Any]

_CREATED = 1795000000
_FINISH = {"stop": "stop", "length": "length", "refusal": "stop", "filter": "content_filter"}

# The parameters that each path knows; others are refused, as OpenAI does.
_SHARED = frozenset({"model", "temperature", "top_p", "user", "tools", "tool_choice"})
_SAMPLED = _SHARED | {"stop", "seed", "max_tokens", "logprobs", "logit_bias"}
_SAMPLED |= {"presence_penalty", "frequency_penalty"}
KNOWN: Mapping[Api, frozenset[str]] = {
    Api.CHAT: _SAMPLED
    | {"messages", "max_completion_tokens", "top_logprobs", "response_format", "store", "metadata"}
    | {"reasoning_effort", "verbosity", "service_tier", "prompt_cache_key"},
    Api.COMPLETIONS: _SAMPLED - {"tools", "tool_choice"} | {"prompt", "echo"},
    Api.RESPONSES: _SHARED
    | {"input", "instructions", "max_output_tokens", "top_logprobs", "include", "text"}
    | {"reasoning", "service_tier", "store", "metadata"},
}

# (status, type, code, message)
_ERRORS: Mapping[Fault, tuple[int, str, str | None, str]] = {
    Fault.RATE_LIMITED: (429, "requests", "rate_limit_exceeded", "Rate limit reached."),
    Fault.NO_RETRY: (429, "requests", "rate_limit_exceeded", "Rate limit reached."),
    Fault.REQUEST_TIMEOUT: (408, "server_error", None, "Request timed out."),
    Fault.CONFLICT: (409, "server_error", None, "The request conflicts with another one."),
    Fault.SERVER_ERROR: (500, "server_error", None, "The server had an error."),
    Fault.UNAVAILABLE: (503, "server_error", None, "The engine is currently overloaded."),
    Fault.GATEWAY_TIMEOUT: (504, "server_error", None, "Gateway time-out."),
    Fault.OVERLOADED: (529, "server_error", None, "Overloaded."),
    Fault.QUOTA: (429, "insufficient_quota", "insufficient_quota", "You exceeded your quota."),
    Fault.PAYMENT: (402, "billing_error", None, "Insufficient balance."),
    Fault.LOW_CREDIT: (400, "invalid_request_error", "billing_hard_limit_reached", "Hard limit."),
    Fault.BAD_KEY: (401, "invalid_request_error", "invalid_api_key", "Incorrect API key: {key}."),
    Fault.FORBIDDEN: (403, "permission_error", None, "The key {key} lacks the scope."),
    Fault.UNKNOWN_MODEL: (
        404,
        "invalid_request_error",
        "model_not_found",
        "The model `{model}` does not exist or you do not have access to it.",
    ),
    Fault.TOO_LONG: (
        400,
        "invalid_request_error",
        "context_length_exceeded",
        "This model's maximum context length is {context} tokens.",
    ),
    Fault.TOO_LONG_TEXT: (
        400,
        "BadRequestError",
        None,
        "This model's maximum context length is {context} tokens. However, you requested more.",
    ),
    Fault.TOO_LARGE: (413, "invalid_request_error", None, "The request is too large."),
    Fault.FILTERED: (400, "invalid_request_error", "content_filter", "The prompt was filtered."),
    Fault.BAD_REQUEST: (400, "invalid_request_error", None, "{detail}"),
    Fault.UNPROCESSABLE: (422, "invalid_request_error", None, "{detail}"),
}


def error(fault: Fault, words: Mapping[str, str]) -> tuple[int, Body]:
    """Status and body of an error; ``words`` fill the message."""
    status, kind, code, message = _ERRORS[fault]
    told = {"message": message.format_map(words), "type": kind, "param": None, "code": code}
    if named := re.match(r"Unsupported parameter: '(\w+)'", str(told["message"])):
        told |= {"param": named[1], "code": "unsupported_parameter"}
    return status, {"error": told}


def answered(call: Call, one: Spoken, number: int, *, ignored: frozenset[str]) -> Body:
    """Body of an answer.

    Args:
        call: the request.
        one: the answer.
        number: of the request, for ids.
        ignored: features that are left out although they were asked for ("logprobs").
    """
    builders = {
        Api.CHAT: _chat,
        Api.COMPLETIONS: _completion,
        Api.RESPONSES: _response,
    }
    build = builders[call.api]
    return build(call, one, number, "logprobs" not in ignored)


def _chat(call: Call, one: Spoken, number: int, logprobs: bool) -> Body:
    wanted = logprobs and call.body.get("logprobs")
    calls = [
        {"id": f"call_{number}_{i}", "type": "function", "function": function}
        for i, function in enumerate(_functions(one))
    ]
    choice: Body = {
        "index": 0,
        "message": {
            "role": "assistant",
            "content": None if one.said.refused or (calls and not one.text) else one.text,
            "refusal": one.text if one.said.refused else None,
            "annotations": [],
            **({"tool_calls": calls} if calls else {}),
        },
        "logprobs": {"content": token_logprobs(call, one.said)} if wanted else None,
        "finish_reason": "tool_calls" if calls else _FINISH[one.finish],
    }
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": _CREATED,
        "model": call.model,
        "choices": [choice],
        "usage": {
            **_usage(call, one),
            "prompt_tokens_details": _cached(one),
            "completion_tokens_details": {"reasoning_tokens": one.said.reasoning},
        },
        "service_tier": call.body.get("service_tier", "default"),
        "system_fingerprint": "fp_fake",
    }


def _completion(call: Call, one: Spoken, number: int, _logprobs: bool) -> Body:
    finish = _FINISH[one.finish]
    choice: Body = {"index": 0, "text": one.text, "logprobs": None, "finish_reason": finish}
    return {
        "id": f"cmpl-{number}",
        "object": "text_completion",
        "created": _CREATED,
        "model": call.model,
        "choices": [choice],
        "usage": _usage(call, one),
    }


def _response(call: Call, one: Spoken, number: int, logprobs: bool) -> Body:
    wanted = logprobs and "message.output_text.logprobs" in (call.body.get("include") or ())
    cut = {"length": "max_output_tokens", "filter": "content_filter"}.get(one.finish)
    text: Body = {"type": "output_text", "text": one.text, "annotations": []}
    if wanted:
        text["logprobs"] = token_logprobs(call, one.said)
    refusal = {"type": "refusal", "refusal": one.text}
    message = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "status": "incomplete" if cut else "completed",
        "content": [refusal if one.said.refused else text],
    }
    thought = {"id": f"rs_{number}", "type": "reasoning", "summary": []}
    usage = _usage(call, one)
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": _CREATED,
        "model": call.model,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": cut} if cut else None,
        "error": None,
        "output": [
            *([thought] if one.said.reasoning else []),
            *([message] if one.text or not one.said.calls else []),
            *(
                {"id": f"fc_{number}_{i}", "type": "function_call", "status": "completed"}
                | {"call_id": f"call_{number}_{i}", **function}
                for i, function in enumerate(_functions(one))
            ),
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "service_tier": call.body.get("service_tier", "default"),
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": _cached(one),
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": one.said.reasoning},
            "total_tokens": usage["total_tokens"],
        },
    }


def _functions(one: Spoken) -> list[dict[str, str]]:
    return [
        {"name": name, "arguments": arguments_text(arguments)} for name, arguments in one.said.calls
    ]


def _usage(call: Call, one: Spoken) -> Body:
    return {
        "prompt_tokens": call.prompt_tokens,
        "completion_tokens": one.tokens,
        "total_tokens": call.prompt_tokens + one.tokens,
    }


def _cached(one: Spoken) -> Body:
    return {"cached_tokens": one.said.cached, "cache_write_tokens": one.said.cache_write}
