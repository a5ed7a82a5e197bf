"""Runs models in this process with transformers: local folders, or models of the hub."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from bestarm_agent.config.documents import parse_options
from bestarm_agent.domain.allowance import Allowance
from bestarm_agent.domain.digest import Json, digest
from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.spend import Spend, nanos
from bestarm_agent.errors import ConfigError, FailureKind
from bestarm_agent.providers.base import Capabilities, Footprint
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.hf_engine import StaticBatchEngine
from bestarm_agent.providers.hf_folder import ContentDigests, ModelFolder
from bestarm_agent.providers.hf_loading import (
    Dtype,
    check_installed,
    import_transformers,
    load_engine,
)
from bestarm_agent.providers.hf_models import ModelShelf
from bestarm_agent.providers.hf_params import Sampling, read_sampling
from bestarm_agent.providers.hf_prompts import PromptBounds
from bestarm_agent.providers.hf_queue import Call
from bestarm_agent.providers.hf_worker import ModelWorker, Terms
from bestarm_agent.providers.residency import Residency, available_cores

_PARAMS = frozenset(Sampling.model_fields)
_MOST_THREADS = 4  # small batches of small models gain nothing from more
_SECONDS_PER_HOUR = 3600
_SAMPLER_VERSION = 1  # another number, other replies: old ones must not come from the cache


class HfOptions(BaseModel):
    """Options of the ``hf`` provider.

    Attributes:
        max_batch: most calls generated together.
        max_batch_tokens: most tokens of a batch, prompts (counted in characters) padded to the
            longest and replies included; bounds the memory that generating takes.
        gather_ms: how long a batch that is not full waits for company while it grows.
        threads: torch's threads for each model. Default: 1 where several models share the cores,
            else as many as there are cores, up to 4.
        memory_gb: memory for the weights of loaded models, 1e9 bytes each; idle models are unloaded
            to make room. Default: 60 % of what is free at the start.
        loading_share: share of the time that loading may take, in (0, 1], where the models do not
            all fit: those in memory are asked until a swap pays (``schedule.turns``). None: models
            are swapped whenever the selector asks for another.
        dtype: of the weights in memory, whatever they have on disk.
        usd_per_gpu_hour: price of an hour of a model's worker, in dollars. Default: free.
        max_gpu_seconds: most worker seconds of a batch; what is unfinished by then fails with
            TIMEOUT. With a price, or a cap on worker seconds, every call reserves this much before
            it is sent, so set it near what calls take.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_batch: int = Field(default=256, ge=1)
    max_batch_tokens: int = Field(default=65_536, ge=1)
    gather_ms: float = Field(default=5.0, ge=0, le=1000)
    threads: int | None = Field(default=None, ge=1)
    memory_gb: float | None = Field(default=None, gt=0)
    loading_share: float | None = Field(default=0.1, gt=0, le=1)
    dtype: Dtype = "float32"
    usd_per_gpu_hour: Decimal = Field(default=Decimal(0), ge=0)
    max_gpu_seconds: float = Field(default=600.0, gt=0, allow_inf_nan=False)


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
        self._models = ModelShelf(base_dir, options.dtype, options.memory_gb)
        self._digests = ContentDigests()
        self._bounds = PromptBounds()
        self._workers: dict[str, ModelWorker] = {}
        self._residency: Residency | None = None
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
        self._residency = Residency(self._models.memory_cap, n_turns, loads_at_once=1)
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

    def capabilities(self, model: str) -> Capabilities:
        """What a model can do; raises ConfigError if it cannot be used."""
        folder = self._models.find(model)
        return Capabilities(
            params=_PARAMS,
            chat=folder is None or folder.has_chat_template,
            seed=True,
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
        return digest(
            {
                "files": {name: self._digests.of(path) for name, path in files.items()},
                "dtype": self._options.dtype,
                "sampler": _SAMPLER_VERSION,
            }
        )

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

    async def _hire(self, model: str) -> ModelWorker:
        """Make the worker of a model that is used for the first time."""
        async with self._hiring:
            try:
                folder = await asyncio.to_thread(self._models.fetch, model)
            except ConfigError as error:
                raise failure(FailureKind.MODEL_NOT_FOUND, str(error)) from None
            if self._residency is None:
                raise RuntimeError("use the provider inside `async with provider:`")
            if model not in self._workers:
                self._workers[model] = ModelWorker(
                    model,
                    self._models.n_bytes(folder),
                    partial(self._load, folder),
                    self._residency,
                    self._terms,
                )
        return self._workers[model]

    def _load(self, folder: ModelFolder) -> StaticBatchEngine:
        shared = len(self._models) > 1
        return load_engine(
            folder.path,
            context_length=folder.context_length,
            dtype=self._options.dtype,
            n_threads=self._options.threads
            or (1 if shared else min(_MOST_THREADS, available_cores())),
            max_seconds=self._options.max_gpu_seconds,
        )

    def _price(self, seconds: float) -> int:
        """Nano-dollars that worker seconds cost."""
        if not self._options.usd_per_gpu_hour:
            return 0
        return nanos(Decimal(seconds) * self._options.usd_per_gpu_hour / _SECONDS_PER_HOUR)


def create(name: str, options: Mapping[str, Json], base_dir: Path) -> HfProvider:
    """Build the provider; raises ConfigError if an option is wrong."""
    parsed = parse_options(HfOptions, options, subject=f"provider `{name}`")
    return HfProvider(name, parsed, base_dir)
