"""The providers of a study: each made once, with what the study says of its models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import cast

from bestarm_agent.config.candidates import is_like
from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.fields import KeyPath
from bestarm_agent.config.file_errors import options_at, parse_options
from bestarm_agent.config.files import shown_path
from bestarm_agent.config.input_specs import CandidateSpec, ModelSpec
from bestarm_agent.config.load import LoadedStudy
from bestarm_agent.config.study import ProviderLimits, RateSpec
from bestarm_agent.domain.spend import Resource
from bestarm_agent.domain.values import Json, canonical
from bestarm_agent.engine.limits.model_limits import RateLimits
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.base import JudgeModel
from bestarm_agent.providers.base import Capabilities, Provider
from bestarm_agent.providers.catalog_entry import ModelFacts, ProviderEntry
from bestarm_agent.providers.registry import create_provider, find_adapter


class ProviderSet:
    """The providers of a study: models that share a provider's options share the provider."""

    def __init__(self, study: LoadedStudy, catalog: Catalog) -> None:
        self._study, self._config, self._catalog = study, study.config, catalog
        self._entries: dict[str, ProviderEntry] = {}
        self._by_options: dict[str, Provider] = {}
        self._by_model: dict[tuple[str, str], Provider] = {}
        self._options = self._config.model_options()
        named: list[tuple[KeyPath, ModelSpec | CandidateSpec]] = [
            *((("models", i), spec) for i, spec in enumerate(self._config.models)),
            *((("candidates", i), spec) for i, spec in enumerate(self._config.candidates)),
        ]
        self._named = {spec.model: (at, spec.options) for at, spec in reversed(named)}
        self.started: set[int] = set()  # identities of the providers that were entered
        self._check_names()
        for provider, model in self._options:
            with self.at(provider, model):
                self.of(provider, model)

    @contextmanager
    def at(self, provider: str, model: str) -> Iterator[None]:
        """Add to errors where the study names a model, and its options."""
        positions, study = self._study.positions, self._config.providers.get(provider, {})
        shared = ("providers", provider) if provider in self._config.providers else ("scorer",)
        at, own = self._named.get(f"{provider}/{model}", (shared, {}))

        def where(*path: str | int) -> str:
            """Return the position of an option, or of the mapping that lacks it; or the model's."""
            if not path:
                return positions.describe(*at)
            if len(path) > 2 and path[0] == "models" and path[2] in study:
                path = path[2:]  # an option of all models counts in every pattern of the catalogue
            if path[0] in own:
                return positions.describe(*at, "options", *path)
            if path[0] in study:
                return positions.describe(*shared, *path)
            entry = self._catalog.get("providers", provider)
            for key in (("options", *path), path):
                if key in entry.lines:
                    return f"{shown_path(entry.path)}, line {entry.lines[key]}"
            return positions.describe(*(shared if study else at))

        with positions.at(*at), options_at(where):
            yield

    def _check_names(self) -> None:
        limits = self._config.limits
        named: list[tuple[tuple[str, ...], str]] = [
            *((("providers", name), name) for name in self._config.providers),
            *((("limits", "providers", name), name) for name in limits.providers),
            *((("limits", "models", name), name.partition("/")[0]) for name in limits.models),
        ]
        for at, provider in named:
            with options_at(partial(self._study.positions.describe, *at)):
                self._catalog.get("providers", provider)

    def of(self, provider: str, model: str, options: Mapping[str, Json] | None = None) -> Provider:
        """Return the provider of a model, by default with the options that the study gives it."""
        # Options are given for a judge's model, which may differ from a candidate of the same name:
        # such a provider is not remembered for the name. Equal options share a provider all the
        # same.
        if options:
            return self._provider(provider, model, options)
        if (at := (provider, model)) not in self._by_model:
            self._by_model[at] = self._provider(provider, model, self._options.get(at, {}))
        return self._by_model[at]

    @property
    def in_use(self) -> tuple[Provider, ...]:
        """All providers in use."""
        return tuple(self._by_options.values())

    def params(self, provider: str, model: str) -> frozenset[str]:
        """Names of the sampling parameters that are sent to a model.

        Of those that are not known, these are the ones of the study that look like no usual one.
        """
        with self.at(provider, model):
            facts = self.of(provider, model).capabilities(model)
        odd = (name for name in self._config.param_names - facts.params if facts.takes(name))
        return facts.params.union(name for name in odd if not is_like(name, facts.params))

    def able(self, model: JudgeModel) -> Capabilities:
        """Return the capabilities of a judge's model."""
        provider = self.of(model.provider, model.name, model.options)
        return provider.capabilities(model.name)

    def in_flight(self, provider: Provider, model: str) -> int:
        """Calls that may be under way at a provider at once; unknown: as many as the run allows."""
        facts, given = provider.capabilities(model), self._given_in_flight(provider.name)
        found_out = self._config.limits.in_flight if facts.rate_limited else facts.in_flight
        return found_out if given is None else given

    def rules(self, provider: Provider, model: str) -> RateLimits:
        """Return the limits on calls to a model."""
        limits, name = self._config.limits, provider.name
        own = limits.providers.get(name), limits.models.get(f"{name}/{model}")  # which comes first
        given = {k: v for spec in own if spec is not None for k, v in _per_minute(spec).items()}
        is_stated = bool(given) or self._given_in_flight(name) is not None
        searches = provider.capabilities(model).rate_limited and not is_stated
        return RateLimits(given, _per_minute(self._entry(name).limits), searches)

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
        # Models that share options share a provider, and so its connections, gates and limits.
        # Where an adapter takes facts (prices, what a model takes), these are put aside first: they
        # are about one model, and two models that differ in them alone are still served by one
        # provider.
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
        # ``separate`` tells apart the providers of one model that is described in two ways; the
        # options that reach the provider are the same for both.
        key = canonical([name, options, separate])
        if key not in self._by_options:
            made = create_provider(name, options, self._study.base_dir, adapter=adapter)
            self._by_options[key] = made
            made.set_providers(self.of)
        return self._by_options[key]


_RATES = {
    Resource.REQUESTS: "rpm",
    Resource.TOKENS: "tpm",
    Resource.INPUT_TOKENS: "itpm",
    Resource.OUTPUT_TOKENS: "otpm",
}


def _per_minute(spec: RateSpec) -> dict[Resource, float]:
    """Return the limits that are given."""
    values = {resource: getattr(spec, field) for resource, field in _RATES.items()}
    return {resource: float(limit) for resource, limit in values.items() if limit is not None}
