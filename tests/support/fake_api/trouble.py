"""How faults are done to a request."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from aiohttp import web

from tests.support.fake_api import anthropic_wire, openai_wire
from tests.support.fake_api.calls import Call
from tests.support.fake_api.faults import Fault
from tests.support.fake_api.spoken import Spoken

_FOREVER = 3600.0
_DRIP_SECONDS = 1.0
_SOON_SECONDS = 0.05
_LONG_SECONDS = 3600.0
_INSTANT = 1_795_176_000  # seconds since 1970, which some servers send in the place of a wait

# Faults that are the plain 429 with one more header.
_PATIENCE: Mapping[Fault, Mapping[str, str]] = {
    Fault.RATE_LIMITED_SECONDS: {"retry-after": str(_SOON_SECONDS)},
    Fault.RATE_LIMITED_MILLISECONDS: {"retry-after-ms": str(_SOON_SECONDS * 1000)},
    Fault.RATE_LIMITED_NONSENSE: {"retry-after-ms": "-5", "retry-after": str(_INSTANT)},
    Fault.RATE_LIMITED_LONG: {"retry-after": str(_LONG_SECONDS)},
    Fault.NO_RETRY: {"x-should-retry": "false"},
}
_BODIES: Mapping[Fault, str] = {
    Fault.ENDED_EARLY: '{"id": "chatcmpl-1", "choices": [',
    Fault.MALFORMED: '{"id": "chatcmpl-1", "choices": [{"index": 0, "message": {"con',
    Fault.EMPTY_BODY: "",
    Fault.BARE_TEXT: '"an answer"',
    Fault.WRONG_SHAPE: '{"status": "ok"}',
}
_JSON = b'{"id": "chatcmpl-1"}'
_HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n"
_LENGTH = b"Content-Length: %d\r\n" % len(_JSON)
_RAW: Mapping[Fault, bytes] = {
    Fault.LONG_HEADER: _HEAD + _LENGTH + b"x-long: " + b"x" * 100_000 + b"\r\n\r\n" + _JSON,
    Fault.MANY_HEADERS: _HEAD
    + _LENGTH
    + b"".join(b"x-%d: 1\r\n" % i for i in range(2000))
    + b"\r\n"
    + _JSON,
    Fault.BAD_STATUS_LINE: b"HTTP/1.1 OK fine\r\n" + _LENGTH + b"\r\n" + _JSON,
    Fault.NEGATIVE_LENGTH: _HEAD + b"Content-Length: -5\r\n\r\n" + _JSON,
}
_DEPTH = 200_000
_CHUNK = bytes(1_000_000)
_CHUNKS = 100
_ON_THE_ANSWER = (
    Fault.EMPTY_CONTENT,
    Fault.REFUSAL,
    Fault.FILTERED_OUTPUT,
    Fault.TRUNCATED,
    Fault.NO_USAGE,
    Fault.ZERO_USAGE,
    Fault.WRONG_USAGE,
    Fault.LYING_HEADERS,
)


class Trouble(Exception):
    """The request is refused with an error.

    Attributes:
        fault: which error.
        words: that fill its message.
        retry_after: seconds that the client is asked to wait, or None.
    """

    def __init__(
        self, fault: Fault, words: Mapping[str, str], retry_after: float | None = None
    ) -> None:
        super().__init__(fault)
        self.fault = fault
        self.words = words
        self.retry_after = retry_after


def errors_of(call: Call, trouble: Trouble, headers: Mapping[str, str]) -> web.Response:
    """The response to a request that is refused."""
    fault = trouble.fault
    more = dict(_PATIENCE.get(fault, {}))
    if fault is Fault.RATE_LIMITED_DATE:  # dates hold whole seconds
        more["retry-after"] = format_datetime(datetime.now(UTC) + timedelta(seconds=1), usegmt=True)
    if trouble.retry_after is not None:
        more["retry-after"] = f"{trouble.retry_after:.3f}"
    plain = _PLAIN.get(fault, fault)
    wire = anthropic_wire if call.api.anthropic else openai_wire
    status, body = wire.error(plain, trouble.words)
    return web.json_response(body, status=status, headers={**headers, **more})


_PLAIN: Mapping[Fault, Fault] = {
    **dict.fromkeys({*_PATIENCE, Fault.RATE_LIMITED_DATE} - {Fault.NO_RETRY}, Fault.RATE_LIMITED),
}


async def fail(
    fault: Fault, call: Call, request: web.Request, words: Mapping[str, str]
) -> web.StreamResponse | None:
    """Do what comes before any answer; None if the fault is done to the answer itself.

    Raises:
        Trouble: the fault is an error with a body.
    """
    if fault in _ON_THE_ANSWER:
        return None
    if fault in _BODIES:
        return web.Response(text=_BODIES[fault], content_type="application/json")
    if fault is Fault.BAD_GATEWAY:
        html = "<html><body><h1>502 Bad Gateway</h1></body></html>"
        return web.Response(text=html, status=502, content_type="text/html")
    if fault in _RAW:
        return await _send_raw(_RAW[fault], request)
    if fault is Fault.DEEP_JSON:
        return web.Response(text="[" * _DEPTH + "]" * _DEPTH, content_type="application/json")
    if fault in (Fault.ENDLESS, Fault.GZIP_BOMB):
        return await _flood(fault, request)
    if fault in (Fault.REDIRECT, Fault.REDIRECT_LOOP):
        place = str(request.url) if fault is Fault.REDIRECT_LOOP else _elsewhere(request)
        return web.Response(status=307, headers={"location": place})
    if fault in (Fault.SILENT, Fault.SLOW_DRIP, Fault.RESET, Fault.DROPPED, Fault.STALLED):
        return await _cut_off(fault, request)
    raise Trouble(fault, words)


async def _send_raw(content: bytes, request: web.Request) -> web.StreamResponse:
    """Send bytes as they are, and close the connection."""
    assert request.transport is not None
    request.transport.write(content)
    request.transport.close()
    return web.StreamResponse()


async def _flood(fault: Fault, request: web.Request) -> web.StreamResponse:
    """Send 100 MB of zeros, as they are or in 100 kB of gzip, until the client has enough."""
    response = web.StreamResponse()
    response.content_type = "application/json"
    if fault is Fault.GZIP_BOMB:
        response.headers["Content-Encoding"] = "gzip"
    await response.prepare(request)
    chunk = gzip.compress(_CHUNK * _CHUNKS) if fault is Fault.GZIP_BOMB else _CHUNK
    for _ in range(1 if fault is Fault.GZIP_BOMB else _CHUNKS):
        await response.write(chunk)
    return response


def _elsewhere(request: web.Request) -> str:
    """The same server by another name: another origin."""
    return str(request.url.with_host("localhost"))


async def _cut_off(fault: Fault, request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    if fault is Fault.SILENT:
        await asyncio.sleep(_FOREVER)
    if fault in (Fault.SLOW_DRIP, Fault.DROPPED, Fault.STALLED):
        response.content_type = "application/json"
        response.content_length = int(_FOREVER)
        await response.prepare(request)
        await response.write(b'{"id": "chatcmpl-1", ')
    if fault is Fault.STALLED:
        await asyncio.sleep(_FOREVER)
    while fault is Fault.SLOW_DRIP:
        await response.write(b" ")
        await asyncio.sleep(_DRIP_SECONDS)
    if request.transport is not None:
        request.transport.abort()
    return response


def with_fault(fault: Fault | None, one: Spoken) -> Spoken:
    """Do what a fault does to the answer itself."""
    said = one.said
    match fault:
        case Fault.EMPTY_CONTENT:
            return Spoken(replace(said, text=""), "stop", said.reasoning)
        case Fault.REFUSAL:
            refusal = replace(said, text="I cannot help with that.", refused=True)
            return Spoken(refusal, "refusal", 7)
        case Fault.FILTERED_OUTPUT:
            return Spoken(replace(said, text=""), "filter", 0)
        case Fault.TRUNCATED:
            return Spoken(replace(said, text=said.text[:1]), "length", 1)
        case _:
            return one
