"""Runs another provider's engine in actors on the machines of a Ray cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from bestarm_agent.config.yaml.documents import parse_options
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.providers.base import Capabilities, EndpointStatus, Provider
from bestarm_agent.providers.ray.actor import EngineActor
from bestarm_agent.providers.ray.connection import (
    check_installed,
    connect,
    describe_resources,
    disconnect,
)
from bestarm_agent.providers.ray.engine import Engine
from bestarm_agent.providers.ray.options import RayOptions, split_options
from bestarm_agent.providers.ray.replica import Replica
from bestarm_agent.providers.ray.replica_pool import ReplicaPool


class RayProvider(Provider[RayOptions]):
    """Answers with actors, each of which runs the same provider for all models.

    That provider also exists here, to say what its models take and cost; it is never entered.
    """

    options_type = RayOptions

    def __init__(
        self,
        name: str,
        options: RayOptions,
        base_dir: Path,
        engine: Engine,  # what the actors run
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name, options, base_dir)
        self._engine = engine
        self._clock = clock
        self._described = engine.describe()
        self._pool: ReplicaPool | None = None
        self._must_disconnect = False

    @classmethod
    def create(cls, name: str, options: Mapping[str, Json], base_dir: Path) -> Self:
        """Validate the options, those of the actors' provider included; raises ConfigError."""
        ours, theirs = split_options(options)
        own = parse_options(RayOptions, ours, subject=f"provider `{name}`")
        return cls(name, own, base_dir, Engine.find(name, own, theirs, base_dir.absolute()))

    async def start(self) -> None:
        """Connect to the cluster, and wait for the first actor.

        Raises ConfigError if there is no cluster, or no actor can be started in time.
        """
        self._must_disconnect = await asyncio.to_thread(connect, self.options.address)
        own = self.options
        self._pool = ReplicaPool(self.name, own.replicas, self._replica, own.start_seconds)
        try:
            await self._pool.start()
        except TimeoutError:
            missing = await asyncio.to_thread(self._missing)
            await self.close()
            raise ConfigError(missing) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the actors, and leave the cluster."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
        if self._must_disconnect:
            self._must_disconnect = False
            await asyncio.to_thread(disconnect)

    @property
    def endpoints(self) -> tuple[EndpointStatus, ...]:
        """The state of every actor."""
        replicas = () if self._pool is None else self._pool.replicas
        return tuple(replica.status for replica in replicas)

    def check(self, model: str) -> None:
        """Check, without the cluster, that a model can be used; raises ConfigError."""
        check_installed()
        if isinstance(self._described, ApiProvider):
            adapter = self.options.adapter
            raise ConfigError(
                f"provider `{self.name}`: `{adapter}` calls an API here, which needs no cluster; "
                f"name the model {adapter}/{model}, or set `adapter` to a provider that runs "
                "models: hf, or vllm with `serve`"
            )
        self._described.check(model)

    def capabilities(self, model: str) -> Capabilities:
        """Return the capabilities of the actors' provider; each actor takes as many calls."""
        able = self._described.capabilities(model)
        n_calls = able.in_flight * self.options.replicas
        return replace(able, in_flight=n_calls, rate_limited=False)

    def fingerprint(self, model: str) -> str:
        """Return the fingerprint of the actors' provider: where it runs changes no reply."""
        return self._described.fingerprint(model)

    def bound(self, request: Request) -> Spend:
        """Return the bound of the actors' provider."""
        return self._described.bound(request)

    async def generate(self, request: Request) -> Reply:
        """Answer one request by some actor.

        Raises:
            ProviderError: that of the actors' provider; or the actor died (SERVER), none is up in
                time (UNREACHABLE), or none can be started any more (MODEL_NOT_FOUND).
        """
        if self._pool is None:
            raise RuntimeError("use the provider inside `async with provider:`")
        return await self._pool.answer(request, partial(self.bound, request))

    def _replica(self, number: int, changed: Callable[[], None]) -> Replica:
        import ray

        own = self.options
        actor = ray.remote(EngineActor).options(
            num_cpus=own.cpus,
            num_gpus=own.gpus,
            max_restarts=-1,
            max_task_retries=0,  # calls are repeated by the engine, which pays for them
            runtime_env=_with_children(own.runtime_env),
        )
        return Replica(number, self.name, actor.remote(self._engine, number), changed, self._clock)

    def _missing(self) -> str:
        own = self.options
        return (
            f"provider `{self.name}`: no actor was up within {own.start_seconds:g} s. Each needs "
            f"{own.gpus:g} GPU and {own.cpus:g} CPU on one node; the cluster has "
            f"{describe_resources()}. Lower `gpus` or `cpus`, add nodes, or raise `start_seconds` "
            "if an autoscaler is adding them or the engine is slow to start"
        )


def _with_children(runtime_env: Mapping[str, Any]) -> dict[str, Any]:
    """Return a runtime environment in which Ray leaves the children of an actor that ends alone.

    It would kill the guard of a vLLM server, which then ended with nobody.
    """
    variables = {"RAY_kill_child_processes_on_worker_exit": "0"}
    return {**runtime_env, "env_vars": {**variables, **runtime_env.get("env_vars", {})}}
