"""Models of vLLM servers: by address, or started and stopped here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from bestarm_agent.config.yaml.documents import parse_options
from bestarm_agent.domain.digest import Json, digest
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.api.openai import OpenAIProvider
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.providers.base import Capabilities, Footprint, Provider
from bestarm_agent.providers.failures import BilledError, failure
from bestarm_agent.providers.gpu_time import SharedTime
from bestarm_agent.providers.hf.model_folder import CONTENT, ContentDigests
from bestarm_agent.providers.local_provider import LocalProvider
from bestarm_agent.providers.model_memory import ModelMemory
from bestarm_agent.providers.program.command_process import find_program, hidden_from
from bestarm_agent.providers.vllm.options import ServeOptions
from bestarm_agent.providers.vllm.server import VllmServer
from bestarm_agent.providers.vllm.server_process import ServerProcess, server_environment

_DISCONNECTED = (FailureKind.CONNECTION, FailureKind.UNREACHABLE)
_PLACEHOLDER_URL = "http://127.0.0.1:1/v1"  # the port is not known before the server is started


class VllmProvider(LocalProvider[ServeOptions, VllmServer]):
    """Answers with vLLM servers on this machine, one for each model, started when first needed.

    Where ``resident`` is less than the number of models, servers take turns at the accelerators as
    the models of ``hf`` do at the memory. Adapters use the server of their base model. Every second
    that a server is awake is charged to the calls it answers, the time of its start to the first.
    """

    def __init__(
        self,
        name: str,  # the first part of ``provider/model``
        serve: ServeOptions,
        api: Mapping[str, Json],  # options of the ``openai`` adapter: parameters, model facts
        base_dir: Path,
        *,
        clock: Callable[[], float] = time.monotonic,  # seconds since some fixed moment
    ) -> None:
        super().__init__(name, serve, base_dir.absolute())  # servers run in another folder
        self._api = api
        self._clock = clock
        self._variables = server_environment(serve.pass_env, serve.variables())
        self._facts: dict[str, Mapping[str, Json]] = {}
        self._digests = ContentDigests()
        self._protocol = self._client(_PLACEHOLDER_URL)  # knows what may be sent; never sends

    def set_facts(self, model: str, facts: Mapping[str, Json]) -> None:
        """Set facts about one model that override the catalogue; raises ConfigError."""
        self._facts[model] = facts
        self._protocol.set_facts(model, facts)

    async def start(self) -> None:
        """Prepare the servers; they are started when they are needed."""
        at_once = len(self.options.served)
        self._memory = ModelMemory(self.memory_bytes, 1, at_once, self._pinned)
        self._models = {name: self._server(name) for name in self.options.served}

    async def close(self) -> None:
        """Stop all servers with their children."""
        servers, self._models, self._memory = self._models, {}, None
        async with asyncio.TaskGroup() as group:
            for server in servers.values():
                group.create_task(server.close())

    def check(self, model: str) -> None:
        """Check that a server is declared, and that its program exists; raises ConfigError."""
        try:
            self.options.holder(model)
            self.options.check_installed()
            find_program(self.options.program()[0], self.base_dir, self._variables)
        except ConfigError as error:
            raise ConfigError(f"{self.name}/{model}: {error}") from None
        self._protocol.check(model)

    def capabilities(self, model: str) -> Capabilities:
        """Return the capabilities of the server's API; its price is that of the accelerators."""
        return replace(
            self._protocol.capabilities(model),
            priced=True,
            price_source=self._price_source,
            in_flight=self.options.in_flight,
            queued=True,
        )

    def fingerprint(self, model: str) -> str:
        """Return a digest of the weights by content, the servers' arguments, and what is sent."""
        holder = self.options.holder(model)
        served = self.options.served[holder]
        adapter = self.options.adapters.get(model)
        return digest(
            {
                "weights": self._content(served.path),
                "adapter": None if adapter is None else self._content(adapter.path),
                "args": [*self.options.args, *served.args],
                "api": self._protocol.fingerprint(model),
            }
        )

    def bound(self, request: Request) -> Spend:
        """Return the API's bound, with the declared accelerator seconds and their cost."""
        seconds = self.options.max_gpu_seconds
        bound = self._protocol.bound(request)
        return replace(bound, gpu_seconds=seconds, usd_nanos=self._price(seconds))

    @property
    def memory_bytes(self) -> int:
        """Number of servers that may be awake at once."""
        return self.options.resident or len(self.options.served)

    def footprint(self, model: str) -> Footprint:
        """Return one server's slot, and average times so far."""
        return self._footprint(self.options.holder(model), 1)

    def pin(self, model: str) -> None:
        """Stop a model's server only if the others cannot make room."""
        self._pinned.add(self.options.holder(model))

    async def generate(self, request: Request) -> Reply:
        """Answer one request, once its server is awake.

        Raises:
            ProviderError: the server cannot be started (MODEL_NOT_FOUND), died (SERVER, so that the
                next attempt starts it again), was too slow (TIMEOUT), or the call failed.
        """
        try:
            server = self._models[self.options.holder(request.model)]
        except ConfigError as error:
            raise failure(FailureKind.MODEL_NOT_FOUND, str(error)) from None
        except KeyError:
            raise RuntimeError("use the provider inside `async with provider:`") from None
        if self._memory is None:
            raise RuntimeError("use the provider inside `async with provider:`")
        try:
            self._protocol.bound(request)
        except ConfigError as error:
            raise failure(FailureKind.BAD_REQUEST, str(error)) from None
        async with server.hold(self._memory) as client:
            return await self._answer(server, client, request)

    async def _answer(self, server: VllmServer, client: Provider, request: Request) -> Reply:
        ticket = server.time.enter()
        try:
            async with asyncio.timeout(self.options.call_seconds):
                reply = await client.generate(request)
        except BaseException as error:
            server.time.fail(ticket)
            better = await self._explain(server, error)
            if better is None:
                raise
            raise better from error
        self._protocol.learn(request, reply.usage)
        seconds = server.time.leave(ticket) * self.options.gpus
        server.call_seconds.add(seconds)
        return replace(reply, gpu_seconds=seconds, usd_nanos=self._price(seconds))

    async def _explain(self, server: VllmServer, error: BaseException) -> ProviderError | None:
        """Return a better error, after a look at the server; None if there is none."""
        if isinstance(error, TimeoutError):
            return failure(
                FailureKind.TIMEOUT,
                f"{self.name}/{server.name} did not answer within {self.options.call_seconds:g} s; "
                "raise `call_seconds` of `serve` if it is slow",
            )
        if not isinstance(error, ProviderError) or error.kind not in _DISCONNECTED:
            return None
        reason = await server.exit_reason()
        if reason is None:
            return None
        died = failure(FailureKind.SERVER, f"{self.name}/{server.name}: {reason}")
        return BilledError(died, Spend(calls=1))

    def _server(self, name: str) -> VllmServer:
        serve = self.options
        program = serve.program()
        file = find_program(program[0], self.base_dir, self._variables)
        process = ServerProcess(
            lambda port: [file, *program[1:], *serve.arguments(name, self.base_dir, port)],
            variables=self._variables,
            hidden=hidden_from(serve.pass_env, serve.env, self.base_dir),
            log=self.base_dir / serve.log_dir / f"{name.replace('/', '--')}.log",
            start_seconds=serve.start_seconds,
            stop_seconds=serve.stop_seconds,
        )
        return VllmServer(
            name,
            process,
            lambda url: self._client(f"{url}/v1"),
            adapters={
                adapter: (self.base_dir / spec.path).resolve()
                for adapter, spec in serve.adapters.items()
                if spec.base == name
            },
            time=SharedTime(self._clock, serve.max_gpu_seconds / serve.gpus),
            clock=self._clock,
            sleep_seconds=serve.sleep_seconds if serve.sleep else None,
        )

    def _client(self, url: str) -> ApiProvider:
        client = OpenAIProvider.create(self.name, {**self._api, "base_url": url}, self.base_dir)
        for model, facts in self._facts.items():
            client.set_facts(model, facts)
        return client

    def _content(self, path: str) -> Json:
        folder = self.base_dir / path
        if not folder.is_dir():
            return path
        files = sorted({file for pattern in CONTENT for file in folder.glob(pattern)})
        return {file.name: self._digests.of(file) for file in files}


class Vllm:
    """The adapter ``vllm``: with the option ``serve``, starts servers; else calls an address."""

    takes_facts = True

    @staticmethod
    def create(name: str, options: Mapping[str, Json], base_dir: Path) -> Provider:
        """Validate the options and build the provider; raises ConfigError."""
        api = {key: value for key, value in options.items() if key != "serve"}
        serve = options.get("serve")
        if serve is None:
            return OpenAIProvider.create(name, api, base_dir)
        if not isinstance(serve, Mapping):
            raise ConfigError(f"provider `{name}`: `serve` must be a mapping, got {serve!r:.40}")
        if api.get("endpoints") is not None:
            raise ConfigError(
                f"provider `{name}` has both `serve`, which starts servers, and `endpoints` of "
                "servers that run already; leave one of them out"
            )
        parsed = parse_options(ServeOptions, serve, subject=f"provider `{name}`, serve")
        return VllmProvider(name, parsed, api, base_dir)
