"""The connection below the SDKs: aiohttp's, with responses that are read up to a limit.

The SDKs bring a transport over aiohttp, too. It reads as much as a server sends, however small it
was packed, and hides aiohttp's errors behind others that say less.
"""

from __future__ import annotations

from typing import Any
from urllib.request import getproxies

import aiohttp
import httpx2

from bestarm_agent.errors import FailureKind
from bestarm_agent.providers.api.protocol import MalformedError

_KEPT_SECONDS = 5.0  # an idle connection; many servers close them soon after
_DECODED = {b"content-encoding", b"content-length", b"transfer-encoding"}  # no longer true
# The first class counts. What cannot be parsed was answered, and possibly billed.
_KINDS: tuple[tuple[type[Exception], FailureKind], ...] = (
    (aiohttp.ClientPayloadError, FailureKind.CONNECTION),  # the body was cut off
    (aiohttp.ClientConnectorError, FailureKind.UNREACHABLE),
    (aiohttp.ClientResponseError, FailureKind.MALFORMED_REPLY),
    (aiohttp.http_exceptions.HttpProcessingError, FailureKind.MALFORMED_REPLY),
    (aiohttp.ClientError, FailureKind.CONNECTION),
    (OSError, FailureKind.CONNECTION),
)


def transport_failure(error: BaseException) -> FailureKind | None:
    """Return the kind of a failure of the connection; None if it is another's error."""
    return next((kind for cls, kind in _KINDS if isinstance(error, cls)), None)


class Connection(httpx2.AsyncClient):
    """Sends each request once, as an SDK wrote it: no time-out, redirects, cookies, or retries.

    It raises aiohttp's errors, and MalformedError.
    """

    def __init__(self, max_bytes: int) -> None:
        super().__init__(transport=httpx2.AsyncBaseTransport())  # unused
        self._max_bytes = max_bytes  # of a body, when decompressed
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, ssl=httpx2.create_ssl_context(), keepalive_timeout=_KEPT_SECONDS
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(),
            trust_env=bool(getproxies()),
        )

    def build_request(self, method: str, url: httpx2.URL | str, **parts: Any) -> httpx2.Request:  # noqa: ANN401
        """Make a request of what the SDK gives, without adding anything."""
        del parts["timeout"]
        return httpx2.Request(method, url, **parts)

    async def send(self, request: httpx2.Request, **_how: object) -> httpx2.Response:
        """Return the response with its whole body."""
        async with self._session.request(
            request.method,
            str(request.url),
            headers=[(name.decode(), text.decode("latin-1")) for name, text in request.headers.raw],
            data=request.content or None,
            allow_redirects=False,
        ) as response:
            body = bytearray()
            while chunk := await response.content.readany():
                body += chunk
                if len(body) > self._max_bytes:
                    raise MalformedError(
                        f"it is longer than {self._max_bytes:,} bytes; raise the provider's option "
                        "`max_response_bytes` if its answers are that long"
                    )
        headers = [pair for pair in response.raw_headers if pair[0].lower() not in _DECODED]
        return httpx2.Response(
            response.status, headers=headers, content=bytes(body), request=request
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()
        await super().aclose()
