"""Models behind an HTTP API: the parameters that they take, and what calls to them cost at most."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from bestarm_agent.domain.redaction import is_secret_name, without_traces
from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.domain.values import Json, Request, canonical, digest
from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.providers.api.endpoints import Vendor, find_endpoints
from bestarm_agent.providers.api.headers import bill
from bestarm_agent.providers.api.options import ApiOptions
from bestarm_agent.providers.api.protocol import (
    IMAGE_TOKENS,
    MAX_TOKENS,
    USUAL,
    ApiAnswer,
    Wire,
    as_text,
    attachments,
    charged_usage,
    max_output_tokens,
    max_prompt_tokens,
)
from bestarm_agent.providers.api.refusals import named_in, names_of
from bestarm_agent.providers.base import Capabilities, Provider
from bestarm_agent.providers.catalog_entry import ModelFacts
from bestarm_agent.providers.prices import Price, PriceOverride, find_price, proxy_prices

_MODEL = re.compile(r"/?[\w.:@~+-]+(/[\w.:@~+-]+)*")  # a server may name one by its path
# Facts that change replies, and so belong to the fingerprint: names of fields of ``ModelFacts``.
# The others are prices, bounds and what the server refuses or means by its words: they change what
# a call costs or whether it counts as answered, but not what a model says.
_REPLY_FACTS = {
    "api",
    "completion",
    "max_tokens_field",
    "default_max_tokens",
    "legacy_sampling",
    "extra_body",
}
_PROTOCOL_VERSION = 2  # raise it when replies change: old ones must not come from the cache
_IN_FLIGHT = 64
# What a refusal teaches is kept by name in ``Provider.not_taken``, together with the parameters. No
# parameter has a name with a space, so these two kinds of names cannot be confused.
_FIELD = "field "  # begins the name of a field of the wire that has another one in its place


@dataclass(frozen=True, slots=True)
class ApiModel:
    """A model with all that is known of it before a call."""

    facts: ModelFacts  # the facts that the options and the catalogue state
    price: Price | None  # None if it is not known
    wires: tuple[Wire, Wire]  # the protocols for plain prompts and for chat messages
    capabilities: Capabilities


class ApiModels(Provider[ApiOptions]):
    """Describes the models of an API without calling them: parameters, prices and bounds.

    Of what calls teach it learns which limits a server exceeds, and which models have no chat
    template.
    """

    vendor: ClassVar[Vendor]
    logprobs: ClassVar[bool]  # True if its protocol has log probabilities
    marks_prefix: ClassVar[bool] = False  # its cache keeps only what a request marks
    options_type = ApiOptions
    takes_facts = True

    def __init__(self, name: str, options: ApiOptions, base_dir: Path) -> None:
        super().__init__(name, options, base_dir)
        self._endpoints = find_endpoints(options, self.vendor)
        self._models: dict[str, ApiModel] = {}
        self._longest: Counter[str] = Counter()  # longest answers that exceeded their limit
        self._excess = Counter[tuple[str, bool]]()  # above bounds of prompts, by attachments
        self._fees = Counter[str]()  # nano-dollars by which bills exceeded the bounds of costs
        self._untemplated: set[str] = set()  # models whose server has no chat template for them
        self._unpriced = ""  # why the proxy's prices are not known

    @staticmethod
    @abstractmethod
    def wire(facts: ModelFacts, *, chat: bool) -> Wire:
        """Return a model's protocol for chat messages, or for a plain prompt."""

    def check(self, model: str) -> None:
        """Check the model's name; raises ConfigError."""
        if not _MODEL.fullmatch(model):
            raise ConfigError(
                f"{model!r} cannot be the name of a model of {self.name}; write it as the "
                "provider's documentation does"
            )

    def capabilities(self, model: str) -> Capabilities:
        """Return the model's capabilities by the options and the catalogue."""
        return self._model(model).capabilities

    def fingerprint(self, model: str) -> str:
        """Return a digest of the address, the model and all that is sent besides the request.

        Several endpoints count as one address, whichever they are.
        """
        facts = self._model(model).facts.model_dump(mode="json", include=_REPLY_FACTS)
        address = self._endpoints[0].url if self.options.endpoints is None else "endpoints"
        headers = {
            name.lower(): value
            for name, value in self.options.headers.items()
            if not is_secret_name(name)  # a new key asks the same model
        }
        return digest([_PROTOCOL_VERSION, self.vendor.name, address, model, facts, headers])

    def bound(self, request: Request) -> Spend:
        """Return the cost of as many tokens as the prompt has bytes, plus the longest answer.

        An answer that exceeded ``max_tokens`` raises the bounds of later calls. Raises ConfigError.
        """
        known = self._model(request.model)
        self._encode(known, request)
        usage = self._max_usage(known, request)
        return Spend(0, 1, usage.total, self._max_cost(known, request, usage))

    def _model(self, name: str) -> ApiModel:
        """Return a model by the options, the catalogue and the table of prices."""
        if name not in self._models:
            facts = self.options.facts_of(name, self.facts.get(name))
            wires = self.wire(facts, chat=False), self.wire(facts, chat=True)
            price = self._price(name, facts)
            # Capabilities are asked for before the form of a prompt is known, so a parameter is
            # refused here only if neither protocol takes it. ``_encode`` refuses what the protocol
            # of a request does not take.
            without = wires[0].refused(facts) & wires[1].refused(facts)
            capabilities = Capabilities(
                params=USUAL - without,
                without=without,
                price_source=None if price is None else price.source,
                unpriced=self._unpriced if price is None else "",
                in_flight=_IN_FLIGHT,
                rate_limited=True,
                response_schema="response_format" not in without,
                images=facts.images is not False,
                logprobs=self.logprobs and "logprobs" not in without,
                tools=True,
                cache_from=self._cache_from(facts, price),
            )
            self._models[name] = ApiModel(facts, price, wires, capabilities)
        return self._models[name]

    def _cache_from(self, facts: ModelFacts, price: Price | None) -> int:
        """Return 0 unless reading from the cache is known to save something.

        Where writing to it is asked for, its price must be known too: else bounds would not hold.
        """
        rates = price.standard[0] if price else None
        if rates is None or rates.cached >= rates.input:
            return 0
        is_stated = rates.cache_write > rates.input or not self.marks_prefix
        return (facts.cache_from or 0) * is_stated

    def _price(self, model: str, facts: ModelFacts) -> Price | None:
        vendor, address = self.options.vendor, self._endpoints[0].url
        # A server of one's own must not be charged as the vendor whose API it speaks: unless
        # ``vendor`` names one, the table is searched by the address, and knows no local ones.
        is_own = self.options.endpoints is not None or address != self.vendor.url
        by_address = address if is_own and vendor is None else None
        stated = facts.price or self._proxy_prices.get(model)
        return find_price(vendor or self.vendor.name, model, stated, base_url=by_address)

    @cached_property
    def _proxy_prices(self) -> dict[str, PriceOverride]:
        """The prices that a proxy states, asked for once; it blocks."""
        if self.options.price_list is None:
            return {}
        proxy = self._endpoints[0]
        url = f"{proxy.url}/{self.options.price_list}"
        headers = {**self.options.headers, "authorization": f"Bearer {proxy.key}"}
        try:
            return proxy_prices(url, headers)
        except ConnectionError as error:
            reason = without_traces(str(error), proxy.secrets)
            self._unpriced = (
                f"{proxy.address} does not answer ({reason}), and lists them: start the proxy, or "
                "correct base_url"
            )
            return {}

    def _encode(self, known: ApiModel, request: Request) -> tuple[Wire, dict[str, Json]]:
        wire, facts = known.wires[request.text is None], known.facts
        if request.text is not None and request.model in self._untemplated:
            # This was learned from a refusal (``generate``): the model has no chat template.
            wire = self.wire(facts.model_copy(update={"completion": True}), chat=False)
        lacks = wire.refused(facts)
        unknown = next((name for name in request.params if name in lacks), None)
        if unknown is not None:
            raise ConfigError(
                f"{self.name}/{request.model} does not take the parameter `{unknown}`; "
                f"{nearest(unknown, USUAL - lacks)}; if it does, write `without: []` in its options"
            )
        # OpenAI's newer models refuse ``max_tokens``, and older servers do not know its other name.
        # The limit itself is never left out, since nothing else bounds the cost of the call.
        not_taken = self.not_taken.get(request.model, {}).values()
        limit = facts.max_tokens_field or MAX_TOKENS[1]
        if any(_FIELD + limit in names for names in not_taken):  # it goes by its other name
            (other,) = set(MAX_TOKENS) - {limit}
            facts = facts.model_copy(update={"max_tokens_field": other})
        body = wire.encode(request, facts, max_output_tokens(request, facts))
        rates = known.price.standard[0] if known.price else None
        if request.prefix and wire.mark and rates and rates.cache_write > rates.input:
            wire.mark(body, request)
        return wire, {"model": request.model, **body, **(facts.extra_body or {})}

    def _refused(
        self, known: ApiModel, request: Request, body: Mapping[str, Json], refusal: object
    ) -> frozenset[str]:
        """Return what a refusal says that the model does not take and can be left out.

        The forms of a candidate's answers and its tools are never given up, whatever else is named
        beside them. The longest answer goes by another name: this one is refused.
        """
        wire, whole = self._encode(known, request)
        # No table says how a wire spells a parameter: it is what the body loses when the request is
        # encoded without the parameter, such as "reasoning.effort".
        sent = {
            name: names_of(whole, self._encode(known, request.without({name}))[1])
            for name in request.names.difference(MAX_TOKENS)
        }
        # Without these a reply would be another kind of answer. They are looked for first: a
        # refusal that names one of them teaches nothing, and the candidate fails for good.
        needed = {field: frozenset([field]) for field in body.keys() & {"tools", "tool_choice"}}
        if form := sent.pop("response_format", None):
            needed["response_schema"] = form
        if named_in(refusal, needed):
            return frozenset()
        limit = known.facts.max_tokens_field or MAX_TOKENS[1]
        # Refused under both names, it stays refused: the candidate fails instead of changing names
        # for ever.
        if wire.renames_limit and limit in body:  # else it went by its other name already
            sent[_FIELD + limit] = frozenset({limit})
        return named_in(refusal, sent)

    def _charged(self, known: ApiModel, request: Request, answer: ApiAnswer, bound: Usage) -> Usage:
        """Return the usage to charge; what exceeds the bound raises those of later calls."""
        usage = charged_usage(request, answer, bound, known.facts)
        if usage.input > bound.input:
            self._excess[request.model, bool(attachments(request))] += usage.input - bound.input
        # The next power of two: a server that ignores its limit does so by another amount each
        # time. So the bound rises a few times and not with every call, each of which would be
        # charged above what was reserved for it.
        if usage.output > bound.output:  # with some room
            self._longest[request.model] = 1 << (usage.output - 1).bit_length()
        return usage

    def _cost(
        self,
        known: ApiModel,
        request: Request,
        answer: ApiAnswer,
        usage: Usage,
        headers: Mapping[str, str],
    ) -> int | None:
        # From what was billed to what is estimated: the server's own sum, the price of the counted
        # tokens, and for uncounted ones the price of the bound.
        stated = bill(headers.get((self.options.cost_header or "").lower()))
        billed = answer.billed if stated is None else stated
        if billed is not None:
            # As with tokens: later calls are reserved with what this one cost above its bound.
            bound = self._max_cost(known, request, self._max_usage(known, request))
            self._fees[request.model] += max(0, billed - bound)
            return billed
        if known.price is None:
            return None
        # the kinds of tokens are unknown: charge the most expensive
        if usage != answer.counts.usage:
            return self._max_cost(known, request, usage)
        return known.price.cost(usage, tier=answer.tier)

    def _max_usage(self, known: ApiModel, request: Request) -> Usage:
        extra = known.facts.extra_body  # may hold tools, which are part of the prompt
        excess = self._excess[request.model, bool(attachments(request))]
        overhead = self.options.overhead_tokens + (len(canonical(extra).encode()) if extra else 0)
        of_image = (known.facts.image_tokens or IMAGE_TOKENS) + excess
        return Usage(
            input=max_prompt_tokens(request, overhead + excess, of_image),
            output=max(max_output_tokens(request, known.facts), self._longest[request.model]),
        )

    def _max_cost(self, known: ApiModel, request: Request, usage: Usage) -> int:
        if known.price is None:
            return 0
        tier = as_text(request.params.get("service_tier"))
        return known.price.bound(usage.input, usage.output, tier=tier) + self._fees[request.model]
