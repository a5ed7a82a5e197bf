"""A loaded model that answers calls, whatever its way of batching."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from bestarm_agent.domain.request_reply import Finish, Reply
from bestarm_agent.domain.spend import Usage
from bestarm_agent.errors import FailureKind
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.model_memory import Average, ModelMemory

_Engine = TypeVar("_Engine")


@dataclass(frozen=True, slots=True)
class Generation:
    """The answer to one call; ``n_output`` includes the end-of-text token."""

    text: str
    finish: Finish
    n_input: int
    n_output: int


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Settings of all workers of a provider."""

    max_batch: int  # most calls generated together, >= 1
    max_batch_tokens: int  # most tokens of a batch
    gather_seconds: float  # time that a small batch waits for more calls
    max_gpu_seconds: float  # most worker seconds that one call is charged
    price: Callable[[float], int]  # nano-dollars that worker seconds cost
    clock: Callable[[], float]  # seconds since some fixed moment


class Worker(ABC, Generic[_Engine]):
    """Runs one model, loaded while it is needed; a ``LoadableModel``."""

    def __init__(
        self,
        model: str,
        load: Callable[[], _Engine],  # loads it; runs in a thread and may raise anything
        memory: ModelMemory,  # decides when it may be loaded
        settings: WorkerSettings,
    ) -> None:
        self.name = model
        self.n_loads = 0
        self.load_seconds = Average()
        self.call_seconds = Average()
        self._load = load
        self._memory = memory
        self._settings = settings
        self._engine: _Engine | None = None
        self._broken: str | None = None
        self._last_load_seconds = 0.0

    @property
    def is_loaded(self) -> bool:
        """True if the weights are in memory."""
        return self._engine is not None

    async def load(self) -> None:
        """Load the model; raises ProviderError, MODEL_NOT_FOUND, if it cannot be loaded."""
        self._check()
        start = self._settings.clock()
        try:
            self._engine = await self._start()
        except Exception as error:
            await self.unload()
            reason = " ".join(str(error).split()) or type(error).__name__
            self._broken = (
                f"model {self.name} cannot be loaded: {reason}; correct its folder, or take the "
                "model out of the study"
            )
            raise failure(FailureKind.MODEL_NOT_FOUND, self._broken) from error
        self.n_loads += 1
        self._last_load_seconds = self._settings.clock() - start
        self.load_seconds.add(self._last_load_seconds)

    @abstractmethod
    async def unload(self) -> None:
        """Release the weights."""

    @abstractmethod
    async def _start(self) -> _Engine:
        """Load the model in a thread."""

    def _check(self) -> None:
        if self._broken is not None:
            raise failure(FailureKind.MODEL_NOT_FOUND, self._broken)

    def _reply(self, generation: Generation, gpu_seconds: float, seconds: float) -> Reply:
        return Reply(
            text=generation.text,
            finish=generation.finish,
            usage=Usage(input=generation.n_input, output=generation.n_output),
            usd_nanos=self._settings.price(gpu_seconds),
            seconds=seconds,
            gpu_seconds=gpu_seconds,
            model=self.name,
        )
