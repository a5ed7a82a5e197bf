"""Who may see the page: whoever has its address, in a browser on this machine."""

from __future__ import annotations

import hmac
import secrets
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

_HOSTS: Final = ("127.0.0.1", "localhost")
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def new_token() -> str:
    """Make the secret part of an address."""
    return secrets.token_urlsafe(24)


def guard(token: str) -> Middleware:
    """Make the middleware that refuses (403) what does not come from the page itself.

    The token keeps other users of the machine out, ``Host`` names that others point at it, and
    ``Origin`` other pages in the same browser.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.path.split("/")[1]
        if not hmac.compare_digest(given.encode(), token.encode()):
            raise _refused("the address lacks its secret part; copy it in full")
        host = request.headers.get("Host", "")
        if host.rpartition(":")[0] not in _HOSTS:
            raise _refused("open the page as 127.0.0.1 or localhost")
        origin = request.headers.get("Origin")
        if origin != f"http://{host}" and not (origin is None and request.method == "GET"):
            raise _refused("the request comes from another page")
        return await handler(request)

    return check


async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Forbid scripts of others, foreign frames, guessing of types and copies of the answer."""
    response.headers.update(_HEADERS)


def _refused(why: str) -> web.HTTPForbidden:
    return web.HTTPForbidden(text=f"refused: {why}\n", headers=_HEADERS)
