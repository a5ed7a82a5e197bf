"""Models spread over worker processes, one for each device."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import IO

from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.redaction import masked
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.devices import Device, device_variables
from bestarm_agent.providers.failures import BilledError, failure
from bestarm_agent.providers.hf.batch_queue import Call
from bestarm_agent.providers.hf.frames import Setup, Times, frame, read_frame
from bestarm_agent.providers.hf.options import HfOptions
from bestarm_agent.providers.model_memory import Average, available_cores
from bestarm_agent.providers.placement import Demand, Placement, PlacementError, place

_PROGRAM = ("-m", "bestarm_agent.providers.hf.worker_process")
_SOURCES = Path(__file__).parents[3]  # the folder that holds the package
_MAX_STARTS = 3
_MAX_THREADS = 4  # small batches of small models gain nothing from more
_TAIL_BYTES = 4000


class DeviceWorker:
    """A worker process, started by its first call and again after it died, at most twice."""

    def __init__(self, device: Device, setup: Setup, variables: Mapping[str, str]) -> None:
        self.device = device
        self._setup = setup
        self._variables = variables
        self._numbers = count()
        self._calls: dict[int, asyncio.Future[tuple[Reply, Times]]] = {}
        self._starting = asyncio.Lock()
        self._n_starts = 0
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def n_calls(self) -> int:
        """Number of calls under way."""
        return len(self._calls)

    async def submit(self, call: Call) -> tuple[Reply, Times]:
        """Answer one call; raises ProviderError, SERVER if the process dies meanwhile."""
        number = next(self._numbers)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[Reply, Times]] = loop.create_future()
        self._calls[number] = answer
        try:
            stdin = await self._started()
            request = replace(call.request, params=dict(call.request.params), inputs={})
            stdin.write(frame((number, request)))
            return await answer
        except asyncio.CancelledError:
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.write(frame((number, None)))
            raise
        finally:
            del self._calls[number]

    async def close(self) -> None:
        """End the process, and wait for it."""
        process, reading = self._process, self._reading
        if process is not None and process.stdin is not None:
            process.stdin.close()
        if reading is not None:
            await asyncio.wait([reading])

    async def _started(self) -> asyncio.StreamWriter:
        async with self._starting:
            if self._process is None:
                if self._n_starts == _MAX_STARTS:
                    reason = f"{self._shown} died {_MAX_STARTS} times"
                    raise failure(FailureKind.MODEL_NOT_FOUND, f"{reason}; see its last failure")
                self._n_starts += 1
                await self._start()
        if self._process is None or self._process.stdin is None:
            raise failure(FailureKind.SERVER, f"{self._shown} died when it was started")
        return self._process.stdin

    async def _start(self) -> None:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 # closed when the process has ended
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, *_PROGRAM),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=dict(self._variables),
            start_new_session=True,  # an interruption from the keyboard is for us: calls may end
        )
        if self._process.stdin is not None:
            self._process.stdin.write(frame(self._setup))
        self._reading = asyncio.create_task(self._read(self._process, errors))

    async def _read(self, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        if process.stdout is None:
            raise RuntimeError("the worker has no output")
        try:
            while True:
                number, result, times = await read_frame(process.stdout)
                answer = self._calls.get(number)
                if answer is None or answer.done():
                    continue
                if isinstance(result, ProviderError):
                    answer.set_exception(result)
                else:
                    answer.set_result((result, times))
        except asyncio.IncompleteReadError:
            code = await process.wait()
            self._process = None
            self._fail(f"{self._shown} ended with exit code {code}; {_tail(errors)}")
        finally:
            errors.close()

    def _fail(self, reason: str) -> None:
        for answer in self._calls.values():
            if not answer.done():
                died = failure(FailureKind.SERVER, reason)
                answer.set_exception(BilledError(died, Spend(calls=1)))

    @property
    def _shown(self) -> str:
        return f"the worker of device {self.device.number}"


class DeviceWorkers:
    """The workers of all devices, and which models each may run."""

    def __init__(
        self,
        devices: Sequence[Device],  # with the memory for weights of each
        setup: Setup,  # of every worker
        sizes: Callable[[], Mapping[str, int]],  # returns the bytes of all models found so far
    ) -> None:
        self.devices = tuple(devices)
        self._setup = setup
        self._sizes = sizes
        self._workers: dict[Device, DeviceWorker] = {}
        self._placement: Placement | None = None

    @property
    def placement(self) -> Placement:
        """The devices of all models found so far."""
        sizes = self._sizes()
        if self._placement is None or self._placement.servers.keys() != sizes.keys():
            self._placement = spread(sizes, self.devices)
        return self._placement

    def of(self, model: str) -> list[DeviceWorker]:
        """Return the workers that may run a model."""
        return [self._worker(device) for (device,) in self.placement.servers[model]]

    async def close(self) -> None:
        """End all processes."""
        workers, self._workers = self._workers, {}
        await together(worker.close() for worker in workers.values())

    def _worker(self, device: Device) -> DeviceWorker:
        if device not in self._workers:
            options = {**self._setup.options, "memory_gb": device.n_bytes / 1e9}
            is_cpu = options["device"] == "cpu"
            shown = {"CUDA_VISIBLE_DEVICES": ""} if is_cpu else device_variables([device])
            if is_cpu and options["threads"] is None:
                cores = max(1, available_cores() // len(self.devices))
                options["threads"] = min(_MAX_THREADS, cores)
            setup = replace(self._setup, options=options)
            self._workers[device] = DeviceWorker(device, setup, _variables(shown))
        return self._workers[device]


class SpreadModel:
    """A model in the workers of its devices; a call goes to the one with the fewest calls."""

    def __init__(self, name: str, workers: DeviceWorkers) -> None:
        self.name = name
        self.load_seconds = Average()
        self.call_seconds = Average()
        self._workers = workers
        self._n_loads: dict[DeviceWorker, int] = {}
        self._n_waiting = 0

    @property
    def n_loads(self) -> int:
        """Number of times that it was loaded, in all workers."""
        return sum(self._n_loads.values())

    @property
    def is_loading(self) -> bool:
        """True if calls wait, and none was ever answered."""
        return self._n_waiting > 0 and not self._n_loads

    async def submit(self, call: Call) -> Reply:
        """Answer one call; raises ProviderError."""
        worker = min(self._workers.of(self.name), key=lambda one: one.n_calls)
        self._n_waiting += 1
        try:
            reply, times = await worker.submit(call)
        finally:
            self._n_waiting -= 1
        self._n_loads[worker] = times.n_loads
        self.load_seconds.value = times.load_seconds
        self.call_seconds.value = times.call_seconds
        return reply

    async def close(self) -> None:
        """Do nothing: its workers are closed by their owner."""


def spread(sizes: Mapping[str, int], devices: Sequence[Device]) -> Placement:
    """Place models of some bytes of weights, each on as many devices as all have room for."""
    for replicas in range(len(devices), 1, -1):
        demands = [Demand(model, 1, replicas, size) for model, size in sizes.items()]
        try:
            placement = place(demands, devices)
        except PlacementError:
            continue  # not all devices can hold it
        if not placement.turns:
            return placement
    return place([Demand(model, n_bytes=size) for model, size in sizes.items()], devices)


def worker_options(options: HfOptions, kind: str) -> dict[str, Json]:
    """Return the options of a worker that has one device of a kind, "cpu" or "cuda"."""
    return {**options.model_dump(mode="json", exclude={"devices"}), "device": kind}


def _variables(shown: Mapping[str, str]) -> dict[str, str]:
    """Return our own variables with those that show a worker its device."""
    ours = str(_SOURCES)
    paths = filter(None, (ours, os.environ.get("PYTHONPATH")))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **shown}


def _tail(errors: IO[bytes]) -> str:
    errors.seek(0, os.SEEK_END)
    errors.seek(max(0, errors.tell() - _TAIL_BYTES))
    lines = masked(errors.read().decode("utf-8", errors="replace"), {}).split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "(nothing)")
    return f"it last wrote: {last[:300]}"
