"""The bound (4) of ``betting_bounds`` after a whole sequence of draws, worked out at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.intervals.betting_bounds import bet_grid, wealth_paths

_PRECISION = 2.0**-13


def lower_bound(
    values: NDArray[np.float64], alpha: float, size: int, bets: tuple[float, ...] = ()
) -> float:
    """Bound the mean of ``size`` values in [0, 1] from below at all times, given the first.

    States what ``LowerBound`` does, and rounds down by less: K_i(m) falls in m, so the largest m
    that was ever rejected is found by halving.

    Args:
        values: (n,) draws without replacement, in their order; n <= ``size``.
        alpha: probability with which the bound may ever exceed the mean, in (0, 1).
        size: number of values in all, >= 1.
        bets: from ``bet_grid``, which is the default.

    Example:
        >>> lower_bound(np.ones(20), 0.05, 100) > 0.8
        True
    """
    return _bound(values.tobytes(), alpha, size, bets or bet_grid(size, alpha))


def mean_interval(
    low: NDArray[np.float64], high: NDArray[np.float64], alpha: float, size: int
) -> tuple[float, float]:
    """Bound the mean of ``size`` values, of which the first are known as ranges [low, high]."""
    return lower_bound(low, alpha / 2, size), 1.0 - lower_bound(1.0 - high, alpha / 2, size)


@lru_cache(maxsize=4096)  # a standing is built again and again from scores that stay
def _bound(packed: bytes, alpha: float, size: int, bets: tuple[float, ...]) -> float:
    values = np.frombuffer(packed)
    low, high = float(values.sum()) / size, 1.0  # what is certain
    if len(values) in (0, size):
        return low
    return largest_rejected(
        lambda mean: wealth_paths(values, mean, bets, size).max() >= 1.0 / alpha, low, high
    )


def largest_rejected(is_rejected: Callable[[float], bool], low: float, high: float) -> float:
    """Return the largest mean between ``low`` and ``high`` that is rejected, rounded down.

    All below one that is rejected must be, too.
    """
    while high - low > _PRECISION:
        middle = (low + high) / 2.0
        if is_rejected(middle):
            low = middle
        else:
            high = middle
    return low
