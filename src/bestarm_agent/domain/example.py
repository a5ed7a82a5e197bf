"""Examples of the dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from bestarm_agent.domain.digest import Json, digest


@dataclass(frozen=True, slots=True)
class Slice:
    """Examples that have the same value in a field of the dataset."""

    name: str  # "language=de"
    examples: tuple[int, ...]  # their numbers, from 0, rising


@dataclass(frozen=True)
class Example:
    """One row of the dataset, or a draw of it that is asked for by itself."""

    id: str  # unique within the dataset
    inputs: Mapping[str, Json]  # fields that prompt templates may use
    reference: str | tuple[str, ...] | None = None  # acceptable answers; None: none is needed
    draw: int = 0  # number of draws of the same row before this one

    @property
    def row_id(self) -> str:
        """The id of its row, which is that of the first draw."""
        return self.id.removesuffix(_suffix(self.draw))

    @property
    def target(self) -> str | None:
        """The acceptable answers, one a line; None if none is needed."""
        return "\n".join(self.reference) if isinstance(self.reference, tuple) else self.reference

    @cached_property
    def digest(self) -> str:
        """Digest of inputs and reference: joins equal examples across runs."""
        return digest({"inputs": dict(self.inputs), "reference": self.reference})


def each_drawn(rows: Sequence[Example], n_draws: int) -> tuple[Example, ...]:
    """Return an example for each draw of each row: the first of all rows, then the second ...

    Example:
        >>> [example.id for example in each_drawn([Example("a", {}), Example("b", {})], 2)]
        ['a', 'b', 'a#2', 'b#2']
    """
    return tuple(
        replace(row, id=f"{row.id}{_suffix(draw)}", draw=draw)
        for draw in range(n_draws)
        for row in rows
    )


def _suffix(draw: int) -> str:
    return f"#{draw + 1}" if draw else ""
