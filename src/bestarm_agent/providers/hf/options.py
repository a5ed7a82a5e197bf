"""Options of the ``hf`` provider, and the sampling parameters of its models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from bestarm_agent.config.fields import StrictModel
from bestarm_agent.config.yaml.documents import parse_options
from bestarm_agent.domain.digest import Json
from bestarm_agent.providers.local_provider import LocalOptions

Dtype: TypeAlias = Literal["float32", "bfloat16"]
Device: TypeAlias = Literal["auto", "cpu", "cuda"]

_PAGES_ON_PROCESSORS = 64
_BATCH_TOKENS_ON_PROCESSORS = 2048


@dataclass(frozen=True, slots=True)
class PageSettings:
    """Sizes of the memory for attention."""

    page_size: int = 256  # tokens of a page
    n_pages: int | None = None  # pages; None: as many as fit, which only works on accelerators
    # most tokens that go through the model at once; None: the libraries' choice
    batch_tokens: int | None = None


def _check_devices(value: object) -> object:
    if value == "auto":
        return value
    if isinstance(value, list | tuple) and value:
        if all(one == "cpu" for one in value):
            return tuple(value)
        if all(isinstance(one, int) and one >= 0 for one in value) and len({*value}) == len(value):
            return tuple(value)
    raise ValueError("must be `auto`, a list of device numbers such as [0, 1], or [cpu, cpu]")


class HfOptions(LocalOptions):
    """Options of the ``hf`` provider, in addition to ``LocalOptions``.

    Attributes:
        max_batch_tokens: prompts (counted in characters) padded to the longest and replies
            included; bounds the memory for generation.
        threads: torch's threads for each model. None: 1 where several models share the cores, else
            as many as there are cores, up to 4.
        memory_gb: memory for weights, 1e9 bytes each, of every device; idle models are unloaded to
            make room. None: 60 % of what is free at the start.
        devices: numbers, as nvidia-smi counts, of the accelerators that get a worker process each;
            "auto": all that are visible, if there are several. A list of "cpu" starts as many
            processes without accelerators.
        batching: "static" batches run until their longest reply is done; calls join and leave
            "continuous" ones at any token, and seeds have no effect there. "auto": continuous on an
            accelerator, static on processors.
    """

    max_batch: int = Field(default=256, ge=1)  # most calls generated together
    max_batch_tokens: int = Field(default=65_536, ge=1)
    gather_ms: float = Field(default=5.0, ge=0, le=1000)  # a growing batch waits so long for more
    threads: int | None = Field(default=None, ge=1)
    memory_gb: float | None = Field(default=None, gt=0)
    device: Device = "auto"  # "auto": an accelerator ("cuda") if there is one
    devices: Annotated[
        Literal["auto"] | tuple[int, ...] | tuple[Literal["cpu"], ...],
        BeforeValidator(_check_devices),
    ] = "auto"
    batching: Literal["auto", "static", "continuous"] = "auto"
    page_size: int = Field(default=256, ge=1)  # tokens of a page of the attention's memory
    pages: int | None = Field(default=None, ge=1)  # None: as many as fit; on processors 64
    dtype: Dtype = "float32"  # type of the weights in memory, whatever it is on disk

    def is_continuous(self, device: str) -> bool:
        """Return True if batching is continuous on a device, "cpu" or "cuda"."""
        if self.batching == "auto":
            return device != "cpu"
        return self.batching == "continuous"

    def page_settings(self, device: str) -> PageSettings:
        """Return the sizes of the attention's memory; only accelerators can measure what fits."""
        if device != "cpu":
            return PageSettings(self.page_size, self.pages)
        batch_tokens = min(self.max_batch_tokens, _BATCH_TOKENS_ON_PROCESSORS)
        return PageSettings(self.page_size, self.pages or _PAGES_ON_PROCESSORS, batch_tokens)


def _one_or_many(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class Sampling(StrictModel):
    """Sampling parameters of a reply; the defaults are those of the completion APIs.

    The recommendations of a model's ``generation_config.json`` are ignored: candidates differ in
    nothing but what the study says.
    """

    temperature: float = Field(default=1.0, ge=0, le=100)  # 0: take the most likely token
    top_p: float = Field(default=1.0, gt=0, le=1)  # draw from the likeliest that sum up to this
    top_k: int = Field(default=0, ge=0)  # draw from this many; 0: all. Before ``top_p``
    max_tokens: int = Field(default=256, ge=1)  # longest reply, the end-of-text token included
    stop: Annotated[  # texts that end a reply; they and the rest are cut off
        tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_one_or_many)
    ] = ()
    seed: int = Field(default=0, ge=0)  # another seed gives other draws


def read_sampling(params: Mapping[str, Json], model: str) -> Sampling:
    """Parse a request's parameters; raises ConfigError if one is unknown or breaks a rule."""
    return parse_options(Sampling, params, subject=f"parameters for {model}")
