"""A provider behind an HTTP API, for all vendors."""

from __future__ import annotations

import asyncio
import json
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from bestarm_agent.domain.redaction import is_secret_name, without_traces
from bestarm_agent.domain.spend import Allowance, Spend, Usage
from bestarm_agent.domain.values import Json, Reply, Request, canonical, digest
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError, nearest
from bestarm_agent.providers.api.endpoints import (
    Endpoint,
    EndpointPool,
    Server,
    Vendor,
    find_endpoints,
    prompt_prefix,
)
from bestarm_agent.providers.api.errors import body_failure, call_failure, no_answer
from bestarm_agent.providers.api.headers import allowances, header_cost, shutdown_notice
from bestarm_agent.providers.api.options import ApiOptions
from bestarm_agent.providers.api.protocol import (
    IMAGE_TOKENS,
    MAX_TOKENS,
    USUAL,
    ApiAnswer,
    MalformedError,
    PromptCounts,
    Wire,
    as_object,
    as_text,
    charged_usage,
    max_output_tokens,
    max_prompt_tokens,
    notices,
    objects_in,
    read_body,
)
from bestarm_agent.providers.api.refusals import named_in, names_of
from bestarm_agent.providers.base import Capabilities, EndpointStatus, Provider
from bestarm_agent.providers.catalog_entry import ModelFacts
from bestarm_agent.providers.failures import BilledError
from bestarm_agent.providers.prices import Price, PriceOverride, find_price, proxy_prices

if TYPE_CHECKING:
    from httpx2 import Response

_T = TypeVar("_T")

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
# What vLLM, transformers and TGI say where a model has no chat template (a base model).
_NO_TEMPLATE = re.compile(r"chat[ _]template|template not found", re.IGNORECASE)
_PROTOCOL_VERSION = 2  # raise it when replies change: old ones must not come from the cache
_IN_FLIGHT = 64
# What a refusal teaches is kept by name in ``Provider.not_taken``, together with the parameters. No
# parameter has a name with a space, so these two kinds of names cannot be confused.
_FIELD = "field "  # begins the name of a field of the wire that has another one in its place
_CUT_PROMPT = (
    "counts fewer tokens than its long prompts have: it probably cuts them off without a word; "
    "raise its context (Ollama: OLLAMA_CONTEXT_LENGTH, llama.cpp: --ctx-size)"
)
# A request is sent once, without a time-out; SDKs copy deeply what is not stated.
_ONCE: Mapping[str, Any] = {"max_retries": 0, "timeout": None, "params": {}}


@dataclass(frozen=True, slots=True)
class _Model:
    facts: ModelFacts  # the facts that the options and the catalogue state
    price: Price | None  # None if it is not known
    wires: tuple[Wire, Wire]  # the protocols for plain prompts and for chat messages
    able: Capabilities


class ApiProvider(Provider[ApiOptions]):
    """Answers by the API of a vendor, or of a server that is compatible with it.

    A request holds its own parameters, the longest answer (without which a call's cost had no
    bound) and the options' ``extra_body``, nothing else; ``Reply.sent`` records it. Redirects are
    not followed: the key is meant for this address alone, and each redirect would be a request that
    is not counted. Bodies are sent as our protocols write them, and read by them: the SDK's own
    methods would transform both by their types, which takes twice the time of all else.
    """

    vendor: ClassVar[Vendor]
    logprobs: ClassVar[bool]  # True if its protocol has log probabilities
    models_path: ClassVar[str]  # path of the list of models, below the address
    marks_prefix: ClassVar[bool] = False  # its cache keeps only what a request marks
    options_type = ApiOptions
    takes_facts = True

    def __init__(self, name: str, options: ApiOptions, base_dir: Path) -> None:
        super().__init__(name, options, base_dir)
        self._endpoints = find_endpoints(options, self.vendor)
        self._models: dict[str, _Model] = {}
        self._allowances: dict[str, tuple[Allowance, ...]] = {}
        self._learned: Counter[str] = Counter()  # longest answers that exceeded their limit
        self._excess: Counter[str] = Counter()  # tokens by which an image exceeded what is stated
        self._untemplated: set[str] = set()  # models whose server has no chat template for them
        self._asked_as: dict[str, str] = {}  # first name asked for, by the name that answered
        self._unpriced = ""  # why the proxy's prices are not known
        self._prompt_counts: dict[str, PromptCounts] = {}
        self._pool: EndpointPool | None = None

    @staticmethod
    @abstractmethod
    def wire(facts: ModelFacts, *, chat: bool) -> Wire:
        """Return a model's protocol for chat messages, or for a plain prompt."""

    @staticmethod
    @abstractmethod
    def open_client(**settings: Any) -> Any:  # noqa: ANN401
        """Open the client of the vendor's package, whose import takes seconds."""

    def at(self, url: str) -> Self:
        """Return a provider of the same models at another address; what one learns, both know."""
        moved = {"base_url": url}
        other = type(self)(self.name, self.options.model_copy(update=moved), self.base_dir)
        # These are shared, not copied: a server that is started again at another port must not have
        # to learn once more what it refuses and by how much it exceeds its limits.
        other.facts, other.not_taken = self.facts, self.not_taken
        other._learned, other._excess = self._learned, self._excess
        other._untemplated = self._untemplated
        return other

    async def start(self) -> None:
        """Prepare the clients, which are opened on first use; no call is made."""
        self._pool = EndpointPool(self._endpoints, self._connect)

    async def close(self) -> None:
        """Close the clients and their connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    @property
    def endpoints(self) -> tuple[EndpointStatus, ...]:
        """The state of every endpoint; empty outside ``async with``."""
        return () if self._pool is None else self._pool.statuses

    def check(self, model: str) -> None:
        """Check the model's name; raises ConfigError."""
        if not _MODEL.fullmatch(model):
            raise ConfigError(
                f"{model!r} cannot be the name of a model of {self.name}; write it as the "
                "provider's documentation does"
            )

    def check_machine(self, model: str) -> None:
        """Check that there is a key for every address; raises ConfigError."""
        self._check_keys()

    def capabilities(self, model: str) -> Capabilities:
        """Return the model's capabilities by the options and the catalogue."""
        return self._model(model).able

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
        cost = self._max_cost(known, request, usage)
        return Spend(calls=1, tokens=usage.total, usd_nanos=cost)

    def allowances(self, model: str) -> tuple[Allowance, ...]:
        """Return the rate limits that the latest response states; of a single endpoint only."""
        return self._allowances.get(model, ())

    async def generate(self, request: Request) -> Reply:
        """Send one request, once; raises ProviderError.

        Twice only where a server refuses a plain prompt as a message since its model has no chat
        template: nothing was generated, and this prompt and later ones are sent for completion.
        """
        try:
            return await self._send(request)
        except ProviderError as error:
            if not self._lacks_template(request, error):
                raise
            self._untemplated.add(request.model)
        return await self._send(request)

    def _lacks_template(self, request: Request, error: ProviderError) -> bool:
        known = self._model(request.model)
        # Where the user has stated ``completion``, or the request has tools, which exist in chat
        # messages alone, the refusal stands.
        allowed = request.text is not None and known.facts.completion is None and not request.tools
        kinds = (FailureKind.BAD_REQUEST, FailureKind.SERVER)
        return allowed and error.kind in kinds and bool(_NO_TEMPLATE.search(str(error)))

    async def _send(self, request: Request) -> Reply:
        known = self._model(request.model)
        wire, body = self._encode(known, request)
        # The body is built first: a request that the model does not take fails before a server is
        # chosen, and says nothing about any. A response that is no answer fails inside the block,
        # since the server that sent it may be out of order.
        with self._opened().hold(prompt_prefix(request)) as server:
            client = server.client  # the first one imports an SDK, which is no latency
            sent = client.post(
                server.endpoint.url_of(wire.path),
                body=body,
                cast_to=_raw(),
                options={"headers": dict(wire.headers), **_ONCE},
            )
            refused = partial(self._refused, known, request, body)
            words = known.facts.finish or {}
            answer, headers, seconds = await self._ask(
                request.model, server, sent, lambda body: wire.decode(body, words), refused
            )
            finish = answer.end.finish
            if finish is None:
                raise self._no_answer(known, request, answer, headers, server.endpoint)
        answer = _without_keys(answer, server.endpoint.secrets)
        request_id = headers.get("x-request-id") or headers.get("request-id")
        # Before ``_charged``, which raises the bounds of later calls where this one exceeded its
        # own.
        bound = self._max_usage(known, request)
        usage = self._charged(known, request, answer, bound)
        also = self._asked_as.setdefault(answer.model[:100], request.model)
        allowed = replace(bound, output=max_output_tokens(request, known.facts))
        counts = self._prompt_counts.setdefault(request.model, PromptCounts())
        # An upper bound that was charged in place of counts says nothing about the server's
        # context.
        is_cut = usage == answer.counts.usage and counts.shows_cut(request, usage.input)
        return Reply(
            text=answer.text,
            finish=finish,
            usage=usage,
            usd_nanos=self._cost(known, request, answer, usage, headers),
            seconds=seconds,
            model=answer.model,
            request_id=request_id and without_traces(request_id, server.endpoint.secrets),
            logprobs=answer.logprobs or () if request.top_logprobs is not None else (),
            sent=wire.sent(body),
            tool_calls=answer.tool_calls,
            reasoning=answer.reasoning,
            service_tier=answer.tier,
            notices=(
                *notices(request, answer, allowed, usage, also),
                *shutdown_notice(headers),
                *([_CUT_PROMPT] if is_cut else []),
            ),
        )

    def _charged(self, known: _Model, request: Request, answer: ApiAnswer, bound: Usage) -> Usage:
        """Return the usage to charge; what exceeds the bound raises those of later calls."""
        usage = charged_usage(request, answer, bound, known.facts)
        if usage.input > bound.input:
            self._excess[request.model] += usage.input - bound.input
        # The next power of two: a server that ignores its limit does so by another amount each
        # time. So the bound rises a few times and not with every call, each of which would be
        # charged above what was reserved for it.
        if usage.output > bound.output:  # with some room
            self._learned[request.model] = 1 << (usage.output - 1).bit_length()
        return usage

    def _no_answer(
        self,
        known: _Model,
        request: Request,
        answer: ApiAnswer,
        headers: Mapping[str, str],
        endpoint: Endpoint,
    ) -> BilledError:
        """Return the failure of a response that is no answer, charged as its usage says.

        That may be nothing; without any usage it is charged at its bound.
        """
        usage = Usage()
        if answer.counts.usage != usage:
            usage = self._charged(known, request, answer, self._max_usage(known, request))
        cost = self._cost(known, request, answer, usage, headers) or 0
        failed = no_answer(answer.end, f"{self.name}/{request.model}", endpoint)
        return BilledError(failed, Spend(calls=1, tokens=usage.total, usd_nanos=cost))

    async def list_models(self) -> tuple[str, ...]:
        """Ask the server for the names of its models; raises ConfigError and ProviderError."""
        self._check_keys()
        with self._opened().hold(b"") as server:
            url = server.endpoint.url_of(self.models_path)
            response = server.client.get(url, cast_to=_raw(), options=_ONCE)
            names, _, _ = await self._ask("(list of models)", server, response, _model_names)
        return names

    def _check_keys(self) -> None:
        for endpoint in self._endpoints:
            endpoint.check(self.name)

    def _opened(self) -> EndpointPool:
        if self._pool is None:
            raise RuntimeError(f"provider {self.name} is used outside `async with`")
        return self._pool

    def _connect(self, endpoint: Endpoint) -> Any:  # noqa: ANN401
        """Open a client that sends a request once, keeps no time, and reads a bounded response."""
        from bestarm_agent.providers.api.transport import Connection

        return self.open_client(
            http_client=Connection(self.options.max_response_bytes),
            base_url=endpoint.address,
            api_key=endpoint.key,
            default_headers=self.options.headers,
        )

    def _model(self, name: str) -> _Model:
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
            self._models[name] = _Model(facts, price, wires, capabilities)
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

    def _encode(self, known: _Model, request: Request) -> tuple[Wire, dict[str, Json]]:
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
        self, known: _Model, request: Request, body: Mapping[str, Json], said: object
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
        if named_in(said, needed):
            return frozenset()
        limit = known.facts.max_tokens_field or MAX_TOKENS[1]
        # Refused under both names, it stays refused: the candidate fails instead of changing names
        # for ever.
        if wire.renames_limit and limit in body:  # else it went by its other name already
            sent[_FIELD + limit] = frozenset({limit})
        return named_in(said, sent)

    async def _ask(
        self,
        model: str,
        server: Server,
        sent: Awaitable[Response],
        read: Callable[[Mapping[str, Json]], _T],  # raises MalformedError
        refused: Callable[[object], frozenset[str]] = lambda _: frozenset(),
    ) -> tuple[_T, Mapping[str, str], float]:
        """Return what a response says, its headers and its seconds; raises ProviderError."""
        name, now = f"{self.name}/{model}", asyncio.get_running_loop().time
        started = now()
        failed: ProviderError | None
        try:
            response = await sent
        except Exception as error:
            failed = call_failure(error, name, server.endpoint)
            if failed.kind is FailureKind.BAD_REQUEST:
                failed.refused = refused(getattr(error, "body", None))
            # A refusal for the rate limit is where the headers about it matter most.
            if (answer := getattr(error, "response", None)) is not None:
                self._record_allowances(model, answer.headers)
        else:
            seconds = now() - started
            headers = dict(response.headers.items())  # lower-case names
            self._record_allowances(model, headers)
            try:
                body = read_body(response.content)
                failed = body_failure(body, name, server.endpoint)
                # An error that comes with token counts was generated, and is billed: it is decoded
                # as an answer, and ``_no_answer`` charges what the counts say.
                if failed is None or as_object(body.get("usage")):  # what failed was counted
                    return read(body), headers, seconds
                if failed.kind is FailureKind.BAD_REQUEST:
                    failed.refused = refused(body)
            except MalformedError as error:
                failed = call_failure(error, name, server.endpoint)
        raise failed

    def _record_allowances(self, model: str, headers: Mapping[str, str]) -> None:
        if len(self._endpoints) == 1:  # what one of several servers says holds for it alone
            self._allowances[model] = allowances(headers, ignore=self.options.ignore_limits)

    def _cost(
        self,
        known: _Model,
        request: Request,
        answer: ApiAnswer,
        usage: Usage,
        headers: Mapping[str, str],
    ) -> int | None:
        # From what was billed to what is estimated: the gateway's own sum, the price of the counted
        # tokens, and for uncounted ones the price of the bound.
        billed = header_cost(headers, self.options.cost_header)
        if billed is not None:
            return billed
        if known.price is None:
            return None
        if (
            usage != answer.counts.usage
        ):  # the kinds of tokens are unknown: charge the most expensive
            return self._max_cost(known, request, usage)
        return known.price.cost(usage, tier=answer.tier)

    def _max_usage(self, known: _Model, request: Request) -> Usage:
        extra = known.facts.extra_body  # may hold tools, which are part of the prompt
        overhead = self.options.overhead_tokens + (len(canonical(extra).encode()) if extra else 0)
        of_image = (known.facts.image_tokens or IMAGE_TOKENS) + self._excess[request.model]
        return Usage(
            input=max_prompt_tokens(request, overhead, of_image),
            output=max(max_output_tokens(request, known.facts), self._learned[request.model]),
        )

    def _max_cost(self, known: _Model, request: Request, usage: Usage) -> int:
        if known.price is None:
            return 0
        tier = request.params.get("service_tier")
        stated_tier = tier if isinstance(tier, str) else None
        return known.price.bound(usage.input, usage.output, tier=stated_tier)


def _model_names(body: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the names in a list; first those that have a day on which they are shut down."""
    listed = [item for item in objects_in(body.get("data")) if as_text(item.get("id"))]
    ending = [model for model in listed if model.get("shutdown_date")]
    going = [f"{model['id']} (shut down on {_day(model['shutdown_date'])})" for model in ending]
    return (*going, *(str(model["id"]) for model in listed if model not in ending))


def _day(given: Json) -> str:
    """Return a day that is given as such, as a time, or in seconds since 1970."""
    if isinstance(given, int | float):
        return datetime.fromtimestamp(given, UTC).date().isoformat()
    return str(given)[:10]


def _raw() -> type[Response]:
    """Return what SDKs hand over responses as if they are to leave them alone."""
    from httpx2 import Response

    return Response


def _without_keys(answer: ApiAnswer, keys: tuple[str, ...]) -> ApiAnswer:
    """Remove our own key from an answer that repeats it."""
    cleaned, model, tier, thoughts = (
        without_traces(text, keys)
        for text in (answer.text, answer.model, answer.tier or "", answer.reasoning)
    )
    logprobs = answer.logprobs if cleaned == answer.text else None  # their tokens would tell
    # Written as a text, so that a key is found in whatever field of a call it stands.
    calls = tuple(json.loads(without_traces(json.dumps(call), keys)) for call in answer.tool_calls)
    written = replace(answer, text=cleaned, model=model, tier=tier or None, logprobs=logprobs)
    return replace(written, tool_calls=calls, reasoning=thoughts)
