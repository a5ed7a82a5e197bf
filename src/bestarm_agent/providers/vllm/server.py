"""One model's vLLM servers: started, put to sleep, woken and stopped together."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.redaction import is_secret_variable
from bestarm_agent.errors import FailureKind
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.providers.base import EndpointStatus
from bestarm_agent.providers.child_process import (
    ChildProcess,
    environment,
    find_program,
    hidden_from,
    shown_tail,
)
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.local import LocalModel, SharedTime, averaged, device_variables
from bestarm_agent.providers.vllm.options import ServeOptions

_SUPERVISOR = Path(__file__).with_name("process_supervisor.py")
_TAIL_LINES = 12
_FIRST_WAIT_SECONDS = 0.05
_MAX_WAIT_SECONDS = 1.0
_PROBE_SECONDS = 5.0
_ADDRESS_TAKEN = "address already in use"
_MAX_STARTS = 3
_MAX_RESTARTS = 2
_EXIT_SECONDS = 1.0  # a connection breaks before the process is gone

_open = build_opener(ProxyHandler({})).open  # a proxy has no business on this machine


class ServerError(Exception):
    """The server could not be started, or refused a request."""


class ServerProcess:
    """A server on this machine, run under ``process_supervisor``, which ends it when we end."""

    def __init__(
        self,
        serve: ServeOptions,
        model: str,  # as ``serve`` names it
        devices: Sequence[int],  # that it is shown alone; empty: all that we see
        base_dir: Path,  # the study's folder
        variables: Mapping[str, str],  # of all servers
        *,
        number: int,  # among the servers of the model, from 1
    ) -> None:
        log = f"{model.replace('/', '--')}{f'-{number}' if number > 1 else ''}.log"
        self._serve = serve
        self._model = model
        self._devices = devices
        self._base_dir = base_dir
        self._program = find_program(serve.program(), base_dir, variables)
        self._variables = {**variables, **(device_variables(devices) if devices else {})}
        self._hidden = hidden_from(serve.pass_env, serve.env, base_dir)
        self._log = base_dir / serve.log_dir / log
        self._supervisor: ChildProcess | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def is_running(self) -> bool:
        """True if it was started and has not ended."""
        return self._supervisor is not None and self._supervisor.exit_code is None

    async def has_ended(self, within: float) -> bool:
        """Return True if it has ended, or does so within some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                if self._supervisor is not None:
                    await self._supervisor.wait()
        return not self.is_running

    async def start(self, *, again: bool = False) -> None:
        """Start it and wait until it is ready; raises ServerError with the end of its log.

        ``again``: at the address that it had, which others know.
        """
        for n_left in reversed(range(1 if again else _MAX_STARTS)):
            if not again:
                self._port = _free_port()
            try:
                await self._start()
                return
            except BaseException as error:
                await self.stop()
                taken = isinstance(error, ServerError) and _ADDRESS_TAKEN in str(error).lower()
                if not (taken and n_left):
                    raise  # else another process took the port before the server did

    async def stop(self) -> None:
        """End it with all its children, and wait for that."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        supervisor.close_input()
        await supervisor.wait()
        await supervisor.end()

    async def post(self, path: str, seconds: float) -> None:
        """Send a request; raises ServerError if it fails or takes too long."""
        status, text = await asyncio.to_thread(_request, self.url + path, seconds)
        if status != 200:
            said = shown_tail(text.encode(), self._hidden)
            raise ServerError(f"POST {path.partition('?')[0]}: {status or 'no answer'} {said}")

    def ended(self) -> str:
        """Return the reason of its end, with the end of its log; free of secrets."""
        code = self._supervisor.exit_code if self._supervisor is not None else None
        how = "does not run" if code is None else f"ended with exit code {code}"
        return f"the server {how}; {self._log_shown()}"

    async def _start(self) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        serve = self._serve
        supervisor = [sys.executable, "-I", str(_SUPERVISOR), str(serve.stop_seconds)]
        argv = serve.arguments(self._model, self._base_dir, self._port, self._devices)
        self._supervisor = await ChildProcess.start(
            [*supervisor, self._program, *argv],
            folder=self._log.parent,  # what lies next to a study must not be imported
            variables=self._variables,
            hidden=self._hidden,
            log=self._log,
        )
        try:
            async with asyncio.timeout(serve.start_seconds):
                await self._ready(self._supervisor)
        except TimeoutError:
            raise ServerError(
                f"the server was not ready after {serve.start_seconds:g} s; {self._log_shown()}"
            ) from None

    async def _ready(self, supervisor: ChildProcess) -> None:
        wait = _FIRST_WAIT_SECONDS
        while True:
            if supervisor.exit_code is not None:
                raise ServerError(self.ended())
            status, _ = await asyncio.to_thread(_request, f"{self.url}/health", _PROBE_SECONDS)
            if status == 200:
                return
            await asyncio.sleep(wait)
            wait = min(2 * wait, _MAX_WAIT_SECONDS)

    def _log_shown(self) -> str:
        tail = "" if self._supervisor is None else self._supervisor.tail(_TAIL_LINES)
        return f"its log {self._log.name} ends with: {tail or '(nothing)'}"


def server_environment(passed: Sequence[str], given: Mapping[str, str]) -> dict[str, str]:
    """Return a server's variables: those of all programs, and the settings of its libraries."""
    prefixes = ("CUDA", "HF_", "HIP", "NCCL", "NVIDIA", "OMP_", "ROCR", "TORCH", "VLLM_", "XDG_")
    library = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(prefixes) and not is_secret_variable(name)
    }
    return {**library, **environment(passed, given)}


class VllmServers(LocalModel):
    """Equal servers of one model, which hold devices while they are awake.

    They are started, put to sleep and stopped together. One that ends by itself while others answer
    is started again at its address; the others go on meanwhile.
    """

    def __init__(
        self,
        name: str,
        serve: ServeOptions,
        processes: Sequence[ServerProcess],
        protocol: ApiProvider,  # knows what may be sent; its like at their addresses is the client
        clock: Callable[[], float],  # seconds since some fixed moment
    ) -> None:
        super().__init__(name)
        self.n_devices = serve.gpus_of(name) * len(processes)  # that they hold together
        self.time = SharedTime(clock, serve.max_gpu_seconds / self.n_devices)
        self._processes = tuple(processes)
        self._protocol = protocol
        self._clock = clock
        self._sleep_seconds = serve.sleep_seconds if serve.sleep else None
        self._client: ApiProvider | None = None
        self._is_awake = False
        self._n_exits = 0
        self._reviving: dict[ServerProcess, asyncio.Task[None]] = {}
        self._broken: str | None = None

    @property
    def client(self) -> ApiProvider:
        """Their client; raises RuntimeError if they were not started."""
        if self._client is None:
            raise RuntimeError(f"the server of {self.name} has no client")
        return self._client

    @property
    def is_loaded(self) -> bool:
        """True if they are awake, and at least one runs."""
        return self._is_awake and any(process.is_running for process in self._processes)

    @property
    def endpoints(self) -> Sequence[EndpointStatus]:
        """The state of every server, if there are several and they were started."""
        return () if self._client is None else self._client.endpoints

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
        self.load_seconds = averaged(self.load_seconds, self._clock() - start)

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
        ended = [process for process in self._processes if not process.is_running]
        if not ended:
            return None
        why = ended[0].ended()
        for process in ended:
            if self._is_awake and process not in self._reviving:
                self._n_exits += 1  # the first to notice counts it
                if not self.is_loaded:
                    await self.close()
                elif self._n_exits <= _MAX_RESTARTS:
                    self._reviving[process] = asyncio.create_task(self._revive(process))
        return why

    async def _revive(self, process: ServerProcess) -> None:
        try:
            await process.stop()
            await process.start(again=True)
        except ServerError:
            self._n_exits = _MAX_RESTARTS + 1  # the others go on without it
        finally:
            del self._reviving[process]

    async def _start(self) -> None:
        await self._stop()
        await together(process.start() for process in self._processes)
        self._client = self._protocol.at([f"{process.url}/v1" for process in self._processes])
        await self._client.__aenter__()

    async def _stop(self) -> None:
        if reviving := list(self._reviving.values()):
            for task in reviving:
                task.cancel()
            await asyncio.wait(reviving)
        client, self._client = self._client, None
        if client is not None:
            await client.__aexit__(None, None, None)
        await together(process.stop() for process in self._processes)

    async def _post_succeeds(self, path: str) -> bool:
        seconds = self._sleep_seconds
        if seconds is None or not all(process.is_running for process in self._processes):
            return False
        try:
            await together(process.post(path, seconds) for process in self._processes)
        except ServerError:
            return False  # what cannot sleep or wake in time is stopped, and started again
        return True

    def _cannot_start(self, reason: str) -> Exception:
        return failure(
            FailureKind.MODEL_NOT_FOUND,
            f"no server for {self.name}: {reason}; correct `serve`, or take the model out of the "
            "study",
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _request(url: str, seconds: float) -> tuple[int, str]:
    """Return status and text of an answer; status 0 if none came. GET for /health, else POST."""
    is_probe = url.endswith("/health")
    data = None if is_probe else b"{}"
    request = Request(url, data=data, headers={"Content-Type": "application/json"})
    try:
        with _open(request, timeout=seconds) as response:
            return response.status, ""
    except HTTPError as error:
        return error.code, error.read(500).decode("utf-8", errors="replace")
    except (OSError, ValueError) as error:
        return 0, str(error)
