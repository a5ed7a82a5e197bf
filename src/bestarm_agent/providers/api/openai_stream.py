"""Puts the streams of OpenAI's protocols together: chat completions, completions and responses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from bestarm_agent.domain.digest import Json
from bestarm_agent.providers.api.response_body import items, joined, malformed, mapping, text

USAGE: Mapping[str, Json] = {"stream_options": {"include_usage": True}}
_OF_ALL = ("model", "service_tier", "usage")
_TEXTS = ("response.output_text.delta", "response.refusal.delta")
_LAST = ("response.completed", "response.incomplete", "response.failed")


class ChatStream:
    """Joins the chunks of a chat completion, or of a completion."""

    def __init__(self) -> None:
        self._body: dict[str, Json] = {}
        self._texts: defaultdict[str, list[str]] = defaultdict(list)
        self._logprobs: defaultdict[str, list[Json]] = defaultdict(list)
        self._reason: Json = None

    def add(self, event: Mapping[str, Json]) -> bool:
        """Take the next chunk; return True if it holds text of the answer."""
        self._body |= {name: event[name] for name in _OF_ALL if event.get(name)}
        choice = next(iter(items(event.get("choices"))), {})
        self._reason = choice.get("finish_reason") or self._reason
        for name, values in mapping(choice.get("logprobs")).items():
            self._logprobs[name] += values if isinstance(values, list) else []
        delta = mapping(choice.get("delta"))
        content = delta.get("content")
        parts = {
            "text": text(choice.get("text")),
            "refusal": text(delta.get("refusal")),
            "content": content if isinstance(content, str) else joined(content, "text"),
        }
        found = {name: part for name, part in parts.items() if part}
        for name, part in found.items():
            self._texts[name].append(part)
        return bool(found)

    def body(self) -> Mapping[str, Json]:
        """Return the whole completion."""
        if self._reason is None:
            malformed("it ended before the answer did")
        texts: dict[str, Json] = {name: "".join(parts) for name, parts in self._texts.items()}
        choice: dict[str, Json] = {
            "text": texts.get("text", ""),
            "message": texts,
            "finish_reason": self._reason,
            "logprobs": dict(self._logprobs),
        }
        return {**self._body, "choices": [choice]}


class ResponseStream:
    """Waits for the last event of a response, which holds all of it."""

    def __init__(self) -> None:
        self._whole: Mapping[str, Json] = {}

    def add(self, event: Mapping[str, Json]) -> bool:
        """Take the next event; return True if it holds text of the answer."""
        if event.get("type") in _LAST:
            self._whole = mapping(event.get("response"))
        return event.get("type") in _TEXTS and bool(event.get("delta"))

    def body(self) -> Mapping[str, Json]:
        """Return the whole response."""
        return self._whole or malformed("it ended before the answer did")
