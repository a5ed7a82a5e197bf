"""Reads answers that come as a stream of server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from bestarm_agent.domain.digest import Json
from bestarm_agent.providers.api.response_body import malformed, mapping, read_body, text

IDLE_SECONDS = 60.0  # longest silence in the middle of a stream


class Assembly(Protocol):
    """Puts the events of one streamed answer together, in the way of one protocol."""

    def add(self, event: Mapping[str, Json]) -> bool:
        """Take the next event; return True if it holds text of the answer."""

    def body(self) -> Mapping[str, Json]:
        """Return the body that the answer has without a stream; raise MalformedError if cut off."""


async def assembled(chunks: AsyncIterator[bytes], assembly: Assembly) -> tuple[bytes, float | None]:
    """Read a stream to its end.

    Return the body that the answer has without a stream, and the loop's time when the first text
    of the answer came, None if none did. An error before that is returned as a body.

    Raises:
        MalformedError: the stream cannot be read, or ends before the answer does.
        TimeoutError: nothing came for ``IDLE_SECONDS`` after the first bytes.
    """
    first_at, idle, unread = None, None, bytearray()
    while True:
        async with asyncio.timeout(idle):
            chunk = await anext(chunks, None)
        if chunk is None:
            return json.dumps(assembly.body()).encode(), first_at
        idle = IDLE_SECONDS
        unread += chunk
        if b"\n" not in chunk:
            continue
        *lines, unread = unread.split(b"\n")
        for event in filter(None, map(_event, lines)):
            if event.get("error") or event.get("type") == "error":
                return _error(event, begun=first_at is not None), None
            if assembly.add(event) and first_at is None:
                first_at = asyncio.get_running_loop().time()


def _event(line: bytearray) -> Mapping[str, Json] | None:
    """Parse a line; None if it holds no data. Servers write each event's data as one line."""
    field, _, data = line.partition(b":")
    data = data.strip()
    return read_body(bytes(data)) if field == b"data" and data != b"[DONE]" else None


def _error(event: Mapping[str, Json], *, begun: bool) -> bytes:
    """Return an error event as a body; what was ``begun`` may be billed, so it is a lost answer."""
    error = mapping(event.get("error")) or event
    if begun:
        malformed(f"it broke off: {text(error.get('message'))}")
    return json.dumps({"error": dict(error)}).encode()
