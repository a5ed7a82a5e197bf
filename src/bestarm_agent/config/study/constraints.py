"""Constraints of an objective: what the winner must keep to besides being good."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bestarm_agent.config.fields import broken, shown

PRICE = "usd_per_1k_calls"
LENGTH = "output_tokens_mean"
_MEANS = {PRICE: "price", LENGTH: "output_tokens"}
_TEXT = re.compile(r"\s*(<=|>=)\s*\$?(\d+(?:\.\d*)?|\.\d+)\s*")
FIRST_TOKEN = "first_token"
_PERCENTILE = re.compile(rf"(latency|{FIRST_TOKEN}|output_tokens)_p(\d{{1,2}})(?:_seconds)?")
NAMES = (
    f"latency_p95_seconds, {FIRST_TOKEN}_p95_seconds, output_tokens_p95 (any percentile), "
    f"{LENGTH}, {PRICE}"
)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A limit of a mean, or of a percentile: that so many percent are at most ``limit``."""

    name: str  # as the study has it
    at_most: bool  # else at least
    limit: float
    of: str  # "latency", "first_token", "output_tokens", "price", or the name of a measure
    percentile: int | None = None  # in 1..99; None for a mean

    @property
    def text(self) -> str:
        """The constraint as the study has it."""
        return f"{self.name} {'<=' if self.at_most else '>='} {self.limit:g}"

    @property
    def allowed(self) -> float:
        """The bound of the mean that is tested; of a percentile, the share that may be above."""
        return self.limit if self.percentile is None else 1.0 - self.percentile / 100


def constraint_of(name: str, text: str) -> Constraint:
    """Read an entry of ``subject_to``; a name that is no quantity of calls is a measure's.

    Example:
        >>> constraint_of("latency_p95_seconds", "<= 2").percentile
        95
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        broken(f'must be a limit such as "<= 2" or ">= 0.9", got {shown(text)}', name)
    at_most, limit = match[1] == "<=", float(match[2])
    part = _PERCENTILE.fullmatch(name)
    if is_quantity(name) and not at_most:
        broken('limits from above: write "<="', name)
    if part is not None and int(part[2]) == 0:
        broken("names percentile 0; choose one in 1..99", name)
    if part is not None:
        return Constraint(name, at_most, limit, part[1], int(part[2]))
    if name not in _MEANS and limit > 1:
        broken(f"limits a mean of scores, at most 1, got {limit:g}", name)
    return Constraint(name, at_most, limit, _MEANS.get(name, name))


def is_quantity(name: str) -> bool:
    """Return whether a name stands for a quantity of calls, so that no measure may have it."""
    return name in _MEANS or _PERCENTILE.fullmatch(name) is not None
