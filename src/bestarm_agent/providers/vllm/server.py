"""One model's vLLM servers: started, put to sleep, woken and stopped together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from bestarm_agent.domain.concurrent import together
from bestarm_agent.errors import FailureKind
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.providers.base import EndpointStatus
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.gpu_time import SharedTime
from bestarm_agent.providers.model_memory import Average, ModelMemory, UseCount
from bestarm_agent.providers.vllm.server_process import ServerError, ServerProcess

_LORA_SECONDS = 120.0
_MAX_RESTARTS = 2
_EXIT_SECONDS = 1.0  # a connection breaks before the process is gone


@dataclass(frozen=True, slots=True)
class Replica:
    """One of a model's servers.

    Servers that share a device start one after the other: each measures how much memory is free.
    """

    process: ServerProcess
    starting: Sequence[asyncio.Lock] = ()  # one for each of its devices, in the same order for all


class VllmServers:
    """Equal servers that hold devices while they are awake; together a ``LoadableModel``.

    They are started, put to sleep and stopped together. One that ends by itself while others answer
    is started again at its address; the others go on meanwhile.
    """

    def __init__(
        self,
        name: str,
        replicas: Sequence[Replica],
        client: Callable[[Sequence[str]], ApiProvider],  # makes a client, given their addresses
        *,
        adapters: Mapping[str, Path],  # folders of the adapters, by name
        held: float,  # devices that they hold together
        time: SharedTime,  # charges the seconds to calls
        clock: Callable[[], float],  # seconds since some fixed moment
        sleep_seconds: float | None,  # to go to sleep or wake; None: it is stopped instead
    ) -> None:
        self.name = name
        self.held = held
        self.time = time
        self.n_loads = 0
        self.load_seconds = Average()
        self.call_seconds = Average()
        self._replicas = tuple(replicas)
        self._client = client
        self._adapters = adapters
        self._clock = clock
        self._sleep_seconds = sleep_seconds
        self._provider: ApiProvider | None = None
        self._is_awake = False
        self._users = UseCount()
        self._n_exits = 0
        self._reviving: dict[ServerProcess, asyncio.Task[None]] = {}
        self._broken: str | None = None

    @property
    def is_loaded(self) -> bool:
        """True if they are awake, and at least one runs."""
        return self._is_awake and any(process.is_running for process in self._processes)

    @property
    def is_idle(self) -> bool:
        """True if no call waits for them."""
        return self._users.n == 0

    @property
    def endpoints(self) -> Sequence[EndpointStatus]:
        """The state of every server, if there are several and they were started."""
        return () if self._provider is None else self._provider.endpoints

    @asynccontextmanager
    async def hold(self, memory: ModelMemory) -> AsyncIterator[ApiProvider]:
        """Keep them awake, and yield their client; raises ProviderError."""
        async with self._users.join(self, memory):
            if self._provider is None:
                raise RuntimeError(f"the server of {self.name} has no client")
            yield self._provider

    async def load(self) -> None:
        """Start or wake them; raises ProviderError, MODEL_NOT_FOUND."""
        if self._n_exits > _MAX_RESTARTS:
            self._broken = f"it died {self._n_exits} times"
        if self._broken is not None:  # those who waited with the first need not try it again
            raise self._cannot_start(self._broken)
        start = self._clock()
        self.time.begin()
        try:
            if not await self._post_succeeds("/wake_up"):
                await self._start()
        except ServerError as error:
            await self.close()
            self._broken = str(error)
            raise self._cannot_start(self._broken) from error
        except BaseException:
            await self.close()
            raise
        self._is_awake = True
        self.n_loads += 1
        self.load_seconds.add(self._clock() - start)

    async def unload(self) -> None:
        """Put them to sleep, or stop them."""
        self._is_awake = False
        if not await self._post_succeeds("/sleep?" + urlencode({"level": 1})):
            await self._stop()
        self.time.end()

    async def close(self) -> None:
        """Stop them."""
        self._is_awake = False
        await self._stop()
        self.time.end()

    async def exit_reason(self) -> str | None:
        """Return why one of them ended by itself; None if none did."""
        await together(process.has_ended(_EXIT_SECONDS) for process in self._processes)
        ended = [replica for replica in self._replicas if not replica.process.is_running]
        if not ended:
            return None
        why = ended[0].process.ended()
        for replica in ended:
            if self._is_awake and replica.process not in self._reviving:
                self._n_exits += 1  # the first to notice counts it
                await self._replace(replica)
        return why

    async def _replace(self, replica: Replica) -> None:
        """Start a server again that ended, or give up those that are left none."""
        if not self.is_loaded:
            await self.close()
        elif self._n_exits <= _MAX_RESTARTS:
            self._reviving[replica.process] = asyncio.create_task(self._revive(replica))

    async def _revive(self, replica: Replica) -> None:
        try:
            await replica.process.stop()
            await self._start_one(replica, again=True)
        except ServerError:
            self._n_exits = _MAX_RESTARTS + 1  # the others go on without it
        finally:
            del self._reviving[replica.process]

    @property
    def _processes(self) -> list[ServerProcess]:
        return [replica.process for replica in self._replicas]

    async def _start(self) -> None:
        await self._stop()
        await together(self._start_one(replica) for replica in self._replicas)
        self._provider = self._client([process.url for process in self._processes])
        await self._provider.__aenter__()

    async def _start_one(self, replica: Replica, *, again: bool = False) -> None:
        async with AsyncExitStack() as stack:
            for lock in replica.starting:
                await stack.enter_async_context(lock)
            await replica.process.start(again=again)
        for name, path in self._adapters.items():
            body = {"lora_name": name, "lora_path": str(path)}
            await replica.process.post("/v1/load_lora_adapter", body, _LORA_SECONDS)

    async def _stop(self) -> None:
        if reviving := list(self._reviving.values()):
            for task in reviving:
                task.cancel()
            await asyncio.wait(reviving)
        provider, self._provider = self._provider, None
        if provider is not None:
            await provider.__aexit__(None, None, None)
        await together(process.stop() for process in self._processes)

    async def _post_succeeds(self, path: str) -> bool:
        seconds = self._sleep_seconds
        if seconds is None or not all(process.is_running for process in self._processes):
            return False
        try:
            await together(process.post(path, None, seconds) for process in self._processes)
        except ServerError:
            return False  # what cannot sleep or wake in time is stopped, and started again
        return True

    def _cannot_start(self, reason: str) -> Exception:
        return failure(
            FailureKind.MODEL_NOT_FOUND,
            f"no server for {self.name}: {reason}; correct `serve`, or take the model out of the "
            "study",
        )
