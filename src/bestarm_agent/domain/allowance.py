"""What a provider says is left of its rate limits."""

from __future__ import annotations

from dataclasses import dataclass
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
