"""The provider that the actors run, by its name in the catalogue, with options for its machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import ConfigError
from bestarm_agent.plugins.registry import is_path
from bestarm_agent.providers.base import Provider
from bestarm_agent.providers.catalog_entry import ProviderEntry, merge_options
from bestarm_agent.providers.ray.options import RayOptions
from bestarm_agent.providers.registry import create_provider


@dataclass(frozen=True, slots=True)
class Engine:
    """A provider in the terms of ``create_provider``; it can be sent to other machines."""

    name: str
    options: dict[str, Json]
    base_dir: Path
    adapter: str

    @classmethod
    def find(cls, name: str, own: RayOptions, options: Mapping[str, Json], base_dir: Path) -> Self:
        """Look the provider up as a study in ``base_dir`` does; raises ConfigError."""
        adapter = own.adapter
        defaults: Mapping[str, Json] = {}
        if not is_path(adapter):
            entry = Catalog(base_dir).get("providers", adapter).parse(ProviderEntry)
            adapter, defaults = entry.adapter, entry.options
        if adapter == "ray":
            raise ConfigError(f"provider `{name}`: actors cannot run `ray`; set `adapter` to hf")
        merged = merge_options(defaults, options)
        return cls(name, _fitted(adapter, merged, own), base_dir, adapter)

    def describe(self) -> Provider:
        """Build the provider that knows what models take and cost; it is never entered.

        Raises ConfigError.
        """
        return create_provider(self.name, self.options, self.base_dir, adapter=self.adapter)

    def create(self, number: int) -> Provider:
        """Build the provider of an actor; raises ConfigError."""
        options = _with_own_logs(self.options, number)
        return create_provider(self.name, options, self.base_dir, adapter=self.adapter)


def _fitted(adapter: str, options: dict[str, Json], own: RayOptions) -> dict[str, Json]:
    """Return the options of an engine that has the accelerators and cores of one actor."""
    if adapter == "hf":
        if options.get("device", "auto") == "auto":
            options["device"] = "cuda" if own.gpus else "cpu"
        options.setdefault("threads", max(1, int(own.cpus)))
    serve = options.get("serve")
    if adapter == "vllm" and isinstance(serve, Mapping):
        options["serve"] = {"gpus": max(1, int(own.gpus)), **serve}
    return options


def _with_own_logs(options: dict[str, Json], number: int) -> dict[str, Json]:
    """Return the options with another folder for servers' logs: actors may share a disk."""
    serve = options.get("serve")
    if not isinstance(serve, Mapping):
        return options
    folder = f"{serve.get('log_dir', 'runs/vllm')}/actor-{number}"
    return {**options, "serve": {**serve, "log_dir": folder}}
