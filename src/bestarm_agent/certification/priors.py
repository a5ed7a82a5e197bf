"""Where the universal portfolio spreads its money: the Beta(1/2, 1/2) prior as nodes and masses.

The wealth after n draws is a polynomial of degree n in the bet, and Beta(1/2, 1/2) is the weight of
Gauss-Chebyshev quadrature, so m nodes are exact for n < 2 m and all but exact beyond. A uniform
grid needs thousands of points for the same, since the prior is infinite at both ends.

Any nodes with nonnegative masses that sum to 1 are a valid prior: a coarse one costs power, never
validity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.errors import nearest

FloatArray: TypeAlias = NDArray[np.float64]

_DENSITY_FLOOR = 1e-8  # where the published library evaluates the infinite density of an end point


@dataclass(frozen=True, slots=True)
class BetPrior:
    """A distribution over bets.

    Attributes:
        nodes: (m,) bets in [0, 1], as shares of the largest bet that cannot ruin.
        masses: (m,) their probabilities; they sum to 1.
    """

    nodes: FloatArray
    masses: FloatArray


def chebyshev_prior(count: int = 64) -> BetPrior:
    """Return the ``count`` Gauss-Chebyshev nodes of Beta(1/2, 1/2) on [0, 1], of equal mass.

    Example:
        >>> chebyshev_prior(2).nodes.round(4).tolist()
        [0.1464, 0.8536]
    """
    angles = (2 * np.arange(count, 0, -1) - 1) * (math.pi / (2 * count))
    return BetPrior((1 + np.cos(angles)) / 2, np.full(count, 1 / count))


def exact_prior(count: int = 10_000) -> BetPrior:
    """Return ``count`` uniformly spaced nodes with the prior's exact mass of the bin around each.

    Example:
        >>> exact_prior(3).masses.round(4).tolist()  # of [0, 1/4], [1/4, 3/4], [3/4, 1]
        [0.3333, 0.3333, 0.3333]
    """
    nodes = np.linspace(0.0, 1.0, count)
    edges = np.concatenate([[0.0], (nodes[1:] + nodes[:-1]) / 2, [1.0]])
    return BetPrior(nodes, np.diff(2 / math.pi * np.arcsin(np.sqrt(edges))))  # the arcsine CDF


def published_prior(count: int = 10_000, floor: float = _DENSITY_FLOOR) -> BetPrior:
    """Return the prior as the published code has it: the density at each point, normalised.

    The density is infinite at 0 and 1 and is evaluated at ``floor`` instead. With 10,000 points and
    1e-8 each end point gets 19 % of the mass (43 % with 1e-10, as in the published toy script). The
    test stays valid; it needs more labels. For comparison only.
    """
    nodes = np.linspace(0.0, 1.0, count)
    inside = np.clip(nodes, floor, 1.0 - floor)
    density = 1.0 / np.sqrt(inside * (1.0 - inside))
    return BetPrior(nodes, density / density.sum())


_PRIORS = {"chebyshev": chebyshev_prior, "exact": exact_prior, "published": published_prior}


def prior_named(grid: str = "chebyshev") -> BetPrior:
    """Return the prior of that name: "chebyshev" (64 nodes), "exact" or "published" (10,000).

    Raises:
        ValueError: there is no such grid.
    """
    if grid not in _PRIORS:
        raise ValueError(f"there is no grid {grid!r} of bets; {nearest(grid, _PRIORS)}")
    return _PRIORS[grid]()
