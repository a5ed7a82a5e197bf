"""The seam between the dispatcher and whatever answers: one contract for all providers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from bestarm_agent.domain.allowance import Allowance
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.spend import Spend


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a model can do; a parameter outside ``params`` is never sent.

    Attributes:
        params: names of the sampling parameters that it honours.
        chat: whether it takes chat messages.
        completion: whether it takes a plain prompt.
        seed: whether a seed makes one call reproducible by itself.
        priced: whether ``bound`` knows dollars.
        price_source: where the price comes from, for people ("study", "genai-prices 0.2.3 ..."),
            or None.
        in_flight: calls that the provider can usefully hold at once.
        rate_limited: whether the provider turns calls away (429) beyond limits of its own; then how
            many it takes at once is found out, and ``in_flight`` is of no account.
        queued: whether calls may wait in a local queue, so that no time-out applies to them.
        by_example: whether the reply depends on the example's id besides the request's content, as
            with records played back; then the id belongs into the key of the reply cache.
        response_schema: whether ``Request.response_schema`` is enforced while it generates. Where
            it is False the field is never sent.
        logprobs: whether ``Request.top_logprobs`` is honoured. Where it is False the field is never
            sent and ``Reply.logprobs`` is empty.
        by_inputs: whether the reply depends on ``Request.inputs`` besides the prompt, as with
            programs; then they belong into the key of the reply cache.
        counted: whether ``bound`` knows tokens and worker seconds.
    """

    params: frozenset[str]
    chat: bool = True
    completion: bool = True
    seed: bool = False
    priced: bool = True
    price_source: str | None = None
    in_flight: int = 64
    rate_limited: bool = False
    queued: bool = False
    by_example: bool = False
    response_schema: bool = False
    logprobs: bool = False
    by_inputs: bool = False
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a model takes of the memory that it shares with others.

    Attributes:
        holder: what has to be in memory: the model itself, or the base model of an adapter.
        n_bytes: what that takes.
        load_seconds: how long loading it takes, as measured; None: not loaded yet.
        call_seconds: worker seconds of one call, as measured; None: not called yet.
    """

    holder: str
    n_bytes: int
    load_seconds: float | None = None
    call_seconds: float | None = None


@runtime_checkable
class SharesMemory(Protocol):
    """A provider that may have to unload one model before it can load another."""

    @property
    def memory_bytes(self) -> int:
        """Memory for all loaded models."""
        ...

    @property
    def loading_share(self) -> float | None:
        """Share of the time, in (0, 1], that loading may take; None: models take no turns."""
        ...

    def footprint(self, model: str) -> Footprint:
        """What ``model`` takes, and how long things have taken so far."""
        ...

    def keep(self, model: str) -> None:
        """Unload ``model`` only where the others cannot make room: it is needed all the time."""
        ...


@runtime_checkable
class LoadsModels(Protocol):
    """A provider whose calls may have to wait until a model is loaded."""

    @property
    def loading(self) -> Sequence[str]:
        """Names of the models that are being loaded now."""
        ...


class Provider(Protocol):
    """Answers requests.

    Lifetime: ``async with provider:`` around all use. Every method runs on the run's event loop.
    """

    name: str

    async def __aenter__(self) -> Self:
        """Start workers and clients."""
        ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop them, waiting for what cannot be cancelled."""
        ...

    def check(self, model: str) -> None:
        """Check that ``model`` can be used, without a call and without loading it.

        Raises:
            ConfigError: it cannot; the message says the way out.
        """
        ...

    def capabilities(self, model: str) -> Capabilities:
        """What ``model`` can do."""
        ...

    def fingerprint(self, model: str) -> str:
        """Digest of everything but the request that decides the reply.

        Endpoint, weights, version; part of the key of the reply cache.
        """
        ...

    def bound(self, request: Request) -> Spend:
        """Upper bound of what one attempt at ``request`` can cost.

        ``calls`` is 1, or more for a program that calls models; ``pulls`` is 0. Dollars are 0 where
        ``capabilities(model).priced`` is False, tokens and worker seconds where ``counted`` is.

        Raises:
            ConfigError: the request cannot be sent as it is, for the model or for a parameter.
        """
        ...

    def allowances(self, model: str) -> tuple[Allowance, ...]:
        """What the latest response about ``model``, failed ones included, said is left.

        Empty if it said nothing, as with local models.
        """
        ...

    async def generate(self, request: Request) -> Reply:
        """Answer one request.

        Raises:
            ProviderError: the call failed. Cancellation is never swallowed.
        """
        ...


@runtime_checkable
class KnowsModels(Protocol):
    """A provider that is told facts about single models, beside its own options."""

    def declare(self, model: str, facts: Mapping[str, Json]) -> None:
        """Take what a study says of one model; raises ConfigError."""
        ...
