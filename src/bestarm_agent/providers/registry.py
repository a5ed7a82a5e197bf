"""Providers by name; a provider's module, and the SDK behind it, is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from bestarm_agent.config.functions import load_object
from bestarm_agent.domain.values import Json
from bestarm_agent.plugins import Registry
from bestarm_agent.providers.base import Provider

# By path, so that no SDK is imported before a study uses it: each takes up to seconds.
ADAPTERS: Final = Registry[type[Provider]](
    "provider adapter",
    "providers",
    {
        "anthropic": "bestarm_agent.providers.api.anthropic:AnthropicProvider",
        "command": "bestarm_agent.providers.command:CommandProvider",
        "hf": "bestarm_agent.providers.hf.provider:HfProvider",
        "openai": "bestarm_agent.providers.api.openai:OpenAIProvider",
        "python": "bestarm_agent.providers.python:PythonProvider",
        "ray": "bestarm_agent.providers.ray.provider:RayProvider",
        "replay": "bestarm_agent.providers.replay:ReplayProvider",
        "vllm": "bestarm_agent.providers.vllm.provider:VllmProvider",
    },
    lambda adapter: isinstance(adapter, type) and issubclass(adapter, Provider),
    "a subclass of bestarm_agent.providers.Provider",
)


def find_adapter(adapter: str, base_dir: Path) -> type[Provider]:
    """Import the adapter of a name, or of a path ``module:Class`` looked up in ``base_dir`` first.

    Raises ConfigError: there is none, or it is a plug-in that cannot be imported.
    """
    return ADAPTERS.load(adapter, imported=partial(load_object, base_dir=base_dir))


def create_provider(
    name: str, options: Mapping[str, Json], base_dir: Path, *, adapter: str | None = None
) -> Provider:
    """Build a provider.

    Args:
        name: the first part of ``provider/model``.
        options: the adapter's options.
        base_dir: folder that relative paths start from: the study's.
        adapter: the adapter's name or dotted path; ``name`` if None.

    Raises:
        ConfigError: there is no such adapter, it is a plug-in that cannot be imported, or an
            option is unknown or breaks a rule.

    Example:
        >>> create_provider("hf", {"threads": 1}, Path()).name
        'hf'
    """
    return find_adapter(adapter or name, base_dir).create(name, options, base_dir)
