"""Models of vLLM servers that are started and stopped here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bestarm_agent.config.file_errors import parse_options
from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Json, Reply, Request, digest
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.api.openai import OpenAIProvider
from bestarm_agent.providers.base import Capabilities
from bestarm_agent.providers.child_process import find_program
from bestarm_agent.providers.failures import BilledError, failure
from bestarm_agent.providers.hf.folder import content_digests
from bestarm_agent.providers.local import LocalProvider, ModelMemory, averaged
from bestarm_agent.providers.vllm.options import ServeOptions, VllmOptions
from bestarm_agent.providers.vllm.server import VllmServer

_DISCONNECTED = (FailureKind.CONNECTION, FailureKind.UNREACHABLE)
_PLACEHOLDER_URL = "http://127.0.0.1:1/v1"  # the port is not known before the server is started


class VllmProvider(LocalProvider[ServeOptions, VllmServer]):
    """Answers with a vLLM server on this machine for each model, started when first needed.

    As many servers are awake as their devices have room for. Every second that one is, is charged
    to the calls that it answers, the time of its start to the first.
    """

    takes_facts = True
    vendor = OpenAIProvider.vendor  # of servers that run already

    def __init__(
        self,
        name: str,  # the first part of ``provider/model``
        serve: ServeOptions,
        api: Mapping[str, Json],  # options of the ``openai`` adapter: parameters, model facts
        base_dir: Path,
    ) -> None:
        super().__init__(name, serve, base_dir.absolute())  # servers run in another folder
        self._clock = time.monotonic
        self._variables = serve.variables()
        options = {**api, "base_url": _PLACEHOLDER_URL}
        self._api = OpenAIProvider.create(name, options, base_dir)  # says what may be sent
        self._api.facts, self._api.not_taken = self.facts, self.not_taken

    @classmethod
    def create(  # type: ignore[override]
        cls, name: str, options: Mapping[str, Json], base_dir: Path
    ) -> VllmProvider | OpenAIProvider:
        """Validate the options; with ``serve`` servers are started, else an address is called.

        Raises ConfigError.
        """
        serve = parse_options(VllmOptions, options, subject=f"provider `{name}`").serve
        api = {key: value for key, value in options.items() if key != "serve"}
        if serve is None:
            return OpenAIProvider.create(name, api, base_dir)
        return cls(name, serve, api, base_dir)

    async def start(self) -> None:
        """Prepare the servers; they are started when they are needed."""
        devices = self.options.devices()
        self._memory = ModelMemory(
            lambda models: devices.fits(models[-1].name, [model.name for model in models[:-1]])
        )
        self._models = {
            name: VllmServer(
                name, self.options, self.base_dir, self._variables, devices, self._api, self._clock
            )
            for name in self.options.models
        }

    async def close(self) -> None:
        """Stop all servers with their children."""
        servers, self._models, self._memory = self._models, {}, None
        await together(server.close() for server in servers.values())

    def check(self, model: str) -> None:
        """Check that a server is declared for a model; raises ConfigError."""
        self.options.served(model)
        self._api.check(model)

    def check_machine(self, model: str) -> None:
        """Check that a model's servers have a program; raises ConfigError."""
        try:
            find_program(self.options.program(), self.base_dir, self._variables)
        except ConfigError as error:
            raise ConfigError(f"{self.name}/{model}: {error}") from error

    def capabilities(self, model: str) -> Capabilities:
        """Return the capabilities of the server's API; its price is that of the accelerators."""
        return replace(
            self._api.capabilities(model),
            price_source=self._price_source,
            in_flight=self.options.in_flight,
            rate_limited=False,  # the server puts calls in a queue of its own
            queued=True,
        )

    def fingerprint(self, model: str) -> str:
        """Return a digest of the weights by content, the servers' arguments, and what is sent."""
        served = self.options.served(model)
        folder = self.base_dir / served.path
        return digest(
            {
                "weights": content_digests(folder) if folder.is_dir() else served.path,
                "args": [*self.options.args, *served.args],
                "api": self._api.fingerprint(model),
            }
        )

    def bound(self, request: Request) -> Spend:
        """Return the API's bound, with the declared accelerator seconds and their cost."""
        seconds = self.options.max_gpu_seconds
        bound = self._api.bound(request)
        return replace(bound, gpu_seconds=seconds, usd_nanos=self._price(seconds))

    @property
    def loads_one_at_a_time(self) -> bool:
        """True unless the devices have room for all servers."""
        return not self.options.devices().hold_all

    async def generate(self, request: Request) -> Reply:
        """Answer one request, once its server is awake.

        Raises:
            ProviderError: the server cannot be started (MODEL_NOT_FOUND), died (SERVER, so that the
                next attempt starts it again), was too slow (TIMEOUT), or the call failed.
        """
        if self._memory is None:
            raise RuntimeError("use the provider inside `async with provider:`")
        try:
            self.options.served(request.model)
            self._api.bound(request)
        except ConfigError as error:
            raise failure(FailureKind.BAD_REQUEST, str(error)) from None
        server = self._models[request.model]
        async with self._memory.hold(server):
            return await self._answer(server, request)

    async def _answer(self, server: VllmServer, request: Request) -> Reply:
        # The ticket is given back in every case, by ``leave`` or by ``fail``: otherwise all later
        # calls would be charged as if one more were under way.
        ticket = server.time.enter()
        try:
            async with asyncio.timeout(self.options.call_seconds):
                reply = await server.client.generate(request)
        except BaseException as error:
            server.time.fail(ticket)
            # A connection that breaks says little: its server may have died, and the end of its log
            # says why.
            better = await self._explain(server, error)
            if better is None:
                raise
            raise better from error
        seconds = server.time.leave(ticket) * server.n_devices
        server.call_seconds = averaged(server.call_seconds, seconds)
        return replace(reply, gpu_seconds=seconds, usd_nanos=self._price(seconds))

    async def _explain(self, server: VllmServer, error: BaseException) -> ProviderError | None:
        """Return a better error, after a look at the server; None if there is none."""
        name = f"{self.name}/{server.name}"
        if isinstance(error, TimeoutError):
            return failure(
                FailureKind.TIMEOUT,
                f"{name} did not answer within {self.options.call_seconds:g} s; raise "
                "`call_seconds` of `serve` if it is slow",
            )
        if not isinstance(error, ProviderError) or error.kind not in _DISCONNECTED:
            return None
        reason = await server.exit_reason()
        if reason is None:
            return None
        return BilledError(failure(FailureKind.SERVER, f"{name}: {reason}"), Spend(calls=1))
