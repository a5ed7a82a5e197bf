"""McNemar's test: do two candidates differ in accuracy on the same examples?"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def mcnemar(only_a: ArrayLike, only_b: ArrayLike, *, mid_p: bool = False) -> NDArray[np.float64]:
    """Return two-sided p-values of the hypothesis that both are right equally often.

    Given n = only_a + only_b examples on which exactly one of the two is right, only_a is
    Binomial(n, 1/2) under the hypothesis. The exact test never exceeds its level; the mid-p variant
    is near it on average, and above it by up to a half at some n below 80. Both are for a number of
    examples fixed in advance: do not stop by them.

    Args:
        only_a: examples that only a got right, integers >= 0, any shape.
        only_b: examples that only b got right, integers >= 0, of a shape that broadcasts.
        mid_p: whether to count only half of the probability of the observed table.

    Returns:
        p-values in (0, 1].

    Raises:
        ValueError: a count is negative or not an integer.

    References:
        McNemar (1947), Psychometrika 12(2); Fagerland, Lydersen and Laake (2013), "The McNemar test
        for binary matched-pairs data", BMC Medical Research Methodology 13:91, equations 4 and 5.

    Example:
        >>> float(mcnemar(1, 6)), float(mcnemar(1, 6, mid_p=True))
        (0.125, 0.0703125)
    """
    from scipy.special import bdtr, gammaln  # kept out of the import time of the package

    a, b = np.broadcast_arrays(_counts("only_a", only_a), _counts("only_b", only_b))
    n, fewer = a + b, np.minimum(a, b)
    exact: NDArray[np.float64] = np.minimum(1.0, 2.0 * bdtr(fewer, n, 0.5))
    if not mid_p:
        return exact
    log_ways = gammaln(n + 1) - gammaln(fewer + 1) - gammaln(n - fewer + 1)
    observed = np.exp(log_ways - n * np.log(2.0))
    return np.asarray(exact - np.where(a == b, 0.5, 1.0) * observed)


def discordant(a: ArrayLike, b: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count, along the last axis, the examples that only a, and that only b, got right.

    Args:
        a: (..., N) scores, each 0 or 1.
        b: (..., N) scores, each 0 or 1, of a shape that broadcasts.

    Raises:
        ValueError: a score is neither 0 nor 1.
    """
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    for scores in (x, y):
        if not np.isin(scores, (0.0, 1.0)).all():
            raise ValueError("McNemar's test compares right and wrong: scores must be 0 or 1")
    return (x > y).sum(axis=-1), (x < y).sum(axis=-1)


def _counts(name: str, values: ArrayLike) -> NDArray[np.int64]:
    raw = np.asarray(values)
    counts = raw.astype(np.int64)
    if (counts != raw).any() or (counts < 0).any():
        raise ValueError(f"{name} must be integers >= 0, got {raw.tolist()}")
    return counts
