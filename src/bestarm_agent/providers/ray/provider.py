"""Another provider's engine in actors on the machines of a Ray cluster.

``RayProvider`` connects to the cluster and gives each call to an actor that is up. ``EngineActor``
is what runs there; ``Replica`` is an actor as seen from here: calls to it, its health, and the
calls that it took along when it died.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from socket import gethostname
from typing import Any, Self

from pydantic import Field

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.fields import StrictModel
from bestarm_agent.config.file_errors import parse_options
from bestarm_agent.domain.redaction import masked
from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Json, Reply, Request
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError, counted
from bestarm_agent.plugins import is_path
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.providers.base import Capabilities, EndpointStatus, Provider
from bestarm_agent.providers.catalog_entry import ProviderEntry, merge_options
from bestarm_agent.providers.failures import BilledError, failure
from bestarm_agent.providers.registry import create_provider

_LOCAL = "local"
_PROBE_SECONDS = 5.0


class RayOptions(StrictModel):
    """Options of the ``ray`` provider; all others are those of the provider that the actors run.

    Attributes:
        address: "auto": the cluster that RAY_ADDRESS names, or that runs on this machine. "local":
            one that is started for the run. Or host and port.
        adapter: the provider that the actors run, by its name in the catalogue or its dotted path.
        gpus: accelerators of one actor; a share of one lets actors share it.
        start_seconds: longest time without any actor, of waiting for resources and of starting.
            Raise it where an autoscaler has to start machines first.
        runtime_env: Ray's runtime environment of the actors.
    """

    address: str = Field(default="auto", min_length=1)
    adapter: str = Field(default="hf", min_length=1)
    replicas: int = Field(default=1, ge=1)  # actors; each loads the models that it is asked for
    gpus: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    cpus: float = Field(default=1.0, ge=0, allow_inf_nan=False)  # cores of one actor
    start_seconds: float = Field(default=120.0, gt=0, allow_inf_nan=False)
    runtime_env: dict[str, Any] = Field(default_factory=dict)


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
        engine: Callable[[int | None], Provider],  # builds the provider of the actor of a number
    ) -> None:
        super().__init__(name, options, base_dir)
        self._engine = engine
        self._described = engine(None)
        self._replicas: tuple[Replica, ...] = ()
        self._changed = asyncio.Event()  # an actor is up, or broken
        self._watching: list[asyncio.Task[None]] = []
        self._must_disconnect = False

    @classmethod
    def create(cls, name: str, options: Mapping[str, Json], base_dir: Path) -> Self:
        """Validate the options, those of the actors' provider included; raises ConfigError."""
        ours = {key: value for key, value in options.items() if key in RayOptions.model_fields}
        theirs = {key: value for key, value in options.items() if key not in ours}
        own = parse_options(RayOptions, ours, subject=f"provider `{name}`")
        return cls(name, own, base_dir, _find_engine(name, own, theirs, base_dir.absolute()))

    async def start(self) -> None:
        """Connect to the cluster, and wait for the first actor.

        Raises ConfigError if there is no cluster, or no actor can be started in time.
        """
        self._must_disconnect = await asyncio.to_thread(connect, self.options.address)
        clock, self._changed = asyncio.get_running_loop().time, asyncio.Event()
        self._replicas = tuple(
            Replica(number, self.name, self._actor(number), clock)
            for number in range(self.options.replicas)
        )
        # The tasks live as long as the provider: an actor that is started again comes back by
        # itself.
        self._watching = [asyncio.create_task(new.watch(self._changed)) for new in self._replicas]
        try:
            await self._any_up()
        except TimeoutError:
            raise ConfigError(await asyncio.to_thread(self._missing)) from None
        finally:
            if not any(replica.is_up for replica in self._replicas):
                await self.close()

    async def close(self) -> None:
        """End the actors, and leave the cluster."""
        import ray

        replicas, self._replicas = self._replicas, ()
        for task in self._watching:
            task.cancel()
        if self._watching:
            await asyncio.wait(self._watching)
        for replica in replicas:
            ray.kill(replica.handle)
        if self._must_disconnect:
            self._must_disconnect = False
            await asyncio.to_thread(ray.shutdown)

    @property
    def endpoints(self) -> tuple[EndpointStatus, ...]:
        """The state of every actor."""
        return tuple(replica.status for replica in self._replicas)

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
        described = self._described.capabilities(model)
        n_calls = described.in_flight * self.options.replicas
        return replace(described, in_flight=n_calls, rate_limited=False)

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
        if not self._replicas:
            raise RuntimeError("use the provider inside `async with provider:`")
        try:
            await self._any_up()
        except ConfigError as error:
            raise failure(FailureKind.MODEL_NOT_FOUND, str(error)) from None
        except TimeoutError:
            raise failure(
                FailureKind.UNREACHABLE,
                f"{self.name}: none of {counted(len(self._replicas), 'actor')} was up for "
                f"{self.options.start_seconds:g} s (`start_seconds`)",
            ) from None
        up = [replica for replica in self._replicas if replica.is_up]
        chosen = min(up, key=lambda replica: replica.in_flight)
        return await chosen.answer(request, partial(self.bound, request))

    async def _any_up(self) -> None:
        """Wait for an actor that is up; raises TimeoutError, ConfigError if none ever will be."""
        async with asyncio.timeout(self.options.start_seconds):
            while not any(replica.is_up for replica in self._replicas):
                reasons = [actor.broken for actor in self._replicas if actor.broken is not None]
                if len(reasons) == len(self._replicas):
                    raise ConfigError(
                        f"provider `{self.name}`: no actor can be started: {reasons[0]}"
                    )
                self._changed.clear()
                await self._changed.wait()

    def _actor(self, number: int) -> Any:  # noqa: ANN401
        import ray

        own = self.options
        # Ray would kill the children of an actor that ends, and with them the guard of a vLLM
        # server, which then ended with nobody
        variables = {"RAY_kill_child_processes_on_worker_exit": "0"}
        variables |= own.runtime_env.get("env_vars", {})
        actor = ray.remote(EngineActor).options(
            num_cpus=own.cpus,
            num_gpus=own.gpus,
            max_restarts=-1,
            max_task_retries=0,  # calls are repeated by the engine, which pays for them
            runtime_env={**own.runtime_env, "env_vars": variables},
        )
        return actor.remote(self._engine, number)

    def _missing(self) -> str:
        import ray

        own = self.options
        every: Mapping[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        free: Mapping[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
        has = (f"{every.get(k, 0):g} {k} ({free.get(k, 0):g} free)" for k in ("GPU", "CPU"))
        n_nodes = sum(bool(node["Alive"]) for node in ray.nodes())  # type: ignore[no-untyped-call]
        return (
            f"provider `{self.name}`: no actor was up within {own.start_seconds:g} s. Each needs "
            f"{own.gpus:g} GPU and {own.cpus:g} CPU on one node; the cluster has "
            f"{' and '.join(has)} on {counted(n_nodes, 'node')}. Lower `gpus` or `cpus`, add "
            "nodes, or raise `start_seconds` if an autoscaler is adding them or the engine is slow "
            "to start"
        )


def _find_engine(
    name: str, own: RayOptions, options: Mapping[str, Json], base_dir: Path
) -> Callable[[int | None], Provider]:
    """Look the actors' provider up as a study in ``base_dir`` does; raises ConfigError.

    Its options are fitted to the accelerators and cores of one actor. The function that is returned
    builds it, and can be sent to other machines.
    """
    adapter, merged = own.adapter, dict(options)
    if not is_path(adapter):
        entry = Catalog(base_dir).get("providers", adapter).parse(ProviderEntry)
        adapter, merged = entry.adapter, merge_options(entry.options, options)
    if adapter == "ray":
        raise ConfigError(f"provider `{name}`: actors cannot run `ray`; set `adapter` to hf")
    if adapter == "hf":
        if merged.get("device", "auto") == "auto":
            merged["device"] = "cuda" if own.gpus else "cpu"
        merged.setdefault("threads", max(1, int(own.cpus)))
    serve = merged.get("serve")
    if adapter == "vllm" and isinstance(serve, Mapping):
        # What the study says of a server's devices overrides what an actor has.
        merged["serve"] = {"gpus": max(1, int(own.gpus)), **serve}
    return partial(_create_engine, name, merged, base_dir, adapter)


def _create_engine(
    name: str, options: Mapping[str, Json], base_dir: Path, adapter: str, number: int | None
) -> Provider:
    """Build the provider of an actor; without a number, one to describe it."""
    serve = options.get("serve")
    if number is not None and isinstance(serve, Mapping):  # actors may share a disk
        folder = f"{serve.get('log_dir', 'runs/vllm')}/actor-{number}"
        options = {**options, "serve": {**serve, "log_dir": folder}}
    return create_provider(name, options, base_dir, adapter=adapter)


def check_installed() -> None:
    """Check that Ray is installed; raises ConfigError."""
    if find_spec("ray") is None:
        raise ConfigError("Ray is not installed; run: pip install 'bestarm-agent[ray]'")


def connect(address: str) -> bool:
    """Connect this process to a cluster; blocks for seconds.

    Args:
        address: "auto": the cluster that RAY_ADDRESS names, or that runs on this machine. "local":
            one that is started on this machine, and ends with ``ray.shutdown``. Or host and port.

    Returns:
        True if the caller has to leave it by ``ray.shutdown``; False if the process was in one
        already, whichever that is: it can be in one at a time.

    Raises:
        ConfigError: Ray is not installed, or there is no cluster at the address.
    """
    check_installed()
    import ray
    from ray._private import worker

    if ray.is_initialized():
        return False
    try:
        _probe(address)
        ray.init(
            address,
            include_dashboard=False if address == _LOCAL else None,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
        )
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ConfigError(
            f"there is no Ray cluster at the address `{address}`: {reason}. Start one (ray start "
            "--head), name its address (HOST:6379, or RAY_ADDRESS), or take `local`"
        ) from None
    # else news of the cluster, such as the death of a worker, is printed to our standard output
    worker._worker_logs_enabled = False
    return True


def _probe(address: str) -> None:
    """Raise OSError or ValueError if nothing listens at an address; Ray would try for minutes."""
    from ray._private.services import canonicalize_bootstrap_address_or_die

    if address == _LOCAL or "://" in address:
        return
    host, _, port = canonicalize_bootstrap_address_or_die(address).rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), _PROBE_SECONDS).close()


class EngineActor:
    """Runs one provider; Ray makes it an actor, and a new one after its process has died.

    ``create`` builds the provider of the actor with a number.
    """

    def __init__(self, create: Callable[[int], Provider], number: int) -> None:
        self._create = create
        self._number = number
        self._provider: Provider | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> str:
        """Start the provider and return the machine's name; raises ConfigError."""
        await self._started()
        return gethostname()

    async def answer(self, request: Request) -> Reply | ProviderError:
        """Return the reply or the failure; an exception of any other type might not travel."""
        provider = await self._started()
        try:
            return await provider.generate(request)
        except ProviderError as error:
            return error
        except Exception as error:
            reason = f"{type(error).__name__}: {masked(str(error))}"
            return failure(FailureKind.INTERNAL, f"provider {provider.name} raised {reason}")

    async def _started(self) -> Provider:
        # After the actor's process has died, Ray makes a new one, and nothing calls ``start``
        # before the next ``answer``: whichever comes first starts the provider, once.
        async with self._starting:
            if self._provider is None:
                self._provider = await self._create(self._number).__aenter__()
        return self._provider


class Replica:
    """An actor with its load and health.

    Ray starts it, and again after its process or machine has died, on another machine if need be.
    """

    def __init__(
        self,
        number: int,
        provider: str,  # its name, for messages
        handle: Any,  # noqa: ANN401 - Ray's handle of an ``EngineActor``
        clock: Callable[[], float],  # seconds since some fixed moment
    ) -> None:
        self.in_flight = 0
        self.is_up = False
        self.broken: str | None = None  # why it will never be up
        self.handle = handle
        self._number = number
        self._provider = provider
        self._clock = clock
        self._host: str | None = None  # where it runs, or ran last
        self._went_down = asyncio.Event()
        self._n_lost = 1  # calls that it was answering when it died last

    @property
    def status(self) -> EndpointStatus:
        """Its state, for people."""
        where = f" on {self._host}" if self._host else ""
        state = None if self.is_up else FailureKind.UNREACHABLE
        return EndpointStatus(f"actor {self._number}{where}", self.in_flight, state)

    async def watch(self, changed: asyncio.Event) -> None:
        """Wait until it is up, whenever it is not, and say so; return once it is broken."""
        from ray.exceptions import RayError

        # Two states, up and down. Going down is seen by a call that was lost (``_lost``), and
        # coming up by this one call of ``start``, which Ray repeats until the actor has been made
        # again: so nobody polls.
        start = self.handle.start.options(max_task_retries=-1)  # waits while Ray restarts it
        while self.broken is None:
            self._went_down.clear()
            try:
                self._host = await start.remote()
                self.is_up = True
            except RayError as error:
                self.broken = _last_line(error)
            # Also if it is broken: those who wait for any actor must see that there is one less to
            # wait for.
            changed.set()
            if self.is_up:
                await self._went_down.wait()

    async def answer(self, request: Request, bound: Callable[[], Spend]) -> Reply:
        """Answer a request that costs at most what ``bound`` returns; raises ProviderError."""
        from ray.exceptions import RayActorError

        began = self._clock()
        self.in_flight += 1
        try:
            answer: Reply | ProviderError = await self.handle.answer.remote(request)
        except RayActorError as error:
            raise self._lost(bound(), self._clock() - began, error) from None
        except Exception as error:
            reason = f"{self._provider}: {self.status.address} cannot answer: {_last_line(error)}"
            raise failure(FailureKind.INTERNAL, reason) from error
        finally:
            self.in_flight -= 1
        if isinstance(answer, ProviderError):
            raise answer
        # so that usage and seconds can be summed by actor
        return replace(answer, sent={**answer.sent, "actor": self._number, "host": self._host})

    def _lost(self, bound: Spend, seconds: float, error: Exception) -> BilledError:
        """Return the error of a call whose actor died ``seconds`` after it had come.

        All its calls share the time, since nobody can tell what each took, at the price in the
        bound and no more than it.
        """
        if self.is_up:
            # The first call that is lost counts all that are lost with it, itself included; the
            # others find the actor down and use that number.
            self.is_up, self._n_lost = False, self.in_flight
            self._went_down.set()
        charged = min(seconds / self._n_lost, bound.gpu_seconds)
        part = charged / bound.gpu_seconds if bound.gpu_seconds else 0.0
        spend = Spend(calls=1, usd_nanos=math.ceil(bound.usd_nanos * part), gpu_seconds=charged)
        lost = failure(
            FailureKind.SERVER,
            f"{self._provider}: {self.status.address} died while it answered: "
            f"{_last_line(error)}; it is started again",
        )
        return BilledError(lost, spend)


def _last_line(error: Exception) -> str:
    """Return the cause of an error, which Ray writes below the actor's traceback."""
    cause = getattr(error, "cause", None)
    lines = str(cause if isinstance(cause, Exception) else error).strip().splitlines()
    return " ".join(lines[-1].split()).rstrip(".") if lines else type(error).__name__
