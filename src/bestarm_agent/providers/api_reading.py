"""Reads the JSON of API responses, which may hold anything, into what is believed of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.exchange import Finish, Position, Token
from bestarm_agent.domain.spend import Usage

_SHOWN = 80
_HIDDEN_LOGPROB = -9999.0  # stands for "not among the likeliest"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a response says.

    Attributes:
        text: the answer.
        finish: why it stopped.
        usage: tokens, or None if the response does not say or says what cannot be.
        model: the model that answered, as it calls itself.
        tier: the service tier that was used, or None.
        logprobs: the answer's tokens with their probabilities, or None if it holds none.
    """

    text: str
    finish: Finish
    usage: Usage | None
    model: str
    tier: str | None = None
    logprobs: tuple[Position, ...] | None = None


class MalformedError(Exception):
    """A response is not what it should be; the message may hold parts of it."""


def malformed(what: str) -> NoReturn:
    """Report a response that is not what it should be; raises MalformedError."""
    raise MalformedError(what)


def read_body(content: bytes) -> Mapping[str, Json]:
    """Parse the body of a response.

    Raises:
        MalformedError: it is not a JSON object.
    """
    try:
        body = json.loads(content)
    except ValueError:
        malformed(f"{content[:_SHOWN]!r} is not JSON")
    if not isinstance(body, dict):
        malformed(f"{content[:_SHOWN]!r} is not a JSON object")
    return body


def mapping(value: object) -> Mapping[str, Json]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> Sequence[Mapping[str, Json]]:
    """The objects of a list; nothing if the value is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(value: object) -> str | None:
    """The value if it is a text, else None."""
    return value if isinstance(value, str) else None


def count(value: object) -> int | None:
    """The value if it can be a number of tokens, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def part(value: object, whole: int) -> int:
    """A number of tokens that are part of ``whole``; 0 if the value cannot be one."""
    return min(count(value) or 0, whole)


def joined(parts: object, kind: str) -> str:
    """The texts of a list of content parts of one kind, in a row."""
    return "".join(text(p.get("text")) or "" for p in items(parts) if p.get("type") == kind)


def openai_usage(usage: Mapping[str, Json], prefix: tuple[str, str]) -> Usage | None:
    """Token counts as OpenAI gives them: prompts include what was cached, answers the reasoning.

    Args:
        usage: the response's ``usage``.
        prefix: how prompt and answer are called: ("prompt", "completion") or ("input", "output").
    """
    asked, given = (count(usage.get(f"{name}_tokens")) for name in prefix)
    if asked is None or given is None:
        return None
    details = mapping(usage.get(f"{prefix[0]}_tokens_details"))
    hits = details.get("cached_tokens", usage.get("prompt_cache_hit_tokens"))  # DeepSeek's name
    cached = part(hits, asked)
    thought = mapping(usage.get(f"{prefix[1]}_tokens_details")).get("reasoning_tokens")
    return Usage(
        input=asked,
        cached=cached,
        cache_write=part(details.get("cache_write_tokens"), asked - cached),
        output=given,
        reasoning=part(thought, given),
    )


def positions(tokens: object) -> tuple[Position, ...] | None:
    """Log probabilities as chat completions and responses give them, or None."""
    found = [
        Position(chosen, tuple(filter(None, map(_token, items(token.get("top_logprobs"))))))
        for token in items(tokens)
        if (chosen := _token(token)) is not None
    ]
    return tuple(found) or None


def _token(value: Mapping[str, Json]) -> Token | None:
    word, logprob = text(value.get("token")), value.get("logprob")
    if word is None or not isinstance(logprob, int | float) or not logprob > _HIDDEN_LOGPROB:
        return None
    return Token(word, min(0.0, float(logprob)))
