"""Options of the ``hf`` provider, and the sampling parameters of its models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from bestarm_agent.config.fields import StrictModel
from bestarm_agent.config.yaml import parse_options
from bestarm_agent.domain.digest import Json
from bestarm_agent.providers.local import LocalOptions

Dtype: TypeAlias = Literal["float32", "bfloat16"]
Device: TypeAlias = Literal["auto", "cpu", "cuda"]


class HfOptions(LocalOptions):
    """Options of the ``hf`` provider, in addition to ``LocalOptions``.

    Attributes:
        max_batch_tokens: prompts (counted in characters) padded to the longest and replies
            included; bounds the memory for generation.
        threads: torch's threads for each model. None: 1 where several models share the cores, else
            as many as there are cores, up to 4.
        memory_gb: memory for weights, in 1e9 bytes. If all models do not fit into it together, one
            is loaded at a time. None: 60 % of what is free at the start.
    """

    max_batch: int = Field(default=256, ge=1)  # most calls generated together
    max_batch_tokens: int = Field(default=65_536, ge=1)
    threads: int | None = Field(default=None, ge=1)
    memory_gb: float | None = Field(default=None, gt=0)
    device: Device = "auto"  # "auto": one accelerator ("cuda"), if there is any
    dtype: Dtype = "float32"  # type of the weights in memory, whatever it is on disk


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
        tuple[Annotated[str, Field(min_length=1)], ...],
        BeforeValidator(lambda given: (given,) if isinstance(given, str) else given),
    ] = ()
    seed: int = Field(default=0, ge=0)  # another seed gives other draws


def read_sampling(params: Mapping[str, Json], model: str) -> Sampling:
    """Parse a request's parameters; raises ConfigError if one is unknown or breaks a rule."""
    return parse_options(Sampling, params, subject=f"parameters for {model}")
