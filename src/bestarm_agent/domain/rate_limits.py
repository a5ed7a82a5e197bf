"""Rate limits per minute, as set by users and as reported by providers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Resource(StrEnum):
    """Amounts that providers limit per minute."""

    REQUESTS = "requests"
    TOKENS = "tokens"  # prompt and generated together
    INPUT_TOKENS = "input-tokens"
    OUTPUT_TOKENS = "output-tokens"


@dataclass(frozen=True, slots=True)
class Allowance:
    """One resource's limit, as the headers of a response report it; None where they do not."""

    resource: Resource
    limit: float | None = None  # > 0, per window
    remaining: float | None = None  # >= 0, now
    reset_seconds: float | None = None  # >= 0, until the whole limit is back


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Limits > 0 of one model of one account; a resource not named is learned from the answers."""

    per_minute: Mapping[Resource, float] = field(default_factory=dict)  # as the user says
    assumed: Mapping[Resource, float] = field(default_factory=dict)  # until the provider says
    reserve_maximum: bool = False  # count the most tokens a call may generate, not the expected
