"""Examples: what the candidates are tried on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from bestarm_agent.domain.digest import Json, digest


@dataclass(frozen=True)
class Example:
    """One row of the dataset.

    Attributes:
        id: unique within the dataset.
        inputs: fields that prompt templates may use.
        reference: the target answer, or None where the scorer needs none. A list holds several
            acceptable answers.
        tags: labels for reports.
        features: numbers that describe the example, for contextual rules.
    """

    id: str
    inputs: Mapping[str, Json]
    reference: str | tuple[str, ...] | None = None
    tags: tuple[str, ...] = ()
    features: tuple[float, ...] = field(default=())

    @cached_property
    def digest(self) -> str:
        """Digest of inputs and reference: joins equal examples across runs."""
        return digest({"inputs": dict(self.inputs), "reference": self.reference})


def dataset_digest(examples: Sequence[Example]) -> str:
    """Digest of a dataset: the examples' contents, in order."""
    return digest([example.digest for example in examples])
