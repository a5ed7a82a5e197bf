"""The selector ``auto`` and UCB-E once more, compiled: for studies of hundreds of runs.

The same steps as the package's selectors, one call in flight, written as plain loops that numba
compiles (``pip install numba``): ten to fifty times faster, and an independent second writing of
the model. ``reproduce_auto.py`` compares the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from light_model import (
    FACTOR,
    FLOOR,
    INFLATION,
    MOST_ACTIVE,
    SHARPNESS,
    SIGHT,
    WARM_UP,
    FloatArray,
    IntArray,
    compiled,
    covariance_of,
    expect,
    fit_levels,
    refit,
)


@dataclass(frozen=True, slots=True)
class Variant:
    """What an ablation changes.

    Attributes:
        warm_up: common examples of every candidate first.
        floor: share of the pulls that follow the rank.
        sharpness: power of the chance to overtake.
        inflation: of posterior variances.
        narrow: whether a known budget narrows the field.
        factor: whether the model has a factor of examples; else scores are independent.
        leaders_noise: weight of the leaders' noise in everybody's, in scores.
        sight: ranks that the floor reaches in sizes of the field; 0 for all.
        all_noise: weight of all rows' noise in everybody's, in scores.
    """

    warm_up: int = 1
    floor: float = 0.25
    sharpness: float = 2.0
    inflation: float = 1.25
    narrow: bool = True
    factor: bool = True
    leaders_noise: float = 20.0
    sight: float = 2.0
    all_noise: float = 5.0

    def numbers(self) -> FloatArray:
        """As the compiled loops take it."""
        return np.array(
            [
                self.warm_up,
                self.floor,
                self.sharpness,
                self.inflation,
                self.narrow,
                self.factor,
                self.leaders_noise,
                self.sight,
                self.all_noise,
            ],
            dtype=np.float64,
        )


@compiled
def _chances(
    means: FloatArray,
    sd: FloatArray,
    active: IntArray,
    covariance: FloatArray,
    most: float,
    rule: FloatArray,
) -> FloatArray:
    """(K,) weights of the challengers to the leader."""
    leader = np.argmax(means)
    weight, at = np.zeros(len(means)), -1
    for x in range(len(active)):
        if active[x] == leader:
            at = x
    variance = sd**2 + sd[leader] ** 2
    for x in range(len(active)):
        if at >= 0:
            variance[active[x]] = covariance[x, x] + covariance[at, at] - 2.0 * covariance[x, at]
    for i in range(len(means)):
        if i != leader:
            z = (means[leader] - means[i]) / math.sqrt(rule[INFLATION] * max(variance[i], 1e-14))
            weight[i] = (0.5 * math.erfc(z / math.sqrt(2.0))) ** rule[SHARPNESS]
    if most > 0.0 and weight.max() > 0.0:
        weight /= weight.max()
        for _ in range(12):
            if weight.sum() ** 2 <= most * (weight**2).sum():
                break
            weight = weight**1.5
    return weight


@compiled
def _nearest(means: FloatArray, sd: FloatArray) -> IntArray:
    """The candidates modelled jointly, ascending."""
    if len(means) <= MOST_ACTIVE:
        return np.arange(len(means))
    leader = np.argmax(means)
    behind = (means[leader] - means) / np.sqrt(sd**2 + sd[leader] ** 2)
    return np.sort(np.argsort(behind)[:MOST_ACTIVE])


@compiled
def _least(seen: IntArray, load: FloatArray, m: int) -> int:
    """The candidate of the smallest load that has an example left; -1 if none has."""
    best, least = -1, np.inf
    for i in range(len(seen)):
        if seen[i] < m and load[i] < least:
            best, least = i, load[i]
    return best


@compiled
def _pick(
    seen: IntArray,
    means: FloatArray,
    sd: FloatArray,
    rank: FloatArray,
    reach: FloatArray,
    m: int,
    rule: FloatArray,
    rng: np.random.Generator,
) -> int:
    """Whom to pull next; -1 if all is known."""
    if rng.random() < rule[FLOOR]:
        return _least(seen, seen * rank, m)
    leader, total = int(np.argmax(means)), reach[-1]
    for _ in range(64):
        if not total > 0.0:
            break
        found = np.searchsorted(reach, rng.random() * total, side="right")
        other = min(int(found), len(reach) - 1)
        if seen[leader] < m and seen[other] < m:
            return leader if seen[leader] <= seen[other] else other
        if seen[leader] < m:
            return leader
        if seen[other] < m:
            return other
    return _least(seen, -(means + 2.0 * sd), m)


@compiled
def _early_answer(seen: IntArray, totals: FloatArray) -> int:
    centre = totals[0].sum() / seen.sum()
    return int(np.argmax((totals[0] + centre) / (seen + 1)))


@compiled
def run_auto(
    scores: NDArray[np.float32],
    budgets: IntArray,
    planned: int,
    rule: FloatArray,
    rng: np.random.Generator,
) -> IntArray:
    """Answers of ``auto`` when so many pulls are told.

    Args:
        scores: (K, m), rows and columns shuffled.
        budgets: rising numbers of pulls.
        planned: the budget that the rule is told; 0 for none.
        rule: see ``Variant``.
        rng: its draws.

    Returns:
        (budgets,) the candidates named.
    """
    n, m = scores.shape
    seen, totals = np.zeros(n, np.int64), np.zeros((2, n))
    state, sums = np.zeros((4, n)), np.zeros((5, m + 1))
    state[0], state[1], state[2], state[3] = 0.5, 0.05, 0.25 * rule[FACTOR], 0.2
    centres = np.array([0.5, 0.05, 0.25 * rule[FACTOR]])
    means, sd, rank, reach = np.zeros(n), np.ones(n), np.ones(n), np.zeros(n)
    answers, at, told, due_all = np.zeros(len(budgets), np.int64), 0, 0, 0
    first = n * min(m, int(rule[WARM_UP]))
    due = first
    active = np.arange(min(n, MOST_ACTIVE))
    while at < len(budgets):
        pull = told % n if told < first else _pick(seen, means, sd, rank, reach, m, rule, rng)
        if pull < 0:
            answers[at:] = np.argmax(means)
            break
        score = scores[pull, seen[pull]]
        totals[0, pull] += score
        totals[1, pull] += score * score
        seen[pull] += 1
        told += 1
        if told >= due or (told == budgets[at] and told >= first):
            sweeps = 8 if due_all == 0 else 2
            if told >= due_all:
                active = _nearest((totals[0] + 1.0) / (seen + 2.0) if due_all == 0 else means, sd)
                due_all = int(1.125 * told)
            due = told + max(4, int(0.02 * told))
            levels = np.zeros((1, 1))
            for _ in range(sweeps):
                levels = fit_levels(scores, seen, totals, state, centres, active, sums)
                refit(scores, seen, totals, state, centres, sums, means, rule)
            expect(m, seen, totals, state, sums, means)
            covariance = covariance_of(m, seen, state, active, sums, levels)
            left = m - seen
            sd = np.sqrt((left / m) ** 2 * state[1] + state[3] * left / m**2)
            sd[active] = np.sqrt(np.maximum(np.diag(covariance), 0.0))
            most = float(n) ** (1.0 - min(1.0, told / planned)) if planned > 0 else 0.0
            reach = np.cumsum(_chances(means, sd, active, covariance, most, rule))
            rank[np.argsort(-means)] = np.arange(1.0, n + 1.0)
            if most > 0.0 and rule[SIGHT] > 0.0:
                rank[rank > math.ceil(rule[SIGHT] * most)] *= 1e9  # after all others
        if told == budgets[at]:
            answers[at] = np.argmax(means) if told >= first else _early_answer(seen, totals)
            at += 1
    return answers


@compiled
def run_ucb_e(
    scores: NDArray[np.float32], budgets: IntArray, batch: int, rng: np.random.Generator
) -> IntArray:
    """Answers of UCB-E with eta = 1 when so many pulls are told."""
    n, m = scores.shape
    seen = np.zeros(n, np.int64)
    ties: FloatArray = 1e-9 * rng.random((n,))
    total: FloatArray = np.zeros(n)
    index: FloatArray = 1e9 + rng.random((n,))
    orders = np.empty((n, m), np.int32)
    for i in range(n):
        orders[i] = rng.permutation(m)
    answers, at, told = np.zeros(len(budgets), np.int64), 0, 0
    while at < len(budgets):
        i = int(np.argmax(index))
        for _ in range(min(batch, m - seen[i])):
            total[i] += scores[i, orders[i, seen[i]]]
            seen[i] += 1
            told += 1
            if told == budgets[at]:
                answers[at] = np.argmax(total / np.maximum(seen, 1) + ties - (seen == 0))
                at += 1
                if at == len(budgets):
                    break
        width = math.sqrt(1.0 / seen[i])
        index[i] = total[i] / seen[i] + width + ties[i] if seen[i] < m else -1.0
    return answers
