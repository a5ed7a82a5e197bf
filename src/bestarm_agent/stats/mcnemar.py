"""McNemar's test of two candidates' accuracy on the same examples."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray


def mcnemar(only_a: ArrayLike, only_b: ArrayLike) -> NDArray[np.float64]:
    """Return two-sided p-values, in (0, 1], of the hypothesis that both are right equally often.

    Given n = only_a + only_b examples on which exactly one of the two is right, only_a is
    Binomial(n, 1/2) under the hypothesis; the test is exact. For a number of examples fixed in
    advance. Counts are integers >= 0 (else ValueError), of shapes that broadcast.

    References:
        McNemar (1947), Psychometrika 12(2); Fagerland, Lydersen and Laake (2013), "The McNemar test
        for binary matched-pairs data", BMC Medical Research Methodology 13:91, equation 4.

    Example:
        >>> float(mcnemar(1, 6))
        0.125
    """
    from scipy.special import bdtr  # kept out of the import time of the package

    a, b = np.broadcast_arrays(_counts("only_a", only_a), _counts("only_b", only_b))
    return np.asarray(np.minimum(1.0, 2.0 * bdtr(np.minimum(a, b), a + b, 0.5)))


def examples_needed(
    difference: float, disagree: float, *, level: float = 0.05, power: float = 0.8
) -> int:
    """Return the number of examples on which McNemar's test finds a difference of accuracy.

    Args:
        difference: of the two accuracies, in (0, ``disagree``].
        disagree: share of the examples on which exactly one of the two is right, in (0, 1].
        level: of the two-sided test, in (0, 1).
        power: probability of finding the difference, in (``level``, 1).

    Raises:
        ValueError: ``difference`` or ``disagree`` is out of its range.

    References:
        Connor (1987), "Sample size for testing differences in proportions for the paired-sample
        design", Biometrics 43(1), equation 4.

    Example:
        >>> examples_needed(0.03, 0.1), examples_needed(0.03, 0.4)
        (870, 3487)
    """
    from scipy.special import ndtri

    if not 0 < difference <= disagree <= 1:
        raise ValueError(
            f"difference and disagree must be 0 < difference <= disagree <= 1, got {difference} "
            f"and {disagree}"
        )
    under_equality = -ndtri(level / 2) * math.sqrt(disagree)
    under_difference = ndtri(power) * math.sqrt(disagree - difference**2)
    return math.ceil(((under_equality + under_difference) / difference) ** 2)


def _counts(name: str, values: ArrayLike) -> NDArray[np.int64]:
    raw = np.asarray(values)
    counts = raw.astype(np.int64)
    if (counts != raw).any() or (counts < 0).any():
        raise ValueError(f"{name} must be integers >= 0, got {raw.tolist()}")
    return counts
