"""What Anthropic's API sends: messages and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from tests.support.fake_api.calls import Call
from tests.support.fake_api.faults import Fault
from tests.support.fake_api.spoken import Spoken

Body: TypeAlias = dict[str, Any]

_FINISH = {"stop": "end_turn", "length": "max_tokens", "refusal": "refusal", "filter": "refusal"}
OLD_VERSION = "2023-06-01"
SAMPLING = frozenset({"temperature", "top_p", "top_k"})
KNOWN = frozenset({"model", "messages", "system", "max_tokens", "stop_sequences", "metadata"}) | {
    "output_config",
    "thinking",
    "service_tier",
    "cache_control",
    "tools",
    "tool_choice",
    "inference_geo",
}

# (status, type, message)
_ERRORS: Mapping[Fault, tuple[int, str, str]] = {
    Fault.RATE_LIMITED: (429, "rate_limit_error", "This request would exceed your rate limit."),
    Fault.NO_RETRY: (429, "rate_limit_error", "This request would exceed your rate limit."),
    Fault.REQUEST_TIMEOUT: (408, "timeout_error", "Request timed out."),
    Fault.CONFLICT: (409, "api_error", "The request conflicts with another one."),
    Fault.SERVER_ERROR: (500, "api_error", "Internal server error."),
    Fault.UNAVAILABLE: (503, "api_error", "Service unavailable."),
    Fault.GATEWAY_TIMEOUT: (504, "timeout_error", "Request timed out."),
    Fault.OVERLOADED: (529, "overloaded_error", "Overloaded."),
    Fault.QUOTA: (402, "billing_error", "Your spend limit is reached."),
    Fault.PAYMENT: (402, "billing_error", "There is an issue with your billing."),
    Fault.LOW_CREDIT: (
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the API. Please go to Plans & Billing.",
    ),
    Fault.BAD_KEY: (401, "authentication_error", "invalid bearer token {key}"),
    Fault.FORBIDDEN: (403, "permission_error", "The key {key} may not use this resource."),
    Fault.UNKNOWN_MODEL: (404, "not_found_error", "model: {model}"),
    Fault.TOO_LONG: (
        400,
        "invalid_request_error",
        "prompt is too long: {tokens} tokens > {context} maximum",
    ),
    Fault.TOO_LONG_TEXT: (
        400,
        "invalid_request_error",
        "input length and `max_tokens` exceed context limit: {tokens} > {context}",
    ),
    Fault.TOO_LARGE: (413, "request_too_large", "Request exceeds the maximum size."),
    Fault.FILTERED: (400, "invalid_request_error", "Output blocked by content filtering policy"),
    Fault.BAD_REQUEST: (400, "invalid_request_error", "{detail}"),
    Fault.UNPROCESSABLE: (422, "invalid_request_error", "{detail}"),
}


def error(fault: Fault, words: Mapping[str, str]) -> tuple[int, Body]:
    """Status and body of an error; ``words`` fill the message."""
    status, kind, message = _ERRORS[fault]
    told = {"type": kind, "message": message.format_map(words)}
    return status, {"type": "error", "error": told, "request_id": words["request_id"]}


def answered(call: Call, one: Spoken, number: int, *, ignored: frozenset[str]) -> Body:
    """Body of an answer; ``ignored`` changes nothing, since nothing optional can be asked for."""
    said = one.said
    thought = {"type": "thinking", "thinking": "", "signature": "c2lnbmVk"}
    text = [{"type": "text", "text": one.text, "citations": None}] if one.text else []
    used = [
        {"type": "tool_use", "id": f"toolu_{number}_{i}", "name": name, "input": arguments}
        for i, (name, arguments) in enumerate(said.calls)
    ]
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": call.model,
        "content": [*([thought] if said.reasoning else []), *text, *used],
        "stop_reason": "tool_use" if used else _FINISH[one.finish],
        "stop_sequence": None,
        "usage": {
            "input_tokens": call.prompt_tokens - said.cached - said.cache_write,
            "cache_read_input_tokens": said.cached,
            "cache_creation_input_tokens": said.cache_write,
            "cache_creation": {
                "ephemeral_5m_input_tokens": said.cache_write,
                "ephemeral_1h_input_tokens": 0,
            },
            "output_tokens": one.tokens,
            "output_tokens_details": {"thinking_tokens": said.reasoning},
            "service_tier": "standard",
        },
    }
