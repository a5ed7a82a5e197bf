"""Concentration intervals for means of values in [0, 1], vectorised over candidates.

These hold at one number of draws, fixed in advance; ``level_at`` turns each of them into a
confidence sequence by a union bound over time. To stop runs, ``sequences`` is far sharper; these
are for comparisons, for indices of selection rules, and for papers that use them.

With ``size=N`` draws are without replacement from N values, else with replacement. All take arrays
that broadcast and return bounds clipped to [0, 1]; at n = 0 that is [0, 1].

References:
    Hoeffding (1963), JASA 58. Maurer and Pontil (2009), "Empirical Bernstein bounds and sample
    variance penalization", COLT, theorem 4. Serfling (1974), Annals of Statistics 2. Bardenet and
    Maillard (2015), "Concentration inequalities for sampling without replacement", Bernoulli 21(3),
    corollaries 2.5 and 3.6, theorem 4.3. Freedman (1975), Annals of Probability 3, theorem 1.6.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

_KAPPA = 7 / 3 + 3 / np.sqrt(2)  # theorem 4.3 of Bardenet and Maillard


class Bounds(NamedTuple):
    """Lower and upper ends of intervals, arrays of one shape."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


def hoeffding(
    mean: ArrayLike, n: ArrayLike, alpha: ArrayLike, *, size: int | None = None
) -> Bounds:
    """Two-sided Hoeffding interval, with ``size`` the Hoeffding-Serfling interval.

    Args:
        mean: sample means, in [0, 1].
        n: numbers of draws, >= 0.
        alpha: error probability of each interval, in (0, 1).
        size: N, number of values drawn from without replacement.

    Raises:
        ValueError: ``alpha`` or ``n`` is out of range.

    Example:
        >>> float(hoeffding(0.5, 50, 0.05).upper)
        0.69206...
        >>> float(hoeffding(0.5, 50, 0.05, size=100).upper)
        0.6371...
    """
    draws, log = _draws(n, size), np.log(2.0 / _level(alpha))
    return _around(mean, draws, np.sqrt(_shrinkage(draws, size) * log / (2.0 * draws)), size)


def bernstein(
    mean: ArrayLike, std: ArrayLike, n: ArrayLike, alpha: ArrayLike, *, size: int | None = None
) -> Bounds:
    """Two-sided Bernstein interval for a known standard deviation; with ``size`` Serfling's form.

    Args:
        mean: sample means, in [0, 1].
        std: standard deviations of the population (divisor N), in [0, 1/2].
        n: numbers of draws, >= 0.
        alpha: error probability of each interval, in (0, 1).
        size: N, number of values drawn from without replacement.

    Raises:
        ValueError: ``alpha`` or ``n`` is out of range.
    """
    draws = _draws(n, size)
    if size is None:  # Bernstein's inequality, solved for the deviation
        log = np.log(2.0 / _level(alpha))
        radius = freedman_radius(np.asarray(std) ** 2 * draws, 1.0, log) / draws
    else:  # corollary 3.6; each side fails with probability 2 exp(-log)
        log = np.log(4.0 / _level(alpha))
        spread = np.asarray(std) * np.sqrt(2.0 * _shrinkage(draws, size) * log / draws)
        radius = spread + _bernstein_range_factor(draws, size) * log / draws
    return _around(mean, draws, radius, size)


def empirical_bernstein(
    mean: ArrayLike, std: ArrayLike, n: ArrayLike, alpha: ArrayLike, *, size: int | None = None
) -> Bounds:
    """Two-sided empirical Bernstein interval; with ``size`` the empirical Bernstein-Serfling one.

    Both sides are covered, so the logarithms are ln(4 / alpha) and, where the source states five
    events for one side, ln(10 / alpha).

    Args:
        mean: sample means, in [0, 1].
        std: sample standard deviations with divisor n, in [0, 1/2].
        n: numbers of draws, >= 0; with replacement a single draw says nothing.
        alpha: error probability of each interval, in (0, 1).
        size: N, number of values drawn from without replacement.

    Raises:
        ValueError: ``alpha`` or ``n`` is out of range.
    """
    draws, deviation = _draws(n, size), np.asarray(std, dtype=float)
    if size is None:  # Maurer and Pontil, theorem 4: variance with divisor n - 1
        log = np.log(4.0 / _level(alpha))
        with np.errstate(divide="ignore"):
            others = np.asarray(1.0 / np.maximum(draws - 1.0, 0.0))
        ends = 7.0 * log * others / 3.0
        with np.errstate(invalid="ignore"):
            spread = np.nan_to_num(deviation * np.sqrt(2.0 * log * others), nan=0.0)
        return _around(mean, draws, spread + ends, size)
    log = np.log(10.0 / _level(alpha))
    spread = deviation * np.sqrt(2.0 * _shrinkage(draws, size) * log / draws)
    return _around(mean, draws, spread + _KAPPA * log / draws, size)


def freedman_radius(variance: ArrayLike, bound: float, log: ArrayLike) -> NDArray[np.float64]:
    """Solve exp(-x^2 / (2 (v + b x / 3))) = exp(-log) for x, the deviation of a martingale.

    While its summed conditional variance is at most ``variance`` and no step exceeds ``bound``,
    a martingale ever exceeds x with probability at most exp(-log) (Freedman).

    Args:
        variance: bounds v on the sum of conditional variances, >= 0.
        bound: b > 0, bound on each step.
        log: natural logarithms of 1 / (error probability of one side), >= 0.

    Example:
        >>> float(freedman_radius(0.25 * 100, 1.0, np.log(40)))
        14.86...
    """
    log = np.asarray(log, dtype=float)
    half = bound * log / 3.0
    return np.asarray(half + np.sqrt(half**2 + 2.0 * log * np.asarray(variance, dtype=float)))


def freedman(
    mean: ArrayLike,
    variance: ArrayLike,
    n: ArrayLike,
    alpha: ArrayLike,
    *,
    bound: float = 1.0,
    floor: float | None = None,
) -> Bounds:
    """Two-sided interval around the mean of n one-step estimates with a common conditional mean.

    With ``bound=2`` this is theorem 1 of PULSE, where ``variance`` is v / n_examples^2. That
    theorem needs v to be fixed in advance. If it is worked out from the run, give a ``floor``: the
    interval then holds at all times and for whatever variance comes out, by a union over the
    intervals floor 2^k.

    Args:
        mean: means of the one-step estimates, true value in [0, 1].
        variance: bounds on the mean conditional variance of the n steps, >= 0.
        n: numbers of steps, >= 0.
        alpha: error probability of each interval, in (0, 1).
        bound: b, how far a step can be from its conditional mean, > 0.
        floor: smallest total variance n * variance to tell from others, > 0; None if ``variance``
            and ``n`` are fixed in advance.

    Raises:
        ValueError: ``alpha``, ``n`` or ``floor`` is out of range.

    References:
        Freedman (1975), theorem 1.6; PULSE (2026), theorem 1.
    """
    if floor is not None and not floor > 0.0:
        raise ValueError(f"floor must be > 0, got {floor}")
    draws, level = _draws(n, None), _level(alpha)
    total = np.asarray(variance, dtype=float) * draws
    if floor is not None:
        step = np.ceil(np.log2(np.maximum(total, floor) / floor))
        total, level = floor * 2.0**step, level / ((step + 1.0) * (step + 2.0))
    return _around(mean, draws, freedman_radius(total, bound, np.log(2.0 / level)) / draws, None)


def level_at(n: ArrayLike, alpha: float) -> NDArray[np.float64]:
    """Share out ``alpha`` over all n = 1, 2, ...: alpha / (n (n + 1)), which sums to alpha.

    An interval for a fixed n, taken at this level at every n, holds at all n at once.

    Example:
        >>> float(hoeffding(0.5, 50, level_at(50, 0.05)).upper)
        0.8395...
    """
    draws = np.maximum(np.asarray(n, dtype=float), 1.0)
    return np.asarray(alpha / (draws * (draws + 1.0)))


def _shrinkage(n: NDArray[np.float64], size: int | None) -> NDArray[np.float64]:
    """Bardenet and Maillard's rho_n; 1 with replacement."""
    if size is None:
        return np.ones_like(n)
    early, late = 1.0 - (n - 1.0) / size, (1.0 - n / size) * (1.0 + 1.0 / n)
    return np.asarray(np.where(n <= size / 2, early, late))


def _bernstein_range_factor(n: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Bardenet and Maillard's kappa_n of corollary 3.6, with f_n = n / N and g_n = N / n - 1."""
    share = n / size
    early = np.sqrt(share / np.maximum(size / np.maximum(n - 1.0, 0.5) - 1.0, 1e-300))
    late = np.sqrt(np.maximum(size / (n + 1.0) - 1.0, 0.0) * (1.0 - share))
    return np.asarray(4.0 / 3.0 + np.where(n <= size / 2, early, late))


def _around(
    mean: ArrayLike, n: NDArray[np.float64], radius: NDArray[np.float64], size: int | None
) -> Bounds:
    """Clip mean +- radius to what is certain."""
    center = np.asarray(mean, dtype=float)
    radius = np.where(n < 1.0, np.inf, radius)
    if size is not None:
        radius = np.where(n >= size, 0.0, radius)
    return Bounds(np.maximum(center - radius, 0.0), np.minimum(center + radius, 1.0))


def _draws(n: ArrayLike, size: int | None) -> NDArray[np.float64]:
    """Numbers of draws as floats, where 0 becomes a number just above it."""
    draws = np.asarray(n, dtype=float)
    if (draws < 0).any() or (size is not None and (draws > size).any()):
        limit = "" if size is None else f" and at most size={size}"
        raise ValueError(f"n must be >= 0{limit}, got {draws}")
    return np.asarray(np.maximum(draws, 0.5))


def _level(alpha: ArrayLike) -> NDArray[np.float64]:
    level = np.asarray(alpha, dtype=float)
    if not ((level > 0.0) & (level < 1.0)).all():
        raise ValueError(f"alpha must be in (0, 1), got {level}")
    return level
