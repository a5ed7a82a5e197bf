"""The providers of a study, each made once from the catalogue and the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bestarm_agent.catalog import Catalog
from bestarm_agent.config.schema import StudyConfig
from bestarm_agent.domain.digest import Json, canonical
from bestarm_agent.judges.base import JudgeModel
from bestarm_agent.providers.base import Capabilities, Provider
from bestarm_agent.providers.entry import ProviderEntry
from bestarm_agent.providers.program_task import CallsModels
from bestarm_agent.providers.registry import create_provider


class Fleet:
    """The providers of a study: models that share a provider's options share the provider.

    Args:
        config: names providers, models and their options.
        base_dir: folder that relative paths start from.
        catalog: holds what is known of each provider.
    """

    def __init__(self, config: StudyConfig, base_dir: Path, catalog: Catalog) -> None:
        self._config = config
        self._base_dir = base_dir
        self._catalog = catalog
        self._by_options: dict[str, Provider] = {}
        self._by_model: dict[tuple[str, str], Provider] = {}
        self._unconnected: list[Provider] = []
        for (provider, model), options in config.model_options().items():
            self._by_model[provider, model] = self._provider(provider, options)
        self._connect()

    def of(self, provider: str, model: str, options: Mapping[str, Json] | None = None) -> Provider:
        """The provider of a model; one that the configuration does not name has its defaults.

        Args:
            provider: its name.
            model: the model's name.
            options: provider options that differ from those in the configuration.

        Raises:
            ConfigError: there is no such provider.
        """
        if options:
            found = self._provider(provider, options)
            self._connect()
            return found
        if (provider, model) not in self._by_model:
            self._by_model[provider, model] = self._provider(provider, {})
            self._connect()
        return self._by_model[provider, model]

    @property
    def providers(self) -> tuple[Provider, ...]:
        """All providers in use."""
        return tuple(self._by_options.values())

    def params(self, provider: str, model: str) -> frozenset[str]:
        """Names of the sampling parameters that a model honours."""
        return self.of(provider, model).capabilities(model).params

    def able(self, model: JudgeModel) -> Capabilities:
        """What a judge's model can do."""
        provider = self.of(model.provider, model.name, model.options)
        return provider.capabilities(model.name)

    def in_flight(self, provider: Provider, model: str) -> int:
        """Calls that may be under way at a provider at once."""
        limits = self._config.limits.providers.get(provider.name)
        if limits is not None and limits.in_flight is not None:
            return limits.in_flight
        entry = self._catalog.get("providers", provider.name).parse(ProviderEntry)
        return entry.in_flight or provider.capabilities(model).in_flight

    def _provider(self, name: str, options: Mapping[str, Json]) -> Provider:
        entry = self._catalog.get("providers", name).parse(ProviderEntry)
        merged = {**entry.options, **self._config.providers.get(name, {}), **options}
        key = canonical([name, merged])
        if key not in self._by_options:
            self._by_options[key] = create_provider(
                name, merged, self._base_dir, adapter=entry.adapter
            )
            self._unconnected.append(self._by_options[key])
        return self._by_options[key]

    def _connect(self) -> None:
        """Give new providers whose programs call models the providers of these."""
        while self._unconnected:
            provider = self._unconnected.pop()
            if isinstance(provider, CallsModels):
                provider.connect(self.of)
