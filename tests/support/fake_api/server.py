"""The server: requests in, answers, faults and limits out, everything recorded."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests.support.fake_api import anthropic_wire, openai_wire
from tests.support.fake_api.answers import echo
from tests.support.fake_api.caching import PromptCache
from tests.support.fake_api.calls import Answer, Api, Call
from tests.support.fake_api.faults import Fault, Script, calm
from tests.support.fake_api.limits import Limiter, Rates
from tests.support.fake_api.spoken import Spoken, speak
from tests.support.fake_api.trouble import Trouble, errors_of, fail, with_fault

PATHS = {
    "/v1/chat/completions": Api.CHAT,
    "/v1/completions": Api.COMPLETIONS,
    "/v1/responses": Api.RESPONSES,
    "/v1/messages": Api.MESSAGES,
}

# Of the event loop, from accepting a connection to the server's knowing it.
_TURNS_OF_AN_ACCEPT = 3
_MOST_MARKS = 4  # of blocks to be cached


@dataclass(frozen=True)
class FakeModel:
    """What the server knows of one model.

    Attributes:
        context: tokens of prompt and answer together that it can hold.
        max_tokens_fields: which names of the output limit chat completions take.
        ignores: parameters that it takes and ignores ("logprobs", "response_format", "max_tokens").
        lenient: whether unknown parameters are taken and ignored.
        thinks: whether it refuses sampling parameters and log probabilities unless its effort is
            ``none``, as GPT-6 does.
        refuses: parameters that it always refuses.
        rates: its limits.
        cache_from: the fewest tokens that its prompt cache keeps; None: it has none.
    """

    context: int = 8192
    max_tokens_fields: frozenset[str] = frozenset({"max_tokens", "max_completion_tokens"})
    ignores: frozenset[str] = frozenset()
    lenient: bool = False
    thinks: bool = False
    refuses: frozenset[str] = frozenset()
    rates: Rates = field(default_factory=Rates)
    cache_from: int | None = None


@dataclass
class Received:
    """One request, as it came in, and what became of it.

    Attributes:
        number: from 0, in order of arrival.
        path: of the URL.
        headers: by lower-case name.
        body: its JSON.
        at: the server's seconds at its arrival.
        fault: what was done to it, or None.
        status: of the response; None while there is none, and if there never was one.
        done_at: the server's seconds when the response was ready, or None.
    """

    number: int
    path: str
    headers: dict[str, str]
    body: Any
    at: float
    fault: Fault | None = None
    status: int | None = None
    done_at: float | None = None


@dataclass
class FakeApi:
    """A server on the loopback interface, for as long as its context lasts.

    Time is the event loop's, so a server and its clients may share a loop of virtual time.

    Attributes:
        answer: what models say.
        script: which requests meet which fault.
        models: those that there are; None for any name, with the defaults of ``FakeModel``.
        key: the key that clients must send; None to let everyone in.
        latency: seconds that an answer takes.
        request_id: the id of a request, given its number.
        detail: what is said of a bad request.
        more_headers: sent with every answer.
        redirects: names of the models that answer in place of others.
        prices: what a LiteLLM proxy lists: the name of a model, and what it says of it.
        reshape: changes the body of an answer.
        port: 0 for any free one.
        received: all requests, in order of arrival.
    """

    answer: Answer = echo
    script: Script = calm
    models: Mapping[str, FakeModel] | None = None
    key: str | None = "fake-key-3f9a"
    latency: Callable[[Call], float] = lambda _call: 0.0
    request_id: Callable[[int], str] = "req_{}".format
    detail: str = "Bad request."
    more_headers: Mapping[str, str] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    prices: list[dict[str, object]] = field(default_factory=list)
    reshape: Callable[[Call, dict[str, Any]], dict[str, Any]] = lambda _call, body: body
    port: int = 0
    received: list[Received] = field(default_factory=list)
    limiters: dict[str, Limiter] = field(default_factory=dict)
    caches: dict[str, PromptCache] = field(default_factory=dict)
    _seen: Counter[str] = field(default_factory=Counter)
    _runner: web.AppRunner | None = None
    _listener: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024**2)
        for path in PATHS:
            app.router.add_post(path, self._handle)
        app.router.add_get("/v1/models", self._list)
        app.router.add_get("/v1/model/info", self._list)
        app.router.add_get("/fake/received", self._show)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.0
        )
        await self._runner.setup()
        assert self._runner.server is not None
        self._listener = await asyncio.get_running_loop().create_server(
            self._runner.server, "127.0.0.1", self.port, backlog=1024
        )
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await self.die()

    async def die(self) -> None:
        """End at once, with all connections; entered again, it is back."""
        runner, self._runner = self._runner, None
        assert runner is not None
        assert runner.server is not None
        assert self._listener is not None
        # Closed at once, asyncio's server would leak the connections that it is just accepting.
        for listening in self._listener.sockets:
            asyncio.get_running_loop().remove_reader(listening)
        for _ in range(_TURNS_OF_AN_ACCEPT):
            await asyncio.sleep(0)
        self._listener.close()
        for connection in runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await runner.cleanup()

    @property
    def url(self) -> str:
        """Base URL as Anthropic's SDK wants it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        """Base URL as OpenAI's SDK wants it."""
        return f"{self.url}/v1"

    @property
    def violations(self) -> Counter[str]:
        """Requests that exceeded a limit, over all models, by resource."""
        return sum((limiter.violations for limiter in self.limiters.values()), Counter())

    def limiter(self, model: str) -> Limiter:
        """The limits of one model."""
        if model not in self.limiters:
            rates = self._model(model).rates
            self.limiters[model] = Limiter(rates, asyncio.get_running_loop().time)
        return self.limiters[model]

    def _cache(self, model: str) -> PromptCache | None:
        fewest = self._model(model).cache_from
        if fewest is None:
            return None
        return self.caches.setdefault(model, PromptCache(fewest, asyncio.get_running_loop().time))

    def _model(self, name: str) -> FakeModel:
        return (self.models or {}).get(name, FakeModel())

    async def _list(self, request: web.Request) -> web.Response:
        """The models, or a LiteLLM proxy's prices."""
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return web.json_response({"error": {"message": "no such key"}}, status=401)
        names = [{"id": name, "object": "model"} for name in self.models or {}]
        listed = names if request.path == "/v1/models" else self.prices
        return web.json_response({"object": "list", "data": listed})

    async def _show(self, _: web.Request) -> web.Response:
        rows = [
            {"path": r.path, "body": r.body, "status": r.status, "fault": r.fault}
            for r in self.received
        ]
        return web.json_response(rows)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        headers = {name.lower(): value for name, value in request.headers.items()}
        now = asyncio.get_running_loop().time()
        note = Received(len(self.received), request.path, headers, text, now)
        self.received.append(note)
        try:
            note.body = json.loads(text)
            call = Call(PATHS[request.path], note.body)
        except ValueError:
            return web.json_response({"error": {"message": "not JSON"}}, status=400)
        try:
            response = await self._respond(request, call, note)
        except Trouble as trouble:
            note.fault = trouble.fault
            response = errors_of(call, trouble, self._headers(call, note))
        note.status, note.done_at = response.status, asyncio.get_running_loop().time()
        return response

    async def _respond(
        self, request: web.Request, call: Call, note: Received
    ) -> web.StreamResponse:
        self._check(call, note)
        call = replace(call, attempt=self._seen[call.digest])
        self._seen[call.digest] += 1
        note.fault = self.script(call)
        if note.fault is not None:
            response = await fail(note.fault, call, request, self._words(call, note))
            if response is not None:
                return response
        limiter = self.limiter(call.model)
        full = limiter.enter(call.prompt_tokens)
        if full is not None:
            resource, seconds = full
            raise Trouble(
                Fault.RATE_LIMITED,
                self._words(call, note, detail=resource),
                retry_after=(seconds or None) if limiter.rates.retry_after else None,
            )
        spoken, cache = None, self._cache(call.model)
        read = 0 if cache is None else cache.read(call)
        try:
            await asyncio.sleep(self.latency(call))
            limited = "max_tokens" not in self._model(call.model).ignores
            spoken = speak(call, self.answer, limited=limited)
        finally:
            limiter.leave(0 if spoken is None else spoken.tokens)
        if cache is not None:
            wrote = max(0, cache.write(call) - read)  # OpenAI bills no writing
            wrote = wrote if call.api.anthropic else 0
            spoken = replace(spoken, said=replace(spoken.said, cached=read, cache_write=wrote))
        body, headers = self._answered(call, note, spoken)
        return web.json_response(body, headers=headers)

    def _answered(
        self, call: Call, note: Received, spoken: Spoken
    ) -> tuple[dict[str, Any], dict[str, str]]:
        wire = anthropic_wire if call.api.anthropic else openai_wire
        model = self._model(call.model)
        spoken = with_fault(note.fault, spoken)
        body = wire.answered(call, spoken, note.number, ignored=model.ignores)
        body["model"] = self.redirects.get(call.model, call.model)
        headers = {**self._headers(call, note), **self.more_headers}
        if note.fault is Fault.LYING_HEADERS:
            headers |= _LIES
        if note.fault is Fault.NO_USAGE:
            del body["usage"]
        if note.fault in _COUNTS:
            counts = body["usage"].items()
            body["usage"] = {
                name: _COUNTS[note.fault] if isinstance(count, int) else count
                for name, count in counts
            }
        return self.reshape(call, body), headers

    def _check(self, call: Call, note: Received) -> None:
        """Refuse what the real servers refuse; raises Trouble."""
        sent = note.headers.get("authorization", "").removeprefix("Bearer ")
        sent = note.headers.get("x-api-key", sent)
        words = self._words(call, note)
        if self.key is not None and sent != self.key:
            raise Trouble(Fault.BAD_KEY, words)
        if self.models is not None and call.model not in self.models:
            raise Trouble(Fault.UNKNOWN_MODEL, words)
        model = self._model(call.model)
        if complaint := _complaint(call, model, note.headers):
            raise Trouble(Fault.BAD_REQUEST, {**words, "detail": complaint})
        if call.prompt_tokens + (call.max_tokens or 1) > model.context:
            raise Trouble(Fault.TOO_LONG, words)

    def _words(self, call: Call, note: Received, detail: str = "") -> dict[str, str]:
        sent = note.headers.get("x-api-key", note.headers.get("authorization", ""))
        return {
            "key": sent.removeprefix("Bearer "),
            "model": call.model,
            "context": str(self._model(call.model).context),
            "tokens": str(call.prompt_tokens),
            "detail": detail or self.detail,
            "request_id": self.request_id(note.number),
        }

    def _headers(self, call: Call, note: Received) -> dict[str, str]:
        name, form = "x-request-id", "x-ratelimit-{told}-{of}"
        if call.api.anthropic:
            name, form = "request-id", "anthropic-ratelimit-{of}-{told}"
        return {name: self.request_id(note.number), **self.limiter(call.model).headers(form)}


_LIES = {
    "x-ratelimit-limit-requests": "-1",
    "x-ratelimit-remaining-requests": "0",
    "x-ratelimit-limit-tokens": "0",
    "x-ratelimit-remaining-tokens": "many",
    "x-ratelimit-reset-tokens": "soon",
    "anthropic-ratelimit-requests-limit": "-1",
    "anthropic-ratelimit-requests-reset": "yesterday",
    "anthropic-ratelimit-input-tokens-limit": "NaN",
    "anthropic-ratelimit-input-tokens-remaining": "inf",
}


_COUNTS = {Fault.ZERO_USAGE: 0, Fault.WRONG_USAGE: 10**9}


def _complaint(call: Call, model: FakeModel, headers: Mapping[str, str]) -> str | None:
    """What the real server would find wrong with the parameters, or None."""
    if model.lenient:
        return None
    sent = set(call.body)
    if not call.api.anthropic:
        unknown = sorted(sent - openai_wire.KNOWN[call.api])
        limits = {"max_tokens", "max_completion_tokens"} & sent
        refused = limits - model.max_tokens_fields if call.api is Api.CHAT else set()
        refused |= model.refuses & sent
        effort = call.body.get("reasoning_effort") or call.body.get("reasoning", {}).get("effort")
        if model.thinks and effort != "none":
            refused |= {"temperature", "top_p", "logprobs", "top_logprobs"} & sent
        for name in (*unknown, *sorted(refused)):
            return f"Unsupported parameter: '{name}' is not supported with this model."
        return None
    if "max_tokens" not in sent:
        return "max_tokens: Field required"
    old = headers.get("anthropic-version") == anthropic_wire.OLD_VERSION
    known = anthropic_wire.KNOWN | (anthropic_wire.SAMPLING if old else set())
    for name in sorted(sent - known):
        return f"{name}: Extra inputs are not permitted"
    if sum(marked for _, _, marked in call.blocks) > _MOST_MARKS:
        return "A maximum of 4 blocks with cache_control may be provided."
    turns = (turn["content"] for turn in call.body["messages"])
    parts = [part for content in turns if isinstance(content, list) for part in content]
    if any(part["type"] == "text" and not part["text"].strip() for part in parts):
        return "messages: text content blocks must contain non-whitespace text"
    return None
