"""McNemar's test of two candidates' accuracy on the same examples."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def mcnemar(only_a: ArrayLike, only_b: ArrayLike, *, mid_p: bool = False) -> NDArray[np.float64]:
    """Return two-sided p-values, in (0, 1], of the hypothesis that both are right equally often.

    Given n = only_a + only_b examples on which exactly one of the two is right, only_a is
    Binomial(n, 1/2) under the hypothesis. The exact test keeps its level; the mid-p variant counts
    half of the probability of the observed table: it keeps the level on average, and exceeds it by
    up to a half at some n below 80. For a number of examples fixed in advance. Counts are integers
    >= 0 (else ValueError), of shapes that broadcast.

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


def _counts(name: str, values: ArrayLike) -> NDArray[np.int64]:
    raw = np.asarray(values)
    counts = raw.astype(np.int64)
    if (counts != raw).any() or (counts < 0).any():
        raise ValueError(f"{name} must be integers >= 0, got {raw.tolist()}")
    return counts
