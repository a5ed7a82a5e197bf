"""Runs models in this process with transformers: local folders, or models of the hub."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Self, TypeAlias

from bestarm_agent.config.yaml.documents import parse_options
from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.digest import Json, digest
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import ConfigError, FailureKind
from bestarm_agent.providers.base import Capabilities, Footprint
from bestarm_agent.providers.devices import Device
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.hf.batch_queue import Call
from bestarm_agent.providers.hf.continuous_engine import ContinuousEngine
from bestarm_agent.providers.hf.continuous_worker import ContinuousWorker
from bestarm_agent.providers.hf.device_choice import find_kind, find_worker_devices
from bestarm_agent.providers.hf.device_workers import (
    DeviceWorkers,
    SpreadModel,
    worker_options,
)
from bestarm_agent.providers.hf.frames import Setup, Times
from bestarm_agent.providers.hf.loading import (
    LoadSettings,
    check_installed,
    free_bytes,
    import_transformers,
    load_continuous,
    load_static,
)
from bestarm_agent.providers.hf.model_folder import ContentDigests, ModelFolder
from bestarm_agent.providers.hf.models import ModelFolders
from bestarm_agent.providers.hf.options import HfOptions, Sampling, read_sampling
from bestarm_agent.providers.hf.prompt_bounds import PromptBounds
from bestarm_agent.providers.hf.static_engine import StaticBatchEngine
from bestarm_agent.providers.hf.static_worker import StaticWorker
from bestarm_agent.providers.hf.worker import WorkerSettings
from bestarm_agent.providers.local_provider import LocalProvider
from bestarm_agent.providers.model_memory import ModelMemory, available_cores
from bestarm_agent.providers.placement import Placement

_PARAMS = frozenset(Sampling.model_fields)
_MAX_THREADS = 4  # small batches of small models gain nothing from more
_SAMPLER_VERSION = 1  # another number, other replies: old ones must not come from the cache


_Worker: TypeAlias = "StaticWorker | ContinuousWorker | SpreadModel"


class HfProvider(LocalProvider[HfOptions, "_Worker"]):
    """Answers with local models; one thread and one queue per model.

    Where there are several devices, each has a process that does the same, and models are spread
    over them: each onto all of them if they have room, else onto as many as all models have.

    ``request.model`` is a folder, relative to the study, or a model of the Hugging Face hub, taken
    from the local cache or downloaded at its first use.
    """

    options_type = HfOptions

    def __init__(
        self,
        name: str,
        options: HfOptions,
        base_dir: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        elsewhere: bool = False,  # the models are only described; other machines load them
    ) -> None:
        super().__init__(name, options, base_dir)
        self._elsewhere = elsewhere
        self._folders = ModelFolders(base_dir, options.dtype, options.memory_gb, self._free_bytes)
        self._digests = ContentDigests()
        self._bounds = PromptBounds()
        self._models: dict[str, _Worker] = {}
        self._creating = asyncio.Lock()
        self._settings = WorkerSettings(
            max_batch=options.max_batch,
            max_batch_tokens=options.max_batch_tokens,
            gather_seconds=options.gather_ms / 1000,
            max_gpu_seconds=options.max_gpu_seconds,
            price=self._price,
            clock=clock,
        )

    @classmethod
    def describe(cls, name: str, options: Mapping[str, Json], base_dir: Path) -> Self:
        """Build a provider of models that other machines load; asks nothing of this one's devices.

        Raises ConfigError.
        """
        parsed = parse_options(HfOptions, options, subject=f"provider `{name}`")
        return cls(name, parsed, base_dir, elsewhere=True)

    async def start(self) -> None:
        """Import the libraries, off the event loop; raises ConfigError if they are missing."""
        check_installed()
        if not self._workers.devices:
            await asyncio.to_thread(import_transformers)
        n_generating = max(1, available_cores() // (self.options.threads or 1))
        # the libraries' imports and allocators do not like two loads at once
        self._memory = ModelMemory(self.fits, n_generating, 1, self._pinned)
        self._creating = asyncio.Lock()  # a model is looked up, and downloaded, once

    async def close(self) -> None:
        """Stop generating, and wait for the threads."""
        self._memory = None
        workers = list(self._models.values())
        self._models.clear()
        await together(worker.close() for worker in (*workers, self._workers))

    def check(self, model: str) -> None:
        """Check that a model's folder is complete, and that the model fits into memory.

        A model that has still to be downloaded is checked after the download. Raises ConfigError.
        """
        check_installed()
        _ = self._workers  # raises where a device is not there
        self._folders.find(model)

    def capabilities(self, model: str) -> Capabilities:
        """Return a model's capabilities; raises ConfigError if it cannot be used."""
        folder = self._folders.find(model)
        return Capabilities(
            params=_PARAMS - {"seed"} if self._is_continuous else _PARAMS,
            chat=folder is None or folder.has_chat_template,
            seed=not self._is_continuous,
            priced=True,
            price_source=self._price_source,
            in_flight=2 * self.options.max_batch * (len(self._workers.devices) or 1),
            queued=True,
        )

    def fingerprint(self, model: str) -> str:
        """Return a digest of the model's files by content; downloads a model if necessary."""
        files = self._folders.fetch(model).digest_files()
        content: dict[str, Json] = {
            "files": {name: self._digests.of(path) for name, path in files.items()},
            "dtype": self.options.dtype,
            "sampler": _SAMPLER_VERSION,
        }
        if self._device != "cpu":
            content["device"] = self._device
        if self._is_continuous:
            content["batching"] = "continuous"
        return digest(content)

    def bound(self, request: Request) -> Spend:
        """Return the upper bound of one call; raises ConfigError.

        Tokens: as many as the prompt has bytes, or the context holds, plus ``max_tokens``. Worker
        seconds: ``max_gpu_seconds``, at which a batch is cut off.
        """
        n_prompt = self._bounds.of(request, self._folders.fetch(request.model))
        seconds = self.options.max_gpu_seconds
        return Spend(
            calls=1,
            tokens=n_prompt + read_sampling(request.params, request.model).max_tokens,
            usd_nanos=self._price(seconds),
            gpu_seconds=seconds,
        )

    def footprint(self, model: str) -> Footprint:
        """Return a model's average times so far."""
        return self._footprint(model)

    def fits(self, holders: Collection[str]) -> bool:
        """Return True if the weights of models fit into memory; 0 bytes until downloaded."""
        if self._workers.devices:
            placed = self._workers.placement
            return placed.fits([model for model in holders if model in placed.servers])
        return self._folders.fit(holders)

    @property
    def placement(self) -> Placement | None:
        """The accelerators of every model; None if this process loads them all."""
        is_placed = self._workers.devices and self._device != "cpu"
        return self._workers.placement if is_placed else None

    @property
    def loading(self) -> tuple[str, ...]:
        """Models that are being loaded; in worker processes, those that never answered."""
        waiting = [one for one in self._models.values() if isinstance(one, SpreadModel)]
        return (*super().loading, *(one.name for one in waiting if one.is_loading))

    def times(self, model: str) -> Times:
        """Return the measures of a model."""
        worker = self._models.get(model)
        if worker is None:
            return Times()
        return Times(worker.n_loads, worker.load_seconds.value, worker.call_seconds.value)

    def pin(self, model: str) -> None:
        """Unload a model only where the others cannot make room."""
        self._pinned.add(model)

    async def generate(self, request: Request) -> Reply:
        """Answer one request.

        Raises:
            ProviderError: the model cannot be loaded (MODEL_NOT_FOUND), does not understand the
                request (BAD_REQUEST), cannot hold the prompt (TOO_LONG) or is too slow (TIMEOUT).
        """
        try:
            sampling = read_sampling(request.params, request.model)
        except ConfigError as error:
            raise failure(FailureKind.BAD_REQUEST, str(error)) from None
        worker = self._models.get(request.model) or await self._create_worker(request.model)
        if request.messages and not self._folders.fetch(request.model).has_chat_template:
            raise failure(
                FailureKind.BAD_REQUEST,
                f"model {request.model} has no chat template and cannot take messages; give it a "
                "plain-text prompt, or put a chat_template.jinja into its folder",
            )
        return await worker.submit(Call(request, sampling))

    async def _create_worker(self, model: str) -> _Worker:
        async with self._creating:
            try:
                folder = await asyncio.to_thread(self._folders.fetch, model)
            except ConfigError as error:
                raise failure(FailureKind.MODEL_NOT_FOUND, str(error)) from None
            if self._memory is None:
                raise RuntimeError("use the provider inside `async with provider:`")
            if model not in self._models:
                self._models[model] = self._worker(model, folder, self._memory)
        return self._models[model]

    def _worker(self, model: str, folder: ModelFolder, memory: ModelMemory) -> _Worker:
        if self._workers.devices:
            return SpreadModel(model, self._workers)
        if self._is_continuous:
            load = partial(self._load_continuous, folder)
            return ContinuousWorker(model, load, memory, self._settings)
        return StaticWorker(model, partial(self._load, folder), memory, self._settings)

    def _load(self, folder: ModelFolder) -> StaticBatchEngine:
        most = self.options.max_gpu_seconds
        return load_static(folder.path, folder.context_length, self._load_settings(), most)

    def _load_continuous(self, folder: ModelFolder) -> ContinuousEngine:
        pages = self.options.page_settings(self._device)
        return load_continuous(folder.path, folder.context_length, self._load_settings(), pages)

    def _load_settings(self) -> LoadSettings:
        shared = len(self._folders) > 1
        n_threads = 1 if shared else min(_MAX_THREADS, available_cores())
        options = self.options
        return LoadSettings(options.dtype, self._device, options.threads or n_threads)

    def _free_bytes(self) -> int:
        if self._elsewhere:
            return sys.maxsize
        most = max((device.n_bytes for device in self._visible), default=0)
        return most or free_bytes(self._device)

    @cached_property
    def _workers(self) -> DeviceWorkers:
        """The processes of several devices; none if this process loads the models."""
        cap = self._folders.share_of
        devices = [replace(device, n_bytes=cap(device.n_bytes)) for device in self._visible]
        setup = Setup(self.name, worker_options(self.options, self._device), self.base_dir)
        return DeviceWorkers(devices, setup, lambda: self._folders.sizes)

    @cached_property
    def _visible(self) -> tuple[Device, ...]:
        return () if self._elsewhere else find_worker_devices(self.options, self._device, self.name)

    @cached_property
    def _device(self) -> str:
        if self._elsewhere:
            return "cpu" if self.options.device == "cpu" else "cuda"
        return find_kind(self.options, self.name)

    @property
    def _is_continuous(self) -> bool:
        return self.options.is_continuous(self._device)
