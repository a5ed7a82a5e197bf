"""A provider behind an HTTP API, for all vendors."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from bestarm_agent.domain.digest import Json, canonical, digest
from bestarm_agent.domain.rate_limits import Allowance
from bestarm_agent.domain.redaction import without_traces
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.api.connection import Connection, Endpoint, Response, Vendor
from bestarm_agent.providers.api.endpoints import (
    Addresses,
    EndpointPool,
    PooledEndpoint,
    prompt_prefix,
)
from bestarm_agent.providers.api.errors import (
    ErrorContext,
    body_failure,
    is_transport_error,
    malformed_failure,
    sdk_failure,
)
from bestarm_agent.providers.api.headers import allowances, header_cost
from bestarm_agent.providers.api.model_facts import KnownModels, Model
from bestarm_agent.providers.api.options import ApiOptions
from bestarm_agent.providers.api.protocol import (
    Answer,
    MalformedError,
    Wire,
    charged_usage,
    check_params,
    items,
    max_output_tokens,
    max_prompt_tokens,
    notices,
    read_body,
    text,
)
from bestarm_agent.providers.base import Capabilities, EndpointStatus, Provider

_MODEL = re.compile(r"/?[\w.:@~+-]+(/[\w.:@~+-]+)*")  # a server may name one by its path
# Facts that change replies, and so belong to the fingerprint.
_REPLY_FACTS = {
    "api",
    "text",
    "max_tokens_field",
    "default_max_tokens",
    "legacy_sampling",
    "extra_body",
}
_LIST = "(list of models)"
_PROTOCOL_VERSION = 1  # raise it when replies change: old ones must not come from the cache


class ApiProvider(Provider[ApiOptions]):
    """Answers by the API of a vendor, or of a server that is compatible with it.

    A request holds its own parameters, the longest answer (without which a call's cost had no
    bound) and the options' ``extra_body``, nothing else; ``Reply.sent`` records it.
    """

    vendor: ClassVar[Vendor]
    options_type = ApiOptions
    takes_facts = True

    def __init__(self, name: str, options: ApiOptions, base_dir: Path) -> None:
        super().__init__(name, options, base_dir)
        self._addresses = Addresses(options, self.vendor)
        self._models = KnownModels(name, self.vendor, options, self._addresses)
        self._allowances: dict[str, tuple[Allowance, ...]] = {}
        self._learned: Counter[str] = Counter()  # longest answers that exceeded their limit
        self._pool: EndpointPool | None = None

    def set_facts(self, model: str, facts: Mapping[str, Json]) -> None:
        """Set facts about one model that override the catalogue; raises ConfigError."""
        self._models.set_facts(model, facts)

    async def start(self) -> None:
        """Prepare the clients, which are opened on first use; no call is made."""
        self._pool = EndpointPool(self._addresses.endpoints, partial(Connection, self.vendor))

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
        """Check the model's name and that there is a key; raises ConfigError."""
        if not _MODEL.fullmatch(model):
            raise ConfigError(
                f"{model!r} cannot be the name of a model of {self.name}; write it as the "
                "provider's documentation does"
            )
        self._addresses.check(self.name)

    def capabilities(self, model: str) -> Capabilities:
        """Return the model's capabilities by the options and the catalogue."""
        return self._models.get(model).capabilities

    def fingerprint(self, model: str) -> str:
        """Return a digest of the address, the model and all that is sent besides the request.

        Several endpoints count as one address, whichever they are.
        """
        facts = self._models.get(model).facts.model_dump(mode="json", include=_REPLY_FACTS)
        return digest([_PROTOCOL_VERSION, self.vendor.name, self._addresses.identity, model, facts])

    def bound(self, request: Request) -> Spend:
        """Return the cost of as many tokens as the prompt has bytes, plus the longest answer.

        An answer that exceeded ``max_tokens`` raises the bounds of later calls. Raises ConfigError.
        """
        return self._bound(self._models.get(request.model), request)

    def learn(self, request: Request, usage: Usage) -> None:
        """Raise the bound of a model that generated more than it was allowed, with some room."""
        if usage.output > self._max_usage(self._models.get(request.model), request).output:
            self._learned[request.model] = 1 << (usage.output - 1).bit_length()

    def allowances(self, model: str) -> tuple[Allowance, ...]:
        """Return the rate limits that the latest response states; of a single endpoint only."""
        return self._allowances.get(model, ())

    async def generate(self, request: Request) -> Reply:
        """Send one request, once; raises ProviderError."""
        known = self._models.get(request.model)
        wire, body = self._encode(known, request)
        now = asyncio.get_running_loop().time
        with self._opened().hold(prompt_prefix(request)) as endpoint:
            connection = endpoint.connection  # the first one imports an SDK, which is no latency
            started = now()
            response = await self._send(request.model, endpoint, connection.send(wire, body))
            seconds = now() - started
            answer = self._decode(request.model, endpoint.endpoint, wire, response)
        answer = _without_keys(answer, endpoint.keys)
        request_id = response.headers.get("x-request-id") or response.headers.get("request-id")
        bound = self._max_usage(known, request)
        usage = charged_usage(answer, bound, known.facts)
        allowed = replace(bound, output=max_output_tokens(request, known.facts))
        if usage.output > bound.output:
            self.learn(request, usage)
        return Reply(
            text=answer.text,
            finish=answer.finish,
            usage=usage,
            usd_nanos=self._cost(known, request, answer, usage, response.headers),
            seconds=seconds,
            model=answer.model,
            request_id=request_id and without_traces(request_id, endpoint.keys),
            logprobs=answer.logprobs or () if request.top_logprobs is not None else (),
            sent=wire.sent(body),
            service_tier=answer.tier,
            notices=tuple(notices(request, answer, allowed, usage)),
        )

    async def list_models(self) -> tuple[str, ...]:
        """Ask the server for the names of its models; raises ConfigError and ProviderError."""
        self._addresses.check(self.name)
        with self._opened().hold(b"") as endpoint:
            response = await self._send(_LIST, endpoint, endpoint.connection.list_models())
            try:
                body = read_body(response.content)
            except MalformedError as error:
                raise malformed_failure(
                    error, self._error_context(_LIST, endpoint.endpoint)
                ) from None
        return tuple(filter(None, (text(item.get("id")) for item in items(body.get("data")))))

    def _opened(self) -> EndpointPool:
        if self._pool is None:
            raise RuntimeError(f"provider {self.name} is used outside `async with`")
        return self._pool

    def _encode(self, known: Model, request: Request) -> tuple[Wire, dict[str, Json]]:
        wire = known.wires[request.text is None]
        facts = known.facts
        check_params(request, known.params[wire], f"{self.name}/{request.model}")
        body = wire.encode(request, facts, max_output_tokens(request, facts))
        return wire, {"model": request.model, **body, **(facts.extra_body or {})}

    async def _send(
        self, model: str, endpoint: PooledEndpoint, call: Awaitable[Response]
    ) -> Response:
        try:
            response = await call
        except Exception as error:
            if not isinstance(error, endpoint.connection.errors) and not is_transport_error(error):
                raise
            failed = getattr(error, "response", None)
            self._record_allowances(model, getattr(failed, "headers", {}))
            raise sdk_failure(error, self._error_context(model, endpoint.endpoint)) from None
        self._record_allowances(model, response.headers)
        return response

    def _record_allowances(self, model: str, headers: Mapping[str, str]) -> None:
        if (
            len(self._addresses.endpoints) == 1
        ):  # what one of several servers says holds for it alone
            self._allowances[model] = allowances(headers, ignore=self.options.ignore_limits)

    def _decode(self, model: str, endpoint: Endpoint, wire: Wire, response: Response) -> Answer:
        context = self._error_context(model, endpoint)
        try:
            body = read_body(response.content)
            error = body_failure(body, context)
            if error is None:
                return wire.decode(body)
        except MalformedError as malformed:
            error = malformed_failure(malformed, context)
        raise error

    def _cost(
        self,
        known: Model,
        request: Request,
        answer: Answer,
        usage: Usage,
        headers: Mapping[str, str],
    ) -> int | None:
        billed = header_cost(headers, self.options.cost_header)
        if billed is not None:
            return billed
        if known.price is None:
            return None
        if usage != answer.usage:  # the kinds of tokens are unknown: charge the most expensive
            return self._max_cost(known, request, usage)
        return known.price.cost(usage, tier=answer.tier)

    def _max_usage(self, known: Model, request: Request) -> Usage:
        extra = known.facts.extra_body  # may hold tools, which are part of the prompt
        overhead = self.options.overhead_tokens + (len(canonical(extra).encode()) if extra else 0)
        return Usage(
            input=max_prompt_tokens(request, overhead),
            output=max(max_output_tokens(request, known.facts), self._learned[request.model]),
        )

    def _max_cost(self, known: Model, request: Request, usage: Usage) -> int:
        if known.price is None:
            return 0
        tier = request.params.get("service_tier")
        named = tier if isinstance(tier, str) else None
        return known.price.bound(usage.input, usage.output, tier=named)

    def _bound(self, known: Model, request: Request) -> Spend:
        self._encode(known, request)
        usage = self._max_usage(known, request)
        cost = self._max_cost(known, request, usage)
        return Spend(calls=1, tokens=usage.total, usd_nanos=cost)

    def _error_context(self, model: str, endpoint: Endpoint) -> ErrorContext:
        name = f"{self.name}/{model}"
        usual, own = (urlsplit(url).path.strip("/") for url in (self.vendor.url, endpoint.url))
        return ErrorContext(
            name,
            endpoint.shown,
            endpoint.key_source,
            endpoint.secrets,
            missing_path=f"/{usual}" if usual and not own else "",
        )


def _without_keys(answer: Answer, keys: tuple[str, ...]) -> Answer:
    """Remove our own key from an answer that repeats it; vectors hold none."""
    if not answer.generates:
        return answer
    shown, model, tier = (
        without_traces(text, keys) for text in (answer.text, answer.model, answer.tier or "")
    )
    logprobs = answer.logprobs if shown == answer.text else None  # their tokens would tell
    return replace(answer, text=shown, model=model, tier=tier or None, logprobs=logprobs)
