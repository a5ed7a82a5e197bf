"""Metrics that compare a rule's answer with the full score matrix.

Definitions follow Zhou et al. 2024 ("On Speeding Up Language Model Evaluation", sections 2.2 and
4.2; H1 from its Corollary 1) and, for sets of K candidates, Zhou, Chen and Li 2014 ("Optimal PAC
Multiple Arm Identification", eq. 1 and section 6.2).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from bestarm_agent.stats.arrays import BoolArray, FloatArray
from bestarm_agent.stats.mcnemar import mcnemar

_ROUNDING = 1e-9  # two means or precisions that differ by less are equal


def within_gap(means: ArrayLike, gap: float) -> BoolArray:
    """Mark candidates whose mean is within ``gap`` >= 0 of the best (Zhou et al. 2024, 4.2)."""
    if not gap >= 0:
        raise ValueError(f"gap must be >= 0, got {gap}")
    values = np.asarray(means, dtype=np.float64)
    mask: BoolArray = values >= values.max() - gap - _ROUNDING
    return mask


def mcnemar_p(scores: ArrayLike, reference: int) -> FloatArray:
    """Return (K,) p-values of McNemar's exact test of every candidate against the ``reference``.

    ``scores`` (K, N) are NaN where there is none. Those other than 0 and 1 count by the sign of
    their difference (the sign test); examples that miss one of the two are left out. 1 for the
    reference itself and for any candidate that never differs.
    """
    matrix = np.asarray(scores)
    better = np.count_nonzero(matrix > matrix[reference], axis=1)
    worse = np.count_nonzero(matrix < matrix[reference], axis=1)
    return mcnemar(better, worse)


def not_significantly_worse(scores: ArrayLike, means: ArrayLike, level: float) -> BoolArray:
    """Mark the candidates that McNemar's test cannot tell from the best (Zhou et al. 2024, 4.2).

    ``scores`` (K, N) are NaN where there is none. The first best of their row ``means`` is the
    reference. The paper uses the significance levels 0.01 and 0.1.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), got {level}")
    mask: BoolArray = mcnemar_p(scores, int(np.argmax(means))) > level
    return mask


def ndcg(means: ArrayLike, ranking: Sequence[int], depth: int = 10) -> float:
    """Return the normalised discounted cumulative gain of a ranking (Zhou et al. 2024, 4.2).

    The paper gives no gain. Here it is ``depth + 1 - rank`` for true ranks 1 .. ``depth`` >= 1
    (equal ``means`` share the better rank) and 0 below, divided by log2(1 + position); the means
    themselves as gains would put every answer near 1. ``ranking`` is best first; ``depth`` is cut
    to K.

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
    """Return the best true mean minus the chosen candidate's, in [0, 1]."""
    values = np.asarray(means, dtype=np.float64)
    return float(values.max() - values[chosen])


def aggregate_regret(means: ArrayLike, chosen: Sequence[int]) -> float:
    """Return the mean of the K best means minus that of the K chosen (Zhou et al. 2014, eq. 1).

    Raises ValueError if nothing is chosen, or something twice.
    """
    values = np.asarray(means, dtype=np.float64)
    chosen = _distinct(chosen)
    best = np.sort(values)[-len(chosen) :]
    return float((best.sum() - values[chosen].sum()) / len(chosen))


def top_k_precision(means: ArrayLike, chosen: Sequence[int]) -> float:
    """Return the share of the K chosen among the K best (Zhou, Chen and Li 2014, section 6.2).

    A candidate that ties with the K-th best is one of them.
    """
    values = np.asarray(means, dtype=np.float64)
    chosen = _distinct(chosen)
    threshold = np.sort(values)[-len(chosen)] - _ROUNDING
    return float(np.mean(values[chosen] >= threshold))


def hardness(means: ArrayLike) -> float:
    """Return H1, the sum of 1 / gap^2 over all but the best (Zhou et al. 2024, Corollary 1).

    Infinite where the best is tied, 0 for a single candidate.

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
    """Return the smallest budget from which precision stays at or above ``target``, or None.

    ``budgets`` (B,) rise.
    """
    below = np.flatnonzero(np.asarray(precision) < target - _ROUNDING)
    start = int(below[-1]) + 1 if len(below) else 0
    return float(budgets[start]) if start < len(budgets) else None


def isotonic_crossing(
    budgets: Sequence[float], precision: ArrayLike, target: float = 0.95
) -> float | None:
    """Return where the non-decreasing least-squares fit of precision crosses ``target``.

    Pool adjacent violators, then linear interpolation between the rising ``budgets`` (B,). Less
    noisy than ``last_crossing``, which one unlucky point moves. The first budget if the curve
    starts at or above ``target``; None if it ends below.

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
    members = [int(i) for i in chosen]
    if not members:
        raise ValueError("choose at least one candidate, got none")
    if len(set(members)) < len(members):
        raise ValueError(f"the chosen candidates must be distinct, got {members}")
    return members
