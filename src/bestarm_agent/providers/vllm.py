"""Models of vLLM servers: by address, or started and stopped by us."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Self

from bestarm_agent.config.documents import parse_options
from bestarm_agent.domain.allowance import Allowance
from bestarm_agent.domain.digest import Json, digest
from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.spend import Spend, nanos
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.api import ApiProvider
from bestarm_agent.providers.base import Capabilities, Footprint, Provider
from bestarm_agent.providers.command_process import find_program, hidden_from
from bestarm_agent.providers.failures import BilledError, failure
from bestarm_agent.providers.hf_folder import CONTENT, ContentDigests
from bestarm_agent.providers.openai import create as create_api
from bestarm_agent.providers.residency import Residency
from bestarm_agent.providers.server_process import ServerProcess, server_environment
from bestarm_agent.providers.server_time import SharedTime
from bestarm_agent.providers.vllm_options import ServeOptions
from bestarm_agent.providers.vllm_server import VllmServer

_SECONDS_PER_HOUR = 3600
_GONE = (FailureKind.CONNECTION, FailureKind.UNREACHABLE)
_SOME_URL = "http://127.0.0.1:1/v1"  # the port is not known before the server is started


class VllmProvider:
    """Answers with vLLM servers on this machine, one for each model, started when first needed.

    Where ``resident`` is less than the number of models, servers take turns at the accelerators as
    the models of ``hf`` do at the memory. Adapters are reached through the server of their base,
    and cost no turn. Every second that a server is awake is charged to the calls it answers, the
    time of starting to the first one.

    Args:
        name: what users call the provider.
        serve: the servers.
        api: options of the ``openai`` adapter for the rest: parameters, facts about models.
        base_dir: the study's folder.
        clock: seconds since some fixed moment.
    """

    def __init__(
        self,
        name: str,
        serve: ServeOptions,
        api: Mapping[str, Json],
        base_dir: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._serve = serve
        self._api = api
        self._base_dir = base_dir.absolute()  # servers run in another folder
        self._clock = clock
        self._variables = server_environment(serve.pass_env, serve.variables())
        self._declared: dict[str, Mapping[str, Json]] = {}
        self._digests = ContentDigests()
        self._protocol = self._client(_SOME_URL)  # knows what may be sent; never sends
        self._servers: dict[str, VllmServer] = {}
        self._residency: Residency | None = None
        self._kept: set[str] = set()

    def declare(self, model: str, facts: Mapping[str, Json]) -> None:
        """Take what a study says of one model; raises ConfigError."""
        self._declared[model] = facts
        self._protocol.declare(model, facts)

    async def __aenter__(self) -> Self:
        """Nothing is started before it is needed."""
        at_once = len(self._serve.served)
        self._residency = Residency(self.memory_bytes, 1, at_once, self._kept)
        self._servers = {name: self._server(name) for name in self._serve.served}
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop all servers with everything that they started."""
        servers, self._servers, self._residency = self._servers, {}, None
        async with asyncio.TaskGroup() as group:
            for server in servers.values():
                group.create_task(server.close())

    def check(self, model: str) -> None:
        """Check that a server is declared, and its program there; raises ConfigError."""
        try:
            self._serve.holder(model)
            find_program(self._serve.program()[0], self._base_dir, self._variables)
        except ConfigError as error:
            raise ConfigError(f"{self.name}/{model}: {error}") from None
        self._protocol.check(model)

    def capabilities(self, model: str) -> Capabilities:
        """What the server's API can do; its price is that of the accelerators."""
        return replace(
            self._protocol.capabilities(model),
            priced=True,
            price_source="usd_per_gpu_hour" if self._serve.usd_per_gpu_hour else "free",
            in_flight=self._serve.in_flight,
            queued=True,
        )

    def fingerprint(self, model: str) -> str:
        """Digest of weights by content, of the servers' arguments, and of what is sent."""
        holder = self._serve.holder(model)
        served = self._serve.served[holder]
        adapter = self._serve.adapters.get(model)
        return digest(
            {
                "weights": self._content(served.path),
                "adapter": None if adapter is None else self._content(adapter.path),
                "args": [*self._serve.args, *served.args],
                "api": self._protocol.fingerprint(model),
            }
        )

    def bound(self, request: Request) -> Spend:
        """Tokens as the API bounds them; accelerator seconds and their price as declared."""
        seconds = self._serve.max_gpu_seconds
        bound = self._protocol.bound(request)
        return replace(bound, gpu_seconds=seconds, usd_nanos=self._price(seconds))

    def allowances(self, model: str) -> tuple[Allowance, ...]:
        """Nothing: no limits apply."""
        return ()

    @property
    def n_loads(self) -> int:
        """How often servers were started or woken."""
        return sum(server.n_loads for server in self._servers.values())

    @property
    def loading(self) -> tuple[str, ...]:
        """Models whose servers are being started or woken."""
        return () if self._residency is None else self._residency.loading

    @property
    def memory_bytes(self) -> int:
        """How many servers are awake at once."""
        return self._serve.resident or len(self._serve.served)

    @property
    def loading_share(self) -> float | None:
        """Share of the time that starting and waking may take."""
        return self._serve.loading_share

    def footprint(self, model: str) -> Footprint:
        """One server's place, and how long things have taken so far."""
        holder = self._serve.holder(model)
        server = self._servers.get(holder)
        return Footprint(
            holder=holder,
            n_bytes=1,
            load_seconds=server.load_seconds.value if server else None,
            call_seconds=server.call_seconds.value if server else None,
        )

    def keep(self, model: str) -> None:
        """Stop a model's server only where the others cannot make room."""
        self._kept.add(self._serve.holder(model))

    async def generate(self, request: Request) -> Reply:
        """Answer one request, once its server is awake.

        Raises:
            ProviderError: the server cannot be started (MODEL_NOT_FOUND), died (SERVER, so that the
                next attempt starts it again), was too slow (TIMEOUT), or the call failed.
        """
        try:
            server = self._servers[self._serve.holder(request.model)]
        except ConfigError as error:
            raise failure(FailureKind.MODEL_NOT_FOUND, str(error)) from None
        except KeyError:
            raise RuntimeError("use the provider inside `async with provider:`") from None
        if self._residency is None:
            raise RuntimeError("use the provider inside `async with provider:`")
        try:
            self._protocol.bound(request)
        except ConfigError as error:
            raise failure(FailureKind.BAD_REQUEST, str(error)) from None
        async with server.used(self._residency) as client:
            return await self._answered(server, client, request)

    async def _answered(self, server: VllmServer, client: Provider, request: Request) -> Reply:
        ticket = server.time.enter()
        try:
            async with asyncio.timeout(self._serve.call_seconds):
                reply = await client.generate(request)
        except BaseException as error:
            server.time.fail(ticket)
            explained = await self._explained(server, error)
            if explained is None:
                raise
            raise explained from error
        seconds = server.time.leave(ticket) * self._serve.gpus
        server.call_seconds.add(seconds)
        return replace(reply, gpu_seconds=seconds, usd_nanos=self._price(seconds))

    async def _explained(self, server: VllmServer, error: BaseException) -> ProviderError | None:
        """A better error, now that the server can be looked at; None if there is none."""
        if isinstance(error, TimeoutError):
            return failure(
                FailureKind.TIMEOUT,
                f"{self.name}/{server.name} did not answer within {self._serve.call_seconds:g} s; "
                "raise `call_seconds` of `serve` if it is slow",
            )
        if not isinstance(error, ProviderError) or error.kind not in _GONE:
            return None
        death = await server.death()
        if death is None:
            return None
        died = failure(FailureKind.SERVER, f"{self.name}/{server.name}: {death}")
        return BilledError(died, Spend(calls=1))

    def _server(self, name: str) -> VllmServer:
        serve = self._serve
        program = serve.program()
        file = find_program(program[0], self._base_dir, self._variables)
        process = ServerProcess(
            lambda port: [file, *program[1:], *serve.arguments(name, self._base_dir, port)],
            variables=self._variables,
            hidden=hidden_from(serve.pass_env, serve.env, self._base_dir),
            log=self._base_dir / serve.log_dir / f"{name.replace('/', '--')}.log",
            start_seconds=serve.start_seconds,
            stop_seconds=serve.stop_seconds,
        )
        return VllmServer(
            name,
            process,
            lambda url: self._client(f"{url}/v1"),
            adapters={
                adapter: (self._base_dir / spec.path).resolve()
                for adapter, spec in serve.adapters.items()
                if spec.base == name
            },
            time=SharedTime(self._clock, serve.max_gpu_seconds / serve.gpus),
            clock=self._clock,
            sleep_seconds=serve.sleep_seconds if serve.sleep else None,
        )

    def _client(self, url: str) -> ApiProvider:
        client = create_api(self.name, {**self._api, "base_url": url}, self._base_dir)
        for model, facts in self._declared.items():
            client.declare(model, facts)
        return client

    def _content(self, path: str) -> Json:
        folder = self._base_dir / path
        if not folder.is_dir():
            return path
        files = sorted({file for pattern in CONTENT for file in folder.glob(pattern)})
        return {file.name: self._digests.of(file) for file in files}

    def _price(self, seconds: float) -> int:
        """Nano-dollars that accelerator seconds cost."""
        return nanos(Decimal(seconds) * self._serve.usd_per_gpu_hour / _SECONDS_PER_HOUR)


def create(name: str, options: Mapping[str, Json], base_dir: Path) -> Provider:
    """Build the provider: with ``serve``, one that starts servers; else one for an address.

    Raises:
        ConfigError: an option is wrong.
    """
    api = {key: value for key, value in options.items() if key != "serve"}
    serve = options.get("serve")
    if serve is None:
        return create_api(name, api, base_dir)
    if not isinstance(serve, Mapping):
        raise ConfigError(f"provider `{name}`: `serve` must be a mapping, got {serve!r:.40}")
    parsed = parse_options(ServeOptions, serve, subject=f"provider `{name}`, serve")
    return VllmProvider(name, parsed, api, base_dir)
