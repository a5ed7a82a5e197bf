"""The prior of the universal portfolio over bets: Beta(1/2, 1/2) as nodes and masses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BetPrior:
    """A distribution over bets; any masses >= 0 that sum to 1 keep the test valid."""

    nodes: FloatArray  # (m,) bets in [0, 1], as shares of the largest bet that cannot ruin
    masses: FloatArray  # (m,) their probabilities; they sum to 1


def chebyshev_prior(count: int = 64) -> BetPrior:
    """Return the ``count`` Gauss-Chebyshev nodes of Beta(1/2, 1/2) on [0, 1], of equal mass.

    The wealth after n draws is a polynomial of degree n in the bet, so m nodes are exact for
    n < 2 m and close beyond. A uniform grid needs thousands of points for the same, since the
    density is infinite at both ends.

    Example:
        >>> chebyshev_prior(2).nodes.round(4).tolist()
        [0.1464, 0.8536]
    """
    angles = (2 * np.arange(count, 0, -1) - 1) * (math.pi / (2 * count))
    return BetPrior((1 + np.cos(angles)) / 2, np.full(count, 1 / count))
