"""Rate limits in a study and in the providers catalogue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from bestarm_agent.config.fields import StudyModel
from bestarm_agent.config.study.value_types import Count, Flag
from bestarm_agent.domain.rate_limits import RateLimits, Resource

_FIELDS = {
    Resource.REQUESTS: "rpm",
    Resource.TOKENS: "tpm",
    Resource.INPUT_TOKENS: "itpm",
    Resource.OUTPUT_TOKENS: "otpm",
}


class RateSpec(StudyModel):
    """Limits per minute; those left out are learned from the provider's answers."""

    rpm: Count | None = Field(None, description="Requests per minute.")
    tpm: Count | None = Field(None, description="Tokens per minute, prompt and generated together.")
    itpm: Count | None = Field(None, description="Prompt tokens per minute.")
    otpm: Count | None = Field(None, description="Generated tokens per minute.")
    reserve: Literal["expected", "maximum"] | None = Field(
        None,
        description="Tokens reserved for a reply in flight: as many as `expected` from earlier "
        "replies (default), or the `maximum` that the request allows, as OpenAI counts it.",
    )


class ProviderRateSpec(RateSpec):
    """Limits per minute of a provider."""

    shared: Flag | None = Field(
        None,
        description="Whether all models of the account share these limits; default: each model has "
        "them for itself.",
    )


def rate_limits(given: Iterable[RateSpec | None], assumed: RateSpec | None = None) -> RateLimits:
    """Combine limits: each from the first of ``given`` that has it, else from ``assumed``.

    Example:
        >>> limits = rate_limits([RateSpec(rpm=10), None, RateSpec(rpm=500, tpm=1000)])
        >>> {str(name): most for name, most in limits.per_minute.items()}
        {'requests': 10.0, 'tokens': 1000.0}
    """
    specs = [spec for spec in given if spec is not None]
    amounts: dict[Resource, float] = {}
    for spec in reversed(specs):
        amounts |= _amounts(spec)
    reserves = [spec.reserve for spec in (*specs, assumed) if spec is not None and spec.reserve]
    return RateLimits(
        per_minute=amounts,
        assumed={} if assumed is None else _amounts(assumed),
        reserve_maximum=reserves[:1] == ["maximum"],
    )


def _amounts(spec: RateSpec) -> dict[Resource, float]:
    values = {resource: getattr(spec, field) for resource, field in _FIELDS.items()}
    return {resource: float(most) for resource, most in values.items() if most is not None}
