"""A provider behind an HTTP API: what is the same whoever the vendor is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from bestarm_agent.config.documents import parse_options
from bestarm_agent.domain.allowance import Allowance
from bestarm_agent.domain.digest import Json, canonical, digest
from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.api_bounds import (
    most_output_tokens,
    most_prompt_tokens,
)
from bestarm_agent.providers.api_connection import Connection, Response, Vendor
from bestarm_agent.providers.api_errors import (
    Speaker,
    body_failure,
    malformed_failure,
    sdk_failure,
)
from bestarm_agent.providers.api_headers import allowances
from bestarm_agent.providers.api_models import KnownModels, Model
from bestarm_agent.providers.api_notices import believed, notices
from bestarm_agent.providers.api_options import ApiOptions, endpoint
from bestarm_agent.providers.api_reading import Answer, MalformedError, read_body
from bestarm_agent.providers.api_wire import Wire, check_params
from bestarm_agent.providers.base import Capabilities

_MODEL = re.compile(r"[\w.:@~+-]+(/[\w.:@~+-]+)*")
_DECIDES_REPLIES = {
    "api",
    "text",
    "max_tokens_field",
    "default_max_tokens",
    "legacy_sampling",
    "extra_body",
}
_PROTOCOL_VERSION = 1  # another number, other replies: old ones must not come from the cache


class ApiProvider:
    """Answers by the API of a vendor, or of a server that is compatible with it.

    Nothing is sent but what the request's parameters say, the longest answer (without one a call's
    cost had no bound) and the options' ``extra_body``; ``Reply.sent`` records it.

    Args:
        name: what users call the provider.
        vendor: whose API it is.
        options: where it is, and what its models can do.
    """

    def __init__(self, name: str, vendor: Vendor, options: ApiOptions) -> None:
        self.name = name
        self._vendor = vendor
        self._options = options
        self._endpoint = endpoint(
            options,
            url=vendor.url,
            url_variable=vendor.url_variable,
            key_variable=vendor.key_variable,
        )
        self._models = KnownModels(name, vendor, options, self._endpoint)
        self._allowances: dict[str, tuple[Allowance, ...]] = {}
        self._connection: Connection | None = None

    def declare(self, model: str, facts: Mapping[str, Json]) -> None:
        """Take what a study says of one model; it comes before the catalogue's facts.

        Raises:
            ConfigError: a fact is unknown or breaks a rule.
        """
        self._models.declare(model, facts)

    async def __aenter__(self) -> Self:
        """Open the client; no call is made."""
        self._connection = self._vendor.connect(self._endpoint)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the client and its connections."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def check(self, model: str) -> None:
        """Check the model's name and that there is a key; raises ConfigError."""
        if not _MODEL.fullmatch(model):
            raise ConfigError(
                f"{model!r} cannot be the name of a model of {self.name}; write it as the "
                "provider's documentation does"
            )
        self._endpoint.check(self.name)

    def capabilities(self, model: str) -> Capabilities:
        """What the model can do, by the options and the catalogue."""
        return self._models.of(model).capabilities

    def fingerprint(self, model: str) -> str:
        """Digest of the address, the model and all that is sent besides the request."""
        facts = self._models.of(model).facts.model_dump(mode="json", include=_DECIDES_REPLIES)
        return digest([_PROTOCOL_VERSION, self._vendor.name, self._endpoint.url, model, facts])

    def bound(self, request: Request) -> Spend:
        """The bytes of the prompt (a token has one at least), plus the longest answer.

        Raises:
            ConfigError: the request holds a parameter that the model does not take.
        """
        return self._bound(self._models.of(request.model), request)

    def allowances(self, model: str) -> tuple[Allowance, ...]:
        """What the headers of the latest response about ``model`` said."""
        return self._allowances.get(model, ())

    async def generate(self, request: Request) -> Reply:
        """Send one request, once.

        Raises:
            ProviderError: it failed.
            RuntimeError: the provider was not entered.
        """
        if self._connection is None:
            raise RuntimeError(f"provider {self.name} is used outside `async with`")
        known = self._models.of(request.model)
        wire, body = self._encoded(known, request)
        now = asyncio.get_running_loop().time
        started = now()
        response = await self._sent(self._connection, request.model, wire, body)
        seconds = now() - started
        answer = self._read(request.model, wire, response)
        return self._reply(known, request, wire.sent(body), answer, seconds, response)

    def _encoded(self, known: Model, request: Request) -> tuple[Wire, dict[str, Json]]:
        wire = known.wires[request.text is None]
        facts = known.facts
        check_params(request, known.taken[wire], f"{self.name}/{request.model}")
        body = wire.encode(request, facts, most_output_tokens(request, facts))
        return wire, {"model": request.model, **body, **(facts.extra_body or {})}

    async def _sent(
        self, connection: Connection, model: str, wire: Wire, body: dict[str, Json]
    ) -> Response:
        try:
            response = await connection.send(wire, body)
        except connection.errors as error:
            told = getattr(error, "response", None)
            self._listen(model, getattr(told, "headers", {}))
            raise sdk_failure(error, self._speaker(model)) from None
        self._listen(model, response.headers)
        return response

    def _listen(self, model: str, headers: Mapping[str, str]) -> None:
        self._allowances[model] = allowances(headers, ignore=self._options.ignore_limits)

    def _read(self, model: str, wire: Wire, response: Response) -> Answer:
        speaker = self._speaker(model)
        try:
            body = read_body(response.content)
            error = body_failure(body, speaker)
            if error is None:
                return wire.decode(body)
        except MalformedError as malformed:
            error = malformed_failure(malformed, speaker)
        raise error

    def _reply(
        self,
        known: Model,
        request: Request,
        sent: Mapping[str, Json],
        answer: Answer,
        seconds: float,
        response: Response,
    ) -> Reply:
        bound = self._tokens(known, request)
        usage = believed(answer.usage, bound, known.facts)
        return Reply(
            text=answer.text,
            finish=answer.finish,
            usage=usage,
            usd_nanos=self._cost(known, request, answer, usage),
            seconds=seconds,
            model=answer.model,
            request_id=response.headers.get("x-request-id") or response.headers.get("request-id"),
            logprobs=answer.logprobs or () if request.top_logprobs is not None else (),
            sent=sent,
            service_tier=answer.tier,
            notices=notices(request, answer, bound, usage),
        )

    def _cost(self, known: Model, request: Request, answer: Answer, usage: Usage) -> int | None:
        if known.price is None:
            return None
        if usage != answer.usage:  # nobody knows: not what these tokens cost at least, but at most
            return self._bound(known, request).usd_nanos
        return known.price.cost(usage, tier=answer.tier)

    def _tokens(self, known: Model, request: Request) -> Usage:
        """More tokens than a call can take."""
        extra = known.facts.extra_body  # may hold tools, which are part of the prompt
        overhead = self._options.overhead_tokens + (len(canonical(extra).encode()) if extra else 0)
        return Usage(
            input=most_prompt_tokens(request, overhead),
            output=most_output_tokens(request, known.facts),
        )

    def _bound(self, known: Model, request: Request) -> Spend:
        self._encoded(known, request)
        tokens = self._tokens(known, request)
        tier = request.params.get("service_tier")
        cost = 0
        if known.price is not None:
            named = tier if isinstance(tier, str) else None
            cost = known.price.bound(tokens.input, tokens.output, tier=named)
        return Spend(calls=1, tokens=tokens.total, usd_nanos=cost)

    def _speaker(self, model: str) -> Speaker:
        place = self._endpoint
        return Speaker(f"{self.name}/{model}", place.shown, place.key_source, place.secrets)


def parse_api_options(name: str, options: Mapping[str, Json]) -> ApiOptions:
    """Read a provider's options; raises ConfigError."""
    return parse_options(ApiOptions, options, subject=f"provider `{name}`")
