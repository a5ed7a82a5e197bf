"""Candidates: what is compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from bestarm_agent.domain.digest import Json, digest


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message; its content is Jinja in a template and plain text in a request."""

    role: str  # "system", "user" or "assistant"
    content: str

    def as_json(self) -> Json:
        """Return the message as a JSON object."""
        return {"role": self.role, "content": self.content}


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """A prompt before an example's fields are filled in: either a text or messages."""

    name: str
    text: str | None = None  # Jinja source of a plain completion prompt
    messages: tuple[Message, ...] = ()

    def __post_init__(self) -> None:
        if (self.text is None) == (not self.messages):
            raise ValueError(f"prompt {self.name!r} needs either a text or messages, not both")

    def as_json(self) -> Json:
        """Return the content, without the name, as a JSON object."""
        if self.text is not None:
            return {"text": self.text}
        return {"messages": [message.as_json() for message in self.messages]}


@dataclass(frozen=True)
class Candidate:
    """One (model, prompt, sampling configuration), compared with the others."""

    provider: str  # "hf", "openai", ...
    model: str  # as the provider knows it, without the provider's name
    prompt: PromptTemplate
    params: Mapping[str, Json] = field(default_factory=dict)  # as they are sent: "temperature", ...
    label: str = ""  # for users; not part of the identity

    @cached_property
    def id(self) -> str:
        """Digest of the content, 12 hexadecimal digits: equal content, equal id."""
        content: Json = {
            "provider": self.provider,
            "model": self.model,
            "prompt": self.prompt.as_json(),
            "params": dict(self.params),
        }
        return digest(content, length=12)

    @cached_property
    def levels(self) -> tuple[int, int, int]:
        """Numbers of its model, prompt and parameters, < 2^48: equal content, equal number."""
        parts: tuple[Json, ...] = (
            [self.provider, self.model],
            self.prompt.as_json(),
            dict(self.params),
        )
        model, prompt, params = (int(digest(part, length=12), 16) for part in parts)
        return model, prompt, params
