"""What a model expects of the rows of a score matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]

_LEAST_VARIANCE = 1e-14


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """Posterior of the rows' means over all m examples.

    Attributes:
        mean: (K,) posterior means; not clipped to [0, 1].
        sd: (K,) posterior standard deviations.
        active: (n,) rows that are modelled jointly, ascending.
        covariance: (n, n) of their means.
    """

    mean: FloatArray
    sd: FloatArray
    active: IntArray
    covariance: FloatArray

    def gap_variance(self, leader: int) -> FloatArray:
        """(K,) posterior variance of the leader's mean minus each other's, > 0."""
        variance = self.sd**2 + self.sd[leader] ** 2
        at = int(np.searchsorted(self.active, leader))
        if at < len(self.active) and self.active[at] == leader:
            own = self.covariance.diagonal()
            variance[self.active] = own + own[at] - 2.0 * self.covariance[at]
        return np.asarray(np.maximum(variance, _LEAST_VARIANCE))
