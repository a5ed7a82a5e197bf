"""The base of providers of models on this machine: loading, and paid seconds."""

from __future__ import annotations

import asyncio
import math
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import Field

from bestarm_agent.domain.spend import nanos
from bestarm_agent.providers.base import Provider, ProviderOptions

_SECONDS_PER_HOUR = 3600
_LOADING_SHARE = 0.1  # of the time that loading may take up, where models take turns


class LocalOptions(ProviderOptions):
    """Options of all local providers.

    Attributes:
        usd_per_gpu_hour: price of an hour of one worker or accelerator.
        max_gpu_seconds: most worker seconds that a call is charged; ``hf`` ends a batch then, with
            TIMEOUT. With a price, or a cap on worker seconds, every call reserves this much before
            it is sent, so set it near the usual time of a call.
    """

    usd_per_gpu_hour: Decimal = Field(default=Decimal(0), ge=0)
    max_gpu_seconds: float = Field(default=600.0, gt=0, allow_inf_nan=False)


def averaged(average: float | None, value: float) -> float:
    """Return a running mean in which the latest value weighs a third, so that old ones fade.

    Example:
        >>> averaged(averaged(None, 6.0), 3.0)
        5.0
    """
    return value if average is None else average + (value - average) / 3


class LocalModel(ABC):
    """A model that takes up memory while it is loaded."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.load_seconds: float | None = None  # on average
        self.call_seconds: float | None = None  # worker seconds of one call, on average

    @property
    @abstractmethod
    def is_loaded(self) -> bool:
        """True if its weights are in memory."""

    @abstractmethod
    async def load(self) -> None:
        """Load the weights; raises ProviderError."""

    @abstractmethod
    async def unload(self) -> None:
        """Release the weights; ``is_loaded`` is False from the start of the call."""


class ModelMemory:
    """Keeps as many models loaded as fit together.

    Calls of loaded models go on as they come. Where a model does not fit beside them, it is loaded
    as soon as enough of them have no call under way, the model whose calls have waited longest
    first; those unload that were idle longest.
    """

    def __init__(
        self, fits: Callable[[Sequence[LocalModel]], bool] = lambda models: len(models) == 1
    ) -> None:
        self._fits = fits  # returns True if the last of some models fits beside the others
        self._loaded: list[LocalModel] = []  # the one idle longest first
        self._waiting: dict[LocalModel, int] = {}  # calls by model, the longest waiting first
        self._calls = Counter[LocalModel]()  # under way at loaded models
        self._changed = asyncio.Event()
        self.loading: tuple[str, ...] = ()  # name of the model that is being loaded

    @asynccontextmanager
    async def hold(self, model: LocalModel) -> AsyncIterator[None]:
        """Keep a model loaded until the block ends; raises ProviderError if it cannot be loaded."""
        # A model keeps its place in ``_waiting`` from its first call that waits to the last: the
        # order of the keys is the order of turns. All who wait are woken by every change and look
        # again, since what each of them needs differs: that loading ends, that the loaded models
        # have no call left, or that it is their turn.
        self._waiting[model] = self._waiting.get(model, 0) + 1
        try:
            while not (model in self._loaded and model.is_loaded):
                if self._may_load(model):
                    await self._load(model)
                else:
                    self._changed.clear()
                    await self._changed.wait()
            self._calls[model] += 1
        finally:
            self._waiting[model] -= 1
            if not self._waiting[model]:
                del self._waiting[model]
            self._changed.set()
        try:
            yield
        finally:
            self._calls[model] -= 1
            if not self._calls[model] and model in self._loaded:
                self._loaded.remove(model)
                self._loaded.append(model)
            self._changed.set()

    def _may_load(self, model: LocalModel) -> bool:
        if self.loading:
            return False
        if model in self._loaded:  # one that was loaded, and ended by itself
            return True
        # Nothing is unloaded under a call, and only the first in line may come: without the second
        # rule small models could fill the room for ever that a large one waits for.
        busy = [other for other in self._loaded if self._calls[other]]
        return next(iter(self._waiting)) is model and self._fits([*busy, model])

    async def _load(self, model: LocalModel) -> None:
        self.loading = (model.name,)
        try:
            # Others leave before this one comes: there may be no room for both even for a moment. A
            # model that is in the list but not loaded has ended by itself, and is loaded anew.
            if model in self._loaded:
                self._loaded.remove(model)
            while not self._fits([*self._loaded, model]):
                idle = next((other for other in self._loaded if not self._calls[other]), None)
                if idle is None:  # calls of them came while another was unloaded
                    return
                self._loaded.remove(idle)
                await idle.unload()
            await model.load()
            self._loaded.append(model)
        finally:
            self.loading = ()
            self._changed.set()


LocalOptionsT = TypeVar("LocalOptionsT", bound=LocalOptions)
LocalModelT = TypeVar("LocalModelT", bound=LocalModel)


class LocalProvider(Provider[LocalOptionsT], Generic[LocalOptionsT, LocalModelT]):
    """Base of the providers that load models on this machine."""

    def __init__(self, name: str, options: LocalOptionsT, base_dir: Path) -> None:
        super().__init__(name, options, base_dir)
        self._models: dict[str, LocalModelT] = {}
        self._memory: ModelMemory | None = None

    @property
    def loading(self) -> tuple[str, ...]:
        """Models that are being loaded."""
        return () if self._memory is None else self._memory.loading

    def asks_per_load(self, model: str) -> int | None:
        """Return how many calls make loading a tenth of the time; None if that is not known."""
        loaded = self._models.get(model)
        if loaded is None or loaded.load_seconds is None or not loaded.call_seconds:
            return None
        return math.ceil(loaded.load_seconds / (_LOADING_SHARE * loaded.call_seconds))

    @property
    def _price_source(self) -> str:
        return "usd_per_gpu_hour" if self.options.usd_per_gpu_hour else "free"

    def _price(self, seconds: float) -> int:
        """Return the nano-dollars that worker seconds cost."""
        if not self.options.usd_per_gpu_hour:
            return 0
        return nanos(Decimal(seconds) * self.options.usd_per_gpu_hour / _SECONDS_PER_HOUR)


class SharedTime:
    """Charges every second that a server is up to some call, once.

    While n calls run, each is charged 1/n of the time. Time without calls, including the start, is
    charged to the next call that ends. No call is charged more than ``most`` seconds; the excess is
    charged to the next one too.

    Example:
        >>> now = 0.0
        >>> time = SharedTime(lambda: now, most=100.0)
        >>> time.begin()
        >>> now = 8.0  # it took eight seconds to start
        >>> first = time.enter()
        >>> now = 10.0
        >>> second = time.enter()
        >>> now = 14.0
        >>> time.leave(first), time.leave(second)
        (12.0, 2.0)
    """

    def __init__(self, clock: Callable[[], float], most: float) -> None:
        self._clock = clock
        self._most = most
        # With n(t) calls under way at t, ``_each`` is the integral of dt / n(t) while there were
        # any. A call from a to b is charged its difference between a and b, which is its share of
        # the time, however many came and went in between; so an event costs the same for any number
        # of calls.
        self._since: float | None = None  # up since, as far as charged; None: not up
        self._n_calls = 0
        self._each = 0.0  # seconds that a call under way all the time would have been charged
        self._waiting = 0.0  # seconds that no call was charged yet

    def begin(self) -> None:
        """Note that the server takes the accelerators."""
        self._advance()
        self._since = self._clock()

    def end(self) -> None:
        """Note that it releases them."""
        self._advance()
        self._since = None

    def enter(self) -> float:
        """Note that a call begins; return its ticket."""
        self._advance()
        self._n_calls += 1
        return self._each

    def leave(self, ticket: float) -> float:
        """Note that a call was answered; return the seconds to charge."""
        # Over a cap the rest is not lost: it waits for the next call, so that all of the time is
        # charged.
        share = self._share_since(ticket) + self._waiting
        charged = min(share, self._most)
        self._waiting = share - charged
        return charged

    def fail(self, ticket: float) -> None:
        """Note that a call failed; its seconds are charged to the next one."""
        self._waiting += self._share_since(ticket)

    def _share_since(self, ticket: float) -> float:
        self._advance()
        self._n_calls -= 1
        return self._each - ticket

    def _advance(self) -> None:
        if self._since is None:
            return
        now = self._clock()
        if self._n_calls:
            self._each += (now - self._since) / self._n_calls
        else:
            self._waiting += now - self._since
        self._since = now


def available_cores() -> int:
    """Return the number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_bytes() -> int:
    """Return the free memory in bytes; all memory, if the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
