"""The addresses of a provider; with several, calls are spread by load, prompt and health."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b

from bestarm_agent.domain.request_reply import Request
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.api.connection import (
    Connection,
    Endpoint,
    Vendor,
    endpoint_at,
    find_endpoint,
)
from bestarm_agent.providers.api.options import ApiOptions
from bestarm_agent.providers.base import EndpointStatus
from bestarm_agent.providers.failures import failure

# Servers compute a prefix shorter than this (about 128 tokens) faster than it matters.
_PREFIX_CHARACTERS = 512
# An endpoint may have 2 calls more than the idlest, or a quarter more.
_LEAST_SLACK, _SLACK_SHARE = 2, 4
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 60.0  # the first outlasts the first wait before a retry
_SILENT_SECONDS = 10.0  # a call cancelled after so long without any answer says that a server hangs
_OUT_OF_ORDER = (
    FailureKind.CONNECTION,
    FailureKind.UNREACHABLE,
    FailureKind.MALFORMED_REPLY,
    FailureKind.OVERLOADED,
    FailureKind.RATE_LIMITED,
    FailureKind.SERVER,
    FailureKind.TIMEOUT,
)
_SHARED = "endpoints"  # stands for all of them where a single address would stand for itself


class Addresses:
    """The endpoints of a provider.

    Attributes:
        endpoints: at least one, each address once.
        identity: what a reply depends on: the address, or the same text for any list.
        priced_by: address for the price table.
        is_own: true if this is not the vendor's usual address.
    """

    def __init__(self, options: ApiOptions, vendor: Vendor) -> None:
        given = options.endpoints
        found = (
            [find_endpoint(options, vendor)]
            if given is None
            else [endpoint_at(url, options, vendor) for url in given]
        )
        self.endpoints = tuple({endpoint.url: endpoint for endpoint in found}.values())
        self.priced_by = self.endpoints[0].url
        self.identity = self.priced_by if given is None else _SHARED
        self.is_own = given is not None or self.endpoints[0].own

    def check(self, provider: str) -> None:
        """Check that there is a key for every endpoint; raises ConfigError."""
        for endpoint in self.endpoints:
            endpoint.check(provider)


class PooledEndpoint:
    """An endpoint with its client, load and health.

    After a failure it gets no calls until an answer to a call that was under way arrives, or until
    a pause is over; then one call tries it. Every failed try doubles the pause.
    """

    def __init__(self, endpoint: Endpoint, connect: Callable[[Endpoint], Connection]) -> None:
        self.endpoint = endpoint
        self.keys = endpoint.secrets
        self.in_flight = 0
        self.failure: FailureKind | None = None  # why it gets no calls; None: it does
        self._connect = connect
        self._connection: Connection | None = None
        self._id = f"{endpoint.url}\n".encode()
        self._pause = _FIRST_PAUSE
        self._out_until = -math.inf
        self._refused_at = -math.inf  # when it last refused a connection
        self._answered_at = -math.inf
        self._is_tried = False

    @property
    def connection(self) -> Connection:
        """Its client, opened on first use."""
        if self._connection is None:
            self._connection = self._connect(self.endpoint)
        return self._connection

    async def close(self) -> None:
        """Close its client."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def is_due(self, now: float) -> bool:
        """Return True if it failed, and a call may try it again."""
        return self.failure is not None and not self._is_tried and now >= self._out_until

    def returns_at(self) -> float:
        """Return when a call may try it again; infinite while one does."""
        return math.inf if self._is_tried else self._out_until

    def weight(self, prefix: bytes) -> bytes:
        """Return a number, as 8 bytes, that depends on the address and a prefix of a prompt."""
        return blake2b(self._id + prefix, digest_size=8).digest()

    def begin(self) -> bool:
        """Record that a call begins; return whether it tries an endpoint that failed."""
        self.in_flight += 1
        tries = self.failure is not None and not self._is_tried
        self._is_tried = self._is_tried or tries
        return tries

    def end(
        self,
        failed: FailureKind | None,
        began: float,
        now: float,
        *,
        tried: bool,
        retry_after: float | None = None,
    ) -> None:
        """Record the end of a call that ``begin`` announced at ``began``."""
        self.in_flight -= 1
        if tried:
            self._is_tried = False
        if failed is None:
            self._answered_at = now
            if began >= self._refused_at:  # else a server that is going away finishes its calls
                self.failure, self._pause = None, _FIRST_PAUSE
            return
        if failed is FailureKind.UNREACHABLE:
            self._refused_at = now
        if self.failure is None or tried:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE) if tried else _FIRST_PAUSE
            self._out_until = now + max(self._pause, retry_after or 0.0)
        self.failure = failed

    def drop(self, began: float, now: float, *, tried: bool) -> None:
        """Record that a call was cancelled: too slow if the endpoint has been silent for long."""
        if now - max(began, self._answered_at) >= _SILENT_SECONDS:
            self.end(FailureKind.TIMEOUT, began, now, tried=tried)
            return
        self.in_flight -= 1
        if tried:
            self._is_tried = False


class EndpointPool:
    """Chooses the endpoint of every call.

    Among endpoints in order with nearly the fewest calls in flight, the same beginning of a prompt
    goes to the same one, whose cache holds it: the one with the largest weight (rendezvous hashing;
    Thaler and Ravishankar 1998), so that few prompts move when an endpoint comes or goes.
    """

    def __init__(
        self, endpoints: Sequence[Endpoint], connect: Callable[[Endpoint], Connection]
    ) -> None:
        self._members = [PooledEndpoint(endpoint, connect) for endpoint in endpoints]

    @contextmanager
    def hold(self, prefix: bytes) -> Iterator[PooledEndpoint]:
        """Yield an endpoint for one call; an exception that leaves the block is the call's end.

        A rate limit of one endpoint is passed on as OVERLOADED while others take calls: it must not
        pause them too.
        """
        now = asyncio.get_running_loop().time
        began = now()
        chosen = self._choose(prefix, began)
        tried = chosen.begin()
        try:
            yield chosen
        except ProviderError as error:
            failed = error.kind if error.kind in _OUT_OF_ORDER else None
            wait = error.retry_after
            chosen.end(failed, began, now(), tried=tried, retry_after=wait)
            if error.kind is FailureKind.RATE_LIMITED and self._takes_calls:
                raise failure(FailureKind.OVERLOADED, str(error)) from None
            raise
        except asyncio.CancelledError:
            chosen.drop(began, now(), tried=tried)
            raise
        except BaseException:
            chosen.end(None, began, now(), tried=tried)
            raise
        chosen.end(None, began, now(), tried=tried)

    @property
    def statuses(self) -> tuple[EndpointStatus, ...]:
        """The state of every endpoint."""
        return tuple(
            EndpointStatus(member.endpoint.shown, member.in_flight, member.failure)
            for member in self._members
        )

    async def close(self) -> None:
        """Close all clients."""
        for member in self._members:
            await member.close()

    @property
    def _takes_calls(self) -> bool:
        return any(member.failure is None for member in self._members)

    def _choose(self, prefix: bytes, now: float) -> PooledEndpoint:
        if len(self._members) == 1:
            return self._members[0]
        due = next((member for member in self._members if member.is_due(now)), None)
        if due is not None:
            return due
        usable = [member for member in self._members if member.failure is None]
        if not usable:
            return min(self._members, key=PooledEndpoint.returns_at)
        fewest = min(member.in_flight for member in usable)
        most = fewest + max(_LEAST_SLACK, fewest // _SLACK_SHARE)
        near = [member for member in usable if member.in_flight <= most]
        return max(near, key=lambda member: member.weight(prefix))


def prompt_prefix(request: Request) -> bytes:
    """Return the part of a prompt, with the model, that decides which endpoint it goes to."""
    text = request.text
    if text is None:
        text = "\n".join(message.content for message in request.messages)
    return f"{request.model}\n{text[:_PREFIX_CHARACTERS]}".encode(errors="surrogatepass")
