"""The base class of all providers: a new one writes ``generate``, and overrides what differs."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeAlias

from pydantic import BaseModel
from typing_extensions import TypeVar

from bestarm_agent.config.fields import StrictModel
from bestarm_agent.config.file_errors import parse_options
from bestarm_agent.config.functions import source_name
from bestarm_agent.domain.spend import Allowance, Spend
from bestarm_agent.domain.values import Json, Reply, Request, canonical, digest
from bestarm_agent.errors import BestarmError, FailureKind, PluginError
from bestarm_agent.plugins import guard, holds

if TYPE_CHECKING:
    from bestarm_agent.providers.catalog_entry import ModelFacts

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The features of a model; a parameter outside ``params`` is never sent.

    If it is ``rate_limited``, concurrency adapts to the limits and ``in_flight`` is ignored.
    """

    params: frozenset[str]  # names of the sampling parameters that it honours
    # names that it refuses, where all others are sent and ``params`` are the usual ones; or None
    without: frozenset[str] | None = None
    chat: bool = True  # it takes chat messages
    seed: bool = False  # a seed makes one call reproducible
    # origin of its price, such as "the option price" or "genai-prices 0.2.3 ..."; None: no price
    price_source: str | None = None
    unpriced: str = ""  # why no price is known, where that is not for lack of one
    in_flight: int = 64  # calls that the provider can usefully hold at once
    rate_limited: bool = False  # the provider rejects calls beyond its own limits (429)
    queued: bool = False  # calls may wait in a local queue, so that no time-out applies to them
    by_example: bool = False  # the reply, and so its cache key, also depends on the example's id
    response_schema: bool = False  # ``Request.response_schema`` is enforced, else never sent
    logprobs: bool = False  # ``Request.top_logprobs`` is honoured, else never sent
    tools: bool = False  # ``Request.tools`` and messages that call them are passed on
    by_inputs: bool = False  # the reply, and so its cache key, also depends on the inputs
    images: bool = True  # False: it surely takes no images and files in messages
    counted: bool = True  # ``bound`` includes tokens and worker seconds
    cache_from: int = 0  # fewest tokens that its prompt cache keeps; 0: none, or none that saves

    def takes(self, param: str) -> bool:
        """Return whether a sampling parameter may be sent."""
        return param in self.params or (self.without is not None and param not in self.without)

    @property
    def priced(self) -> bool:
        """True if ``bound`` includes dollars."""
        return self.price_source is not None

    def keeps(self, tokens: int) -> bool:
        """Return whether a cache keeps the beginning of a prompt of so many tokens."""
        return 0 < self.cache_from <= tokens


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """One of several servers that answer for a provider."""

    address: str  # for people, free of secrets
    in_flight: int  # calls that it is answering
    failure: FailureKind | None  # the failure after which it gets no calls; None: it gets them


class ProviderOptions(StrictModel):
    """Base of a provider's options: a frozen pydantic model that refuses unknown keys."""


EFFORT = "effort"


def _effort(request: Request) -> str:
    return canonical(request.params.get(EFFORT))


OptionsT = TypeVar("OptionsT", bound=BaseModel, default=Any)

# Sends a request to a model of a provider, within its rate limits.
Send: TypeAlias = "Callable[[Provider, Request], Awaitable[Reply]]"


_RETURNS: Mapping[str, Callable[[Any], bool]] = {  # what the methods of a plug-in may return
    "check": lambda result: result is None,
    "check_machine": lambda result: result is None,
    "capabilities": lambda result: isinstance(result, Capabilities),
    "fingerprint": lambda result: isinstance(result, str),
    "bound": lambda result: isinstance(result, Spend) and result.is_possible,
    "allowances": lambda result: holds(result, Allowance),
    "asks_per_load": lambda result: result is None or result > 0,
}


class Provider(ABC, Generic[OptionsT]):
    """Answers requests, inside ``async with provider:``; a subclass defines ``generate`` only.

    The defaults describe a local function: a call has no known cost, no
    limits apply, every model name is accepted and no sampling parameter is honoured. Override
    ``start`` and ``close`` to hold clients or workers, ``check`` to refuse model names,
    ``capabilities`` and ``bound`` together to make budgets in dollars or tokens hold.

    Args:
        name: the first part of ``provider/model``.
        options: validated by ``options_type``.
        base_dir: folder that relative paths start from: the study's.

    Example:
        >>> class Four(Provider):
        ...     '''Answers every request with 4.'''
        ...     async def generate(self, request: Request) -> Reply:
        ...         return Reply(text="4")
        >>> Four.create("four", {}, Path()).capabilities("any").priced
        False
    """

    options_type: ClassVar[type[BaseModel]] = ProviderOptions  # the pydantic model of the options
    takes_facts: ClassVar[bool] = False  # options may hold facts about models (``facts``)
    calls_models: ClassVar[bool] = False  # its programs call models (``set_providers``)
    version: ClassVar[str] = "1"  # part of the fingerprint: change it when replies change

    def __init_subclass__(cls, **keywords: Any) -> None:  # noqa: ANN401 - for the next base
        super().__init_subclass__(**keywords)
        # For every subclass, plug-ins included: a method that returns something else raises an
        # error that names the class and the method here, and not somewhere in the engine later.
        guard(cls, _RETURNS)

    def __init__(self, name: str, options: OptionsT, base_dir: Path) -> None:
        self.name = name
        self.options = options
        self.base_dir = base_dir
        self.facts: dict[str, ModelFacts] = {}  # what a study states of single models

    @classmethod
    def create(cls, name: str, options: Mapping[str, Json], base_dir: Path) -> Self:
        """Validate the options and build the provider; raises ConfigError."""
        parsed = parse_options(cls.options_type, options, subject=f"provider `{name}`")
        return cls(name, parsed, base_dir)  # type: ignore[arg-type] # options_type is OptionsT

    @cached_property
    def not_taken(self) -> dict[str, dict[str, list[str]]]:
        """Names of what models were found not to take, by model and by effort, written as JSON."""
        return {}

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except (BestarmError, OSError):
            raise
        except Exception as error:
            raise PluginError(f"provider `{self.name}` did not start: {error!r:.500}") from error
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        try:
            await self.close()
        except Exception as error:  # all is paid for and recorded: what follows is not lost by it
            _log.warning("provider `%s` did not close: %.500r", self.name, error)

    async def start(self) -> None:
        """Start workers and clients; nothing by default."""

    async def close(self) -> None:
        """Stop workers and clients, and wait for what cannot be cancelled; nothing by default."""

    def check(self, model: str) -> None:
        """Accept every model name; override to raise ConfigError for unusable ones.

        Nothing may be called or loaded for it.
        """

    def check_machine(self, model: str) -> None:
        """Check that this machine can run a model; override to raise ConfigError where it cannot.

        Not asked where other machines run it.
        """

    def capabilities(self, model: str) -> Capabilities:
        """Return capabilities without parameters, prices and counted tokens."""
        return Capabilities(params=frozenset(), counted=False)

    def fingerprint(self, model: str) -> str:
        """Return a digest of everything besides the request that can change a reply.

        The cache goes by it. By default of the class, its ``version``, the options and the model.
        """
        options = self.options.model_dump(mode="json")
        return digest([source_name(type(self)), self.version, options, model])

    def bound(self, request: Request) -> Spend:
        """Return an upper bound of the cost of one attempt; raises ConfigError for a bad request.

        ``calls`` is 1, or more for a program that calls models; ``answers`` is 0. Dollars are 0
        where ``capabilities(model).priced`` is False, tokens and worker seconds where ``counted``
        is. One call by default; override it together with ``capabilities`` if costs are known.
        """
        return Spend(calls=1)

    def allowances(self, model: str) -> tuple[Allowance, ...]:
        """Return the rate limits in the latest response about ``model``, failed ones included."""
        return ()

    @abstractmethod
    async def generate(self, request: Request) -> Reply:
        """Answer one request; raises ProviderError. Let cancellation pass.

        An error whose ``refused`` names parameters is learned from: the request is sent again
        without them (``fitted``), as are all later ones to the same model with the same effort.
        """

    def learn(self, model: str, effort: str, refused: Iterable[str]) -> None:
        """Note which parameters a model refuses at an effort, which is written as JSON."""
        if names := sorted(refused):
            known = self.not_taken.setdefault(model, {}).setdefault(effort, [])
            known += [name for name in names if name not in known]

    def fitted(self, request: Request) -> Request:
        """Return a request without what its model was found not to take at its effort.

        Without the effort itself, what the model does not take at its own effort counts too.
        """
        known = self.not_taken.get(request.model)
        if not known:
            return request
        # In two steps, since what a model takes may depend on the effort: once the effort is left
        # out, the request has the model's own effort, at which other parameters may be refused.
        if EFFORT in known.get(_effort(request), ()):
            request = request.without({EFFORT})
        refused = known.get(_effort(request))
        return request.without(frozenset(refused)) if refused else request

    @property
    def endpoints(self) -> Sequence[EndpointStatus]:
        """The state of every server that calls may go to, if there are several."""
        return ()

    @property
    def loading(self) -> Sequence[str]:
        """Names of the models that calls wait for while they are loaded."""
        return ()

    @property
    def loads_one_at_a_time(self) -> bool:
        """True if one model has to be unloaded before another can be loaded."""
        return False

    def asks_per_load(self, model: str) -> int | None:
        """Return how many calls make it worth loading ``model``; None if that is not known."""
        return None

    def set_providers(self, lookup: Callable[[str, str], Provider]) -> None:
        """Look up the providers of the models that programs call, by (provider, model).

        Nothing by default. Raises ConfigError.
        """

    def set_sender(self, send: Send) -> None:
        """Set the function that sends the calls of programs from now on; nothing by default."""
