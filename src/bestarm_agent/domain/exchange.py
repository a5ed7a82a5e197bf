"""One call to a model: what is asked, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bestarm_agent.domain.candidate import Message
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.spend import Usage


class Finish(StrEnum):
    """Why the model stopped."""

    STOP = "stop"
    LENGTH = "length"
    REFUSAL = "refusal"
    CONTENT_FILTER = "content-filter"


@dataclass(frozen=True, slots=True)
class Token:
    """A token that stood at some place of an answer, or could have.

    Attributes:
        text: the token as text.
        logprob: natural logarithm of its probability, <= 0.
    """

    text: str
    logprob: float


@dataclass(frozen=True, slots=True)
class Position:
    """One place of an answer, with what the model thought of it.

    Attributes:
        chosen: the token generated.
        alternatives: the likeliest tokens at this place, the likeliest first; ``chosen`` is among
            them if it was likely enough.
    """

    chosen: Token
    alternatives: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One rendered prompt for one model.

    Attributes:
        model: model name as the provider knows it.
        text: plain completion prompt, or None.
        messages: chat messages; empty if ``text`` is given.
        params: sampling parameters to send.
        candidate: the candidate's label, for providers that play back records and for messages.
        example: the example's id, likewise.
        response_schema: JSON schema that the answer must follow, or None. Its "title" is its name
            (letters, digits, "_" and "-"). Objects list all their properties as required and allow
            no others. Set only where ``Capabilities.response_schema`` says so.
        top_logprobs: how many likeliest tokens, 1 to 20, ``Reply.logprobs`` is to hold for every
            position; None: no log probabilities. Set only where ``Capabilities.logprobs`` says so.
        attempt: number of the same request before this one, for replies that were of no use; it is
            not sent, and keeps the reply cache from returning the useless one again.
        inputs: the example's fields, for programs that read more than the prompt. They are part of
            the key of the reply cache only where ``Capabilities.by_inputs`` says so.
    """

    model: str
    text: str | None = None
    messages: tuple[Message, ...] = ()
    params: Mapping[str, Json] = field(default_factory=dict)
    candidate: str = ""
    example: str = ""
    response_schema: Mapping[str, Json] | None = None
    top_logprobs: int | None = None
    attempt: int = 0
    inputs: Mapping[str, Json] = field(default_factory=dict)

    def as_json(self) -> Json:
        """Return what identifies the reply: everything but who asks."""
        content: dict[str, Json] = {
            "model": self.model,
            "text": self.text,
            "messages": [message.as_json() for message in self.messages],
            "params": dict(self.params),
        }
        if self.response_schema is not None:
            content["response_schema"] = dict(self.response_schema)
        if self.top_logprobs is not None:
            content["top_logprobs"] = self.top_logprobs
        if self.attempt:
            content["attempt"] = self.attempt
        return content


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered.

    Attributes:
        text: the answer.
        finish: why it stopped.
        usage: tokens.
        usd_nanos: what the call cost, in nano-dollars; None if the provider has no price.
        seconds: wall-clock seconds from sending to the complete answer.
        gpu_seconds: worker seconds this call used of a local model.
        model: the model that answered, as it calls itself.
        request_id: the provider's id of the call, or None.
        score: in [0, 1], where the record played back holds the score itself; else None.
        logprobs: the answer's tokens with their probabilities; empty unless they were asked for.
        calls: requests sent to models for this one answer; more than 1 where a program makes them.
    """

    text: str
    finish: Finish = Finish.STOP
    usage: Usage = field(default_factory=Usage)
    usd_nanos: int | None = None
    seconds: float = 0.0
    gpu_seconds: float = 0.0
    model: str = ""
    request_id: str | None = None
    score: float | None = None
    logprobs: tuple[Position, ...] = ()
    sent: Mapping[str, Json] = field(default_factory=dict)
    service_tier: str | None = None
    notices: tuple[str, ...] = ()
    calls: int = 1
