"""Rate limits: what may be sent in a minute, and what a provider says is left of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Resource(StrEnum):
    """What providers count per minute."""

    REQUESTS = "requests"
    TOKENS = "tokens"  # prompt and generated together
    INPUT_TOKENS = "input-tokens"
    OUTPUT_TOKENS = "output-tokens"


@dataclass(frozen=True, slots=True)
class Allowance:
    """One resource, as the headers of a response tell it; nonsense is left out, not passed on.

    Attributes:
        resource: what is counted.
        limit: the most that the provider allows in a window, > 0, or None if it does not say.
        remaining: what is left at this moment, >= 0, or None.
        reset_seconds: seconds until the whole limit is back, >= 0, or None.
    """

    resource: Resource
    limit: float | None = None
    remaining: float | None = None
    reset_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RateLimits:
    """What may be sent to one model of one account.

    Attributes:
        per_minute: amounts > 0 that may be used in any minute, as the user says; what is left out
            is learned from the provider's answers.
        assumed: amounts that hold until the provider says others.
        reserve_maximum: whether a call counts with the most tokens that it may generate, as some
            providers count it, instead of with those that it is expected to generate.
    """

    per_minute: Mapping[Resource, float] = field(default_factory=dict)
    assumed: Mapping[Resource, float] = field(default_factory=dict)
    reserve_maximum: bool = False
