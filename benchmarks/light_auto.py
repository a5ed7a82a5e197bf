"""The selector ``auto`` and UCB-E once more, compiled: for studies of hundreds of runs.

The same steps as the package's selectors, one call in flight, written as plain loops that numba
compiles (``pip install numba``): twenty to fifty times faster, and an independent second writing of
the model. ``reproduce_auto.py`` compares the two.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile a function with numba, which is needed for this module alone."""
    numba = importlib.import_module("numba")
    return cast(_Function, numba.njit(cache=True)(function))


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
    """

    warm_up: int = 1
    floor: float = 0.25
    sharpness: float = 2.0
    inflation: float = 1.25
    narrow: bool = True
    factor: bool = True
    leaders_noise: float = 20.0

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
            ],
            dtype=np.float64,
        )


WARM_UP, FLOOR, SHARPNESS, INFLATION, NARROW, FACTOR, LEADERS_NOISE = range(7)
CENTRE, SPREAD, LOADING_CENTRE = range(3)
LEAST_NOISE, LEAST_SPREAD, LOADING_SPREAD, MOST_ACTIVE = 0.002, 0.02, 0.02, 128


@compiled
def _pull(
    scores: NDArray[np.float32],
    seen: IntArray,
    state: FloatArray,
    joint: NDArray[np.bool_],
    sums: FloatArray,
) -> FloatArray:
    """What all scores say of the easiness, less what fixed levels explain; sets P in ``sums``."""
    level, loading, noise = state[0], state[2], state[3]
    reach = seen.max()
    pull, ends, others = np.zeros(reach), np.zeros(reach + 1), np.zeros(reach + 1)
    for i in range(len(seen)):
        weight = loading[i] / noise[i]
        for j in range(seen[i]):
            pull[j] += weight * scores[i, j]
        ends[seen[i]] += loading[i] * weight
        others[seen[i]] += 0.0 if joint[i] else weight * level[i]
    precision, explained = 1.0, 0.0
    for j in range(reach - 1, -1, -1):
        precision += ends[j + 1]
        explained += others[j + 1]
        sums[4, j] = precision
        pull[j] -= explained
        sums[3, j] = 1.0 / precision
    sums[0, 1 : reach + 1] = np.cumsum(sums[3, :reach])
    return pull


@compiled
def _joint_levels(
    seen: IntArray,
    totals: FloatArray,
    state: FloatArray,
    centres: FloatArray,
    active: IntArray,
    sums: FloatArray,
    pulled: FloatArray,
) -> FloatArray:
    """Levels of the active rows, easiness integrated out; returns their covariance."""
    n = len(active)
    matrix, target = np.zeros((n, n)), np.zeros(n)
    for x in range(n):
        i = active[x]
        weight, noise = state[2, i] / state[3, i], state[3, i]
        for y in range(n):
            other = active[y]
            shared = sums[0, min(seen[i], seen[other])]
            matrix[x, y] = -weight * state[2, other] / state[3, other] * shared
        matrix[x, x] += 1.0 / centres[SPREAD] + seen[i] / noise
        target[x] = centres[CENTRE] / centres[SPREAD] + totals[0, i] / noise
        target[x] -= weight * pulled[seen[i]]
    covariance = np.linalg.inv(matrix)
    found = covariance @ target
    for x in range(n):
        state[0, active[x]], state[1, active[x]] = found[x], covariance[x, x]
    return np.asarray(covariance)


@compiled
def _levels(
    scores: NDArray[np.float32],
    seen: IntArray,
    totals: FloatArray,
    state: FloatArray,
    centres: FloatArray,
    active: IntArray,
    sums: FloatArray,
) -> FloatArray:
    """Levels and easiness given loadings and noise; returns the active levels' covariance.

    ``state`` (4, K): level, its variance, loading, noise. ``sums`` (5, m + 1): prefix sums of
    1 / P, of z, of z^2 + 1 / P; then z and P themselves.
    """
    reach = seen.max()
    joint = np.zeros(len(seen), np.bool_)
    joint[active] = True
    pull = _pull(scores, seen, state, joint, sums)
    pulled = np.zeros(reach + 1)
    pulled[1:] = np.cumsum(pull / sums[4, :reach])
    covariance = _joint_levels(seen, totals, state, centres, active, sums, pulled)
    ends, explained = np.zeros(reach + 1), 0.0
    for i in active:
        ends[seen[i]] += state[2, i] / state[3, i] * state[0, i]
    for j in range(reach - 1, -1, -1):
        explained += ends[j + 1]
        sums[3, j] = (pull[j] - explained) / sums[4, j]
    sums[1, 1 : reach + 1] = np.cumsum(sums[3, :reach])
    sums[2, 1 : reach + 1] = np.cumsum(sums[3, :reach] ** 2 + 1.0 / sums[4, :reach])
    for i in np.flatnonzero(~joint):
        state[1, i] = 1.0 / (1.0 / centres[SPREAD] + seen[i] / state[3, i])
        rest = (totals[0, i] - state[2, i] * sums[1, seen[i]]) / state[3, i]
        state[0, i] = state[1, i] * (centres[CENTRE] / centres[SPREAD] + rest)
    return covariance


@compiled
def _refit(
    scores: NDArray[np.float32],
    seen: IntArray,
    totals: FloatArray,
    state: FloatArray,
    centres: FloatArray,
    sums: FloatArray,
    means: FloatArray,
    rule: FloatArray,
) -> None:
    """Loadings, noise and centres given levels and easiness."""
    level, spread, loading, noise = state[0], state[1], state[2], state[3]
    misfit = np.zeros(len(seen))
    for i in range(len(seen)):
        felt = -level[i] * sums[1, seen[i]]
        for j in range(seen[i]):
            felt += scores[i, j] * sums[3, j]
        ridge, square = noise[i] / LOADING_SPREAD, sums[2, seen[i]]
        if rule[FACTOR] > 0:
            loading[i] = (felt + ridge * centres[LOADING_CENTRE]) / (square + ridge)
        around = totals[1, i] - level[i] * (2.0 * totals[0, i] - seen[i] * level[i])
        misfit[i] = max(around - 2.0 * loading[i] * felt + loading[i] ** 2 * square, 0.0)
        misfit[i] += seen[i] * spread[i]
    _expect(scores.shape[1], seen, totals, state, sums, means)
    leaders = np.argsort(-means)[:5]
    common = max(misfit[leaders].sum() / max(1, seen[leaders].sum()), LEAST_NOISE)
    centres[CENTRE] = level.mean()
    centres[SPREAD] = max(LEAST_SPREAD, ((level - centres[CENTRE]) ** 2 + spread).mean())
    if rule[FACTOR] > 0:
        centres[LOADING_CENTRE] = (seen * loading).sum() / max(1, seen.sum())
    weight = rule[LEADERS_NOISE]
    for i in range(len(seen)):
        noise[i] = max((misfit[i] + weight * common) / max(seen[i] + weight, 1.0), LEAST_NOISE)


@compiled
def _expect(
    m: int,
    seen: IntArray,
    totals: FloatArray,
    state: FloatArray,
    sums: FloatArray,
    means: FloatArray,
) -> None:
    reach = seen.max()
    for i in range(len(seen)):
        ahead = state[2, i] * (sums[1, reach] - sums[1, seen[i]])
        means[i] = (totals[0, i] + (m - seen[i]) * state[0, i] + ahead) / m


@compiled
def _covariance(
    m: int,
    seen: IntArray,
    state: FloatArray,
    active: IntArray,
    sums: FloatArray,
    levels: FloatArray,
) -> FloatArray:
    n, reach = len(active), seen.max()
    moved, rest = np.zeros((n, n)), np.zeros((n, n))
    for x in range(n):
        i = active[x]
        loading, noise, k = state[2, i], state[3, i], seen[i]
        for y in range(n):
            other = active[y]
            weight = state[2, other] / state[3, other]
            common = min(k, seen[other])
            moved[x, y] = -loading * weight * (sums[0, seen[other]] - sums[0, common]) / m
            unseen = sums[0, reach] - sums[0, max(k, seen[other])] + (m - reach)
            rest[x, y] = loading * state[2, other] * unseen / m**2
        moved[x, x] += (m - k) / m
        shift = sums[1, reach] - sums[1, k] - (m - k) * sums[1, k] / max(k, 1)
        own = noise / (sums[2, k] + noise / LOADING_SPREAD)
        rest[x, x] += noise * (m - k) / m**2 + own * (shift / m) ** 2
    return np.asarray(moved @ np.ascontiguousarray(levels) @ moved.T.copy() + rest)


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
                levels = _levels(scores, seen, totals, state, centres, active, sums)
                _refit(scores, seen, totals, state, centres, sums, means, rule)
            _expect(m, seen, totals, state, sums, means)
            covariance = _covariance(m, seen, state, active, sums, levels)
            left = m - seen
            sd = np.sqrt((left / m) ** 2 * state[1] + state[3] * left / m**2)
            sd[active] = np.sqrt(np.maximum(np.diag(covariance), 0.0))
            most = float(n) ** (1.0 - min(1.0, told / planned)) if planned > 0 else 0.0
            reach = np.cumsum(_chances(means, sd, active, covariance, most, rule))
            rank[np.argsort(-means)] = np.arange(1.0, n + 1.0)
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
