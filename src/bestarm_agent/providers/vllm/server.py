"""One model's vLLM server: started, put to sleep, woken and stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlencode

from bestarm_agent.errors import FailureKind
from bestarm_agent.providers.base import Provider
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.gpu_time import SharedTime
from bestarm_agent.providers.model_memory import Average, ModelMemory, UseCount
from bestarm_agent.providers.vllm.server_process import ServerError, ServerProcess

_LORA_SECONDS = 120.0
_MAX_RESTARTS = 2
_EXIT_SECONDS = 1.0  # a connection breaks before the process is gone


class VllmServer:
    """A server that holds the accelerators while it is awake; a ``LoadableModel``."""

    n_bytes = 1  # servers are counted

    def __init__(
        self,
        name: str,
        process: ServerProcess,
        client: Callable[[str], Provider],  # opens a client of the server, given its address
        *,
        adapters: Mapping[str, Path],  # folders of its adapters, by name
        time: SharedTime,  # charges its seconds to calls
        clock: Callable[[], float],  # seconds since some fixed moment
        sleep_seconds: float | None,  # to go to sleep or wake; None: it is stopped instead
    ) -> None:
        self.name = name
        self.time = time
        self.n_loads = 0
        self.load_seconds = Average()
        self.call_seconds = Average()
        self._process = process
        self._client = client
        self._adapters = adapters
        self._clock = clock
        self._sleep_seconds = sleep_seconds
        self._provider: Provider | None = None
        self._is_awake = False
        self._users = UseCount()
        self._n_exits = 0
        self._broken: str | None = None

    @property
    def is_loaded(self) -> bool:
        """True if it is awake."""
        return self._is_awake and self._process.is_running

    @property
    def is_idle(self) -> bool:
        """True if no call waits for it."""
        return self._users.n == 0

    @asynccontextmanager
    async def hold(self, memory: ModelMemory) -> AsyncIterator[Provider]:
        """Keep it awake, and yield its client; raises ProviderError."""
        async with self._users.join(self, memory):
            if self._provider is None:
                raise RuntimeError(f"the server of {self.name} has no client")
            yield self._provider

    async def load(self) -> None:
        """Start or wake it; raises ProviderError, MODEL_NOT_FOUND."""
        if self._n_exits > _MAX_RESTARTS:
            self._broken = f"it died {self._n_exits} times"
        if self._broken is not None:  # those who waited with the first need not try it again
            raise self._cannot_start(self._broken)
        start = self._clock()
        self.time.begin()
        try:
            if not await self._wake():
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
        """Put it to sleep, or stop it."""
        self._is_awake = False
        if not await self._sleep():
            await self._stop()
        self.time.end()

    async def close(self) -> None:
        """Stop it."""
        self._is_awake = False
        await self._stop()
        self.time.end()

    async def exit_reason(self) -> str | None:
        """Return why it ended by itself; None if it did not."""
        if not await self._process.has_ended(_EXIT_SECONDS):
            return None
        why = self._process.ended()
        if self._is_awake:  # the first to notice counts it
            self._n_exits += 1
            await self.close()
        return why

    async def _start(self) -> None:
        await self._stop()
        await self._process.start()
        for name, path in self._adapters.items():
            body = {"lora_name": name, "lora_path": str(path)}
            await self._process.post("/v1/load_lora_adapter", body, _LORA_SECONDS)
        self._provider = self._client(self._process.url)
        await self._provider.__aenter__()

    async def _stop(self) -> None:
        provider, self._provider = self._provider, None
        if provider is not None:
            await provider.__aexit__(None, None, None)
        await self._process.stop()

    async def _wake(self) -> bool:
        if not self._process.is_running:
            return False
        return await self._post_succeeds("/wake_up")

    async def _sleep(self) -> bool:
        if not self._process.is_running:
            return False
        return await self._post_succeeds("/sleep?" + urlencode({"level": 1}))

    async def _post_succeeds(self, path: str) -> bool:
        if self._sleep_seconds is None:
            return False
        try:
            await self._process.post(path, None, self._sleep_seconds)
        except ServerError:
            return False  # what cannot sleep or wake in time is stopped, and started again
        return True

    def _cannot_start(self, reason: str) -> Exception:
        return failure(
            FailureKind.MODEL_NOT_FOUND,
            f"no server for {self.name}: {reason}; correct `serve`, or take the model out of the "
            "study",
        )
