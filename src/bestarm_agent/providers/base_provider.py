"""A base class for providers: a new one writes ``generate``, and overrides what differs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Generic, Self

from pydantic import BaseModel
from typing_extensions import TypeVar

from bestarm_agent.config.fields import StrictModel
from bestarm_agent.config.user_functions import source_name
from bestarm_agent.config.yaml.documents import parse_options
from bestarm_agent.domain.digest import Json, digest
from bestarm_agent.domain.rate_limits import Allowance
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.providers.base import Capabilities


class ProviderOptions(StrictModel):
    """Base of a provider's options: a frozen pydantic model that refuses unknown keys."""


OptionsT = TypeVar("OptionsT", bound=BaseModel, default=ProviderOptions)


class BaseProvider(ABC, Generic[OptionsT]):
    """Answers requests; a subclass must define ``generate`` only.

    The defaults describe a local function: one call at a time costs nothing that is known, no
    limits apply, every model name is accepted and no sampling parameter is honoured. Override
    ``start`` and ``close`` to hold clients or workers, ``check`` to refuse model names,
    ``capabilities`` and ``bound`` together to make budgets in dollars or tokens hold.

    Args:
        name: the first part of ``provider/model``.
        options: validated by ``options_type``.
        base_dir: folder that relative paths start from: the study's.

    Example:
        >>> class Four(BaseProvider):
        ...     '''Answers every request with 4.'''
        ...     async def generate(self, request: Request) -> Reply:
        ...         return Reply(text="4")
        >>> Four.create("four", {}, Path()).capabilities("any").priced
        False
    """

    options_type: ClassVar[type[BaseModel]] = ProviderOptions  # the pydantic model of the options
    takes_facts: ClassVar[bool] = False  # options may hold facts about models (``AcceptsFacts``)
    version: ClassVar[str] = "1"  # part of the fingerprint: change it when replies change

    def __init__(self, name: str, options: OptionsT, base_dir: Path) -> None:
        self.name = name
        self.options = options
        self.base_dir = base_dir

    @classmethod
    def create(cls, name: str, options: Mapping[str, Json], base_dir: Path) -> Self:
        """Validate the options and build the provider; raises ConfigError."""
        parsed = parse_options(cls.options_type, options, subject=f"provider `{name}`")
        return cls(name, parsed, base_dir)  # type: ignore[arg-type] # options_type is OptionsT

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start workers and clients; nothing by default."""

    async def close(self) -> None:
        """Stop them, waiting for what cannot be cancelled; nothing by default."""

    def check(self, model: str) -> None:
        """Accept every model name; override to raise ConfigError for unusable ones."""

    def capabilities(self, model: str) -> Capabilities:
        """Return that neither parameters nor prices are known."""
        return Capabilities(params=frozenset(), priced=False, counted=False)

    def fingerprint(self, model: str) -> str:
        """Return a digest of the class, its ``version``, the options and the model."""
        options = self.options.model_dump(mode="json")
        return digest([source_name(type(self)), self.version, options, model])

    def bound(self, request: Request) -> Spend:
        """Return one call; override it together with ``capabilities`` if costs are known."""
        return Spend(calls=1)

    def allowances(self, model: str) -> tuple[Allowance, ...]:
        """Return no allowance: no rate limit applies."""
        return ()

    @abstractmethod
    async def generate(self, request: Request) -> Reply:
        """Answer one request; raises ProviderError. Let cancellation pass."""
