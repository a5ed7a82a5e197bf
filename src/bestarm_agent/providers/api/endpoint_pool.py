"""Spreads calls over endpoints by load, prompt and health."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b

from bestarm_agent.domain.redaction import keys_among
from bestarm_agent.domain.request_reply import Request
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.api.connection import Connection, Endpoint
from bestarm_agent.providers.api.endpoint_list import EndpointList
from bestarm_agent.providers.base import EndpointStatus
from bestarm_agent.providers.failures import failure

# Servers compute a prefix shorter than this (about 128 tokens) faster than it matters.
_PREFIX_CHARACTERS = 512
# An endpoint may have 2 calls more than the idlest, or a quarter more.
_LEAST_SLACK, _SLACK_SHARE = 2, 4
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 60.0  # the first outlasts the first wait before a retry
_OUT_OF_ORDER = (
    FailureKind.CONNECTION,
    FailureKind.UNREACHABLE,
    FailureKind.MALFORMED_REPLY,
    FailureKind.OVERLOADED,
    FailureKind.SERVER,
    FailureKind.TIMEOUT,
)


class PooledEndpoint:
    """An endpoint with its client, load and health.

    After a failure it gets no calls until an answer to a call that was under way arrives, or until
    a pause is over; then one call tries it. Every failed try doubles the pause.
    """

    def __init__(self, endpoint: Endpoint, connect: Callable[[Endpoint], Connection]) -> None:
        self.endpoint = endpoint
        self.keys = keys_among(endpoint.secrets)
        self.in_flight = 0
        self.failure: FailureKind | None = None  # why it gets no calls; None: it does
        self._connect = connect
        self._connection: Connection | None = None
        self._id = f"{endpoint.url}\n".encode()
        self._pause = _FIRST_PAUSE
        self._out_until = -math.inf
        self._refused_at = -math.inf  # when it last refused a connection
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

    def end(self, failed: FailureKind | None, began: float, now: float, *, tried: bool) -> None:
        """Record the end of a call that ``begin`` announced at ``began``."""
        self.in_flight -= 1
        if tried:
            self._is_tried = False
        if failed is None:
            if began >= self._refused_at:  # else a server that is going away finishes its calls
                self.failure, self._pause = None, _FIRST_PAUSE
            return
        if failed is FailureKind.UNREACHABLE:
            self._refused_at = now
        if self.failure is None or tried:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE) if tried else _FIRST_PAUSE
            self._out_until = now + self._pause
        self.failure = failed


class EndpointPool:
    """Chooses the endpoint of every call.

    Among endpoints in order with nearly the fewest calls in flight, the same beginning of a prompt
    goes to the same one, whose cache holds it: the one with the largest weight (rendezvous hashing;
    Thaler and Ravishankar 1998), so that few prompts move when an endpoint comes or goes.
    """

    def __init__(
        self, source: EndpointList, provider: str, connect: Callable[[Endpoint], Connection]
    ) -> None:
        self.most: float = math.inf  # calls that an endpoint has at once, if another has fewer
        self._source = source
        self._provider = provider
        self._connect = connect
        self._known: dict[str, PooledEndpoint] = {}  # by address; those that left may come back
        self._listed: tuple[Endpoint, ...] = ()
        self._members: list[PooledEndpoint] = []

    @contextmanager
    def hold(self, prefix: bytes) -> Iterator[PooledEndpoint]:
        """Yield an endpoint for one call; an exception that leaves the block is the call's end."""
        now = asyncio.get_running_loop().time
        began = now()
        chosen = self._choose(prefix, began)
        tried = chosen.begin()
        failed: FailureKind | None = None
        try:
            yield chosen
        except ProviderError as error:
            failed = error.kind if error.kind in _OUT_OF_ORDER else None
            raise
        except asyncio.CancelledError:
            failed = FailureKind.TIMEOUT  # the engine cancels calls that are too slow
            raise
        finally:
            chosen.end(failed, began, now(), tried=tried)

    @property
    def n_usable(self) -> int:
        """Number of endpoints that get calls, >= 0."""
        return sum(member.failure is None for member in self._current())

    @property
    def statuses(self) -> tuple[EndpointStatus, ...]:
        """The state of every endpoint."""
        return tuple(
            EndpointStatus(member.endpoint.shown, member.in_flight, member.failure)
            for member in self._current()
        )

    async def close(self) -> None:
        """Close all clients."""
        for member in self._known.values():
            await member.close()

    def _choose(self, prefix: bytes, now: float) -> PooledEndpoint:
        members = self._current()
        if not members:
            complaint = self._source.complaint or "add the address of a server to it"
            raise failure(
                FailureKind.UNREACHABLE,
                f"{self._provider}: the file of `endpoints` names none; {complaint}",
            )
        if len(members) == 1:
            return members[0]
        due = next((member for member in members if member.is_due(now)), None)
        if due is not None:
            return due
        usable = [member for member in members if member.failure is None]
        if not usable:
            return min(members, key=PooledEndpoint.returns_at)
        fewest = min(member.in_flight for member in usable)
        slack = max(_LEAST_SLACK, fewest // _SLACK_SHARE)
        most = max(fewest, min(fewest + slack, self.most - 1))
        near = [member for member in usable if member.in_flight <= most]
        return max(near, key=lambda member: member.weight(prefix))

    def _current(self) -> list[PooledEndpoint]:
        listed = self._source.current()
        if listed is not self._listed:
            self._listed = listed
            self._members = [self._member(endpoint) for endpoint in listed]
        return self._members

    def _member(self, endpoint: Endpoint) -> PooledEndpoint:
        if endpoint.url not in self._known:
            self._known[endpoint.url] = PooledEndpoint(endpoint, self._connect)
        return self._known[endpoint.url]


def prompt_prefix(request: Request) -> bytes:
    """Return the part of a prompt, with the model, that decides which endpoint it goes to."""
    text = request.text
    if text is None:
        text = "\n".join(message.content for message in request.messages)
    return f"{request.model}\n{text[:_PREFIX_CHARACTERS]}".encode(errors="surrogatepass")
