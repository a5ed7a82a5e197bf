"""One model's vLLM server: started, put to sleep, woken and stopped as the memory asks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlencode

from bestarm_agent.errors import FailureKind
from bestarm_agent.providers.base import Provider
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.residency import Average, Residency, Users
from bestarm_agent.providers.server_process import ServerError, ServerProcess
from bestarm_agent.providers.server_time import SharedTime

_LORA_SECONDS = 120.0
_MOST_RESTARTS = 2
_NOTICED_SECONDS = 1.0  # a connection breaks before the process is gone


class VllmServer:
    """A server that holds the accelerators while it is awake; a ``Resident``.

    Attributes:
        n_bytes: 1: servers are counted.
        n_loads: how often it was started or woken.
        load_seconds: how long that takes.
        call_seconds: accelerator seconds of a call.
        time: charges its seconds to calls.

    Args:
        name: the model's name.
        process: the server.
        client: opens a client of the server, given its address.
        adapters: folders of its adapters, by name.
        time: splits its seconds.
        clock: seconds since some fixed moment.
        sleep_seconds: longest time for going to sleep or waking; None: it is stopped instead.
    """

    n_bytes = 1

    def __init__(
        self,
        name: str,
        process: ServerProcess,
        client: Callable[[str], Provider],
        *,
        adapters: Mapping[str, Path],
        time: SharedTime,
        clock: Callable[[], float],
        sleep_seconds: float | None,
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
        self._users = Users()
        self._n_deaths = 0
        self._broken: str | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether it is awake."""
        return self._is_awake and self._process.is_running

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for it."""
        return self._users.n == 0

    @asynccontextmanager
    async def used(self, residency: Residency) -> AsyncIterator[Provider]:
        """Hold it awake, and lend its client.

        Raises:
            ProviderError: it cannot be started (MODEL_NOT_FOUND), or died during the call (SERVER).
        """
        async with self._users.join(self, residency):
            if self._provider is None:
                raise RuntimeError(f"the server of {self.name} has no client")
            yield self._provider

    async def load(self) -> None:
        """Start or wake it; raises ProviderError, MODEL_NOT_FOUND."""
        if self._n_deaths > _MOST_RESTARTS:
            self._broken = f"it died {self._n_deaths} times"
        if self._broken is not None:  # those who waited with the first need not try it again
            raise self._hopeless(self._broken)
        start = self._clock()
        self.time.begin()
        try:
            if not await self._wake():
                await self._start()
        except ServerError as error:
            await self.close()
            self._broken = str(error)
            raise self._hopeless(self._broken) from error
        except BaseException:
            await self.close()
            raise
        self._is_awake = True
        self.n_loads += 1
        self.load_seconds.add(self._clock() - start)

    async def unload(self) -> None:
        """Put it to sleep, or stop it."""
        self._is_awake = False
        if not await self._told_to_sleep():
            await self._stop()
        self.time.end()

    async def close(self) -> None:
        """Stop it."""
        self._is_awake = False
        await self._stop()
        self.time.end()

    async def death(self) -> str | None:
        """Why it ended by itself; None if it did not."""
        if not await self._process.has_ended(_NOTICED_SECONDS):
            return None
        why = self._process.ended()
        if self._is_awake:  # the first to notice counts it
            self._n_deaths += 1
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
        """Wake it; False if it does not sleep, or does not wake."""
        if not self._process.is_running:
            return False
        return await self._agrees("/wake_up")

    async def _told_to_sleep(self) -> bool:
        if not self._process.is_running:
            return False
        return await self._agrees("/sleep?" + urlencode({"level": 1}))

    async def _agrees(self, path: str) -> bool:
        if self._sleep_seconds is None:
            return False
        try:
            await self._process.post(path, None, self._sleep_seconds)
        except ServerError:
            return False  # what cannot sleep or wake in time is stopped, and started again
        return True

    def _hopeless(self, reason: str) -> Exception:
        return failure(
            FailureKind.MODEL_NOT_FOUND,
            f"no server for {self.name}: {reason}; correct `serve`, or take the model out of the "
            "study",
        )
