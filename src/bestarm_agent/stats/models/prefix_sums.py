"""Running sums along an order of examples of which every row has seen a prefix.

Notation as in ``one_factor``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bestarm_agent.stats.arrays import FloatArray, IntArray
from bestarm_agent.stats.models.example_profiles import Profile
from bestarm_agent.stats.models.prefix_scores import Block


@dataclass(frozen=True, slots=True, eq=False)
class KnownSums:
    """Sums of a profile over the first 0, 1, ..., m places of its order."""

    gram: FloatArray  # (m + 1, r, r) of b_j b_j' (slopes)
    # (m + 1, r) of c_j b_j (scale times slope): what the levels add to the scores
    effect: FloatArray
    noise: FloatArray  # (m + 1,) of c_j^2
    mean: float  # the sum of all m_j

    @classmethod
    def of(cls, profile: Profile) -> KnownSums:
        """Sum up a profile along its order."""
        return cls(
            gram=prefix(squares(profile.slope)),
            effect=prefix(profile.scale[:, None] * profile.slope),
            noise=prefix(profile.scale**2),
            mean=float(profile.mean.sum()),
        )


@dataclass(frozen=True, slots=True, eq=False)
class FittedSums:
    """Sums of a fit over the first 0, 1, ..., ``reach`` places."""

    slope_easiness: FloatArray  # (reach + 1, r) of b_j z_j
    scale_easiness: FloatArray  # (reach + 1,) of c_j z_j: what easiness adds to the scores
    square: FloatArray  # (reach + 1,) of z_j^2 + 1 / P_j
    scale_slope_variance: FloatArray  # (reach + 1, r) of c_j b_j / P_j
    scale_variance: FloatArray  # (reach + 1,) of c_j^2 / P_j
    reach: int  # length of the longest row

    @classmethod
    def of(cls, profile: Profile, easiness: FloatArray, precision: FloatArray) -> FittedSums:
        """Sum up z_j (reach,) and P_j (reach,)."""
        reach = len(easiness)
        scale, slope = profile.scale[:reach], profile.slope[:reach]
        return cls(
            slope_easiness=prefix(easiness[:, None] * slope),
            scale_easiness=prefix(scale * easiness),
            square=prefix(easiness**2 + 1.0 / precision),
            scale_slope_variance=prefix((scale / precision)[:, None] * slope),
            scale_variance=prefix(scale**2 / precision),
            reach=reach,
        )


def squares(slope: FloatArray) -> FloatArray:
    """Return the (m, r, r) outer products of the rows of (m, r)."""
    return slope[:, :, None] * slope[:, None, :]


def prefix(values: FloatArray) -> FloatArray:
    """Return the (m + 1, ...) running sums along the first axis, from 0."""
    return np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])


def suffix(length: IntArray, values: FloatArray, reach: int) -> FloatArray:
    """Return, for each place j, the sum of the values (K, ...) of the rows longer than j.

    Example:
        >>> suffix(np.array([1, 2]), np.array([10.0, 1.0]), reach=2)
        array([11.,  1.])
    """
    ends = np.zeros((reach + 1, *values.shape[1:]))
    np.add.at(ends, length, values)
    return np.asarray(np.cumsum(ends[::-1], axis=0)[::-1][1:])


def weighted_sum(blocks: Sequence[Block], weight: FloatArray, reach: int) -> FloatArray:
    """Return the (reach,) sums over the rows of some blocks of weight (K,) times value."""
    total = np.zeros(reach)
    for rows, values in blocks:
        total[: values.shape[1]] += weight[rows] @ values
    return total
