"""A model's vLLM server: started, put to sleep, woken and stopped."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.providers.child_process import ChildProcess, find_program, hidden_from
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.local import LocalModel, SharedTime, averaged
from bestarm_agent.providers.vllm.devices import Devices
from bestarm_agent.providers.vllm.options import ServeOptions

_SUPERVISOR = Path(__file__).with_name("process_supervisor.py")
_TAIL_LINES = 12
_FIRST_WAIT_SECONDS = 0.05
_MAX_WAIT_SECONDS = 1.0
_PROBE_SECONDS = 5.0
_SLEEP_SECONDS = 60.0  # to go to sleep, or to wake
_STOP_SECONDS = 20.0  # between SIGTERM and kill
_EXIT_SECONDS = 1.0  # a connection breaks before the process is gone
_ADDRESS_TAKEN = "address already in use"
_MAX_STARTS = 3
_MAX_RESTARTS = 2
_OK = 200

_open = build_opener(ProxyHandler({})).open  # a proxy has no business on this machine


class _NotReady(Exception):
    """The server ended before it was ready, or was not ready in time."""


# The states of a server, which ``ModelMemory`` moves between (``load``, ``unload``):
#
#   stopped --load--> starting --/health answers--> awake --unload--> asleep --load--> awake
#
# Without ``sleep``, or where the server does not answer /sleep or /wake_up in time, unloading stops
# it and loading starts it again. It may die in any state: ``is_running`` looks at the process, so a
# dead one counts as stopped. Two deaths are forgiven, at the third the model is broken for good, as
# it is at once if a start fails.
class VllmServer(LocalModel):
    """A model's server on this machine, which holds devices while it is awake.

    It runs under ``process_supervisor``, which ends it when we end.
    """

    def __init__(
        self,
        name: str,  # of the model, as ``serve`` has it
        serve: ServeOptions,
        base_dir: Path,  # the study's folder
        variables: Mapping[str, str],  # of all servers
        devices: Devices,  # which it shares with the others
        protocol: ApiProvider,  # knows what may be sent; its like at the address is the client
        clock: Callable[[], float],  # seconds since some fixed moment
    ) -> None:
        super().__init__(name)
        self.n_devices = serve.gpus_of(name)
        self.time = SharedTime(clock, serve.max_gpu_seconds / self.n_devices)
        self._serve = serve
        self._base_dir = base_dir
        self._program = find_program(serve.program(), base_dir, variables)
        self._variables = variables
        self._devices = devices
        self._hidden = hidden_from(serve.pass_env, serve.env, base_dir)
        self._log = base_dir / serve.log_dir / f"{name.replace('/', '--')}.log"
        self._protocol = protocol
        self._clock = clock
        self._supervisor: ChildProcess | None = None
        self._client: ApiProvider | None = None
        self._url = ""  # its address, without a slash at the end
        self._is_awake = False
        self._n_exits = 0
        self._broken: str | None = None

    @property
    def client(self) -> ApiProvider:
        """Its client; raises RuntimeError if it was not started."""
        if self._client is None:
            raise RuntimeError(f"the server of {self.name} has no client")
        return self._client

    @property
    def is_running(self) -> bool:
        """True if it was started and has not ended; it may be asleep."""
        return self._supervisor is not None and self._supervisor.exit_code is None

    @property
    def is_loaded(self) -> bool:
        """True if it runs and is awake."""
        return self._is_awake and self.is_running

    async def load(self) -> None:
        """Start or wake it; raises ProviderError, MODEL_NOT_FOUND."""
        if self._n_exits > _MAX_RESTARTS:
            self._broken = f"it died {self._n_exits} times"
        if self._broken is not None:  # those who waited with the first need not try it again
            raise self._cannot_start(self._broken)
        start = self._clock()
        # Before it is woken or started: from here on it takes the devices, and somebody pays for
        # them.
        self.time.begin()
        own = self._devices.take(self.name)
        try:
            if not await self._ask_to("/wake_up"):
                await self._start(own)
        except _NotReady as error:
            await self.close()
            self._broken = str(error)
            raise self._cannot_start(self._broken) from error
        # Cancelled in the middle of a start: a server that nobody waits for would hold the devices.
        except BaseException:
            await self.close()
            raise
        self._is_awake = True
        self.load_seconds = averaged(self.load_seconds, self._clock() - start)

    async def unload(self) -> None:
        """Put it to sleep, or stop it."""
        self._is_awake = False
        if not await self._ask_to("/sleep?level=1"):
            await self._stop()
            self._devices.leave(self.name)
        self._devices.sleep(self.name)
        self.time.end()

    async def close(self) -> None:
        """Stop it with all its children, and wait for that."""
        self._is_awake = False
        await self._stop()
        self._devices.leave(self.name)
        self.time.end()

    async def exit_reason(self) -> str | None:
        """Return why it ended by itself, with the end of its log; None if it did not."""
        # The call that failed may be the first sign of the death, some moments before the process
        # has ended.
        with suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_SECONDS):
                if self._supervisor is not None:
                    await self._supervisor.wait()
        if self.is_running:
            return None
        why = self._ended()
        if self._is_awake:
            self._n_exits += 1  # the first to notice counts it
            await self.close()
        return why

    async def _start(self, devices: Sequence[str]) -> None:
        """Start it at a free port and wait until it is ready; raises _NotReady."""
        # A free port is found by binding and closing one. Until the server binds it, seconds later,
        # another process may take it: then the next try takes another port.
        for n_left in reversed(range(_MAX_STARTS)):
            await self._stop()
            port = _free_port()
            self._url = f"http://127.0.0.1:{port}"
            try:
                await self._start_at(port, devices)
                break
            except _NotReady as error:
                if not n_left or _ADDRESS_TAKEN not in str(error).lower():
                    raise  # else another process took the port before the server did
        self._client = self._protocol.at(f"{self._url}/v1")
        await self._client.__aenter__()

    async def _start_at(self, port: int, devices: Sequence[str]) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        argv = self._serve.arguments(self.name, self._base_dir, port)
        # "-I": without the folder of the file and PYTHONPATH, from which a module could be imported
        # that is named as one of the standard library.
        seen = {"CUDA_VISIBLE_DEVICES": ",".join(devices)} if devices else {}
        supervisor = [sys.executable, "-I", str(_SUPERVISOR), str(_STOP_SECONDS)]
        self._supervisor = await ChildProcess.start(
            [*supervisor, self._program, *argv],
            folder=self._log.parent,  # what lies next to a study must not be imported
            variables={**self._variables, **seen},
            hidden=self._hidden,
            log=self._log,
        )
        seconds, wait = self._serve.start_seconds, _FIRST_WAIT_SECONDS
        try:
            async with asyncio.timeout(seconds):
                while self.is_running:
                    if await asyncio.to_thread(_succeeds, f"{self._url}/health", _PROBE_SECONDS):
                        return
                    await asyncio.sleep(wait)
                    wait = min(2 * wait, _MAX_WAIT_SECONDS)
        except TimeoutError:
            raise _NotReady(
                f"the server was not ready after {seconds:g} s; {self._log_shown()}"
            ) from None
        raise _NotReady(self._ended())

    async def _stop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.__aexit__(None, None, None)
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            # The client's connections are closed before. Then the supervisor, whose input ends,
            # asks the server to end and waits for it; ``end`` kills what is left of the group, such
            # as workers of the server.
            supervisor.close_input()
            await supervisor.wait()
            await supervisor.end()

    async def _ask_to(self, path: str) -> bool:
        """Ask it to sleep or to wake; return False if it cannot, or not in time."""
        if not (self._serve.sleep and self.is_running):
            return False
        return await asyncio.to_thread(_succeeds, self._url + path, _SLEEP_SECONDS, b"{}")

    def _cannot_start(self, reason: str) -> ProviderError:
        return failure(
            FailureKind.MODEL_NOT_FOUND,
            f"no server for {self.name}: {reason}; correct `serve`, or take the model out of the "
            "study",
        )

    def _ended(self) -> str:
        code = self._supervisor.exit_code if self._supervisor is not None else None
        how = "does not run" if code is None else f"ended with exit code {code}"
        return f"the server {how}; {self._log_shown()}"

    def _log_shown(self) -> str:
        tail = "" if self._supervisor is None else self._supervisor.tail(_TAIL_LINES)
        return f"its log {self._log.name} ends with: {tail or '(nothing)'}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _succeeds(url: str, seconds: float, data: bytes | None = None) -> bool:
    """Return True if a request is answered in time with status 200: POST with data, else GET."""
    request = Request(url, data=data, headers={"Content-Type": "application/json"})
    try:
        with _open(request, timeout=seconds) as response:
            return bool(response.status == _OK)
    except (OSError, ValueError):
        return False
