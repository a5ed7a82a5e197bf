"""Options of the ``hf`` provider."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from bestarm_agent.providers.hf_continuous import PageSettings
from bestarm_agent.providers.hf_loading import Device, Dtype

_PAGES_ON_PROCESSORS = 64
_BATCH_TOKENS_ON_PROCESSORS = 2048


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
        device: where the models run: "cpu", "cuda" (one accelerator), or "auto" for an accelerator
            if there is one.
        batching: "static" batches run until their longest reply is done; "continuous" ones are
            joined and left at any token, and then a seed makes nothing reproducible. "auto":
            continuous on an accelerator, static on processors.
        page_size: tokens of a page of the attention's memory; with continuous batching.
        pages: how many there are. Default: what fits; on processors 64.
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
    device: Device = "auto"
    batching: Literal["auto", "static", "continuous"] = "auto"
    page_size: int = Field(default=256, ge=1)
    pages: int | None = Field(default=None, ge=1)
    dtype: Dtype = "float32"
    usd_per_gpu_hour: Decimal = Field(default=Decimal(0), ge=0)
    max_gpu_seconds: float = Field(default=600.0, gt=0, allow_inf_nan=False)

    def is_continuous(self, device: str) -> bool:
        """Whether calls join and leave batches one by one, on "cpu" or "cuda"."""
        if self.batching == "auto":
            return device != "cpu"
        return self.batching == "continuous"

    def page_settings(self, device: str) -> PageSettings:
        """How the memory for attention is divided; only accelerators find out what fits."""
        if device != "cpu":
            return PageSettings(self.page_size, self.pages)
        batch_tokens = min(self.max_batch_tokens, _BATCH_TOKENS_ON_PROCESSORS)
        return PageSettings(self.page_size, self.pages or _PAGES_ON_PROCESSORS, batch_tokens)
