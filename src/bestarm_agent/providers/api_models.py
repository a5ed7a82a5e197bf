"""What is known of the models behind an API: facts, protocols, parameters, price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bestarm_agent.config.documents import parse_options
from bestarm_agent.domain.digest import Json
from bestarm_agent.providers.api_connection import Vendor
from bestarm_agent.providers.api_options import ApiOptions, Endpoint
from bestarm_agent.providers.api_wire import Wire
from bestarm_agent.providers.base import Capabilities
from bestarm_agent.providers.entry import ModelFacts
from bestarm_agent.providers.prices import Price, find_price

_IN_FLIGHT = 64


@dataclass(frozen=True, slots=True)
class Model:
    """What is known of one model, put together.

    Attributes:
        facts: what is declared.
        capabilities: what it can do.
        wires: the protocols for chat messages (True) and for plain prompts (False).
        taken: the sampling parameters that it takes over each.
        price: what it costs, or None if that is not known.
    """

    facts: ModelFacts
    capabilities: Capabilities
    wires: Mapping[bool, Wire]
    taken: Mapping[Wire, frozenset[str]]
    price: Price | None


class KnownModels:
    """The models of a provider, each looked up once.

    Args:
        provider: what users call it.
        vendor: whose API it is.
        options: what its models can do.
        endpoint: where it is.
    """

    def __init__(
        self, provider: str, vendor: Vendor, options: ApiOptions, endpoint: Endpoint
    ) -> None:
        self._provider = provider
        self._vendor = vendor
        self._options = options
        self._endpoint = endpoint
        self._declared: dict[str, ModelFacts] = {}
        self._known: dict[str, Model] = {}

    def declare(self, model: str, facts: Mapping[str, Json]) -> None:
        """Take what a study says of one model; it comes before the catalogue's facts.

        Raises:
            ConfigError: a fact is unknown or breaks a rule.
        """
        subject = f"options of {self._provider}/{model}"
        self._declared[model] = parse_options(ModelFacts, facts, subject=subject)
        self._known.pop(model, None)

    def of(self, model: str) -> Model:
        """What is known of a model, by the options and the catalogue."""
        if model not in self._known:
            self._known[model] = self._put_together(model)
        return self._known[model]

    def _put_together(self, model: str) -> Model:
        facts = self._options.facts(model, self._declared.get(model))
        wires = {chat: self._vendor.wire(facts, chat=chat) for chat in (True, False)}
        taken = {wire: wire.taken(facts) for wire in wires.values()}
        price = self._price(model, facts)
        able = Capabilities(
            params=frozenset().union(*taken.values()),
            priced=price is not None,
            price_source=None if price is None else price.source,
            in_flight=_IN_FLIGHT,
            rate_limited=True,
            response_schema=facts.response_schema is not False,
            logprobs=self._vendor.logprobs if facts.logprobs is None else facts.logprobs,
        )
        return Model(facts, able, wires, taken, price)

    def _price(self, model: str, facts: ModelFacts) -> Price | None:
        vendor = self._options.vendor
        own = self._endpoint.own and vendor is None
        return find_price(
            vendor or self._vendor.name,
            model,
            facts.price,
            base_url=self._endpoint.url if own else None,
        )
