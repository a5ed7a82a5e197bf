"""The selector ``auto`` once more, compiled: for studies of hundreds of runs.

The same steps as the package's selector, one call in flight, written as plain loops that numba
compiles (``pip install numba``): ten to fifty times faster, and an independent second writing of
the model. ``reproduce_auto.py`` compares the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from benchmarks.auto.light_model import (
    FACTOR,
    FLOOR,
    INFLATION,
    MOST_ACTIVE,
    PRICE,
    PRICE_FORGIVEN,
    PRICE_OF_FLOOR,
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
from numpy.typing import NDArray


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
        price: power of the price of a pair by which the chance to overtake is divided.
        price_of_floor: power of the price that counts as rank.
        price_forgiven: what a correlation of 1 of quality and price takes off both powers.
    """

    warm_up: int = 1
    floor: float = 0.25
    sharpness: float = 1.0
    inflation: float = 1.0
    narrow: bool = True
    factor: bool = True
    leaders_noise: float = 0.0
    sight: float = 0.0
    all_noise: float = 20.0
    price: float = 1.0
    price_of_floor: float = 0.5
    price_forgiven: float = 1.0

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
                self.price,
                self.price_of_floor,
                self.price_forgiven,
            ],
            dtype=np.float64,
        )


@compiled
def _weighed(costs: FloatArray, means: FloatArray, rule: FloatArray) -> FloatArray:
    """Costs to the power of 1 less their correlation with quality."""
    logs, ahead = np.log(costs) - np.log(costs).mean(), means - means.mean()
    spread = math.sqrt((logs**2).sum() * (ahead**2).sum())
    correlation = (logs * ahead).sum() / spread if spread > 0.0 else 0.0
    return np.asarray(costs ** (1.0 - rule[PRICE_FORGIVEN] * max(0.0, correlation)))


@compiled
def _chances(
    means: FloatArray,
    sd: FloatArray,
    active: IntArray,
    covariance: FloatArray,
    costs: FloatArray,
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
            weight[i] /= (0.5 * (costs[i] + costs[leader])) ** rule[PRICE]
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
def _least(load: FloatArray, allowed: NDArray[np.bool_]) -> int:
    """The candidate of the smallest load among those allowed; -1 if none is."""
    best, least = -1, np.inf
    for i in range(len(load)):
        if allowed[i] and load[i] < least:
            best, least = i, load[i]
    return best


@compiled
def _pick(
    allowed: NDArray[np.bool_],
    seen: IntArray,
    means: FloatArray,
    sd: FloatArray,
    burden: FloatArray,
    reach: FloatArray,
    rule: FloatArray,
    rng: np.random.Generator,
) -> int:
    """Whom to pull next."""
    if rng.random() < rule[FLOOR]:
        return _least(seen * burden, allowed)
    leader, total = int(np.argmax(means)), reach[-1]
    for _ in range(64):
        if not total > 0.0:
            break
        found = np.searchsorted(reach, rng.random() * total, side="right")
        other = min(int(found), len(reach) - 1)
        if allowed[leader] and allowed[other]:
            return leader if seen[leader] <= seen[other] else other
        if allowed[leader]:
            return leader
        if allowed[other]:
            return other
    return _least(-(means + 2.0 * sd), allowed)


@compiled
def _early_answer(seen: IntArray, totals: FloatArray) -> int:
    centre = totals[0].sum() / max(1, seen.sum())
    return int(np.argmax((totals[0] + centre) / (seen + 1) - (seen == 0)))


@compiled
def run_auto(
    scores: NDArray[np.float32],
    costs: FloatArray,
    budgets: FloatArray,
    planned: float,
    rule: FloatArray,
    rng: np.random.Generator,
) -> IntArray:
    """Answers of ``auto`` when no further pull can be paid for.

    Args:
        scores: (K, m), rows and columns shuffled.
        costs: (K,) of a pull of each candidate, the least of them 1.
        budgets: rising sums of costs.
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
    means, sd, burden, reach = np.zeros(n), np.ones(n), np.ones(n), np.zeros(n)
    answers, at, told, due_all, spent = np.zeros(len(budgets), np.int64), 0, 0, 0, 0.0
    first = n * min(m, int(rule[WARM_UP]))
    due = first
    active = np.arange(min(n, MOST_ACTIVE))
    while at < len(budgets):
        allowed = (seen < m) & (costs <= (1.0 + 1e-12) * budgets[at] - spent)
        if allowed.any():
            if told < first or seen[allowed].min() < rule[WARM_UP]:
                pull = _least(seen.astype(np.float64), allowed)
            else:
                pull = _pick(allowed, seen, means, sd, burden, reach, rule, rng)
            score = scores[pull, seen[pull]]
            totals[0, pull] += score
            totals[1, pull] += score * score
            seen[pull] += 1
            told += 1
            spent += costs[pull]
            allowed = (seen < m) & (costs <= (1.0 + 1e-12) * budgets[at] - spent)
        ends = not allowed.any()
        if told >= due or (ends and told >= first):
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
            most = float(n) ** (1.0 - min(1.0, spent / planned)) if planned > 0 else 0.0
            weighed = _weighed(costs, means, rule)
            reach = np.cumsum(_chances(means, sd, active, covariance, weighed, most, rule))
            burden[np.argsort(-means)] = np.arange(1.0, n + 1.0)
            out_of_sight = burden > math.ceil(rule[SIGHT] * most)
            burden *= weighed ** rule[PRICE_OF_FLOOR]
            if most > 0.0 and rule[SIGHT] > 0.0:
                burden[out_of_sight] *= 1e9  # after all others
        if ends:
            answers[at] = np.argmax(means) if told >= first else _early_answer(seen, totals)
            at += 1
    return answers


def answers(
    scores: NDArray[np.float32],
    budgets: IntArray | FloatArray,
    variant: Variant,
    rng: np.random.Generator,
    costs: FloatArray | None = None,
) -> list[int]:
    """Whom ``auto`` names at each budget; it is told the last one unless it does not narrow.

    Args:
        scores: (K, m), rows and columns shuffled.
        budgets: rising numbers of pulls, or sums of money where there are costs.
        variant: what an ablation changes.
        rng: its draws.
        costs: (K,) of a pull of each candidate, > 0; None to count pulls.
    """
    each = np.ones(len(scores)) if costs is None else costs / costs.min()
    money = np.asarray(budgets, dtype=np.float64) / (1.0 if costs is None else costs.min())
    planned = float(money[-1]) if variant.narrow else 0.0
    return [int(best) for best in run_auto(scores, each, money, planned, variant.numbers(), rng)]
