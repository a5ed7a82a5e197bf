"""Which models are loaded, and how many generate at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol


class Resident(Protocol):
    """A model that takes up memory while it is loaded.

    Attributes:
        name: the model's name.
        n_bytes: what its weights take.
    """

    name: str
    n_bytes: int

    @property
    def is_loaded(self) -> bool:
        """Whether its weights are in memory."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for it."""
        ...

    async def load(self) -> None:
        """Load the weights; raises ProviderError."""
        ...

    async def unload(self) -> None:
        """Let the weights go; it is not loaded from the moment of asking."""
        ...


class Residency:
    """Keeps the loaded models within the memory, and the busy ones within the cores.

    A model that is needed and not loaded waits until idle models, the longest unused first, have
    made room. A model with work waiting is never unloaded.

    Args:
        cap_bytes: memory for weights.
        n_turns: models that may generate at once, >= 1; while a model waits for its turn its queue
            gathers a larger batch.
        loads_at_once: models that may be loaded at the same time, >= 1.
        kept: names of models that leave only where the others cannot make room, busy ones
            included; may change.
    """

    def __init__(
        self,
        cap_bytes: int,
        n_turns: int,
        loads_at_once: int = 1,
        kept: Collection[str] = (),
    ) -> None:
        self._cap_bytes = cap_bytes
        self._kept = kept
        self._loaded: list[Resident] = []  # the longest unused first
        self._coming: list[Resident] = []
        self._loading = asyncio.Semaphore(loads_at_once)
        self._making_room = asyncio.Lock()  # else two would both find the same room
        self._someone_idle = asyncio.Event()
        self.turn = asyncio.Semaphore(n_turns)

    async def admit(self, resident: Resident) -> None:
        """Return once a model is loaded; it must not be idle.

        Raises:
            ProviderError: it cannot be loaded.
        """
        if resident in self._loaded:
            self._loaded.remove(resident)
        if not resident.is_loaded:  # also one that was, and ended by itself
            await self._load(resident)
        self._loaded.append(resident)

    @property
    def loading(self) -> tuple[str, ...]:
        """Names of the models that are being loaded."""
        return tuple(resident.name for resident in self._coming)

    def notice_idle(self) -> None:
        """Note that a model has become idle."""
        self._someone_idle.set()

    async def _load(self, resident: Resident) -> None:
        async with self._loading:
            async with self._making_room:
                await self._make_room(resident.n_bytes)
                self._coming.append(resident)
            try:
                await resident.load()
            finally:
                self._coming.remove(resident)
                self._someone_idle.set()  # if it failed, it has left room

    async def _make_room(self, n_bytes: int) -> None:
        while n_bytes + self._taken() > self._cap_bytes:
            others = [other for other in self._loaded if other.name not in self._kept]
            idle = next((other for other in others or self._loaded if other.is_idle), None)
            if idle is not None:
                self._loaded.remove(idle)
                await idle.unload()
                continue
            self._someone_idle.clear()
            await self._someone_idle.wait()

    def _taken(self) -> int:
        return sum(other.n_bytes for other in (*self._loaded, *self._coming))


class Users:
    """Those who need a resident: while there are any it is not idle, and stays loaded."""

    def __init__(self) -> None:
        self.n = 0
        self._admitting = asyncio.Lock()

    @asynccontextmanager
    async def join(self, resident: Resident, residency: Residency) -> AsyncIterator[None]:
        """Hold a resident loaded until the block ends; raises ProviderError if it cannot be."""
        self.n += 1
        try:
            async with self._admitting:  # it is loaded once, however many wait
                await residency.admit(resident)
            yield
        finally:
            self.n -= 1
            residency.notice_idle()


class Average:
    """A running mean that forgets: each new value counts a third, the first one in full.

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
        """Take a further value in."""
        self.value = value if self.value is None else self.value + (value - self.value) / 3


def available_cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_bytes(proc: Path = Path("/proc/meminfo")) -> int:
    """Memory that is free for use; all of it, where the system does not tell.

    Args:
        proc: Linux's own account.
    """
    with suppress(OSError, ValueError, IndexError):
        for line in proc.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
