"""The posterior that a model gives the rows' means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]

_LEAST_VARIANCE = 1e-14


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """Posterior of the rows' means over all m examples."""

    mean: FloatArray  # (K,) posterior means; not clipped to [0, 1]
    sd: FloatArray  # (K,) posterior standard deviations
    active: IntArray  # (n,) rows that are modelled jointly, ascending
    covariance: FloatArray  # (n, n) of their means; other rows count as independent

    def gap_variance(self, leader: int) -> FloatArray:
        """Return the (K,) variances of the leader's mean minus each other mean, > 0.

        Var(M_l - M_i) = C_ll + C_ii - 2 C_li among active rows, sd_l^2 + sd_i^2 elsewhere.
        """
        variance = self.sd**2 + self.sd[leader] ** 2
        at = int(np.searchsorted(self.active, leader))
        if at < len(self.active) and self.active[at] == leader:
            own = self.covariance.diagonal()
            variance[self.active] = own + own[at] - 2.0 * self.covariance[at]
        return np.asarray(np.maximum(variance, _LEAST_VARIANCE))
