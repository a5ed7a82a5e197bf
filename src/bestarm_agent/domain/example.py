"""Examples of the dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from bestarm_agent.domain.digest import Json, digest


@dataclass(frozen=True, slots=True)
class Slice:
    """Examples that have the same value in a field of the dataset."""

    name: str  # "language=de"
    examples: tuple[int, ...]  # their numbers, from 0, rising


@dataclass(frozen=True)
class Example:
    """One row of the dataset."""

    id: str  # unique within the dataset
    inputs: Mapping[str, Json]  # fields that prompt templates may use
    reference: str | tuple[str, ...] | None = None  # acceptable answers; None: none is needed
    features: tuple[float, ...] = field(default=())  # numbers for contextual rules

    @cached_property
    def digest(self) -> str:
        """Digest of inputs and reference: joins equal examples across runs."""
        return digest({"inputs": dict(self.inputs), "reference": self.reference})
