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
class Request:
    """One rendered prompt for one model.

    Attributes:
        model: model name as the provider knows it.
        text: plain completion prompt, or None.
        messages: chat messages; empty if ``text`` is given.
        params: sampling parameters to send.
        candidate: the candidate's label, for providers that play back records and for messages.
        example: the example's id, likewise.
    """

    model: str
    text: str | None = None
    messages: tuple[Message, ...] = ()
    params: Mapping[str, Json] = field(default_factory=dict)
    candidate: str = ""
    example: str = ""

    def as_json(self) -> Json:
        """Return what identifies the reply: everything but who asks."""
        return {
            "model": self.model,
            "text": self.text,
            "messages": [message.as_json() for message in self.messages],
            "params": dict(self.params),
        }


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
