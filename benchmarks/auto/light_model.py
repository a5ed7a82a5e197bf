"""The model of ``auto`` once more, as plain loops that numba compiles; see ``light_auto``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
_Function = TypeVar("_Function", bound=Callable[..., Any])

WARM_UP, FLOOR, SHARPNESS, INFLATION, NARROW, FACTOR, LEADERS_NOISE, SIGHT, ALL_NOISE = range(9)
PRICE, PRICE_OF_FLOOR, PRICE_FORGIVEN = range(9, 12)
CENTRE, SPREAD, LOADING_CENTRE = range(3)
LEAST_NOISE, LEAST_SPREAD, LOADING_SPREAD, MOST_ACTIVE = 0.002, 0.02, 0.02, 128


def compiled(function: _Function) -> _Function:
    """Compile a function with numba, which the package does not need."""
    numba = importlib.import_module("numba")
    return cast(_Function, numba.njit(cache=True)(function))


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
def fit_levels(
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
def refit(
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
    expect(scores.shape[1], seen, totals, state, sums, means)
    leaders = np.argsort(-means)[:5]
    common = max(misfit[leaders].sum() / max(1, seen[leaders].sum()), LEAST_NOISE)
    centres[CENTRE] = level.mean()
    centres[SPREAD] = max(LEAST_SPREAD, ((level - centres[CENTRE]) ** 2 + spread).mean())
    if rule[FACTOR] > 0:
        centres[LOADING_CENTRE] = (seen * loading).sum() / max(1, seen.sum())
    weight, everybody = rule[LEADERS_NOISE], misfit.sum() / max(1, seen.sum())
    for i in range(len(seen)):
        prior = weight * common + rule[ALL_NOISE] * everybody
        worth = seen[i] + weight + rule[ALL_NOISE]
        noise[i] = max((misfit[i] + prior) / max(worth, 1.0), LEAST_NOISE)


@compiled
def expect(
    m: int,
    seen: IntArray,
    totals: FloatArray,
    state: FloatArray,
    sums: FloatArray,
    means: FloatArray,
) -> None:
    """Set ``means`` (K,): the scores seen, and for each unseen one what the model expects."""
    reach = seen.max()
    for i in range(len(seen)):
        ahead = state[2, i] * (sums[1, reach] - sums[1, seen[i]])
        means[i] = (totals[0, i] + (m - seen[i]) * state[0, i] + ahead) / m


@compiled
def covariance_of(
    m: int,
    seen: IntArray,
    state: FloatArray,
    active: IntArray,
    sums: FloatArray,
    levels: FloatArray,
) -> FloatArray:
    """Posterior covariance of the active rows' means, from that of their ``levels``."""
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
