"""The providers of a study, each made once from the catalogue and the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import cast

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.load import LoadedStudy
from bestarm_agent.config.study import ProviderLimits, rate_limits
from bestarm_agent.config.yaml import KeyPath, parse_options, placing, shown_path
from bestarm_agent.domain.digest import Json, canonical
from bestarm_agent.engine.limits.model_limits import LimiterRules
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.base import JudgeModel
from bestarm_agent.providers.base import Capabilities, Provider
from bestarm_agent.providers.catalog_entry import ModelFacts, ProviderEntry
from bestarm_agent.providers.registry import create_provider, find_adapter


class ProviderSet:
    """The providers of a study: models that share a provider's options share the provider."""

    def __init__(self, study: LoadedStudy, catalog: Catalog) -> None:
        self._study = study
        self._config = study.config
        self._catalog = catalog
        self._entries: dict[str, ProviderEntry] = {}
        self._by_options: dict[str, Provider] = {}
        self._by_model: dict[tuple[str, str], Provider] = {}
        self._without_providers: list[Provider] = []
        self.started: set[int] = set()  # identities of the providers that were entered
        self._check_names()
        for (provider, model), options in self._config.model_options().items():
            with self._locating(provider, model):
                self._by_model[provider, model] = self._provider(provider, model, options)
        self._set_providers()

    def check(self, provider: Provider, model: str) -> None:
        """Check that a model can be used; raises ConfigError with its position in the study."""
        with self._locating(provider.name, model):
            provider.check(model)
            provider.check_machine(model)

    def fingerprint(self, provider: Provider, model: str) -> str:
        """Return what decides a model's replies, downloading it if necessary; as ``check``."""
        with self._locating(provider.name, model):
            return provider.fingerprint(model)

    @contextmanager
    def _locating(self, provider: str, model: str) -> Iterator[None]:
        """Add to errors where the study names a model, and its options."""
        own = _OptionPlaces(self._study, self._catalog, provider, model)
        try:
            with placing(own.where):
                yield
        except ConfigError as error:
            raise self._study.places.located(own.entry, error) from error

    def _check_names(self) -> None:
        limits = self._config.limits
        named: list[tuple[tuple[str, ...], str]] = [
            *((("providers", name), name) for name in self._config.providers),
            *((("limits", "providers", name), name) for name in limits.providers),
            *((("limits", "models", name), name.partition("/")[0]) for name in limits.models),
        ]
        for at, provider in named:
            with placing(partial(self._study.places.where, *at)):
                self._catalog.get("providers", provider)

    def of(self, provider: str, model: str, options: Mapping[str, Json] | None = None) -> Provider:
        """Return the provider of a model, with default options if the study does not name it."""
        if options:
            found = self._provider(provider, model, options)
            self._set_providers()
            return found
        if (provider, model) not in self._by_model:
            self._by_model[provider, model] = self._provider(provider, model, {})
            self._set_providers()
        return self._by_model[provider, model]

    @property
    def in_use(self) -> tuple[Provider, ...]:
        """All providers in use."""
        return tuple(self._by_options.values())

    def params(self, provider: str, model: str) -> frozenset[str]:
        """Names of the sampling parameters that a model honours."""
        with self._locating(provider, model):
            return self.of(provider, model).capabilities(model).params

    def able(self, model: JudgeModel) -> Capabilities:
        """Return the capabilities of a judge's model."""
        provider = self.of(model.provider, model.name, model.options)
        return provider.capabilities(model.name)

    def in_flight(self, provider: Provider, model: str) -> int:
        """Calls that may be under way at a provider at once; to be found out: as many as at all."""
        able, given = provider.capabilities(model), self._given_in_flight(provider.name)
        found_out = self._config.limits.in_flight if able.rate_limited else able.in_flight
        return found_out if given is None else given

    def rules(self, provider: Provider, model: str) -> LimiterRules:
        """Return the limits on calls to a model."""
        limits, name = self._config.limits, provider.name
        own = [limits.models.get(f"{name}/{model}"), limits.providers.get(name)]
        rate_limited = provider.capabilities(model).rate_limited
        fixed = self._given_in_flight(name) is not None
        return LimiterRules(
            rate_limits(own, self._entry(name).limits),
            adaptive=limits.in_flight if rate_limited and not fixed else None,
            trial=rate_limited,
        )

    def shared(self, provider: Provider) -> bool:
        """Return whether all models of an account share its rate limits."""
        own = self._config.limits.providers.get(provider.name, ProviderLimits()).shared
        return bool(self._entry(provider.name).limits.shared if own is None else own)

    def _given_in_flight(self, name: str) -> int | None:
        own = self._config.limits.providers.get(name, ProviderLimits()).in_flight
        return self._entry(name).in_flight if own is None else own

    def _entry(self, name: str) -> ProviderEntry:
        if name not in self._entries:
            self._entries[name] = self._catalog.get("providers", name).parse(ProviderEntry)
        return self._entries[name]

    def _provider(self, name: str, model: str, options: Mapping[str, Json]) -> Provider:
        """Return the provider with these options; facts about the model are known to it."""
        given = self._catalog.objects.get(("providers", name))
        if given is not None:
            if options or self._config.providers.get(name):
                raise ConfigError(
                    f"provider `{name}` was given as an object and takes no options; set them "
                    "where it is made"
                )
            return self._by_options.setdefault(name, cast(Provider, given))
        entry = self._entry(name)
        study = self._config.providers.get(name, {})
        if not find_adapter(entry.adapter, self._study.base_dir).takes_facts:
            return self._made(name, entry.adapter, {**entry.options, **study, **options})
        shared, stated = entry.resolve(study, options)
        facts = parse_options(ModelFacts, stated, subject=f"options of {name}/{model}")
        provider = self._made(name, entry.adapter, shared)
        if provider.facts.setdefault(model, facts) != facts:
            # one model in two ways: as a candidate and as a judge, say
            provider = self._made(name, entry.adapter, shared, separate=stated)
            provider.facts[model] = facts
        return provider

    def _made(
        self,
        name: str,
        adapter: str,
        options: Mapping[str, Json],
        separate: Mapping[str, Json] | None = None,
    ) -> Provider:
        key = canonical([name, options, separate])
        if key not in self._by_options:
            self._by_options[key] = create_provider(
                name, options, self._study.base_dir, adapter=adapter
            )
            self._without_providers.append(self._by_options[key])
        return self._by_options[key]

    def _set_providers(self) -> None:
        """Give new providers whose programs call models the providers of these."""
        while self._without_providers:
            provider = self._without_providers.pop()
            provider.set_providers(self.of)


@dataclass(frozen=True, slots=True)
class _OptionPlaces:
    """Finds the options that a model of a study is called with."""

    study: LoadedStudy
    catalog: Catalog
    provider: str
    model: str

    def where(self, *path: str | int) -> str:
        """Return the position of an option, or of the mapping that lacks it; else the model's."""
        (own, options), places = self._own(), self.study.places
        if not path:
            return places.where(*own)
        study = self.study.config.providers.get(self.provider, {})
        if len(path) > 2 and path[0] == "models" and path[2] in study:
            path = path[2:]  # an option of all models counts in every pattern of the catalogue
        if path[0] in options:
            return places.where(*own, "options", *path)
        if path[0] in study:
            return places.where("providers", self.provider, *path)
        return self._in_catalog(path) or places.where(
            *(("providers", self.provider) if study else own)
        )

    @property
    def entry(self) -> KeyPath:
        """Return the key path of the entry that names the model; of the scorer for a judge's."""
        own, _ = self._own()
        is_judge = own[0] == "providers" and self.provider not in self.study.config.providers
        return ("scorer",) if is_judge else own

    def _own(self) -> tuple[KeyPath, dict[str, object]]:
        """Return key path and options of the first entry of the study that names the model."""
        name = f"{self.provider}/{self.model}"
        config = self.study.config
        for i, model in enumerate(config.models):
            if model.model == name:
                return ("models", i), dict(model.options)
        for i, candidate in enumerate(config.candidates):
            if candidate.model == name:
                return ("candidates", i), dict(candidate.options)
        return ("providers", self.provider), {}

    def _in_catalog(self, path: KeyPath) -> str | None:
        entry = self.catalog.get("providers", self.provider)
        paths = (("options", *path), path)
        line = next((entry.lines[at] for at in paths if at in entry.lines), None)
        return None if line is None else f"{shown_path(entry.path)}, line {line}"
