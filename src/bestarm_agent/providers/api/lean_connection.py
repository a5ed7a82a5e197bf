"""Requests over aiohttp alone: the bodies that an SDK would send, at a fraction of its CPU time."""

from __future__ import annotations

import json
from typing import TypeAlias
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from bestarm_agent._version import __version__
from bestarm_agent.domain.digest import Json
from bestarm_agent.providers.api.connection import (
    Endpoint,
    Response,
    Vendor,
    limited,
    read_response,
)
from bestarm_agent.providers.api.stream import Assembly
from bestarm_agent.providers.api.wire import Wire

_Headers: TypeAlias = tuple[tuple[str, str], ...]
_HEADERS = {
    "Accept": "application/json",
    "Content-Type": "application/json",
    "User-Agent": f"bestarm-agent/{__version__}",
}
_IDLE_SECONDS = 5.0  # that a connection is kept, as the SDKs do


class StatusError(Exception):
    """A response whose status says that it holds no answer; named as the SDKs name its parts."""

    def __init__(self, status: int, response: Response) -> None:
        super().__init__(f"HTTP {status}")
        self.status_code = status
        self.response = response
        self.body = _parsed(response.content)  # JSON, or else text


class LeanConnection:
    """A connection to an endpoint without an SDK: one POST for each call.

    Like the SDKs' clients it does not repeat requests, follow redirects or keep time, and uses the
    proxy that the environment names. Headers of the endpoint replace its own of the same name.
    """

    errors: type[Exception] = StatusError  # aiohttp's own are known by their module

    def __init__(self, vendor: Vendor, endpoint: Endpoint) -> None:
        import aiohttp

        given = (_HEADERS, vendor.headers(endpoint.key or ""), endpoint.headers)
        self._base, self._mark, self._query = endpoint.url.partition("?")
        self._models_path = vendor.models_path
        self._max_bytes = endpoint.max_response_bytes
        self._proxy = _proxy(endpoint.url)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={name.lower(): text for some in given for name, text in some.items()},
            timeout=aiohttp.ClientTimeout(),
        )

    async def send(self, wire: Wire, body: dict[str, Json]) -> Response:
        """Send one request; raises StatusError, MalformedError or an error of aiohttp."""
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        assembly = wire.begin_stream(body)
        return await self._request("POST", wire.path, content.encode(), wire.headers, assembly)

    async def list_models(self) -> Response:
        """Return the server's list of models; raises as ``send`` does."""
        return await self._request("GET", self._models_path)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def _request(
        self,
        method: str,
        path: str,
        data: bytes | None = None,
        headers: _Headers = (),
        assembly: Assembly | None = None,
    ) -> Response:
        url = f"{self._base.rstrip('/')}/{path}{self._mark}{self._query}"
        async with self._session.request(
            method, url, data=data, headers=headers, allow_redirects=False, proxy=self._proxy
        ) as found:
            chunks = limited(found.content.iter_any(), self._max_bytes)
            response = await read_response(found.headers, chunks, assembly if found.ok else None)
        if not 200 <= found.status < 300:
            raise StatusError(found.status, response)
        return response


def _parsed(content: bytes) -> object:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return content.decode(errors="replace").strip()


def _proxy(url: str) -> str | None:
    """Return the proxy that the environment names for an address; looked up once, not per call."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
