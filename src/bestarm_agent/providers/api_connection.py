"""The seam between API providers and the SDKs behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from bestarm_agent.domain.digest import Json
from bestarm_agent.providers.api_options import Endpoint
from bestarm_agent.providers.api_wire import Wire
from bestarm_agent.providers.entry import ModelFacts


@dataclass(frozen=True, slots=True)
class Response:
    """What came back over the wire.

    Attributes:
        headers: by name, in any case.
        content: the body.
    """

    headers: Mapping[str, str]
    content: bytes


class Connection(Protocol):
    """An open client of one SDK."""

    errors: type[Exception]
    """The base class of what the SDK raises."""

    async def send(self, wire: Wire, body: dict[str, Json]) -> Response:
        """Send one request; raises one of ``errors`` if no good response comes."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class Vendor(Protocol):
    """What an SDK and its protocols are called, and how to open a client.

    Attributes:
        name: the vendor in the price table.
        url: its address.
        url_variable: the environment variable that may hold another.
        key_variable: the environment variable that holds the key.
        logprobs: whether models tell the probabilities of their tokens, unless said otherwise.
    """

    name: str
    url: str
    url_variable: str
    key_variable: str
    logprobs: bool

    def wire(self, facts: ModelFacts, *, chat: bool) -> Wire:
        """The protocol in which a model is given chat messages, or a plain prompt."""
        ...

    def connect(self, endpoint: Endpoint) -> Connection:
        """Open a client."""
        ...
