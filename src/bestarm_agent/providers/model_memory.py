"""Decides which models are loaded, and how many generate at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol


class LoadableModel(Protocol):
    """A model that takes up memory while it is loaded."""

    name: str  # the model's name

    @property
    def is_loaded(self) -> bool:
        """True if its weights are in memory."""

    @property
    def is_idle(self) -> bool:
        """True if no call waits for it."""

    async def load(self) -> None:
        """Load the weights; raises ProviderError."""

    async def unload(self) -> None:
        """Release the weights; ``is_loaded`` is False from the start of the call."""


class ModelMemory:
    """Keeps the loaded models within the memory, and the busy ones within the cores.

    A model that has to be loaded waits until idle models, the least recently used first, have made
    room. A model with waiting calls is never unloaded.
    """

    def __init__(
        self,
        fits: Callable[[Collection[str]], bool],  # whether models, by name, fit together
        n_generating: int,  # models at once, >= 1; queues of waiting ones grow into larger batches
        loads_at_once: int = 1,  # models that may be loaded at the same time, >= 1
        pinned: Collection[str] = (),  # unloaded only if no others can make room; may change
    ) -> None:
        self._fits = fits
        self._pinned = pinned
        self._loaded: list[LoadableModel] = []  # the longest unused first
        self._loading_now: list[LoadableModel] = []
        self._loading = asyncio.Semaphore(loads_at_once)
        self._making_room = asyncio.Lock()  # else two would both find the same room
        self._idle = asyncio.Event()
        self.generating = asyncio.Semaphore(n_generating)

    async def ensure_loaded(self, model: LoadableModel) -> None:
        """Return once a model is loaded; it must not be idle. Raises ProviderError."""
        if model in self._loaded:
            self._loaded.remove(model)
        if not model.is_loaded:  # also one that was, and ended by itself
            await self._load(model)
        self._loaded.append(model)

    @property
    def loading(self) -> tuple[str, ...]:
        """Names of the models that are being loaded."""
        return tuple(model.name for model in self._loading_now)

    def note_idle(self) -> None:
        """Note that a model has become idle."""
        self._idle.set()

    async def _load(self, model: LoadableModel) -> None:
        async with self._loading:
            async with self._making_room:
                await self._make_room(model.name)
                self._loading_now.append(model)
            try:
                await model.load()
            finally:
                self._loading_now.remove(model)
                self._idle.set()  # if it failed, it has left room

    async def _make_room(self, name: str) -> None:
        while not self._fits({name, *self.loading, *(other.name for other in self._loaded)}):
            leaving = self._without_room({name, *self.loading})
            if idle := [other for other in leaving if other.is_idle]:
                unpinned = [other for other in idle if other.name not in self._pinned]
                chosen = (unpinned or idle)[0]
                self._loaded.remove(chosen)
                await chosen.unload()
                continue
            self._idle.clear()
            await self._idle.wait()

    def _without_room(self, staying: set[str]) -> list[LoadableModel]:
        """Return the loaded models that have to go, the longest unused first.

        Pinned ones stay before busy ones, and these before idle ones.
        """
        by_need = self._loaded[::-1]
        by_need.sort(key=lambda other: (other.name not in self._pinned, other.is_idle))
        for other in by_need:
            if self._fits(staying | {other.name}):
                staying = staying | {other.name}
        return [other for other in self._loaded if other.name not in staying]


class UseCount:
    """Counts the calls that need a model: while there are any, it is not idle and stays loaded."""

    def __init__(self) -> None:
        self.n = 0
        self._admitting = asyncio.Lock()

    @asynccontextmanager
    async def join(self, model: LoadableModel, memory: ModelMemory) -> AsyncIterator[None]:
        """Keep a model loaded until the block ends; raises ProviderError if it cannot be loaded."""
        self.n += 1
        try:
            async with self._admitting:  # it is loaded once, however many wait
                await memory.ensure_loaded(model)
            yield
        finally:
            self.n -= 1
            memory.note_idle()


class Average:
    """A running mean that forgets: each new value has a weight of one third, the first of one.

    Example:
        >>> average = Average()
        >>> for seconds in (6.0, 3.0):
        ...     average.add(seconds)
        >>> average.value
        5.0
    """

    def __init__(self) -> None:
        self.value: float | None = None

    def add(self, value: float) -> None:
        """Add a value."""
        self.value = value if self.value is None else self.value + (value - self.value) / 3


def available_cores() -> int:
    """Return the number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_bytes(proc: Path = Path("/proc/meminfo")) -> int:
    """Return the free memory in bytes; all memory, if the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        for line in proc.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
