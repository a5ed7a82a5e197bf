"""UCB-E and rules in rounds on common examples once more, compiled: see ``light_auto``."""

from __future__ import annotations

import math

import numpy as np
from benchmarks.auto.light_model import FloatArray, IntArray, compiled
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
_PAID = 1.0 + 1e-12  # so that a sum of prices pays for itself


@compiled
def _affordable(seen: IntArray, m: int, costs: FloatArray, left: float) -> Mask:
    return (seen < m) & (costs <= left)


@compiled
def run_ucb_e(
    scores: NDArray[np.float32],
    costs: FloatArray,
    budgets: FloatArray,
    batch: int,
    rng: np.random.Generator,
    common: bool,
) -> IntArray:
    """Answers of UCB-E with eta = 1, blind to costs, when no further pull can be paid for.

    Args:
        scores: (K, m), rows and columns shuffled.
        costs: (K,) of a pull of each candidate, > 0; ones to count pulls.
        budgets: rising sums of costs.
        batch: pulls of a candidate before the next is chosen.
        rng: its draws.
        common: whether all candidates take their examples in the order of the columns.
    """
    n, m = scores.shape
    seen = np.zeros(n, np.int64)
    ties: FloatArray = 1e-9 * rng.random((n,))
    total: FloatArray = np.zeros(n)
    index: FloatArray = 1e9 + rng.random((n,))
    orders = np.empty((n, m), np.int32)
    for i in range(n):
        orders[i] = np.arange(m) if common else rng.permutation(m)
    answers, spent, i, owed = np.zeros(len(budgets), np.int64), 0.0, 0, 0
    for at in range(len(budgets)):
        while True:
            allowed = _affordable(seen, m, costs, _PAID * budgets[at] - spent)
            if not allowed.any():
                break
            if owed == 0 or not allowed[i]:
                i, owed = int(np.argmax(np.where(allowed, index, -np.inf))), batch
            total[i] += scores[i, orders[i, seen[i]]]
            seen[i] += 1
            spent += costs[i]
            owed = owed - 1 if seen[i] < m else 0
            index[i] = total[i] / seen[i] + math.sqrt(1.0 / seen[i]) + ties[i]
        answers[at] = np.argmax(total / np.maximum(seen, 1) + ties - (seen == 0))
    return answers


@compiled
def _without_worst(racing: Mask, means: FloatArray, leaving: int) -> Mask:
    """Who is left when so many of the lowest means have gone."""
    left = racing.copy()
    for _ in range(leaving):
        left[np.argmin(np.where(left, means, np.inf))] = False
    return left


@compiled
def run_rounds(
    scores: NDArray[np.float32],
    costs: FloatArray,
    money: float,
    schedule: IntArray,
    ties: FloatArray,
) -> int:
    """Answer of a rule in rounds, blind to costs, when its plan or the money ends.

    A round that somebody has no money left for stays open; the others go on to what the next ones
    would be.

    Args:
        scores: (K, m), rows and columns shuffled.
        costs: (K,) of a pull of each candidate, > 0.
        money: to spend at most.
        schedule: (2, rounds) pulls of each candidate by the end, and how many then leave.
        ties: (K,) small numbers that put equals in order.
    """
    n, m = scores.shape
    seen, total, left = np.zeros(n, np.int64), np.zeros(n), _PAID * money
    racing, ahead, open_round = np.ones(n, np.bool_), np.ones(n, np.bool_), False
    for stage in range(schedule.shape[1]):
        target = min(schedule[0, stage], m)
        while True:
            owed = ahead & _affordable(seen, target, costs, left)
            if not owed.any():
                break
            i = int(np.argmin(np.where(owed, seen + 1e6 * ties, np.inf)))
            total[i] += scores[i, seen[i]]
            seen[i] += 1
            left -= costs[i]
        open_round = open_round or bool((ahead & (seen < target)).any())
        means = np.where(seen > 0, total / np.maximum(seen, 1), 1.0) + ties
        ahead = _without_worst(ahead, means, schedule[1, stage])
        if not open_round:
            racing = ahead
        if ahead.sum() < 2:
            break
    means = np.where(seen > 0, total / np.maximum(seen, 1) + ties, -1.0)
    return int(np.argmax(np.where(racing, means, -np.inf)))
