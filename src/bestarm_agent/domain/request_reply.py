"""Requests to models and their replies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bestarm_agent.domain.candidate import Message
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.spend import Usage


def clean_text(text: str) -> str:
    r"""Replace each lone surrogate by a question mark.

    Example:
        >>> clean_text("five: \ud800 5")
        'five: ? 5'
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def clean_fields(value: object, *names: str) -> None:
    """Clean texts of a frozen value: JSON allows lone surrogates, and no file or page does."""
    for name in names:
        text = getattr(value, name)
        if text is not None and text != (clean := clean_text(text)):
            object.__setattr__(value, name, clean)


class Finish(StrEnum):
    """Reason why a model stopped."""

    STOP = "stop"
    LENGTH = "length"
    REFUSAL = "refusal"
    CONTENT_FILTER = "content-filter"


@dataclass(frozen=True, slots=True)
class Token:
    """A token of an answer, or an alternative to one."""

    text: str
    logprob: float  # natural logarithm of its probability, <= 0


@dataclass(frozen=True, slots=True)
class Position:
    """One position of an answer, with the tokens that the model found likeliest there."""

    chosen: Token
    alternatives: tuple[Token, ...] = ()  # likeliest first; ``chosen`` may be among them


@dataclass(frozen=True, slots=True)
class Request:
    """One rendered prompt for one model.

    Attributes:
        response_schema: JSON schema that the answer must follow, or None. Its "title" is its name
            (letters, digits, "_" and "-"). Objects list all their properties as required and allow
            no others. Set only where ``Capabilities.response_schema`` says so.
        top_logprobs: number of likeliest tokens, 1 to 20, in ``Reply.logprobs`` at every position.
            Set only where ``Capabilities.logprobs`` says so.
        attempt: number of equal requests before this one whose replies could not be used; it is not
            sent, but part of the key of the reply cache.
        draw: number of draws of the same prompt before this one; not sent, but part of the key.
        inputs: the example's fields, for programs that read more than the prompt; part of the key
            only where ``Capabilities.by_inputs`` says so.
    """

    model: str  # model name as the provider knows it
    text: str | None = None  # plain completion prompt, or None where there are ``messages``
    messages: tuple[Message, ...] = ()  # chat messages; empty if ``text`` is given
    params: Mapping[str, Json] = field(default_factory=dict)  # sampling parameters to send
    candidate: str = ""  # label, for replayed records and for messages
    example: str = ""  # id, for replayed records and for messages
    response_schema: Mapping[str, Json] | None = None
    top_logprobs: int | None = None
    attempt: int = 0
    draw: int = 0
    inputs: Mapping[str, Json] = field(default_factory=dict)

    def as_json(self) -> Json:
        """Return everything that the reply depends on, as a JSON object."""
        content: dict[str, Json] = {
            "model": self.model,
            "text": self.text,
            "messages": [message.as_json() for message in self.messages],
            "params": dict(self.params),
        }
        optional: dict[str, Json] = {
            "response_schema": self.response_schema,
            "top_logprobs": self.top_logprobs,
            "attempt": self.attempt or None,
            "draw": self.draw or None,
        }
        content |= {name: value for name, value in optional.items() if value is not None}
        return content


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer to one request."""

    text: str
    finish: Finish = Finish.STOP
    usage: Usage = field(default_factory=Usage)
    usd_nanos: int | None = None  # cost of the call in nano-dollars; None: no price is known
    seconds: float = 0.0  # wall-clock, from sending to the complete answer
    gpu_seconds: float = 0.0  # worker seconds of a local model
    model: str = ""  # the name by which the model that answered calls itself
    request_id: str | None = None  # the provider's id of the call
    score: float | None = None  # in [0, 1], where a replayed record holds it
    logprobs: tuple[Position, ...] = ()
    sent: Mapping[str, Json] = field(default_factory=dict)
    service_tier: str | None = None
    notices: tuple[str, ...] = ()
    calls: int = 1  # requests sent for this answer; a program may send several
    recorded: bool = False  # played back: an answer to a prompt that may have been another one

    def __post_init__(self) -> None:
        """Replace lone surrogates."""
        clean_fields(self, "text", "model", "request_id", "service_tier")
