"""The interface between API providers and what sends their requests."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from bestarm_agent.config.study.load import environment
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.redaction import SHORTEST_SECRET
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.api.options import ApiOptions
from bestarm_agent.providers.api.protocol import Wire, malformed
from bestarm_agent.providers.catalog_entry import ModelFacts

NO_KEY = "none"
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_PLACEHOLDER_KEY = "none"  # the SDKs insist on a text


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response: its headers by name, in any case, and its body."""

    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class Sdk:
    """A vendor's package: its client, its HTTP client over aiohttp, and the base of its errors."""

    client: Any
    http: Any
    errors: type[Exception]


@dataclass(frozen=True, slots=True)
class Vendor:
    """A vendor's address, its variables and its client."""

    name: str  # the vendor in the price table
    url: str  # its address
    url_variable: str  # the environment variable that may hold another address
    key_variable: str  # the environment variable that holds the key
    logprobs: bool  # True if models return log probabilities unless their facts say otherwise
    # chooses the protocol of a model for chat messages (True) or a plain prompt (False)
    wire: Callable[[ModelFacts, bool], Wire]
    load: Callable[[], Sdk]  # imports the SDK, which takes seconds
    models_path: str  # path of the list of models, below the address


@dataclass(frozen=True)
class Endpoint:
    """An address with its key and headers."""

    url: str  # base address
    own: bool  # True if it is not the vendor's usual address
    key: str | None  # the key to send; None if it is missing
    key_source: str  # the variable that should hold the key, for messages
    headers: Mapping[str, str]  # further headers
    max_response_bytes: int  # longest response, decompressed

    @property
    def shown(self) -> str:
        """The address for messages: without a query, which may hold a key."""
        return self.url.partition("?")[0]

    @cached_property
    def secrets(self) -> tuple[str, ...]:
        """Texts that no message may hold: the key, headers, and what a query holds."""
        queried = (value for _, value in parse_qsl(urlsplit(self.url).query))
        texts = (self.key or "", *self.headers.values(), *queried)
        return tuple(text for text in texts if len(text) >= SHORTEST_SECRET)

    def check(self, provider: str) -> None:
        """Check that there is a key; raises ConfigError that names the variable."""
        if self.key is None:
            raise ConfigError(
                f"provider `{provider}` needs a key, and the environment variable "
                f"{self.key_source} is not set; set it (or write it to .env), name another one in "
                f"`providers: {{{provider}: {{key: VARIABLE}}}}`, or say `key: none` if "
                f"{self.shown} needs none"
            )


class Connection:
    """An open client of an endpoint: the SDK's, over aiohttp.

    One request is sent for each call, and a bounded response is read. Redirects are not followed:
    the key and the headers are meant for this address alone, and each redirect would be a request
    that is not counted. The caller keeps time and retries. Bodies are sent as our protocols write
    them, and read by them: the SDK's own methods would transform both by their types, which takes
    twice the time of all else.
    """

    def __init__(self, vendor: Vendor, endpoint: Endpoint) -> None:
        import httpx2

        sdk = vendor.load()
        base, _, query = endpoint.url.partition("?")
        self.errors = sdk.errors  # base class of its own exceptions; those of aiohttp come, too
        self._models_path = vendor.models_path
        self._raw = httpx2.Response
        self._client = sdk.client(
            base_url=base,
            default_query=dict(parse_qsl(query, keep_blank_values=True)),  # else before the path
            api_key=endpoint.key,
            default_headers=endpoint.headers,
            max_retries=0,
            timeout=None,
            http_client=sdk.http(
                timeout=None,
                follow_redirects=False,
                event_hooks={"response": [partial(_limit_body, endpoint.max_response_bytes)]},
            ),
        )

    async def send(self, wire: Wire, body: dict[str, Json]) -> Response:
        """Send one request; raises one of ``errors`` if no successful response comes."""
        options = {"headers": dict(wire.headers)}
        found = await self._client.post(wire.path, body=body, cast_to=self._raw, options=options)
        return Response(found.headers, found.content)

    async def list_models(self) -> Response:
        """Return the server's list of models; raises as ``send`` does."""
        found = await self._client.get(self._models_path, cast_to=self._raw)
        return Response(found.headers, found.content)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()


async def _limit_body(max_bytes: int, response: Any) -> None:  # noqa: ANN401
    """Make reading a response's body stop at ``max_bytes``, counted after decompression."""
    read = response.aiter_bytes
    response.aiter_bytes = lambda chunk_size=None: limited(read(chunk_size), max_bytes)


async def limited(chunks: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[bytes]:
    """Pass a body's chunks on; raises MalformedError where they exceed ``max_bytes``."""
    n_bytes = 0
    async for chunk in chunks:
        n_bytes += len(chunk)
        if n_bytes > max_bytes:
            malformed(
                f"it is longer than {max_bytes:,} bytes; raise the provider's option "
                "`max_response_bytes` if its answers are that long"
            )
        yield chunk


def find_endpoint(options: ApiOptions, vendor: Vendor) -> Endpoint:
    """Find the single address, and the key that requests go with; raises ConfigError."""
    url = options.base_url or environment().get(vendor.url_variable) or vendor.url
    return endpoint_at(url, options, vendor)


def endpoint_at(url: str, options: ApiOptions, vendor: Vendor) -> Endpoint:
    """Return the endpoint at an address, with its key; raises ConfigError."""
    environ = environment()
    url = _VARIABLE.sub(lambda found: _variable(found[1], environ), url)
    if "@" in urlsplit(url).netloc:
        raise ConfigError(
            "an address holds a user name or a password, which cannot be sent together with a "
            "key; send them under `headers`, as ${VARIABLE}"
        )
    variable = options.key or vendor.key_variable
    if options.api_key is not None:
        key: str | None = options.api_key.get_secret_value()
    elif variable == NO_KEY:
        key = _PLACEHOLDER_KEY
    else:
        # the vendor's key is not sent to other addresses unless the options name its variable
        usual = url in (vendor.url, environ.get(vendor.url_variable))
        key = environ.get(variable) if usual or options.key is not None else None
        key = key or (_PLACEHOLDER_KEY if is_loopback(url) else None)
    return Endpoint(
        url=url.rstrip("/"),
        own=url != vendor.url,
        key=key,
        key_source=variable,
        headers=dict(options.headers),
        max_response_bytes=options.max_response_bytes,
    )


def _variable(name: str, environ: Mapping[str, str]) -> str:
    if name not in environ:
        raise ConfigError(
            f"base_url needs the environment variable {name}, which is not set; set it (or write "
            "it to .env), or give the whole address as base_url"
        )
    return environ[name]


def is_loopback(url: str) -> bool:
    """Return True if an address is on this machine.

    Example:
        >>> is_loopback("http://localhost:8000/v1"), is_loopback("https://api.openai.com/v1")
        (True, False)
    """
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
