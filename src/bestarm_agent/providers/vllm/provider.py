"""Models of vLLM servers that are started and stopped here."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from bestarm_agent.config.yaml.documents import OptionsError, Problem
from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.digest import Json, digest
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.api.openai import OpenAIProvider
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.providers.base import Capabilities, EndpointStatus, Footprint, Provider
from bestarm_agent.providers.child_process import find_program, hidden_from
from bestarm_agent.providers.devices import Device, device_variables, find_devices
from bestarm_agent.providers.failures import BilledError, failure
from bestarm_agent.providers.gpu_time import SharedTime
from bestarm_agent.providers.hf.model_folder import CONTENT, ContentDigests
from bestarm_agent.providers.local_provider import LocalProvider
from bestarm_agent.providers.model_memory import ModelMemory
from bestarm_agent.providers.placement import Placement, PlacementError, place
from bestarm_agent.providers.vllm.options import ServeOptions
from bestarm_agent.providers.vllm.server import Replica, VllmServers
from bestarm_agent.providers.vllm.server_process import ServerProcess, server_environment

_DISCONNECTED = (FailureKind.CONNECTION, FailureKind.UNREACHABLE)
_PLACEHOLDER_URL = "http://127.0.0.1:1/v1"  # the port is not known before the server is started


class VllmProvider(LocalProvider[ServeOptions, VllmServers]):
    """Answers with vLLM servers on this machine, of each model, started when first needed.

    Where they do not fit onto the devices together, or ``resident`` is less than the number of
    models, they take turns as the models of ``hf`` do at the memory. Adapters use the servers of
    their base model. Every second that a server is awake is charged to the calls it answers, the
    time of its start to the first.
    """

    def __init__(
        self,
        name: str,  # the first part of ``provider/model``
        serve: ServeOptions,
        api: Mapping[str, Json],  # options of the ``openai`` adapter: parameters, model facts
        base_dir: Path,
        *,
        clock: Callable[[], float] = time.monotonic,  # seconds since some fixed moment
        elsewhere: bool = False,  # the models are only described; other machines run the servers
    ) -> None:
        super().__init__(name, serve, base_dir.absolute())  # servers run in another folder
        self._elsewhere = elsewhere
        self._api = api
        self._clock = clock
        self._variables = server_environment(serve.pass_env, serve.variables())
        self._facts: dict[str, Mapping[str, Json]] = {}
        self._digests = ContentDigests()
        self._protocol = self._client([_PLACEHOLDER_URL])  # knows what may be sent; never sends

    def set_facts(self, model: str, facts: Mapping[str, Json]) -> None:
        """Set facts about one model that override the catalogue; raises ConfigError."""
        self._facts[model] = facts
        self._protocol.set_facts(model, facts)

    async def start(self) -> None:
        """Prepare the servers; they are started when they are needed."""
        at_once = len(self.options.served)
        self._memory = ModelMemory(self.fits, 1, at_once, self._pinned)
        locks: defaultdict[Device, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._models = {name: self._servers(name, locks) for name in self.options.served}

    async def close(self) -> None:
        """Stop all servers with their children."""
        servers, self._models, self._memory = self._models, {}, None
        await together(server.close() for server in servers.values())

    def check(self, model: str) -> None:
        """Check that a server is declared, has a program and fits; raises ConfigError."""
        try:
            self.options.holder(model)
            if not self._elsewhere:
                self.options.check_installed()
                find_program(self.options.program()[0], self.base_dir, self._variables)
        except ConfigError as error:
            raise ConfigError(f"{self.name}/{model}: {error}") from None
        _ = self.placement  # raises where a model cannot have its devices
        self._protocol.check(model)

    def capabilities(self, model: str) -> Capabilities:
        """Return the capabilities of the server's API; its price is that of the accelerators."""
        return replace(
            self._protocol.capabilities(model),
            priced=True,
            price_source=self._price_source,
            in_flight=self.options.in_flight * self.options.servers_of(self.options.holder(model)),
            rate_limited=False,  # its servers put calls in a queue of their own
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

    def footprint(self, model: str) -> Footprint:
        """Return the model whose servers answer, their devices, and average times so far."""
        holder = self.options.holder(model)
        return self._footprint(holder, self.placement.part(holder) if self.placement else "")

    def fits(self, holders: Collection[str]) -> bool:
        """Return True if the servers of models may be awake together."""
        if self.placement is not None:
            return self.placement.fits(holders)
        return len(holders) <= (self.options.resident or len(self.options.served))

    @cached_property
    def placement(self) -> Placement | None:
        """The devices of every server; None where they are not assigned.

        Raises OptionsError if some model cannot have the devices that it wants.
        """
        if self._elsewhere or self.options.resident is not None:
            return None
        devices = find_devices(self._variables)
        if not devices:
            if path := self.options.needs_devices():
                raise self._unplaced(
                    path,
                    f"`{path[-1]}` needs devices of known memory, and nvidia-smi shows none here; "
                    "leave it out, or run this where the devices are",
                )
            return None
        try:
            return place([self.options.demand(name) for name in self.options.served], devices)
        except PlacementError as error:
            own = getattr(self.options.served[error.model], error.option) is not None
            path = ("models", error.model, error.option) if own else (error.option,)
            raise self._unplaced(path, f"`{error.model}`: {error}") from None

    def _unplaced(self, path: tuple[str, ...], text: str) -> OptionsError:
        return OptionsError(f"provider `{self.name}`", [Problem(("serve", *path), text)])

    @property
    def endpoints(self) -> tuple[EndpointStatus, ...]:
        """The state of every server of models that have several."""
        shown = [servers.endpoints for servers in self._models.values()]
        return tuple(status for statuses in shown if len(statuses) > 1 for status in statuses)

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

    async def _answer(self, server: VllmServers, client: Provider, request: Request) -> Reply:
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
        seconds = server.time.leave(ticket) * server.held
        server.call_seconds.add(seconds)
        return replace(reply, gpu_seconds=seconds, usd_nanos=self._price(seconds))

    async def _explain(self, server: VllmServers, error: BaseException) -> ProviderError | None:
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

    def _servers(self, name: str, locks: Mapping[Device, asyncio.Lock]) -> VllmServers:
        serve = self.options
        placed: Sequence[Sequence[Device]] = (
            self.placement.servers[name] if self.placement else [()]
        )
        held = self.placement.held(name) if self.placement else serve.demand(name).gpus
        return VllmServers(
            name,
            [
                Replica(self._process(name, number, devices), [locks[device] for device in devices])
                for number, devices in enumerate(placed, 1)
            ],
            lambda urls: self._client([f"{url}/v1" for url in urls]),
            adapters={
                adapter: (self.base_dir / spec.path).resolve()
                for adapter, spec in serve.adapters.items()
                if spec.base == name
            },
            held=held,
            time=SharedTime(self._clock, serve.max_gpu_seconds / held),
            clock=self._clock,
            sleep_seconds=serve.sleep_seconds if serve.sleep else None,
        )

    def _process(self, name: str, number: int, devices: Sequence[Device]) -> ServerProcess:
        serve = self.options
        program = serve.program()
        file = find_program(program[0], self.base_dir, self._variables)
        log = f"{name.replace('/', '--')}{f'-{number}' if number > 1 else ''}.log"
        return ServerProcess(
            lambda port: [file, *program[1:], *serve.arguments(name, self.base_dir, port, devices)],
            variables={**self._variables, **(device_variables(devices) if devices else {})},
            hidden=hidden_from(serve.pass_env, serve.env, self.base_dir),
            log=self.base_dir / serve.log_dir / log,
            start_seconds=serve.start_seconds,
            stop_seconds=serve.stop_seconds,
        )

    def _client(self, urls: Sequence[str]) -> ApiProvider:
        address = {"base_url": urls[0]} if len(urls) == 1 else {"base_url": None, "endpoints": urls}
        client = OpenAIProvider.create(self.name, {**self._api, **address}, self.base_dir)
        for model, facts in self._facts.items():
            client.set_facts(model, facts)
        return client

    def _content(self, path: str) -> Json:
        folder = self.base_dir / path
        if not folder.is_dir():
            return path
        files = sorted({file for pattern in CONTENT for file in folder.glob(pattern)})
        return {file.name: self._digests.of(file) for file in files}
