"""How the numbers of a stored matrix become scores in [0, 1], higher is better."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Reading:
    """What the numbers are, and which way they lie.

    A run time t becomes the score 1 - min(t, cutoff) / cutoff: 1 at no time at all, 0 at the cutoff
    and beyond. The best candidate is then the one of the lowest mean time, where whatever is slower
    counts as the cutoff (PAR1).

    Attributes:
        cutoff: > 0, in the unit of the run times; None where the numbers are scores already.
        transposed: whether rows are examples and columns candidates.

    Raises:
        ConfigError: ``cutoff`` is not above 0.

    Example:
        >>> Reading(cutoff=2.0).scores(np.array([[0.5, 3.0]]))
        array([[0.75, 0.  ]])
    """

    cutoff: float | None = None
    transposed: bool = False

    def __post_init__(self) -> None:
        """Check the range given above."""
        if self.cutoff is not None and not 0 < self.cutoff < np.inf:
            raise ConfigError(f"a cutoff must be > 0 and finite, got {self.cutoff:g}")

    def scores(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        """(K, N) scores; NaN, for a cell that cannot be measured, stays NaN.

        Raises:
            ConfigError: a run time is below 0.
        """
        grid = values.T if self.transposed else values
        if self.cutoff is None:
            return grid
        times = grid.astype(np.float64)
        if (times < 0).any():
            raise ConfigError(f"run times must be >= 0, got {np.nanmin(times):g}")
        return np.asarray(1.0 - np.minimum(times, self.cutoff) / self.cutoff)
