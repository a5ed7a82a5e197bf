"""Freedman's intervals for the mean of one-step estimates, vectorised over candidates.

References:
    Freedman (1975), Annals of Probability 3(1), theorem 1.6. PULSE: Tolochinsky, Tenzer and Romano
    (2026), "Valid Best-Model Identification for LLM Evaluation via Low-Rank Factorization",
    theorem 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Bounds(NamedTuple):
    """Lower and upper ends of intervals, arrays of one shape."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


def freedman(
    mean: ArrayLike,
    variance: ArrayLike,
    n: ArrayLike,
    alpha: ArrayLike,
    *,
    bound: float = 1.0,
) -> Bounds:
    """Return two-sided intervals around means of n estimates with a common conditional mean.

    With ``bound=2`` this is theorem 1 of PULSE, where ``variance`` is v / n_examples^2. The theorem
    needs v to be fixed in advance.

    ``variance`` >= 0 bounds the mean conditional variance of the n >= 0 steps, ``bound`` > 0 their
    distance from the conditional mean. ``alpha`` is the error probability of each interval, which
    is [0, 1] at n = 0.
    """
    steps, level = _steps(n), _level(alpha)
    total = np.asarray(variance, dtype=float) * steps
    radius = freedman_radius(total, bound, np.log(2.0 / level)) / steps
    radius = np.where(steps < 1.0, np.inf, radius)
    center = np.asarray(mean, dtype=float)
    return Bounds(np.maximum(center - radius, 0.0), np.minimum(center + radius, 1.0))


def freedman_radius(variance: ArrayLike, bound: float, log: ArrayLike) -> NDArray[np.float64]:
    """Solve exp(-x^2 / (2 (v + b x / 3))) = exp(-log) for x, the deviation of a martingale.

    While its summed conditional variance v is at most ``variance`` and no step exceeds b =
    ``bound``, a martingale ever exceeds x with probability at most exp(-log) (theorem 1.6).
    """
    log = np.asarray(log, dtype=float)
    half = bound * log / 3.0
    return np.asarray(half + np.sqrt(half**2 + 2.0 * log * np.asarray(variance, dtype=float)))


def _steps(n: ArrayLike) -> NDArray[np.float64]:
    """Return numbers of steps as floats; 0 becomes 1/2, so that it can be divided by."""
    steps = np.asarray(n, dtype=float)
    if (steps < 0).any():
        raise ValueError(f"n must be >= 0, got {steps}")
    return np.asarray(np.maximum(steps, 0.5))


def _level(alpha: ArrayLike) -> NDArray[np.float64]:
    level = np.asarray(alpha, dtype=float)
    if not ((level > 0.0) & (level < 1.0)).all():
        raise ValueError(f"alpha must be in (0, 1), got {level}")
    return level
