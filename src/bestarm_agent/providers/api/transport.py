"""The connection to a server: aiohttp's, with responses that are read up to a limit.

The SDKs bring a transport over aiohttp, too. It reads as much as a server sends, however small it
was packed, and hides aiohttp's errors behind others that say less. And before a request gets to any
transport, their own machinery has taken twice the time of all else (options, models of them, hooks,
spans, headers merged anew), for what is the same with every call. So a vendor's client says once
what it would send with each request, and no request goes through it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from urllib.request import getproxies, proxy_bypass

import aiohttp
from httpx2 import create_ssl_context
from yarl import URL

from bestarm_agent.domain.value_class import value_class
from bestarm_agent.errors import FailureKind
from bestarm_agent.providers.api.protocol import MalformedError

_KEPT_SECONDS = 5.0  # an idle connection; many servers close them soon after
_OK = 200
# Response headers as large as httpx reads them, over which the SDKs run elsewhere.
_HEADER_BYTES, _MOST_HEADERS = 100 * 1024, 1_000
_NONE: Mapping[str, str] = {}
# By SSL_CERT_FILE and SSL_CERT_DIR: reading certificates takes longer than all else in connecting.
_trusted = cache(lambda _file, _folder: create_ssl_context())
_PROXY_SCHEMES = ("http", "https")
# The first class counts, so a subclass stands before its base: the first two are ``ClientError``,
# too. What cannot be parsed was answered, and possibly billed.
_KINDS: tuple[tuple[type[Exception], FailureKind], ...] = (
    (aiohttp.ClientPayloadError, FailureKind.CONNECTION),  # the body was cut off
    (aiohttp.ClientResponseError, FailureKind.MALFORMED_REPLY),
    (aiohttp.http_exceptions.HttpProcessingError, FailureKind.MALFORMED_REPLY),
    (aiohttp.ClientError, FailureKind.CONNECTION),
    (OSError, FailureKind.CONNECTION),
)
# No name (EAI_NONAME), or none with an address: unlike EAI_AGAIN, this does not pass by itself.
_NO_SUCH_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


class NotSentError(Exception):
    """No request left this machine; ``permanent`` if another attempt would end in the same way."""

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


def transport_failure(error: BaseException) -> FailureKind | None:
    """Return the kind of a failure of an open connection; None if it is another's error."""
    return next((kind for cls, kind in _KINDS if isinstance(error, cls)), None)


@value_class
class Response:
    """A response with its whole body, decompressed; headers have lower-case names."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Connection:
    """Sends each request once, as it is given: no time-out, redirects, cookies, or retries.

    Proxies are those of HTTPS_PROXY, HTTP_PROXY or ALL_PROXY, except for the hosts in NO_PROXY;
    certificates are trusted as SSL_CERT_FILE says. It raises NotSentError, aiohttp's errors, and
    MalformedError.

    A server may close an idle connection just as a request is sent on it: nobody knows whether it
    was read. So a request that was sent before without an answer gets a connection of its own.

    Args:
        headers: those of every request.
        max_bytes: of a body, when decompressed.
    """

    def __init__(self, headers: Mapping[str, str], max_bytes: int) -> None:
        self._max_bytes = max_bytes
        # Two sessions, since aiohttp keeps or closes connections by connector, not by request.
        trusted = _trusted(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
        self._session = _session(
            aiohttp.TCPConnector(limit=0, ssl=trusted, keepalive_timeout=_KEPT_SECONDS), headers
        )
        connector = aiohttp.TCPConnector(limit=0, ssl=trusted, force_close=True)
        self._repeats = _session(connector, headers)
        self._ways: dict[str, tuple[URL, str, URL | None]] = {}  # proxies, by address
        self._unanswered: set[int] = set()  # requests that were sent, and got no good answer yet
        self._has_answered = False

    async def send(
        self, method: str, address: str, content: bytes = b"", headers: Mapping[str, str] = _NONE
    ) -> Response:
        """Send one request, with further headers in place of those of every one."""
        # Looked up once: the variables are found by reading all of the environment.
        if address not in self._ways:
            self._ways[address] = (url := URL(address), *_proxy_of(url))
        url, variable, proxy = self._ways[address]
        # A repetition is known by its address and body. Two calls that are equal by chance share
        # the key: the later one then opens a connection that it did not need, which does no harm.
        key = hash((address, content))
        session = self._repeats if key in self._unanswered else self._session
        # Before it is sent, so that a call that is cancelled or cut off counts as unanswered as
        # well.
        self._unanswered.add(key)
        body = bytearray()
        try:
            async with session.request(
                method,
                url,
                headers=headers,
                data=content or None,
                allow_redirects=False,
                proxy=proxy,
            ) as response:
                self._has_answered = True
                # Decompressed as it comes: a small response may hold gigabytes, and the limit is
                # that of memory.
                while chunk := await response.content.readany():
                    body += chunk
                    if len(body) > self._max_bytes:
                        raise MalformedError(
                            f"it is longer than {self._max_bytes:,} bytes; raise the provider's "
                            "option `max_response_bytes` if its answers are that long"
                        )
        except (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError) as error:
            raise self._not_sent(error, variable) from error
        if response.status == _OK:
            self._unanswered.discard(key)
        received: dict[str, str] = {}
        for raw_name, raw in response.raw_headers:
            name, text = raw_name.decode("latin-1").lower(), raw.decode(errors="replace")
            # What a proxy repeats is said once: "5, 5" is no number.
            both = received.get(name, text) != text
            received[name] = f"{received[name]}, {text}" if both else text
        return Response(response.status, received, bytes(body))

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
        await self._repeats.close()

    def _not_sent(
        self, error: aiohttp.ClientConnectorError | aiohttp.ClientHttpProxyError, variable: str
    ) -> NotSentError:
        """Say what kept a request from being sent, and which variable to look at."""
        if isinstance(error, aiohttp.ClientHttpProxyError):  # it refused CONNECT
            reason = f"the proxy of {variable} answered {error.status} ({error.message})"
            return NotSentError(
                f"{reason}; correct {variable}, or name the host in NO_PROXY",
                permanent=error.status < 500,
            )
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, aiohttp.ClientSSLError):
            return NotSentError(
                "if the server, or a proxy before it, has a certificate of your own authority, set "
                f"SSL_CERT_FILE to the file with that authority's certificate; {reason}",
                permanent=not self._has_answered,
            )
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            return NotSentError(f"{reason}; this is the proxy of {variable}: correct that variable")
        # A name that was found before is a fault of the resolver that may pass; one that never was
        # is probably a mistake in base_url. The same holds above for a certificate.
        is_unknown = (
            isinstance(error, aiohttp.ClientConnectorDNSError) and error.errno in _NO_SUCH_NAME
        )
        if is_unknown:
            reason += f"; correct base_url or {variable}" if variable else "; correct base_url"
        return NotSentError(reason, permanent=is_unknown and not self._has_answered)


def _session(connector: aiohttp.TCPConnector, headers: Mapping[str, str]) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(),
        max_line_size=_HEADER_BYTES,
        max_field_size=_HEADER_BYTES,
        max_headers=_MOST_HEADERS,
    )


def _proxy_of(url: URL) -> tuple[str, URL | None]:
    """Return the variable that names the proxy for an address, and the proxy; None if none is used.

    Raises NotSentError if it cannot be one.
    """
    proxies = getproxies()
    kind = url.scheme if proxies.get(url.scheme) else "all"
    address = proxies.get(kind)
    if not address or proxy_bypass(f"{url.host}:{url.port}"):
        return "", None
    variable = f"{kind}_proxy"
    variable = variable if variable in os.environ else variable.upper()
    with suppress(ValueError):
        proxy = URL(address)
        if proxy.scheme in _PROXY_SCHEMES and proxy.host and proxy.port:
            return variable, proxy
    raise NotSentError(
        f"{variable} must name a proxy as http://HOST:PORT (no other kind of proxy is known), and "
        "does not; correct it, or name the host in NO_PROXY",
        permanent=True,
    )
