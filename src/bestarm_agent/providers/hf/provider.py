"""Runs models in this process with transformers: local folders, or models of the hub."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path

from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Json, Message, Reply, Request, digest
from bestarm_agent.errors import ConfigError, FailureKind
from bestarm_agent.plugins import missing
from bestarm_agent.providers.base import Capabilities
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.hf.folder import BYTES_PER_NUMBER, ModelFolder, content_digests, locate
from bestarm_agent.providers.hf.generate import HfCall, Sampling, load_engine, read_sampling
from bestarm_agent.providers.hf.tokenizer import import_transformers
from bestarm_agent.providers.hf.worker import HfOptions, Worker
from bestarm_agent.providers.local import (
    LocalProvider,
    ModelMemory,
    available_bytes,
    available_cores,
)

_PARAMS = frozenset(Sampling.model_fields)
_SHARE_OF_FREE_MEMORY = 0.6
_MAX_THREADS = 4  # small batches of small models gain nothing from more
_SAMPLER_VERSION = 1  # another number, other replies: old ones must not come from the cache
_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")


class HfProvider(LocalProvider[HfOptions, Worker]):
    """Answers with local models; one thread and one queue per model.

    ``request.model`` is a folder, relative to the study, or a model of the Hugging Face hub, taken
    from the local cache or downloaded at its first use. As many models stay loaded as fit into
    memory together.
    """

    options_type = HfOptions

    def __init__(self, name: str, options: HfOptions, base_dir: Path) -> None:
        super().__init__(name, options, base_dir)
        self._folders: dict[str, ModelFolder] = {}  # checked
        self._creating = asyncio.Lock()
        self._generating = asyncio.Semaphore()

    async def start(self) -> None:
        """Import the libraries, off the event loop; raises ConfigError if they are missing."""
        check_installed()
        await asyncio.to_thread(import_transformers)
        self._generating = asyncio.Semaphore(
            max(1, available_cores() // (self.options.threads or 1))
        )
        self._memory = ModelMemory(
            lambda models: self._fit(self._folders[model.name] for model in models)
        )
        self._creating = asyncio.Lock()  # a model is looked up, and downloaded, once

    async def close(self) -> None:
        """Stop generating, and wait for the threads."""
        self._memory = None
        workers = list(self._models.values())
        self._models.clear()
        await together(worker.close() for worker in workers)

    def check(self, model: str) -> None:
        """Check that a model's folder is complete, unless it is to be downloaded.

        Raises ConfigError.
        """
        check_installed()
        self._find(model)

    def check_machine(self, model: str) -> None:
        """Check that the device is there and has memory for a model; raises ConfigError."""
        if self.options.device == "cuda":
            import torch

            if not torch.cuda.is_available():
                raise ConfigError(
                    f"torch {torch.__version__} finds no CUDA device; install a build for CUDA and "
                    "its driver, or set the option `device: cpu`"
                )
        self._check_size(model)

    def capabilities(self, model: str) -> Capabilities:
        """Return a model's capabilities; raises ConfigError if it cannot be used."""
        folder = self._find(model)
        return Capabilities(
            params=_PARAMS,
            chat=folder is None or folder.has_chat_template,
            seed=True,
            price_source=self._price_source,
            in_flight=2 * self.options.max_batch,
            queued=True,
            images=False,
        )

    def fingerprint(self, model: str) -> str:
        """Return a digest of the model's files by content; downloads a model if necessary."""
        folder = self._fetch(model)
        # Only what changes replies: the same files in another folder are the same model, and a
        # device other than "cpu" is named since its rounding differs.
        content: dict[str, Json] = {
            "files": content_digests(folder.path),
            "dtype": self._dtype(folder),
            "sampler": _SAMPLER_VERSION,
        }
        if self._device != "cpu":
            content["device"] = self._device
        if self.options.completion and folder.has_chat_template:
            content["completion"] = True
        return digest(content)

    def bound(self, request: Request) -> Spend:
        """Return the upper bound of one call; raises ConfigError.

        Tokens: as many as the prompt has bytes, or the context holds, plus ``max_tokens``. Worker
        seconds: ``max_gpu_seconds``, at which a batch is cut off.
        """
        folder = self._fetch(request.model)
        n_prompt = folder.max_prompt_tokens(self._as_message(folder, request))
        seconds = self.options.max_gpu_seconds
        return Spend(
            calls=1,
            tokens=n_prompt + read_sampling(request.params, request.model).max_tokens,
            usd_nanos=self._price(seconds),
            gpu_seconds=seconds,
        )

    @property
    def loads_one_at_a_time(self) -> bool:
        """True if the models do not fit into memory together."""
        return not self._fit(self._folders.values())

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
        folder = self._fetch(request.model)
        if request.messages and not folder.has_chat_template:
            raise failure(
                FailureKind.BAD_REQUEST,
                f"model {request.model} has no chat template and cannot take messages; give it a "
                "plain-text prompt, or put a chat_template.jinja into its folder",
            )
        return await worker.submit(HfCall(self._as_message(folder, request), sampling))

    def _as_message(self, folder: ModelFolder, request: Request) -> Request:
        """Return a plain prompt as a message of the user where the model has a chat template."""
        if request.text is None or self.options.completion or not folder.has_chat_template:
            return request
        return replace(request, text=None, messages=(Message("user", request.text),))

    async def _create_worker(self, model: str) -> Worker:
        # Looking a model up may download it, for minutes: one call does it, and others find it
        # done. The second look into ``_models`` below is for those that waited here.
        async with self._creating:
            try:
                folder = await asyncio.to_thread(self._fetch, model)
                self._check_size(model)
            except ConfigError as error:
                raise failure(FailureKind.MODEL_NOT_FOUND, str(error)) from None
            if self._memory is None:
                raise RuntimeError("use the provider inside `async with provider:`")
            if model not in self._models:
                # Several models generate at the same time, so that more threads each would only
                # compete for cores.
                is_alone = len(self._folders) == 1
                usual = min(_MAX_THREADS, available_cores()) if is_alone else 1
                load = partial(
                    load_engine,
                    folder,
                    dtype=self._dtype(folder),
                    device=self._device,
                    n_threads=self.options.threads or usual,
                    max_seconds=self.options.max_gpu_seconds,
                )
                self._models[model] = Worker(
                    model,
                    load,
                    self._memory,
                    self._generating,
                    self.options,
                    price=self._price,
                    clock=time.monotonic,
                )
        return self._models[model]

    def _find(self, model: str, *, download: bool = False) -> ModelFolder | None:
        """Return a model's checked folder, None if not downloaded yet; raises ConfigError."""
        if model not in self._folders:
            path = locate(model, self.base_dir, download=download)
            if path is None:
                return None
            folder = ModelFolder(path, model)
            folder.check()
            self._folders[model] = folder
        return self._folders[model]

    def _fetch(self, model: str) -> ModelFolder:
        """Return a model's checked folder, downloading it if necessary; raises ConfigError."""
        folder = self._find(model, download=True)
        if folder is None:
            raise ConfigError(f"model {model} was downloaded, but its folder is gone; try again")
        return folder

    def _n_bytes(self, folder: ModelFolder) -> int:
        return folder.n_parameters * BYTES_PER_NUMBER[self._dtype(folder)]

    def _dtype(self, folder: ModelFolder) -> str:
        return folder.dtype if self.options.dtype == "auto" else self.options.dtype

    def _fit(self, folders: Iterable[ModelFolder]) -> bool:
        """Return True if models fit into memory together."""
        return sum(map(self._n_bytes, folders)) <= self._memory_cap

    def _check_size(self, model: str) -> None:
        """Check that a model fits into memory, unless it has to be downloaded first."""
        folder = self._find(model)
        if folder is None:
            return
        needed, dtype = self._n_bytes(folder), self._dtype(folder)
        if needed > self._memory_cap:
            way_out = ", or set `dtype: bfloat16`" if BYTES_PER_NUMBER[dtype] > 2 else ""
            raise ConfigError(
                f"model {folder.subject} takes {needed / 1e9:.3g} GB as {dtype}, more than the "
                f"{self._memory_cap / 1e9:.3g} GB that models may take; raise the provider's "
                f"option `memory_gb`{way_out}"
            )

    @cached_property
    def _memory_cap(self) -> int:
        """Bytes for the weights of all loaded models."""
        if self.options.memory_gb is not None:
            return int(self.options.memory_gb * 1e9)
        if self._device == "cpu":
            free = available_bytes()
        else:
            import torch

            free = int(torch.cuda.mem_get_info()[0])
        return int(_SHARE_OF_FREE_MEMORY * free)

    @cached_property
    def _device(self) -> str:
        """The device of all models, "cpu" or "cuda"; torch is imported only with a driver."""
        if self.options.device != "auto":
            return self.options.device
        if not _NVIDIA_DRIVER.exists():
            return "cpu"
        import torch

        return "cuda" if torch.cuda.is_available() else "cpu"


def check_installed() -> None:
    """Check that torch and transformers are installed; raises ConfigError."""
    if find_spec("torch") is None or find_spec("transformers") is None:
        raise missing("hf", "the provider hf")
