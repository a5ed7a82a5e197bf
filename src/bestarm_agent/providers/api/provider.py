"""A provider behind an HTTP API, for all vendors."""

from __future__ import annotations

import asyncio
import json
import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from bestarm_agent.domain.redaction import without_traces
from bestarm_agent.domain.spend import Allowance, Spend, Usage
from bestarm_agent.domain.values import Json, Reply, Request
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.api.endpoints import Endpoint, EndpointPool, Server, prompt_prefix
from bestarm_agent.providers.api.errors import (
    body_failure,
    call_failure,
    error_body,
    no_answer,
    status_failure,
)
from bestarm_agent.providers.api.headers import allowances, shutdown_notice
from bestarm_agent.providers.api.models import ApiModel, ApiModels
from bestarm_agent.providers.api.options import ApiOptions
from bestarm_agent.providers.api.protocol import (
    ApiAnswer,
    MalformedError,
    PromptCounts,
    as_count,
    as_object,
    as_text,
    body_cost,
    max_output_tokens,
    notices,
    objects_in,
    read_body,
)
from bestarm_agent.providers.base import EndpointStatus
from bestarm_agent.providers.failures import BilledError

if TYPE_CHECKING:
    from bestarm_agent.providers.api.transport import Connection, Response

_T = TypeVar("_T")

# What vLLM, transformers and TGI say where a model has no chat template (a base model).
_NO_TEMPLATE = re.compile(r"chat[ _]template|template not found", re.IGNORECASE)
_CUT_PROMPT = (
    "counts fewer tokens than its long prompts have: it probably cuts them off without a word; "
    "raise its context (Ollama: OLLAMA_CONTEXT_LENGTH, llama.cpp: --ctx-size)"
)
_OTHER_PRICE = "bills more than twice, or less than half, what its price says; correct `price`"
_GOOD = range(200, 300)  # statuses
_written = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class ApiProvider(ApiModels):
    """Answers by the API of a vendor, or of a server that is compatible with it.

    A request holds its own parameters, the longest answer (without which a call's cost had no
    bound) and the options' ``extra_body``, nothing else; ``Reply.sent`` records it. Redirects are
    not followed: the key is meant for this address alone, and each redirect would be a request that
    is XX
    """

    # path of the list of models, below the address; it answers {"data": [{"id": NAME}, ...]}
    models_path: ClassVar[str]

    def __init__(self, name: str, options: ApiOptions, base_dir: Path) -> None:
        super().__init__(name, options, base_dir)
        self._allowances: dict[str, tuple[Allowance, ...]] = {}
        self._asked_as: dict[str, str] = {}  # first name asked for, by the name that answered
        self._prompt_counts: dict[str, PromptCounts] = {}
        self._pool: EndpointPool | None = None

    @staticmethod
    @abstractmethod
    def open_client(**settings: Any) -> Any:  # noqa: ANN401
        """Open the client of the vendor's package, whose import takes seconds.

        Nothing is sent by it: only its ``auth_headers`` and ``default_headers`` are read, so that
        a vendor without a package needs no more than an object with these two mappings.
        """

    def at(self, url: str) -> Self:
        """Return a provider of the same models at another address; what one learns, both know."""
        moved = {"base_url": url}
        other = type(self)(self.name, self.options.model_copy(update=moved), self.base_dir)
        # These are shared, not copied: a server that is started again at another port must not have
        # to learn once more what it refuses and by how much it exceeds its limits.
        other.facts, other.not_taken = self.facts, self.not_taken
        other._longest, other._excess, other._fees = self._longest, self._excess, self._fees
        other._untemplated = self._untemplated
        return other

    async def start(self) -> None:
        """Prepare the connections, which are opened on first use; no call is made."""
        self._pool = EndpointPool(self._endpoints, self._connect)

    async def close(self) -> None:
        """Close the connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    @property
    def endpoints(self) -> tuple[EndpointStatus, ...]:
        """The state of every endpoint; empty outside ``async with``."""
        return () if self._pool is None else self._pool.statuses

    def check_machine(self, model: str) -> None:
        """Check that there is a key for every address; raises ConfigError."""
        self._check_keys()

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
        with self._open_pool().hold(prompt_prefix(request)) as server:
            # the first one imports an SDK, which is no latency
            path = wire.path.replace("{model}", request.model)
            send, url = server.connection.send, server.endpoint.url_of(path)
            refused = partial(self._refused, known, request, body)
            answer, headers, seconds = await self._ask(
                request.model,
                server,
                lambda: send("POST", url, _written(body).encode(), wire.headers),
                lambda body: replace(
                    wire.decode(body, known.facts.finish or {}), billed=body_cost(body)
                ),
                refused,
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
        # context, and nothing about its prices.
        is_counted = usage == answer.counts.usage
        is_cut = is_counted and counts.shows_cut(request, usage.input)
        cost = self._cost(known, request, answer, usage, headers)
        priced = known.price.cost(usage, tier=answer.tier) if known.price else cost or 0
        is_other = is_counted and not priced <= 2 * (cost or priced) <= 4 * priced
        return Reply(
            text=answer.text,
            finish=finish,
            usage=usage,
            usd_nanos=cost,
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
                *([_OTHER_PRICE] if is_other else []),
            ),
        )

    def _no_answer(
        self,
        known: ApiModel,
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
        with self._open_pool().hold(b"") as server:
            url = server.endpoint.url_of(self.models_path)
            send = partial(server.connection.send, "GET", url)
            return (await self._ask("(list of models)", server, send, _model_names))[0]

    def _check_keys(self) -> None:
        for endpoint in self._endpoints:
            endpoint.check(self.name)

    def _open_pool(self) -> EndpointPool:
        if self._pool is None:
            raise RuntimeError(f"provider {self.name} is used outside `async with`")
        return self._pool

    def _connect(self, endpoint: Endpoint) -> Connection:
        """Open a connection whose requests have the headers that the vendor's client sends."""
        from httpx2 import AsyncBaseTransport, AsyncClient

        from bestarm_agent.providers.api.transport import Connection

        client = self.open_client(
            http_client=AsyncClient(transport=AsyncBaseTransport()),  # nothing is sent by it
            base_url=endpoint.address,
            api_key=endpoint.key,
            default_headers=self.options.headers,
        )
        # In the client's own order: its defaults, the user's, where later ones take the place of
        # earlier ones. What is no text stands for a header that is left out.
        parts = (client.auth_headers, client.default_headers, self.options.headers)
        headers = {
            name.lower(): text
            for part in parts
            for name, text in part.items()
            if isinstance(text, str)
        }
        return Connection(headers, self.options.max_response_bytes)

    async def _ask(
        self,
        model: str,
        server: Server,
        send: Callable[[], Awaitable[Response]],
        read: Callable[[Mapping[str, Json]], _T],  # raises MalformedError
        refused: Callable[[object], frozenset[str]] = lambda _: frozenset(),
    ) -> tuple[_T, Mapping[str, str], float]:
        """Return what a response says, its headers and its seconds; raises ProviderError."""
        name, now = f"{self.name}/{model}", asyncio.get_running_loop().time
        started = now()
        failed: ProviderError | None
        body: Any  # JSON
        try:
            response = await send()
        except Exception as error:
            failed = call_failure(error, name, server.endpoint)
        else:
            seconds, headers = now() - started, response.headers
            # A refusal for the rate limit is where the headers about it matter most.
            if len(self._endpoints) == 1:  # what one of several servers says holds for it alone
                self._allowances[model] = allowances(headers, ignore=self.options.ignore_limits)
            try:
                if response.status in _GOOD:
                    body = read_body(response.content)
                    failed = body_failure(body, name, server.endpoint)
                    # An error that comes with token counts was generated, and is billed: it is
                    # decoded as an answer, and ``_no_answer`` charges what the counts say. Counts
                    # of nothing come with errors of the server that was asked (MiniMax).
                    if failed is None or any(map(as_count, as_object(body.get("usage")).values())):
                        told = {**body, "error": body.get("error") or (failed and body)}
                        return read(told), headers, seconds
                else:
                    body = error_body(response.content)
                    failed = status_failure(response.status, body, headers, name, server.endpoint)
                if failed.kind is FailureKind.BAD_REQUEST:
                    failed.refused = refused(body)
            except MalformedError as error:
                failed = call_failure(error, name, server.endpoint)
        raise failed


def _model_names(body: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the names in a list; first those that have a day on which they are shut down."""
    listed = [item for item in objects_in(body.get("data")) if as_text(item.get("id"))]
    ending = [model for model in listed if model.get("shutdown_date")]
    going = [f"{model['id']} (shut down on {_day(model['shutdown_date'])})" for model in ending]
    return (*going, *(str(model["id"]) for model in listed if model not in ending))


def _day(given: Json) -> str:
    """Return the day of a date, of a time, or of seconds since 1970."""
    if isinstance(given, int | float):
        return datetime.fromtimestamp(given, UTC).date().isoformat()
    return str(given)[:10]


def _without_keys(answer: ApiAnswer, keys: tuple[str, ...]) -> ApiAnswer:
    """Remove our own key from an answer that repeats it."""
    cleaned, model, tier, thoughts = (
        without_traces(text, keys)
        for text in (answer.text, answer.model, answer.tier or "", answer.reasoning)
    )
    logprobs = answer.logprobs if cleaned == answer.text else None  # their tokens would tell
    # Written as a text, so that a key is found in whatever field of a call it stands.
    calls = tuple(json.loads(without_traces(json.dumps(call), keys)) for call in answer.tool_calls)
    told = replace(answer, text=cleaned, model=model, tier=tier or None, reasoning=thoughts)
    return replace(told, logprobs=logprobs, tool_calls=calls)
