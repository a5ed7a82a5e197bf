"""The server of the page, on 127.0.0.1, for browsers on this machine that know its address."""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from bestarm_agent.errors import BestarmError, ConfigError, RunNotFoundError
from bestarm_agent.store.store import StorePlace, open_store
from bestarm_agent.view.endpoints import Endpoints

_ADDRESS: Final = "127.0.0.1"
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


def guard(token: str) -> Middleware:
    """Make the middleware that refuses (403) what does not come from the page itself.

    The token keeps other users of the machine out, ``Host`` names that others point at it, and
    ``Origin`` other pages in the same browser.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        # Any process and any web page can reach a port of the loopback address. The three checks
        # close the three ways: another user (token), DNS rebinding (host), a page in this browser
        # (origin). ``compare_digest`` takes the same time wherever two texts begin to differ.
        given = request.path.split("/")[1]
        if not hmac.compare_digest(given.encode(), token.encode()):
            raise _refused("the address lacks its secret part; copy it in full")
        host = request.headers.get("Host", "")
        if host.rpartition(":")[0] not in (_ADDRESS, "localhost"):
            raise _refused("open the page as 127.0.0.1 or localhost")
        origin = request.headers.get("Origin")
        # Browsers leave ``Origin`` out of GETs of the page itself; a GET changes nothing.
        if origin != f"http://{host}" and not (origin is None and request.method == "GET"):
            raise _refused("the request comes from another page")
        return await handler(request)

    return check


async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Forbid scripts of others, foreign frames, guessing of types and copies of the answer."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)


def _refused(why: str) -> web.HTTPForbidden:
    return web.HTTPForbidden(text=f"refused: {why}\n", headers=_HEADERS)


_PACKAGE: Final = Path(__file__).parents[1]
_FILES: Final = {
    "": "view/page/index.html",
    "view.js": "view/page/view.js",
    "view.css": "view/page/view.css",
    "base.js": "report/page/base.js",
    "base.css": "report/page/base.css",
}


@asynccontextmanager
async def serve(places: Sequence[StorePlace], port: int = 0) -> AsyncIterator[str]:
    """Serve the page over some stores; return its address, which holds a secret.

    Args:
        places: paths or URLs of the stores.
        port: on 127.0.0.1; 0 takes a free one.

    Raises:
        StoreError: there is no such store.
        ConfigError: the port is taken.
    """
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(open_store(p, create=False)) for p in places]
        token = secrets.token_urlsafe(24)  # the secret part of the address
        app = _app(token, Endpoints(stores, places))
        # a malformed request is answered with 400; its traceback is no use to whoever looks at runs
        logging.getLogger("aiohttp.server").addFilter(
            lambda record: "aiohttp.http_exceptions" not in str(record.exc_info)
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        try:
            await web.TCPSite(runner, _ADDRESS, port).start()
        except OSError as error:
            raise ConfigError(
                f"port {port} of {_ADDRESS} cannot be used ({error.strerror}); give another --port"
            ) from error
        yield f"http://{_ADDRESS}:{runner.addresses[0][1]}/{token}/"


def _app(token: str, endpoints: Endpoints) -> web.Application:
    app = web.Application(middlewares=[guard(token), _explain])
    app.on_response_prepare.append(add_headers)
    app.on_shutdown.append(endpoints.close)
    path = f"/{token}"
    app.router.add_get(path, _go_to(f"{path}/"))
    for name, file in _FILES.items():
        app.router.add_get(f"{path}/{name}", _file_sender(_PACKAGE / file))
    run = f"{path}/runs/{{store:[0-9]+}}/{{run}}"
    app.router.add_get(f"{path}/runs", endpoints.runs)
    app.router.add_get(f"{run}/live", endpoints.live)
    app.router.add_get(f"{run}/candidates", endpoints.candidates)
    app.router.add_get(f"{run}/pairs", endpoints.pairs)
    app.router.add_get(f"{run}/pairs/{{seq:[0-9]+}}", endpoints.pair)
    app.router.add_put(f"{run}/pairs/{{seq:[0-9]+}}/label", endpoints.label)
    app.router.add_get(f"{run}/labelling", endpoints.labelling)
    app.router.add_put(f"{run}/labelling/{{place:[0-9]+}}", endpoints.scores)
    app.router.add_get(f"{run}/compare", endpoints.compare)
    app.router.add_get(f"{run}/report", endpoints.report)
    return app


def _go_to(address: str) -> Handler:
    async def send(_request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound(address, headers=_HEADERS)

    return send


def _file_sender(path: Path) -> Handler:
    async def send(_request: web.Request) -> web.StreamResponse:
        return web.FileResponse(path)

    return send


@web.middleware
async def _explain(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer errors raised on purpose with their message."""
    try:
        return await handler(request)
    except BestarmError as error:
        status = 404 if isinstance(error, RunNotFoundError) else 400
        return web.json_response({"error": str(error)}, status=status)
