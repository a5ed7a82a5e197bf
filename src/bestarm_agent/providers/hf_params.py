"""Sampling parameters that a local model honours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from bestarm_agent.config.documents import parse_options
from bestarm_agent.domain.digest import Json


def _one_or_many(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class Sampling(BaseModel):
    """How a reply is drawn; the defaults are those of the completion APIs.

    What the model's own ``generation_config.json`` recommends is not taken: the request alone
    decides, so that two candidates differ in nothing but what the study says.

    Attributes:
        temperature: 0 takes the likeliest token, 1 draws from the model's distribution.
        top_p: draw only from the likeliest tokens that together reach this probability.
        top_k: draw only from this many of the likeliest tokens; 0 for all. Applies before top_p.
        max_tokens: longest reply, the end-of-text token included.
        stop: texts that end a reply, and are cut from it with all that follows.
        seed: another seed, other draws.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: float = Field(default=1.0, ge=0, le=100)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    max_tokens: int = Field(default=256, ge=1)
    stop: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_one_or_many)
    ] = ()
    seed: int = Field(default=0, ge=0)


def read_sampling(params: Mapping[str, Json], model: str) -> Sampling:
    """Read a request's parameters.

    Raises:
        ConfigError: one is unknown or breaks a rule.
    """
    return parse_options(Sampling, params, subject=f"parameters for {model}")
