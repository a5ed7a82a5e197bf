"""The interface between the engine and all providers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.rate_limits import Allowance
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import FailureKind
from bestarm_agent.providers.placement import Placement


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The features of a model; a parameter outside ``params`` is never sent.

    If it is ``rate_limited``, concurrency adapts to the limits and ``in_flight`` is ignored.
    """

    params: frozenset[str]  # names of the sampling parameters that it honours
    chat: bool = True  # it takes chat messages
    completion: bool = True  # it takes a plain prompt
    seed: bool = False  # a seed makes one call reproducible
    priced: bool = True  # ``bound`` includes dollars
    price_source: str | None = None  # origin, such as "study" or "genai-prices 0.2.3 ...", or None
    in_flight: int = 64  # calls that the provider can usefully hold at once
    rate_limited: bool = False  # the provider rejects calls beyond its own limits (429)
    queued: bool = False  # calls may wait in a local queue, so that no time-out applies to them
    by_example: bool = False  # the reply, and so its cache key, also depends on the example's id
    response_schema: bool = False  # ``Request.response_schema`` is enforced, else never sent
    logprobs: bool = False  # ``Request.top_logprobs`` is honoured, else never sent
    by_inputs: bool = False  # the reply, and so its cache key, also depends on the inputs
    counted: bool = True  # ``bound`` includes tokens and worker seconds


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory and times of a model that shares its memory with others."""

    holder: str  # the model to load: itself, or the base model of an adapter
    load_seconds: float | None = None  # measured time of loading; None: not loaded yet
    call_seconds: float | None = None  # measured worker seconds of one call; None: not called yet
    # the part of the provider's memory that it lies in: models of different parts never make room
    # for each other
    part: str = ""


@runtime_checkable
class SharesMemory(Protocol):
    """A provider that may have to unload one model before it can load another."""

    @property
    def loading_share(self) -> float | None:
        """Share of the time for loading, in (0, 1]; None: models are swapped at any time."""

    def footprint(self, model: str) -> Footprint:
        """Return what has to be loaded for ``model``, and measured times."""

    def fits(self, holders: Collection[str]) -> bool:
        """Return True if models can be in memory together."""

    def pin(self, model: str) -> None:
        """Unload ``model`` only if the others cannot make room: it is needed all the time."""


@runtime_checkable
class PlacesModels(Protocol):
    """A provider that assigns the devices of this machine to its models."""

    @property
    def placement(self) -> Placement | None:
        """The devices of every model; None where they are not assigned."""


@runtime_checkable
class LoadsModels(Protocol):
    """A provider whose calls may have to wait until a model is loaded."""

    @property
    def loading(self) -> Sequence[str]:
        """Names of the models that are being loaded."""


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """One of several servers that answer for a provider."""

    address: str  # for people, free of secrets
    in_flight: int  # calls that it is answering
    failure: FailureKind | None  # the failure after which it gets no calls; None: it gets them


@runtime_checkable
class HasEndpoints(Protocol):
    """A provider that spreads its calls over servers."""

    @property
    def endpoints(self) -> Sequence[EndpointStatus]:
        """Return the state of every server that calls may go to."""


@runtime_checkable
class LimitedPerServer(Protocol):
    """A provider whose stated limits hold for each of its servers."""

    def n_servers(self, most: int) -> int:
        """Return how many servers get calls now, >= 1.

        From here on none gets more than ``most`` at once while another has fewer.
        """


class Provider(Protocol):
    """Answers requests, inside ``async with provider:``, on the run's event loop."""

    name: str

    async def __aenter__(self) -> Self:
        """Start workers and clients."""

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop them, waiting for what cannot be cancelled."""

    def check(self, model: str) -> None:
        """Check that ``model`` can be used, without a call or loading it; raises ConfigError."""

    def capabilities(self, model: str) -> Capabilities:
        """Return the capabilities of ``model``."""

    def fingerprint(self, model: str) -> str:
        """Return a digest of all that decides the reply but the request, for the cache."""

    def bound(self, request: Request) -> Spend:
        """Return an upper bound of the cost of one attempt; raises ConfigError for a bad request.

        ``calls`` is 1, or more for a program that calls models; ``pulls`` is 0. Dollars are 0 where
        ``capabilities(model).priced`` is False, tokens and worker seconds where ``counted`` is.
        """

    def allowances(self, model: str) -> tuple[Allowance, ...]:
        """Return the rate limits in the latest response about ``model``, failed ones included."""

    async def generate(self, request: Request) -> Reply:
        """Answer one request; raises ProviderError. Cancellation is never swallowed."""


@runtime_checkable
class AcceptsFacts(Protocol):
    """A provider that accepts facts about single models in addition to its own options."""

    def set_facts(self, model: str, facts: Mapping[str, Json]) -> None:
        """Set a study's facts about one model; raises ConfigError."""
