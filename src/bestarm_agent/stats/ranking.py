"""How good an answer is: metrics that compare what a rule names with the full score matrix.

The definitions follow Zhou et al. 2024 ("On Speeding Up Language Model Evaluation", sections 2.2
and 4.2; H1 from its Corollary 1) and, for sets of K candidates, Zhou, Chen and Li 2014 ("Optimal
PAC Multiple Arm Identification", eq. 1 and section 6.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm_agent.stats.mcnemar import mcnemar

FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]

_ROUNDING = 1e-9  # two means or precisions that differ by less are equal


def within_gap(means: ArrayLike, gap: float) -> BoolArray:
    """Mark the candidates whose mean lies within ``gap`` of the best (Zhou et al. 2024, 4.2).

    Args:
        means: (K,) true means.
        gap: >= 0; 0 marks the best and those exactly tied with it.

    Returns:
        (K,) mask; an answer is right if it is marked.

    Raises:
        ValueError: ``gap`` is negative.

    Example:
        >>> within_gap([0.5, 0.8, 0.795], 0.01)
        array([False,  True,  True])
    """
    if not gap >= 0:
        raise ValueError(f"gap must be >= 0, got {gap}")
    values = np.asarray(means, dtype=np.float64)
    mask: BoolArray = values >= values.max() - gap - _ROUNDING
    return mask


def mcnemar_p(scores: ArrayLike, reference: int) -> FloatArray:
    """Test every candidate against one of them by McNemar's exact test (two-sided).

    Scores other than 0 and 1 enter by the sign of their difference (the sign test, of which
    McNemar's is the 0/1 case). Examples that miss one of the two scores are left out.

    Args:
        scores: (K, N) scores, NaN where there is none.
        reference: index of the candidate to test against.

    Returns:
        (K,) p-values; 1 for the reference itself and for any candidate that never differs.
    """
    matrix = np.asarray(scores)
    better = np.count_nonzero(matrix > matrix[reference], axis=1)
    worse = np.count_nonzero(matrix < matrix[reference], axis=1)
    return mcnemar(better, worse)


def not_significantly_worse(scores: ArrayLike, means: ArrayLike, level: float) -> BoolArray:
    """Mark the candidates that McNemar's test cannot tell from the best (Zhou et al. 2024, 4.2).

    Args:
        scores: (K, N) scores, NaN where there is none.
        means: (K,) their row means; the reference is the first best.
        level: significance level in (0, 1); the paper uses 0.01 and 0.1.

    Returns:
        (K,) mask; an answer is right if it is marked.

    Raises:
        ValueError: ``level`` is outside (0, 1).
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), got {level}")
    mask: BoolArray = mcnemar_p(scores, int(np.argmax(means))) > level
    return mask


def ndcg(means: ArrayLike, ranking: Sequence[int], depth: int = 10) -> float:
    """Normalised discounted cumulative gain of a predicted order (Zhou et al. 2024, 4.2).

    The paper gives no gain. Here it is ``depth + 1 - rank`` for the candidate of true rank 1 ..
    ``depth`` (equal means share the better rank) and 0 below, divided by log2(1 + position): the
    means themselves as gains would put every answer near 1 where candidates are alike.

    Args:
        means: (K,) true means.
        ranking: candidates, best first; what comes after ``depth`` places is ignored.
        depth: P >= 1, cut to K.

    Returns:
        A value in [0, 1]; 1 if the first P places hold the true order.

    Raises:
        ValueError: ``depth`` is below 1.

    Example:
        >>> ndcg([0.9, 0.5, 0.1], [1, 0, 2], depth=2)  # (1 + 2/log2(3)) / (2 + 1/log2(3))
        0.8597
    """
    if depth < 1:
        raise ValueError(f"depth must be at least 1, got {depth}")
    values = np.asarray(means, dtype=np.float64)
    depth = min(depth, len(values))
    better = len(values) - np.searchsorted(np.sort(values), values + _ROUNDING, side="right")
    gain = np.maximum(0, depth - better)
    discount = 1 / np.log2(np.arange(2, depth + 2))
    found = gain[list(ranking[:depth])]
    ideal = np.sort(gain)[::-1][:depth]
    return float(found @ discount[: len(found)] / (ideal @ discount))


def simple_regret(means: ArrayLike, chosen: int) -> float:
    """The best true mean minus the chosen candidate's, in [0, 1]."""
    values = np.asarray(means, dtype=np.float64)
    return float(values.max() - values[chosen])


def aggregate_regret(means: ArrayLike, chosen: Sequence[int]) -> float:
    """Mean of the K best means minus mean of the K chosen (Zhou, Chen and Li 2014, eq. 1).

    Args:
        means: (n,) true means.
        chosen: K >= 1 distinct candidates.

    Returns:
        The regret, in [0, 1].

    Raises:
        ValueError: nothing is chosen, or something twice.

    Example:
        >>> aggregate_regret([0.9, 0.7, 0.4, 0.1], [0, 2])
        0.15
    """
    values = np.asarray(means, dtype=np.float64)
    chosen = _distinct(chosen)
    best = np.sort(values)[-len(chosen) :]
    return float((best.sum() - values[chosen].sum()) / len(chosen))


def top_k_precision(means: ArrayLike, chosen: Sequence[int]) -> float:
    """Share of the K chosen that belong to the K best (Zhou, Chen and Li 2014, section 6.2).

    A candidate that ties with the K-th best belongs to them.

    Args:
        means: (n,) true means.
        chosen: K >= 1 distinct candidates.

    Returns:
        The precision, in [0, 1].

    Raises:
        ValueError: nothing is chosen, or something twice.
    """
    values = np.asarray(means, dtype=np.float64)
    chosen = _distinct(chosen)
    threshold = np.sort(values)[-len(chosen)] - _ROUNDING
    return float(np.mean(values[chosen] >= threshold))


def hardness(means: ArrayLike) -> float:
    """H1: the sum of 1 / gap^2 over all candidates but the best (Zhou et al. 2024, Corollary 1).

    Args:
        means: (K,) true means.

    Returns:
        H1 >= 0; infinite where the best is tied, 0 for a single candidate.

    Example:
        >>> hardness([0.9, 0.8, 0.4])  # 1/0.1^2 + 1/0.5^2
        104.0
    """
    values = np.sort(np.asarray(means, dtype=np.float64))
    gaps = values[-1] - values[:-1]
    if (gaps < _ROUNDING).any():
        return float("inf")
    return float(np.sum(gaps**-2))


def last_crossing(
    budgets: Sequence[float], precision: ArrayLike, target: float = 0.95
) -> float | None:
    """The smallest budget from which precision stays at or above ``target``.

    "First crossing" would flatter a noisy curve: this one counts from the last point below.

    Args:
        budgets: (B,) rising.
        precision: (B,) in [0, 1].
        target: in [0, 1].

    Returns:
        One of the budgets, or None if the last precision is below ``target``.

    Example:
        >>> last_crossing([0.05, 0.10, 0.15, 0.20], [0.96, 0.90, 0.95, 0.99])
        0.15
    """
    below = np.flatnonzero(np.asarray(precision) < target - _ROUNDING)
    start = int(below[-1]) + 1 if len(below) else 0
    return float(budgets[start]) if start < len(budgets) else None


def isotonic_crossing(
    budgets: Sequence[float], precision: ArrayLike, target: float = 0.95
) -> float | None:
    """Where the rising curve fitted to precision crosses ``target``.

    The fit is the least-squares non-decreasing one (pool adjacent violators), read off by linear
    interpolation between budgets. Less noisy than ``last_crossing``, which one unlucky point moves.

    Args:
        budgets: (B,) rising.
        precision: (B,) in [0, 1].
        target: in [0, 1].

    Returns:
        A budget; the first one if the curve starts at or above ``target``; None if it ends below.

    Example:
        >>> isotonic_crossing([0.1, 0.2, 0.3], [0.80, 0.90, 1.00])
        0.25
    """
    from scipy.optimize import isotonic_regression  # kept out of the import time of the package

    fit = isotonic_regression(np.asarray(precision, dtype=np.float64)).x
    above = np.flatnonzero(fit >= target - _ROUNDING)
    if not len(above):
        return None
    at = int(above[0])
    if at == 0:
        return float(budgets[0])
    share = (target - fit[at - 1]) / (fit[at] - fit[at - 1])
    return float(budgets[at - 1] + min(1.0, share) * (budgets[at] - budgets[at - 1]))


def _distinct(chosen: Sequence[int]) -> list[int]:
    """Check a set of candidates; return it as a list of plain integers."""
    members = [int(i) for i in chosen]
    if not members:
        raise ValueError("choose at least one candidate, got none")
    if len(set(members)) < len(members):
        raise ValueError(f"the chosen candidates must be distinct, got {members}")
    return members
