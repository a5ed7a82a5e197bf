"""Pulls of one candidate in a row, and choices among equals."""

from __future__ import annotations

import numpy as np

from bestarm_agent.selectors.types import FloatArray


class Batch:
    """The pulls of one candidate in a row, before a rule looks at its index again."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"batch must be at least 1, got {size}")
        self.size = size
        self.candidate = 0
        self.left = 0  # pulls that are still to be asked

    def goes_on(self, candidate: int) -> bool:
        """Return whether a pull of this candidate belongs to the batch under way."""
        return self.left > 0 and candidate == self.candidate

    def count(self, candidate: int) -> None:
        """Count a pull in: of the batch under way, or the first of a new one."""
        self.left = (self.left if self.goes_on(candidate) else self.size) - 1
        self.candidate = candidate


def highest(values: FloatArray, rng: np.random.Generator) -> int:
    """Return the place of the largest value; ties are broken at random."""
    ties = np.flatnonzero(values == values.max())
    return int(ties[rng.integers(len(ties))])
