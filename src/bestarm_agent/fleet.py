"""The providers of a study, each made once from the catalogue and the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from bestarm_agent.catalog import Catalog
from bestarm_agent.config.documents import placing
from bestarm_agent.config.places import Places
from bestarm_agent.config.rates import rate_limits
from bestarm_agent.config.schema import StudyConfig
from bestarm_agent.domain.digest import Json, canonical
from bestarm_agent.judges.base import JudgeModel
from bestarm_agent.option_places import OptionPlaces
from bestarm_agent.providers.base import Capabilities, KnowsModels, Provider
from bestarm_agent.providers.entry import ProviderEntry, divided, layered
from bestarm_agent.providers.program_task import CallsModels
from bestarm_agent.providers.registry import create_provider, takes_facts
from bestarm_agent.schedule.lane import LaneRules


class Fleet:
    """The providers of a study: models that share a provider's options share the provider.

    Args:
        config: names providers, models and their options.
        base_dir: folder that relative paths start from.
        catalog: holds what is known of each provider.
        places: where the configuration stands, for messages.

    Raises:
        ConfigError: there is no provider of a name that the configuration uses.
    """

    def __init__(
        self,
        config: StudyConfig,
        base_dir: Path,
        catalog: Catalog,
        places: Places | None = None,
    ) -> None:
        self._config = config
        self._places = places = places or Places("the study")
        self._base_dir = base_dir
        self._catalog = catalog
        self._by_options: dict[str, Provider] = {}
        self._by_model: dict[tuple[str, str], Provider] = {}
        self._declared: dict[tuple[int, str], Mapping[str, Json]] = {}
        self._unconnected: list[Provider] = []
        self._check_names()
        for (provider, model), options in config.model_options().items():
            with placing(OptionPlaces(places, config, catalog, provider, model).where):
                self._by_model[provider, model] = self._provider(provider, model, options)
        self._connect()

    def _check_names(self) -> None:
        """What is said of a misspelt provider would not be kept."""
        limits = self._config.limits
        named: list[tuple[tuple[str, ...], str]] = [
            *((("providers", name), name) for name in self._config.providers),
            *((("limits", "providers", name), name) for name in limits.providers),
            *((("limits", "models", name), name.partition("/")[0]) for name in limits.models),
        ]
        for at, provider in named:
            with placing(partial(self._places.where, *at)):
                self._catalog.get("providers", provider)

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
            found = self._provider(provider, model, options)
            self._connect()
            return found
        if (provider, model) not in self._by_model:
            self._by_model[provider, model] = self._provider(provider, model, {})
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
        """Calls that may be under way at a provider at once; to be found out: as many as at all."""
        given = self._given_in_flight(provider.name)
        if given is not None:
            return given
        capabilities = provider.capabilities(model)
        return (
            self._config.limits.in_flight if capabilities.rate_limited else capabilities.in_flight
        )

    def rules(self, provider: Provider, model: str) -> LaneRules:
        """How calls to a model are held back."""
        limits = self._config.limits
        of_model = limits.models.get(f"{provider.name}/{model}")
        of_provider = limits.providers.get(provider.name)
        fixed = self._given_in_flight(provider.name) is not None
        adaptive = provider.capabilities(model).rate_limited and not fixed
        return LaneRules(
            rate_limits([of_model, of_provider], self._entry(provider.name).limits),
            adaptive=limits.in_flight if adaptive else None,
        )

    def shared(self, provider: Provider) -> bool:
        """Whether all models of an account share its rate limits."""
        own = self._config.limits.providers.get(provider.name)
        if own is not None and own.shared is not None:
            return own.shared
        return bool(self._entry(provider.name).limits.shared)

    def _given_in_flight(self, name: str) -> int | None:
        own = self._config.limits.providers.get(name)
        if own is not None and own.in_flight is not None:
            return own.in_flight
        return self._entry(name).in_flight

    def _entry(self, name: str) -> ProviderEntry:
        return self._catalog.get("providers", name).parse(ProviderEntry)

    def _provider(self, name: str, model: str, options: Mapping[str, Json]) -> Provider:
        """The provider of these options; what they say of the model alone is left to it."""
        entry = self._entry(name)
        study = self._config.providers.get(name, {})
        if not takes_facts(entry.adapter):
            return self._made(name, entry.adapter, {**entry.options, **study, **options})
        facts, shared = divided(options)
        merged = {**entry.options, **study, **shared, "models": layered(entry, study)}
        provider = self._made(name, entry.adapter, merged)
        declared = self._declared.setdefault((id(provider), model), facts)
        if declared != facts:  # one model in two ways: as a candidate and as a judge, say
            provider = self._made(name, entry.adapter, merged, apart=facts)
        if facts and isinstance(provider, KnowsModels):
            provider.declare(model, facts)
        return provider

    def _made(
        self,
        name: str,
        adapter: str,
        options: Mapping[str, Json],
        apart: Mapping[str, Json] | None = None,
    ) -> Provider:
        key = canonical([name, options, apart])
        if key not in self._by_options:
            self._by_options[key] = create_provider(name, options, self._base_dir, adapter=adapter)
            self._unconnected.append(self._by_options[key])
        return self._by_options[key]

    def _connect(self) -> None:
        """Give new providers whose programs call models the providers of these."""
        while self._unconnected:
            provider = self._unconnected.pop()
            if isinstance(provider, CallsModels):
                provider.connect(self.of)
