"""The servers of a provider; with several, calls are spread by load, prompt and health."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from bestarm_agent.config.load import environment
from bestarm_agent.domain.redaction import SHORTEST_SECRET
from bestarm_agent.domain.values import Request
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.api.options import ApiOptions
from bestarm_agent.providers.base import EndpointStatus
from bestarm_agent.providers.failures import failure

if TYPE_CHECKING:
    from bestarm_agent.providers.api.transport import Connection

NO_KEY = "none"  # in place of a variable's name, and sent in place of a key: the SDKs want a text
_VARIABLE = re.compile(r"\$\{(\w+)\}")
# Servers compute a prefix shorter than this (about 128 tokens) faster than it matters.
_PREFIX_CHARACTERS = 512
# How far balance gives way to a cache that holds the prompt: an endpoint may have 2 calls more
# than the idlest, or a quarter more.
_LEAST_SLACK, _SLACK_SHARE = 2, 4
# The first is longer than the first back-off, so that the retry goes to another server.
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 60.0
_SILENT_SECONDS = 10.0  # a call cancelled after this long without any answer counts as a hang
_OUT_OF_ORDER = (
    FailureKind.CONNECTION,
    FailureKind.UNREACHABLE,
    FailureKind.MALFORMED_REPLY,
    FailureKind.OVERLOADED,
    FailureKind.RATE_LIMITED,
    FailureKind.SERVER,
    FailureKind.TIMEOUT,
)


@dataclass(frozen=True, slots=True)
class Vendor:
    """A vendor's name in the price table, its usual address, and the variables of its users."""

    name: str
    url: str
    url_variable: str  # may hold another address
    key_variable: str  # holds the key


@dataclass(frozen=True)
class Endpoint:
    """An address with its key."""

    url: str
    key: str | None = None  # the key to send; None if it is missing
    key_source: str = ""  # the variable that should hold the key, for messages
    headers: tuple[str, ...] = ()  # values of further headers, which may be secret
    usual_url: str = ""  # the vendor's usual address
    withheld: bool = False  # whether the variable holds a key that is not sent to this address

    @classmethod
    def at(cls, url: str, options: ApiOptions, vendor: Vendor) -> Endpoint:
        """Return the endpoint at an address, with its key; raises ConfigError."""
        environ = environment()
        url = _VARIABLE.sub(lambda match: _variable(match[1], environ), url)
        if "@" in urlsplit(url).netloc:
            raise ConfigError(
                "an address holds a user name or a password, which cannot be sent together with a "
                "key; send them under `headers`, as ${VARIABLE}"
            )
        variable, withheld = options.key or vendor.key_variable, False
        if options.api_key is not None:
            key: str | None = options.api_key.get_secret_value()
        elif variable == NO_KEY:
            key = NO_KEY
        else:
            # the vendor's key is not sent to other addresses unless the options name its variable
            addresses = (vendor.url, environ.get(vendor.url_variable) or vendor.url)
            # So a typing error in base_url, or a study from elsewhere, does not send a key to a
            # stranger.
            usual = url.rstrip("/") in [address.rstrip("/") for address in addresses]
            key = environ.get(variable) if usual or options.key is not None else None
            key = key or (NO_KEY if is_loopback(url) else None)
            withheld = key is None and bool(environ.get(variable))
        headers = tuple(options.headers.values())
        return cls(url.rstrip("/"), key, variable, headers, vendor.url, withheld)

    @property
    def address(self) -> str:
        """The address for messages: without a query, which may hold a key."""
        return self.url.partition("?")[0]

    def url_of(self, path: str) -> str:
        """Return the address of one path, below this one, with the query that all of them have."""
        return f"{self.address.rstrip('/')}/{path}{self.url.removeprefix(self.address)}"

    @property
    def missing_path(self) -> str:
        """The path of the vendor's address, such as "/v1", where this one has none; else empty."""
        usual, own = (urlsplit(url).path.strip("/") for url in (self.usual_url, self.url))
        return f"/{usual}" if usual and not own else ""

    @cached_property
    def secrets(self) -> tuple[str, ...]:
        """Texts that no message may hold: the key, headers, and what a query holds."""
        queried = (value for _, value in parse_qsl(urlsplit(self.url).query))
        texts = (self.key or "", *self.headers, *queried)
        return tuple(text for text in texts if len(text) >= SHORTEST_SECRET)

    def check(self, provider: str) -> None:
        """Check that there is a key; raises ConfigError that names the variable."""
        if self.withheld:
            raise ConfigError(
                f"{self.key_source} is set, but provider `{provider}` does not send it to "
                f"{self.address}: a key goes to its vendor's own address ({self.usual_url}) alone, "
                f"unless it is named; say `providers: {{{provider}: {{key: {self.key_source}}}}}` "
                "if this server may have it, name the variable of another key there, or say `key: "
                "none` if it needs none"
            )
        if self.key is None:
            raise ConfigError(
                f"provider `{provider}` needs a key, and the environment variable "
                f"{self.key_source} is not set; set it (or write it to .env), name another one in "
                f"`providers: {{{provider}: {{key: VARIABLE}}}}`, or say `key: none` if "
                f"{self.address} needs none"
            )


def find_endpoints(options: ApiOptions, vendor: Vendor) -> tuple[Endpoint, ...]:
    """Return the endpoints that options name, each address once; raises ConfigError."""
    urls = options.endpoints
    if urls is None:
        urls = (options.base_url or environment().get(vendor.url_variable) or vendor.url,)
    endpoints = [Endpoint.at(url, options, vendor) for url in urls]
    return tuple({endpoint.url: endpoint for endpoint in endpoints}.values())


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
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


class Server:
    """An endpoint with its connection, load and health.

    After a failure it gets no calls until an answer to a call that was under way arrives, or until
    a pause is over; then one call tries it. Every failed try doubles the pause.
    """

    # The states, by ``failure`` and ``returns_at``:
    #
    #   in order --------a call fails--------> failed, returns at now + pause
    #   failed ----------the pause is over---> tried by one call, returns at infinity for all others
    #   tried -----------answered------------> in order, the pause is the first again
    #   tried -----------fails---------------> failed, the pause doubled (60 s at most)
    #   tried -----------cancelled soon------> failed, returns at once: the call learned nothing
    #   failed ----------an earlier call is answered---> in order
    #
    # The last needs care: a server that shuts down refuses connections while it still answers the
    # calls that it has. Answers to calls that began before the last refusal do not count.
    def __init__(self, endpoint: Endpoint, connect: Callable[[Endpoint], Connection]) -> None:
        self.endpoint = endpoint
        self.in_flight = 0
        self.failure: FailureKind | None = None  # why it gets no calls; None: it does
        self._connect = connect
        self._pause = _FIRST_PAUSE
        self.returns_at = -math.inf  # when a call may try it again, after a failure
        self._refused_at = -math.inf  # when it last refused a connection
        self._answered_at = -math.inf

    @cached_property
    def connection(self) -> Connection:
        """The connection to it, opened on first use."""
        return self._connect(self.endpoint)

    async def close(self) -> None:
        """Close its connection."""
        if "connection" in vars(self):  # else it was never opened
            await self.connection.close()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Count a call in flight, and learn from its end; errors pass."""
        now = asyncio.get_running_loop().time
        began, tries = now(), self.failure is not None
        # No await stands between the choice of a server and this line, so two calls cannot both try
        # it.
        if tries:
            self.returns_at = math.inf  # for others, until this call has ended
        self.in_flight += 1
        try:
            yield
        except ProviderError as error:
            # All other failures are answers: the server read the request and said what is wrong
            # with it.
            if error.kind in _OUT_OF_ORDER:
                self._note_failure(error.kind, now(), error.retry_after or 0.0, tried=tries)
            else:
                self._note_answer(began, now())
            raise
        except asyncio.CancelledError:
            # A call that the engine gives up after its time limit is cancelled, which alone says
            # nothing: answers that came to other calls in the meantime show that the server works.
            if now() - max(began, self._answered_at) >= _SILENT_SECONDS:
                self._note_failure(FailureKind.TIMEOUT, now(), 0.0, tried=tries)
            elif tries:
                self.returns_at = now()
            raise
        else:
            self._note_answer(began, now())
        finally:
            self.in_flight -= 1

    def _note_answer(self, began: float, now: float) -> None:
        self._answered_at = now
        if began >= self._refused_at:  # else it is going away, and finishes its calls
            self.failure, self._pause = None, _FIRST_PAUSE

    def _note_failure(self, kind: FailureKind, now: float, wait: float, *, tried: bool) -> None:
        if kind is FailureKind.UNREACHABLE:
            self._refused_at = now
        # Calls that were under way when it failed will fail too, and must not prolong the pause.
        if self.failure is None or tried:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE) if tried else _FIRST_PAUSE
            self.returns_at = now + max(self._pause, wait)
        self.failure = kind


class EndpointPool:
    """Chooses the server of every call.

    Among servers in order with nearly the fewest calls in flight, the same beginning of a prompt
    goes to the same one, whose cache holds it: the one with the largest weight (rendezvous hashing;
    Thaler and Ravishankar 1998), so that few prompts move when a server comes or goes.
    """

    def __init__(
        self, endpoints: Sequence[Endpoint], connect: Callable[[Endpoint], Connection]
    ) -> None:
        self._servers = [Server(endpoint, connect) for endpoint in endpoints]

    @contextmanager
    def hold(self, prefix: bytes) -> Iterator[Server]:
        """Yield a server for one call; an exception that leaves the block is the call's end.

        A rate limit of one server is passed on as OVERLOADED while others take calls: it must not
        pause them too. Nor does a server that cannot be reached at all end their calls.
        """
        chosen = self._choose(prefix)
        try:
            with chosen.hold():
                yield chosen
        except ProviderError as error:
            others_take_calls = any(server.failure is None for server in self._servers)
            if error.kind is FailureKind.RATE_LIMITED and others_take_calls:
                raise failure(FailureKind.OVERLOADED, str(error)) from None
            # Made anew, so that a permanent one ("no such name") does not end the run while others
            # answer.
            if error.kind is FailureKind.UNREACHABLE and others_take_calls:
                raise failure(FailureKind.UNREACHABLE, str(error)) from None
            raise

    @property
    def statuses(self) -> tuple[EndpointStatus, ...]:
        """The state of every server."""
        return tuple(
            EndpointStatus(server.endpoint.address, server.in_flight, server.failure)
            for server in self._servers
        )

    async def close(self) -> None:
        """Close all connections."""
        for server in self._servers:
            await server.close()

    def _choose(self, prefix: bytes) -> Server:
        if len(self._servers) == 1:
            return self._servers[0]
        now = asyncio.get_running_loop().time()
        failed = [server for server in self._servers if server.failure is not None]
        # Before any other: the next call tries it whatever its prompt, or a server that few prompts
        # belong to would stay away for long. One call at a time does, as ``Server.hold`` sees to.
        returning = next((server for server in failed if server.returns_at <= now), None)
        if returning is not None:
            return returning
        usable = [server for server in self._servers if server.failure is None]
        # None is in order: a failure of the one that returns first is better than waiting here,
        # since the engine knows how long to wait after which failure.
        if not usable:
            return min(self._servers, key=lambda server: server.returns_at)
        fewest = min(server.in_flight for server in usable)
        highest_load = fewest + max(_LEAST_SLACK, fewest // _SLACK_SHARE)
        near = [server for server in usable if server.in_flight <= highest_load]
        return max(
            near, key=lambda server: blake2b(server.endpoint.url.encode() + b"\n" + prefix).digest()
        )


def prompt_prefix(request: Request) -> bytes:
    """Return the part of a prompt, with the model, that decides which server it goes to."""
    text = "\n".join(request.texts)[:_PREFIX_CHARACTERS]
    return f"{request.model}\n{text}".encode(errors="surrogatepass")
