"""Base of providers whose models take turns in the memory of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from pydantic import Field

from bestarm_agent.domain.spend import nanos
from bestarm_agent.providers.base import Footprint
from bestarm_agent.providers.base_provider import BaseProvider, ProviderOptions
from bestarm_agent.providers.model_memory import Average, ModelMemory

_SECONDS_PER_HOUR = 3600


class LocalOptions(ProviderOptions):
    """Options of all local providers.

    Attributes:
        loading_share: share of the time for loading, in (0, 1], if the models do not all fit: those
            in memory are asked until a swap pays (``schedule.turns``). None: swap at any time.
        usd_per_gpu_hour: price of an hour of one worker or accelerator.
        max_gpu_seconds: most worker seconds that a call is charged; ``hf`` ends a batch then, with
            TIMEOUT. With a price, or a cap on worker seconds, every call reserves this much before
            it is sent, so set it near the usual time of a call.
    """

    loading_share: float | None = Field(default=0.1, gt=0, le=1)
    usd_per_gpu_hour: Decimal = Field(default=Decimal(0), ge=0)
    max_gpu_seconds: float = Field(default=600.0, gt=0, allow_inf_nan=False)


class LocalModel(Protocol):
    """A model that measures its times."""

    load_seconds: Average
    call_seconds: Average

    @property
    def n_loads(self) -> int:
        """Number of times that it was loaded."""


LocalOptionsT = TypeVar("LocalOptionsT", bound=LocalOptions)
LocalModelT = TypeVar("LocalModelT", bound=LocalModel)


class LocalProvider(BaseProvider[LocalOptionsT], Generic[LocalOptionsT, LocalModelT]):
    """Base of the local providers; satisfies ``SharesMemory`` together with its subclasses."""

    def __init__(self, name: str, options: LocalOptionsT, base_dir: Path) -> None:
        super().__init__(name, options, base_dir)
        self._models: Mapping[str, LocalModelT] = {}
        self._memory: ModelMemory | None = None
        self._pinned: set[str] = set()

    @property
    def n_loads(self) -> int:
        """Number of times that models were loaded."""
        return sum(model.n_loads for model in self._models.values())

    @property
    def loading(self) -> tuple[str, ...]:
        """Models that are being loaded."""
        return () if self._memory is None else self._memory.loading

    @property
    def loading_share(self) -> float | None:
        """Share of the time for loading."""
        return self.options.loading_share

    @property
    def _price_source(self) -> str:
        return "usd_per_gpu_hour" if self.options.usd_per_gpu_hour else "free"

    def _price(self, seconds: float) -> int:
        """Return the nano-dollars that worker seconds cost."""
        if not self.options.usd_per_gpu_hour:
            return 0
        return nanos(Decimal(seconds) * self.options.usd_per_gpu_hour / _SECONDS_PER_HOUR)

    def _footprint(self, name: str, part: str = "") -> Footprint:
        model = self._models.get(name)
        if model is None:
            return Footprint(name, part=part)
        return Footprint(name, model.load_seconds.value, model.call_seconds.value, part)
