"""Running sums along an order of examples, of which every row has seen a prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.prefixes import Block
from bestarm_agent.stats.profiles import Profile

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class KnownSums:
    """Of what is known of all m examples, from 0 places to m.

    Attributes:
        gram: (m + 1, r, r) of slope_j slope_j'.
        effect: (m + 1, r) of scale_j slope_j: what the levels add to the scores.
        noise: (m + 1,) of scale_j^2.
        mean: the sum of all mean_j.
    """

    gram: FloatArray
    effect: FloatArray
    noise: FloatArray
    mean: float

    @classmethod
    def of(cls, profile: Profile) -> KnownSums:
        """Sum up a profile along its own order."""
        return cls(
            gram=prefix(squares(profile.slope)),
            effect=prefix(profile.scale[:, None] * profile.slope),
            noise=prefix(profile.scale**2),
            mean=float(profile.mean.sum()),
        )


@dataclass(frozen=True, slots=True, eq=False)
class FittedSums:
    """Of what a fit says of the examples seen by anybody, from 0 places to ``reach``.

    Attributes:
        easiness: of z_j slope_j, (reach + 1, r).
        ease: of scale_j z_j: what easiness adds to the scores.
        square: of E[z_j^2] = z_j^2 + 1 / P_j.
        crossed: of scale_j slope_j / P_j, (reach + 1, r).
        doubt: of scale_j^2 / P_j.
        reach: length of the longest row.
    """

    easiness: FloatArray
    ease: FloatArray
    square: FloatArray
    crossed: FloatArray
    doubt: FloatArray
    reach: int

    @classmethod
    def of(cls, profile: Profile, easiness: FloatArray, precision: FloatArray) -> FittedSums:
        """Sum up easiness (reach,) and its precision given the levels (reach,)."""
        reach = len(easiness)
        scale, slope = profile.scale[:reach], profile.slope[:reach]
        return cls(
            easiness=prefix(easiness[:, None] * slope),
            ease=prefix(scale * easiness),
            square=prefix(easiness**2 + 1.0 / precision),
            crossed=prefix((scale / precision)[:, None] * slope),
            doubt=prefix(scale**2 / precision),
            reach=reach,
        )


def squares(slope: FloatArray) -> FloatArray:
    """(m, r, r) outer products of the rows of (m, r)."""
    return slope[:, :, None] * slope[:, None, :]


def prefix(values: FloatArray) -> FloatArray:
    """(m + 1, ...) running sums along the first axis, from 0.

    Example:
        >>> prefix(np.array([1.0, 2.0]))
        array([0., 1., 3.])
    """
    return np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])


def suffix(length: IntArray, values: FloatArray, reach: int) -> FloatArray:
    """(reach, ...) at place j the sum of the values (K, ...) of the rows that are longer than j.

    Example:
        >>> suffix(np.array([1, 2]), np.array([10.0, 1.0]), reach=2)
        array([11.,  1.])
    """
    ends = np.zeros((reach + 1, *values.shape[1:]))
    np.add.at(ends, length, values)
    return np.asarray(np.cumsum(ends[::-1], axis=0)[::-1][1:])


def weighted_sum(blocks: Sequence[Block], weight: FloatArray, reach: int) -> FloatArray:
    """(reach,) sum over the rows of some blocks of weight (K,) times value."""
    total = np.zeros(reach)
    for rows, values in blocks:
        total[: values.shape[1]] += weight[rows] @ values
    return total
