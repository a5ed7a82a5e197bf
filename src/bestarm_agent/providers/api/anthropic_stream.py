"""Puts the stream of Anthropic's protocol together."""

from __future__ import annotations

from collections.abc import Mapping

from bestarm_agent.domain.digest import Json
from bestarm_agent.providers.api.response_body import malformed, mapping, text


class MessageStream:
    """Joins the events of a message."""

    def __init__(self) -> None:
        self._message: dict[str, Json] = {}
        self._usage: dict[str, Json] = {}
        self._texts: list[str] = []

    def add(self, event: Mapping[str, Json]) -> bool:
        """Take the next event; return True if it holds text of the answer."""
        delta, message = mapping(event.get("delta")), mapping(event.get("message"))
        if event.get("type") in ("message_start", "message_delta"):
            usage = mapping(message.get("usage") or event.get("usage"))
            self._message |= {**message, **delta}
            self._usage |= {name: value for name, value in usage.items() if value is not None}
            return False
        part = text(delta.get("text")) or ""
        self._texts.append(part)
        return bool(part)

    def body(self) -> Mapping[str, Json]:
        """Return the whole message."""
        if self._message.get("stop_reason") is None:
            malformed("it ended before the answer did")
        content: Json = [{"type": "text", "text": "".join(self._texts)}]
        return {**self._message, "content": content, "usage": self._usage}
