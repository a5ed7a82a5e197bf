"""Effects of model, prompt and parameters, and a forecast of what would settle the run.

Effects say how far each level of an axis moves the mean score. The model is additive: the mean of
candidate i is a constant plus one effect per axis. Effects are its least-squares solution over the
candidates, all with equal weight, so an effect is a fixed linear function of the candidates' means
on the study's examples. In a full grid it is the mean over all candidates with that level, less the
mean over all: what is asked for also where axes interact. It is solved in the size of the levels:
those of the largest axis, which may be as many as there are candidates, are eliminated (the reduced
normal equations of a two-way layout).

Each mean's variance is that of a proportion after one success and one failure more (Agresti and
Caffo, The American Statistician 54, 2000), with the correction for drawing without replacement;
scores between 0 and 1 vary less than that. The intervals are normal and hold for all levels of all
axes together, by Bonferroni's inequality, so that the best level may be picked after looking. They
suppose examples drawn at random; where a rule leaves candidates early, they are approximate.

The forecast guarantees nothing. It supposes that every estimate stays as it is, and that the
distance between an estimate and an end of its interval is c sd sqrt((1 - n / N) / n) after n of N
examples, where sd is the deviation of a score of 0 or 1 and c is the median over the intervals that
do not touch 0 or 1. It counts the pairs until the leading candidate's interval lies above that of
every one not ruled out. A run stops earlier, since it compares candidates on common examples, and
asks others beside these: in replayed runs it took .6 of that count, and mostly .2 to 1.8
(`benchmarks/stopping/forecast.py` of commit e83ff81).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np

from bestarm_agent.domain.values import Candidate
from bestarm_agent.engine.results.standing import Row, Standing
from bestarm_agent.selectors.types import Guarantee
from bestarm_agent.stats.agreement import Measure
from bestarm_agent.stats.arrays import FloatArray

LEVEL = 0.005  # leaders nearer to each other than this are called level
_FEWEST, _TYPICAL, _MOST = 0.2, 0.6, 1.8  # pairs needed, in pairs until intervals part


@dataclass(frozen=True, slots=True)
class LevelEffect:
    """One level of an axis, compared with the mean over the levels."""

    level: str
    candidates: int  # with that level and a score
    effect: Measure  # in [-1, 1]


@dataclass(frozen=True, slots=True)
class AxisEffects:
    """The levels of one axis, best first."""

    axis: str  # "model", "prompt" or the name of a parameter
    levels: tuple[LevelEffect, ...]

    @property
    def spread(self) -> float:
        """Return the difference between the best and the worst level."""
        return self.levels[0].effect.value - self.levels[-1].effect.value


def axis_effects(standing: Standing) -> tuple[AxisEffects, ...]:
    """Estimate the effects per axis, the axis with the largest spread first.

    An axis is left out if it has one level, or if its effects cannot be told from another's.
    """
    from scipy.special import ndtri  # takes half a second to import

    rows = [row for row in standing.rows if row.n]
    axes = _axes([row.candidate for row in rows])
    if not axes:
        return ()
    means = np.array([row.total / row.n for row in rows])
    variances = np.array([_variance(row, standing.n_examples) for row in rows])
    axes.sort(key=lambda axis: -len(set(axis[1])))
    fitted = _fit([values for _, values in axes], means, variances)
    z = -float(ndtri((1 - standing.confidence) / (2 * sum(len(set(values)) for _, values in axes))))
    found = []
    for (axis, values), (effects, of_effects, is_told) in zip(axes, fitted, strict=True):
        counts = Counter(values)
        levels = [
            LevelEffect(level, counts[level], Measure(e, e - half, e + half))
            for level, e, half in zip(
                sorted(counts), effects.tolist(), (z * np.sqrt(of_effects)).tolist(), strict=True
            )
        ]
        if is_told:
            ordered = sorted(levels, key=lambda one: -one.effect.value)
            found.append(AxisEffects(axis, tuple(ordered)))
    return tuple(sorted(found, key=lambda one: -one.spread))


def _fit(
    axes: Sequence[Sequence[str]], means: FloatArray, variances: FloatArray
) -> list[tuple[FloatArray, FloatArray, bool]]:
    """Fit the additive model to the (K,) means.

    Returns:
        For each axis the effects of its levels in the order of their names, the variances of these,
        and whether the candidates tell them from those of other axes.
    """
    levels, at = np.unique(axes[0], return_inverse=True)
    counts = np.bincount(at)
    coded = [_coded(values) for values in axes[1:]]
    others = np.column_stack([np.empty((len(means), 0)), *coded])  # (K, q)

    def by_level(values: FloatArray) -> FloatArray:
        """(L, ...) means of (K, ...) values, by level of the first axis."""
        total = np.zeros((len(levels), *values.shape[1:]))
        np.add.at(total, at, values)
        return (total.T / counts).T

    centre = by_level(others)  # (L, q)
    rest = others - centre[at]  # (K, q), what the first axis does not explain
    inner = rest.T @ rest
    inverse = np.linalg.pinv(inner, hermitian=True)
    solution = inverse @ (rest.T @ means)
    spread = rest.T @ (variances[:, None] * rest)

    def is_told(contrasts: FloatArray) -> bool:
        return bool(np.allclose(contrasts @ inverse @ inner, contrasts, atol=1e-8))

    # an effect of the first axis is a difference of level means, less what the others make of it
    contrasts = centre - centre.mean(axis=0)
    own = by_level(means) - centre @ solution
    sums = by_level(variances) / counts  # variances of the level means
    shared = by_level(variances[:, None] * rest)
    shared -= shared.mean(axis=0)
    pulls = contrasts @ inverse
    variance = sums * (1 - 2 / len(levels)) + sums.sum() / len(levels) ** 2
    variance += ((pulls @ spread) * pulls).sum(axis=1) - 2 * (shared * pulls).sum(axis=1)
    found = [(own - own.mean(), variance, is_told(contrasts))]
    start = 0
    for columns in coded:
        width = columns.shape[1]
        contrasts = np.zeros((width + 1, others.shape[1]))
        contrasts[:-1, start : start + width] = np.eye(width)
        contrasts[-1, start : start + width] = -1.0
        start += width
        pulls = contrasts @ inverse
        variance = ((pulls @ spread) * pulls).sum(axis=1)
        found.append((contrasts @ solution, variance, is_told(contrasts)))
    return found


def _axes(candidates: Sequence[Candidate]) -> list[tuple[str, list[str]]]:
    """Return each axis on which the candidates differ, with the level of each candidate."""
    names = sorted({name for one in candidates for name in one.params})
    axes = [
        ("model", _model_names(candidates)),
        ("prompt", [one.prompt.name for one in candidates]),
        *((name, [str(one.params.get(name, "not set")) for one in candidates]) for name in names),
    ]
    return [(axis, levels) for axis, levels in axes if len(set(levels)) > 1]


def _model_names(candidates: Sequence[Candidate]) -> list[str]:
    """Return the last part of each model's name, or all of it where two would be the same."""
    whole = [f"{one.provider}/{one.model}" for one in candidates]
    last = [name.rsplit("/", 1)[-1] for name in whole]
    return last if len(set(last)) == len(set(whole)) else whole


def _coded(values: Sequence[str]) -> FloatArray:
    """(K, L - 1) columns that code levels so that their effects sum to zero."""
    levels, at = np.unique(values, return_inverse=True)
    columns = np.eye(len(levels))[at]
    coded: FloatArray = columns[:, :-1] - columns[:, -1:]
    return coded


def _variance(row: Row, n_examples: int) -> float:
    """Return the variance of a candidate's mean of the scores seen."""
    p = (row.total + 1) / (row.n + 2)
    return p * (1 - p) / row.n * (1 - row.n / n_examples)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The pairs still needed, by the estimates so far."""

    pairs: int  # further pairs until the leading candidate is established
    fewest: int  # lower end of the range in which they probably lie
    most: int  # upper end
    gap: float  # between the two highest estimates, >= 0

    @property
    def level(self) -> bool:
        """Return whether the two leading candidates are too near to each other to be told apart."""
        return self.gap < LEVEL


def forecast(standing: Standing) -> Forecast | None:
    """Return what would settle the run; None if it is settled, or nothing can be said yet.

    Nothing is said before every candidate has a score, nor where intervals are heuristic or the
    objective depends on prices.
    """
    best, rivals = standing.best, [row for row in standing.rivals if row.problem is None]
    settled = standing.established or standing.guarantee is Guarantee.HEURISTIC
    if best is None or not rivals or settled or standing.objective is not None or standing.unseen:
        return None
    n_examples = standing.n_examples
    errors = [(row, sqrt(_variance(row, n_examples))) for row in standing.rows]
    halves = [
        (row.upper - row.lower) / 2 / error
        for row, error in errors
        if row.lower > 0 and row.upper < 1 and error
    ]
    c = float(np.median(halves or [4.0]))
    later = _distances(best, best.lower, c, n_examples)
    gaps = [(best.estimate or 0.0) - (row.estimate or 0.0) for row in rivals]
    needed = []  # common examples until the intervals of two part
    for row, gap in zip(rivals, gaps, strict=True):
        enough = np.flatnonzero(later + _distances(row, row.upper, c, n_examples) <= gap)
        needed.append(int(enough[0]) + 1 if len(enough) else n_examples)
    more = sum(max(0, n - row.n) for n, row in zip(needed, rivals, strict=True))
    apart = max(1, more + max(0, max(needed) - best.n))
    left = standing.grid - standing.asked
    pairs, fewest, most = (min(left, ceil(part * apart)) for part in (_TYPICAL, _FEWEST, _MOST))
    return Forecast(pairs, fewest, most, max(0.0, min(gaps)))


def _distances(row: Row, end: float, factor: float, n_examples: int) -> FloatArray:
    """(N,) distances from estimate to end, once 1 to N examples are seen."""
    grid = np.arange(1, n_examples + 1, dtype=float)
    left = 1 - row.n / n_examples
    if left <= 0:
        return np.zeros(n_examples)
    now = max(abs(end - (row.estimate or 0.0)), factor * sqrt(_variance(row, n_examples)))
    later = np.maximum(grid, row.n)
    found: FloatArray = now * np.sqrt(row.n / later * (1 - later / n_examples) / left)
    return found
