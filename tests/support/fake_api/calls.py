"""What a model is asked, whichever protocol carried it, and what it says."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

_BYTES_PER_TOKEN = 4
_TOKENS_PER_MESSAGE = 4
_TOKENS_PER_IMAGE = 1000


class Api(StrEnum):
    """The protocol that a request came in."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"

    @property
    def anthropic(self) -> bool:
        return self is Api.MESSAGES


@dataclass(frozen=True)
class Call:
    """One request for an answer.

    Attributes:
        api: the protocol.
        body: the request's JSON.
        attempt: how often exactly this body was received before.
    """

    api: Api
    body: Mapping[str, Any]
    attempt: int = 0

    @property
    def model(self) -> str:
        return str(self.body["model"])

    @property
    def messages(self) -> list[tuple[str, str]]:
        """(role, text) of everything that was said, the system's part first."""
        system = self.body.get("system") or self.body.get("instructions")
        said = self.body.get("messages", self.body.get("prompt", self.body.get("input", "")))
        turns = [("user", said)] if isinstance(said, str) else [(_role(m), m) for m in said]
        texts = [(role, _text(turn)) for role, turn in turns]
        return ([("system", _text(system))] if system else []) + texts

    @property
    def blocks(self) -> list[tuple[str, str, bool]]:
        """(role, text, whether it is marked to be cached) of every block, the system's first."""
        said = self.body.get("messages", self.body.get("prompt", self.body.get("input", "")))
        turns = [("user", said)] if isinstance(said, str) else [(_role(m), m) for m in said]
        found = []
        system = self.body.get("system")
        for role, turn in ([("system", system)] if system else []) + turns:
            content = turn.get("content", "") if isinstance(turn, Mapping) else turn
            parts = content if isinstance(content, list) else [{"text": content}]
            marks = ("cache_control", "prompt_cache_breakpoint")
            found += [(role, _text(part), any(map(part.__contains__, marks))) for part in parts]
        return found

    @property
    def prompt(self) -> str:
        """All texts, one under the other."""
        return "\n".join(text for _, text in self.messages)

    @property
    def question(self) -> str:
        """The last thing that was said."""
        return self.messages[-1][1]

    @property
    def attached(self) -> list[tuple[str, bytes]]:
        """(media type, content) of the images and files; a URL of another kind is its own."""
        said = self.body.get("messages", self.body.get("input", ""))
        parts = [m.get("content") or "" for m in said if not isinstance(m, str)]
        urls = [
            _URL_OF[self.api](part) for one in parts if not isinstance(one, str) for part in one
        ]
        return [_decoded(url) for url in urls if url is not None]

    @property
    def prompt_tokens(self) -> int:
        texts = sum(tokens_of(text) + _TOKENS_PER_MESSAGE for _, text in self.messages)
        return texts + _TOKENS_PER_IMAGE * len(self.attached)

    @property
    def tools(self) -> list[str]:
        """Names of the functions that may be called."""
        return [tool.get("function", tool)["name"] for tool in self.body.get("tools", ())]

    @property
    def max_tokens(self) -> int | None:
        """The most tokens that the answer may have, or None."""
        names = ("max_completion_tokens", "max_tokens", "max_output_tokens")
        return next((int(self.body[n]) for n in names if self.body.get(n) is not None), None)

    @property
    def digest(self) -> str:
        """Digest of the body."""
        return hashlib.sha256(json.dumps(self.body, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Said:
    """What a model says.

    Attributes:
        text: the answer.
        alternatives: probability of each text that the first token might have been, for
            ``top_logprobs``; the first token's own is 1 where it is not among them.
        cached: prompt tokens read from the provider's cache.
        cache_write: prompt tokens written to it.
        reasoning: tokens thought before the answer; part of the output.
        refused: whether the text is a refusal.
        calls: the tools that are called, each by name and arguments; a text of these is sent as
            it is.
    """

    text: str
    alternatives: Mapping[str, float] = field(default_factory=dict)
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    refused: bool = False
    calls: tuple[tuple[str, Mapping[str, Any] | str], ...] = ()


Answer: TypeAlias = Callable[[Call], Said | str]


def tokens_of(text: str) -> int:
    """Number of tokens of a text: four bytes each, at least one if there is a text."""
    return -(-len(text.encode()) // _BYTES_PER_TOKEN)


def pieces(text: str) -> list[str]:
    """The tokens of a text: words with the space before them."""
    words = text.split(" ")
    return [word if i == 0 else f" {word}" for i, word in enumerate(words)]


def chance(*parts: object) -> float:
    """A number in [0, 1) that depends on ``parts`` and on nothing else."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _chat_url(part: Mapping[str, Any]) -> str | None:
    if part["type"] == "file":
        assert part["file"]["filename"], part
        return str(part["file"]["file_data"])
    return None if part["type"] == "text" else str(part["image_url"]["url"])


def _response_url(part: Mapping[str, Any]) -> str | None:
    if part["type"] == "input_file":
        assert part["filename"], part
        return str(part["file_data"])
    if part["type"] == "input_text":
        return None
    assert part["type"] == "input_image", part
    return str(part["image_url"])


def _message_url(part: Mapping[str, Any]) -> str | None:
    if part["type"] in ("text", "tool_use", "tool_result"):
        return None
    source = part["source"]
    assert part["type"] in ("image", "document"), part
    if source["type"] == "url":
        return str(source["url"])
    return f"data:{source['media_type']};base64,{source['data']}"


_URL_OF: Mapping[Api, Callable[[Mapping[str, Any]], str | None]] = {
    Api.CHAT: _chat_url,
    Api.RESPONSES: _response_url,
    Api.MESSAGES: _message_url,
}


def _decoded(url: str) -> tuple[str, bytes]:
    if not url.startswith("data:"):
        return "", url.encode()
    head, _, data = url.partition(";base64,")
    return head.removeprefix("data:"), base64.b64decode(data, validate=True)


def arguments_text(arguments: Mapping[str, Any] | str) -> str:
    """The arguments of a call as OpenAI sends them."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _role(item: Mapping[str, Any]) -> str:
    """The role of a message; of an item of a response, its type."""
    return str(item.get("role") or item["type"])


def _text(said: object) -> str:
    if said is None:
        return ""
    if isinstance(said, str):
        return said
    if isinstance(said, Mapping):
        return _text(said.get("content", said.get("text", said.get("output", ""))))
    assert isinstance(said, list), said
    return "".join(_text(part) for part in said)
