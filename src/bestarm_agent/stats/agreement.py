"""Agreement of a judge's scores with gold scores, and corrected means.

All intervals are for a number of labels fixed in advance: exact (Clopper-Pearson) for shares,
betting intervals, which hold for any values in their range, for means, and asymptotic for kappa.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm_agent.stats.betting import bet_grid, lower_bound

_CUT = 0.5


class Measure(NamedTuple):
    """An estimate with its interval; the estimate is NaN where there is nothing to estimate."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """Scores of a judge against gold scores of the same answers.

    An answer is good, bad or undecided as its score is above, below or exactly one half.
    """

    n: int  # answers compared
    agreement: Measure  # share on which both say the same
    kappa: Measure  # Cohen's kappa of the three classes: agreement beyond chance, 1 is perfect
    bias: Measure  # mean of judge minus gold, in [-1, 1]
    sensitivity: Measure  # share of answers with gold >= 1/2 that the judge scores >= 1/2
    specificity: Measure  # share of answers with gold < 1/2 that the judge scores < 1/2
    level: float  # joint error probability of each interval by itself


def agreement(judged: ArrayLike, gold: ArrayLike, alpha: float) -> Agreement:
    """Compare (n,) scores in [0, 1] with gold scores of the same n >= 1 answers.

    ``alpha`` is the error probability of each interval. Raises ValueError if shapes differ or a
    score is out of range.

    Example:
        >>> found = agreement([1, 1, 0, 0], [1, 0, 0, 0], 0.05)
        >>> found.agreement.value, found.bias.value, found.kappa.value
        (0.75, 0.25, 0.5)
    """
    x, y = _scores(judged), _scores(gold)
    if x.shape != y.shape or not x.size:
        raise ValueError(f"need as many scores as gold scores, >= 1; got {x.shape} and {y.shape}")
    # Kappa takes three classes, as a score of exactly one half says neither good nor bad.
    # Sensitivity and specificity need two: there one half counts as good, on both sides.
    a, b = np.sign(x - _CUT).astype(int), np.sign(y - _CUT).astype(int)
    good = y >= _CUT
    return Agreement(
        n=int(x.size),
        agreement=share(int((a == b).sum()), int(x.size), alpha),
        kappa=kappa(a, b, alpha),
        bias=mean(x - y, -1.0, 1.0, alpha),
        sensitivity=share(int((x[good] >= _CUT).sum()), int(good.sum()), alpha),
        specificity=share(int((x[~good] < _CUT).sum()), int((~good).sum()), alpha),
        level=alpha,
    )


def share(successes: int, n: int, alpha: float) -> Measure:
    """Return the share of successes with its Clopper-Pearson interval; [0, 1] if n is 0.

    Source: Clopper and Pearson (1934), Biometrika 26.

    Example:
        >>> share(8, 10, 0.05)
        Measure(value=0.8, lower=0.4439, upper=0.9747)
    """
    from scipy.special import betaincinv  # kept out of the import time of the package

    if not n:
        return Measure(float("nan"), 0.0, 1.0)
    lower = float(betaincinv(successes, n - successes + 1, alpha / 2)) if successes else 0.0
    failures = n - successes
    upper = float(betaincinv(successes + 1, failures, 1 - alpha / 2)) if failures else 1.0
    return Measure(successes / n, lower, upper)


def kappa(first: ArrayLike, second: ArrayLike, alpha: float) -> Measure:
    """Return Cohen's kappa of two (n,) integer classifications, with its interval.

    The interval is the asymptotic one, widened to what the exact interval of the share of equal
    classes gives for the observed agreement by chance. NaN with [-1, 1] if all items are of one
    class.

    References:
        Cohen (1960), Educational and Psychological Measurement 20, equation 1. Fleiss, Cohen and
        Everitt (1969), Psychological Bulletin 72, equation 13 for the standard error.
    """
    from scipy.special import ndtri

    a, b = np.asarray(first), np.asarray(second)
    classes = np.union1d(a, b)
    table = np.array([[np.mean((a == i) & (b == j)) for j in classes] for i in classes])
    rows, columns, same = table.sum(axis=1), table.sum(axis=0), np.trace(table)
    chance = float(rows @ columns)
    if chance >= 1.0:
        return Measure(float("nan"), -1.0, 1.0)
    value = float((same - chance) / (1 - chance))  # (eq. 1)
    sums = columns[:, None] + rows[None, :]  # p_.i + p_j.
    off = ~np.eye(len(classes), dtype=bool)
    diagonal = np.diag(table) * (1 - (rows + columns) * (1 - value)) ** 2
    variance = (
        diagonal.sum()
        + (1 - value) ** 2 * (table * sums**2)[off].sum()
        - (value - chance * (1 - value)) ** 2
    ) / (a.size * (1 - chance) ** 2)  # (eq. 13)
    # The two intervals are joined and not chosen between: the asymptotic one is too narrow where
    # nearly all agree, the exact one knows nothing of how the chance agreement was estimated.
    radius = float(ndtri(1 - alpha / 2) * np.sqrt(max(0.0, variance)))
    # the standard error is 0 where all agree: never say more than the share of equals is known to
    exact = share(round(same * a.size), a.size, alpha)
    low, high = ((end - chance) / (1 - chance) for end in exact[1:])
    return Measure(value, max(-1.0, min(value - radius, low)), min(1.0, max(value + radius, high)))


def mean(values: ArrayLike, low: float, high: float, alpha: float) -> Measure:
    """Return the mean of values in [low, high] with a betting interval; the whole range if empty.

    Source: Waudby-Smith and Ramdas (2024), JRSS B 86(1), section 4; see ``betting``.
    """
    drawn = np.asarray(values, dtype=float)
    if not drawn.size:
        return Measure(float("nan"), low, high)
    unit = (drawn - low) / (high - low)
    below, above = _lower(unit, alpha / 2), 1.0 - _lower(1.0 - unit, alpha / 2)
    return Measure(float(drawn.mean()), low + below * (high - low), low + above * (high - low))


def difference(
    first: ArrayLike, second: ArrayLike, low: float, high: float, alpha: float
) -> Measure:
    """Return the mean of ``first`` minus that of ``second``, independent values in [low, high].

    Each mean has half of ``alpha``; the interval is the whole range if one is empty.
    """
    if not np.size(first) or not np.size(second):
        return Measure(float("nan"), low - high, high - low)
    a, b = mean(first, low, high, alpha / 2), mean(second, low, high, alpha / 2)
    return Measure(a.value - b.value, a.lower - b.upper, a.upper - b.lower)


# Answers that were labelled stand for more of their kind, so they count as independent draws (no
# size). The bound is the highest of all times and may end above the mean, if early values were
# higher than later ones; an estimate outside its interval would be read as an error, and a lower
# bound that is lowered stays valid.
def _lower(unit: NDArray[np.float64], alpha: float) -> float:
    bound = lower_bound(np.clip(unit, 0.0, 1.0), alpha, None, bet_grid(len(unit), alpha))
    return min(bound, float(unit.mean()))


def _scores(values: ArrayLike) -> NDArray[np.float64]:
    scores = np.asarray(values, dtype=float)
    if scores.ndim != 1 or not ((scores >= 0) & (scores <= 1)).all():  # NaN fails this too
        raise ValueError("scores must be one row of numbers in [0, 1]")
    return scores
