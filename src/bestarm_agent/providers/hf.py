"""Runs models in this process with transformers: local folders, or models of the hub."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Self

from bestarm_agent.config.documents import parse_options
from bestarm_agent.domain.allowance import Allowance
from bestarm_agent.domain.digest import Json, digest
from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.spend import Spend, nanos
from bestarm_agent.errors import ConfigError, FailureKind
from bestarm_agent.providers.base import Capabilities, Footprint
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.hf_continuous import ContinuousEngine
from bestarm_agent.providers.hf_continuous_worker import ContinuousWorker
from bestarm_agent.providers.hf_engine import StaticBatchEngine
from bestarm_agent.providers.hf_folder import ContentDigests, ModelFolder
from bestarm_agent.providers.hf_loading import (
    Loading,
    check_installed,
    find_device,
    free_bytes,
    import_transformers,
    load_continuous,
    load_static,
)
from bestarm_agent.providers.hf_models import ModelShelf
from bestarm_agent.providers.hf_options import HfOptions
from bestarm_agent.providers.hf_params import Sampling, read_sampling
from bestarm_agent.providers.hf_prompts import PromptBounds
from bestarm_agent.providers.hf_queue import Call
from bestarm_agent.providers.hf_worker import ModelWorker, Terms
from bestarm_agent.providers.residency import Residency, available_cores

_PARAMS = frozenset(Sampling.model_fields)
_MOST_THREADS = 4  # small batches of small models gain nothing from more
_SECONDS_PER_HOUR = 3600
_SAMPLER_VERSION = 1  # another number, other replies: old ones must not come from the cache


class HfProvider:
    """Answers with local models; one thread and one queue per model.

    ``request.model`` is a folder, relative to the study, or else a model of the Hugging Face hub,
    which is taken from the local cache or downloaded when it is first used. Without ``temperature``
    a reply is drawn at 1.0, without ``max_tokens`` it ends after 256 tokens.

    Args:
        name: what users call the provider.
        options: how to run the models.
        base_dir: folder that model names start from.
        clock: seconds since some fixed moment.
    """

    def __init__(
        self,
        name: str,
        options: HfOptions,
        base_dir: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._options = options
        self._models = ModelShelf(
            base_dir, options.dtype, options.memory_gb, lambda: free_bytes(self._device)
        )
        self._digests = ContentDigests()
        self._bounds = PromptBounds()
        self._workers: dict[str, ModelWorker | ContinuousWorker] = {}
        self._residency: Residency | None = None
        self._kept: set[str] = set()
        self._hiring = asyncio.Lock()
        self._terms = Terms(
            max_batch=options.max_batch,
            max_batch_tokens=options.max_batch_tokens,
            gather_seconds=options.gather_ms / 1000,
            max_gpu_seconds=options.max_gpu_seconds,
            price=self._price,
            clock=clock,
        )

    async def __aenter__(self) -> Self:
        """Import the libraries, off the event loop; raises ConfigError if they are missing."""
        check_installed()
        await asyncio.to_thread(import_transformers)
        n_turns = max(1, available_cores() // (self._options.threads or 1))
        # the libraries' imports and allocators do not like two loads at once
        self._residency = Residency(self._models.memory_cap, n_turns, 1, self._kept)
        self._hiring = asyncio.Lock()  # a model is looked up, and downloaded, once
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End what is being generated, and wait for the threads."""
        self._residency = None
        workers = list(self._workers.values())
        self._workers.clear()
        async with asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(worker.close())

    def check(self, model: str) -> None:
        """Check that a model's folder is whole, and that the model fits into memory.

        A model that has still to be downloaded is checked once it is there.

        Raises:
            ConfigError: it is not, or transformers is not installed.
        """
        check_installed()
        self._models.find(model)
        find_device(self._options.device)

    def capabilities(self, model: str) -> Capabilities:
        """What a model can do; raises ConfigError if it cannot be used."""
        folder = self._models.find(model)
        return Capabilities(
            params=_PARAMS - {"seed"} if self._is_continuous else _PARAMS,
            chat=folder is None or folder.has_chat_template,
            seed=not self._is_continuous,
            priced=True,
            price_source="usd_per_gpu_hour" if self._options.usd_per_gpu_hour else "free",
            in_flight=2 * self._options.max_batch,
            queued=True,
        )

    def fingerprint(self, model: str) -> str:
        """Digest of weights, tokenizer, templates and configuration, by content.

        Downloads a model that is only on the hub.

        Raises:
            ConfigError: it cannot be used.
        """
        files = self._models.fetch(model).digest_files()
        content: dict[str, Json] = {
            "files": {name: self._digests.of(path) for name, path in files.items()},
            "dtype": self._options.dtype,
            "sampler": _SAMPLER_VERSION,
        }
        if self._device != "cpu":
            content["device"] = self._device
        if self._is_continuous:
            content["batching"] = "continuous"
        return digest(content)

    def bound(self, request: Request) -> Spend:
        """Upper bound of one call.

        Tokens: as many as the prompt has bytes, or the context holds, and ``max_tokens``. Worker
        seconds: ``max_gpu_seconds``, at which a batch is cut off. Dollars: the price of those.

        Raises:
            ConfigError: the model cannot be used, or a parameter is unknown or breaks a rule.
        """
        n_prompt = self._bounds.of(request, self._models.fetch(request.model))
        seconds = self._options.max_gpu_seconds
        return Spend(
            calls=1,
            tokens=n_prompt + read_sampling(request.params, request.model).max_tokens,
            usd_nanos=self._price(seconds),
            gpu_seconds=seconds,
        )

    def allowances(self, model: str) -> tuple[Allowance, ...]:
        """Nothing: no limits apply."""
        return ()

    @property
    def n_loads(self) -> int:
        """How often models were loaded; without swaps, once each."""
        return sum(worker.n_loads for worker in self._workers.values())

    @property
    def loading(self) -> tuple[str, ...]:
        """Models that are being loaded."""
        return () if self._residency is None else self._residency.loading

    @property
    def memory_bytes(self) -> int:
        """Memory for the weights of all loaded models."""
        return self._models.memory_cap

    @property
    def loading_share(self) -> float | None:
        """Share of the time that loading may take."""
        return self._options.loading_share

    def footprint(self, model: str) -> Footprint:
        """What a model's weights take, and how long things have taken so far."""
        worker, folder = self._workers.get(model), self._models.find(model)
        return Footprint(
            holder=model,
            n_bytes=0 if folder is None else self._models.n_bytes(folder),
            load_seconds=worker.load_seconds.value if worker else None,
            call_seconds=worker.call_seconds.value if worker else None,
        )

    def keep(self, model: str) -> None:
        """Unload a model only where the others cannot make room."""
        self._kept.add(model)

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
        worker = self._workers.get(request.model) or await self._hire(request.model)
        if request.messages and not self._models.fetch(request.model).has_chat_template:
            raise failure(
                FailureKind.BAD_REQUEST,
                f"model {request.model} has no chat template and cannot take messages; give it a "
                "plain-text prompt, or put a chat_template.jinja into its folder",
            )
        return await worker.submit(Call(request, sampling))

    async def _hire(self, model: str) -> ModelWorker | ContinuousWorker:
        """Make the worker of a model that is used for the first time."""
        async with self._hiring:
            try:
                folder = await asyncio.to_thread(self._models.fetch, model)
            except ConfigError as error:
                raise failure(FailureKind.MODEL_NOT_FOUND, str(error)) from None
            if self._residency is None:
                raise RuntimeError("use the provider inside `async with provider:`")
            if model not in self._workers:
                self._workers[model] = self._worker(model, folder, self._residency)
        return self._workers[model]

    def _worker(
        self, model: str, folder: ModelFolder, residency: Residency
    ) -> ModelWorker | ContinuousWorker:
        n_bytes = self._models.n_bytes(folder)
        if self._is_continuous:
            load = partial(self._load_continuous, folder)
            return ContinuousWorker(model, n_bytes, load, residency, self._terms)
        return ModelWorker(model, n_bytes, partial(self._load, folder), residency, self._terms)

    def _load(self, folder: ModelFolder) -> StaticBatchEngine:
        most = self._options.max_gpu_seconds
        return load_static(folder.path, folder.context_length, self._loading(), most)

    def _load_continuous(self, folder: ModelFolder) -> ContinuousEngine:
        pages = self._options.page_settings(self._device)
        return load_continuous(folder.path, folder.context_length, self._loading(), pages)

    def _loading(self) -> Loading:
        shared = len(self._models) > 1
        n_threads = 1 if shared else min(_MOST_THREADS, available_cores())
        options = self._options
        return Loading(options.dtype, self._device, options.threads or n_threads)

    @cached_property
    def _device(self) -> str:
        return find_device(self._options.device)

    @property
    def _is_continuous(self) -> bool:
        return self._options.is_continuous(self._device)

    def _price(self, seconds: float) -> int:
        """Nano-dollars that worker seconds cost."""
        if not self._options.usd_per_gpu_hour:
            return 0
        return nanos(Decimal(seconds) * self._options.usd_per_gpu_hour / _SECONDS_PER_HOUR)


def create(name: str, options: Mapping[str, Json], base_dir: Path) -> HfProvider:
    """Build the provider; raises ConfigError if an option is wrong."""
    parsed = parse_options(HfOptions, options, subject=f"provider `{name}`")
    return HfProvider(name, parsed, base_dir)
