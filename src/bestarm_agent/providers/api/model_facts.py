"""Facts, protocols, parameters and prices of the models behind an API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bestarm_agent.config.yaml.documents import parse_options
from bestarm_agent.domain.digest import Json
from bestarm_agent.providers.api.connection import Vendor
from bestarm_agent.providers.api.endpoints import Addresses
from bestarm_agent.providers.api.options import ApiOptions
from bestarm_agent.providers.api.protocol import Wire
from bestarm_agent.providers.base import Capabilities
from bestarm_agent.providers.catalog_entry import ModelFacts
from bestarm_agent.providers.prices import Price, find_price

_IN_FLIGHT = 64


@dataclass(frozen=True, slots=True)
class Model:
    """One model."""

    facts: ModelFacts  # the facts that the options and the catalogue state
    capabilities: Capabilities
    # the protocols for chat messages (True) and for plain prompts (False)
    wires: Mapping[bool, Wire]
    # the sampling parameters that it takes over each protocol
    params: Mapping[Wire, frozenset[str]]
    price: Price | None  # its price, or None if it is not known


class KnownModels:
    """The models of a provider, each looked up once."""

    def __init__(
        self, provider: str, vendor: Vendor, options: ApiOptions, addresses: Addresses
    ) -> None:
        self._provider = provider
        self._vendor = vendor
        self._options = options
        self._addresses = addresses
        self._stated: dict[str, ModelFacts] = {}
        self._known: dict[str, Model] = {}

    def set_facts(self, model: str, facts: Mapping[str, Json]) -> None:
        """Set facts about one model that override the catalogue; raises ConfigError."""
        subject = f"options of {self._provider}/{model}"
        self._stated[model] = parse_options(ModelFacts, facts, subject=subject)
        self._known.pop(model, None)

    def get(self, model: str) -> Model:
        """Return a model by the options and the catalogue."""
        if model not in self._known:
            self._known[model] = self._look_up(model)
        return self._known[model]

    def _look_up(self, model: str) -> Model:
        facts = self._options.facts(model, self._stated.get(model))
        wires = {chat: self._vendor.wire(facts, chat) for chat in (True, False)}
        params = {wire: wire.params_of(facts) for wire in wires.values()}
        price = self._price(model, facts)
        capabilities = Capabilities(
            params=frozenset().union(*params.values()),
            priced=price is not None,
            price_source=None if price is None else price.source,
            in_flight=_IN_FLIGHT,
            rate_limited=True,
            response_schema=facts.response_schema is not False,
            logprobs=self._vendor.logprobs if facts.logprobs is None else facts.logprobs,
        )
        return Model(facts, capabilities, wires, params, price)

    def _price(self, model: str, facts: ModelFacts) -> Price | None:
        vendor = self._options.vendor
        by_address = self._addresses.is_own and vendor is None
        return find_price(
            vendor or self._vendor.name,
            model,
            facts.price,
            base_url=self._addresses.priced_by if by_address else None,
        )
