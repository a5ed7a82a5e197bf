"""Providers by name; a provider's module, and the SDK behind it, is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.providers.base import Provider

# adapter -> (module, factory)
_ADAPTERS: Mapping[str, tuple[str, str]] = {
    "anthropic": ("bestarm_agent.providers.anthropic", "create"),
    "command": ("bestarm_agent.providers.command", "create"),
    "hf": ("bestarm_agent.providers.hf", "create"),
    "openai": ("bestarm_agent.providers.openai", "create"),
    "python": ("bestarm_agent.providers.python", "create"),
    "replay": ("bestarm_agent.providers.replay", "create"),
    "vllm": ("bestarm_agent.providers.vllm", "create"),
}
# adapters whose providers are told facts about single models (``base.KnowsModels``)
_TAKE_FACTS = frozenset({"anthropic", "openai", "vllm"})


class Factory(Protocol):
    """Builds a provider of one kind."""

    def __call__(self, name: str, options: Mapping[str, Json], base_dir: Path) -> Provider:
        """Build it; raises ConfigError if an option is wrong."""
        ...


def adapter_names() -> tuple[str, ...]:
    """Names of all adapters."""
    return tuple(_ADAPTERS)


def takes_facts(adapter: str) -> bool:
    """Whether an adapter's options may hold facts about single models."""
    return adapter in _TAKE_FACTS


def create_provider(
    name: str, options: Mapping[str, Json], base_dir: Path, *, adapter: str | None = None
) -> Provider:
    """Build a provider.

    Args:
        name: what users call it, the first part of ``provider/model``.
        options: the adapter's options.
        base_dir: folder that relative paths start from: the study's.
        adapter: how it is spoken to; ``name`` if None.

    Raises:
        ConfigError: there is no such adapter, or an option is unknown or breaks a rule.

    Example:
        >>> create_provider("hf", {"threads": 1}, Path()).name
        'hf'
    """
    adapter = name if adapter is None else adapter
    if adapter not in _ADAPTERS:
        raise ConfigError(
            f"there is no provider adapter `{adapter}`; {nearest(adapter, adapter_names())}"
        )
    module, attribute = _ADAPTERS[adapter]
    factory = cast(Factory, getattr(import_module(module), attribute))
    return factory(name, options, base_dir)
