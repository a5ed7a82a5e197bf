"""Effects of model, prompt and parameters: how far each level moves the mean score.

The model is additive: the mean of candidate i is a constant plus one effect per axis. Effects are
its least-squares solution over the candidates, all with equal weight, so an effect is a fixed
linear function of the candidates' means on the study's examples. In a full grid it is the mean over
all candidates with that level, less the mean over all: what is asked for also where axes interact.
Each mean's variance is that of a proportion after one success and one failure more (Agresti and
Caffo, The American Statistician 54, 2000), with the correction for drawing without replacement;
scores between 0 and 1 vary less than that. The intervals are normal and hold for all levels of all
axes together, by Bonferroni's inequality, so that the best level may be picked after looking. They
suppose examples drawn at random; where a rule leaves candidates early, they are approximate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.engine.results.standing import Row, Standing
from bestarm_agent.stats.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class LevelEffect:
    """One level of an axis, compared with the mean over the levels."""

    level: str
    candidates: int  # with that level and a score
    effect: float  # in [-1, 1]
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class AxisEffects:
    """The levels of one axis, best first."""

    axis: str  # "model", "prompt" or the name of a parameter
    levels: tuple[LevelEffect, ...]

    @property
    def spread(self) -> float:
        """Return the difference between the best and the worst level."""
        return self.levels[0].effect - self.levels[-1].effect


def axis_effects(standing: Standing) -> tuple[AxisEffects, ...]:
    """Estimate the effects per axis, the axis with the largest spread first.

    An axis is left out if it has one level, or if its effects cannot be told from another's.
    """
    rows = [row for row in standing.rows if row.n]
    axes = _axes([row.candidate for row in rows])
    if not axes:
        return ()
    coded = [_coded(values) for _, values in axes]
    design = np.column_stack([np.ones(len(rows)), *(columns for _, columns in coded)])
    inverse = np.linalg.pinv(design)
    means = np.array([row.total / row.n for row in rows])
    variances = np.array([_variance(row, standing.n_examples) for row in rows])
    n_levels = sum(len(levels) for levels, _ in coded)
    z = -float(ndtri((1 - standing.confidence) / (2 * n_levels)))
    found, start = [], 1
    for (axis, values), (levels, columns) in zip(axes, coded, strict=True):
        contrasts = _contrasts(len(levels), start, design.shape[1])
        start += columns.shape[1]
        if np.allclose(contrasts @ inverse @ design, contrasts, atol=1e-8):
            weights = contrasts @ inverse
            sd = z * np.sqrt(weights**2 @ variances)
            found.append(AxisEffects(axis, _levels(levels, values, weights @ means, sd)))
    return tuple(sorted(found, key=lambda one: -one.spread))


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


def _coded(values: Sequence[str]) -> tuple[list[str], FloatArray]:
    """Code levels so that their effects sum to zero: one column for each but the last."""
    levels = sorted(set(values))
    at = np.array([levels.index(value) for value in values])
    columns = np.eye(len(levels))[at]
    return levels, columns[:, :-1] - columns[:, -1:]


def _contrasts(n_levels: int, start: int, width: int) -> FloatArray:
    """Return the (levels, width) matrix that reads an axis's effects off the coefficients."""
    contrasts = np.zeros((n_levels, width))
    contrasts[:-1, start : start + n_levels - 1] = np.eye(n_levels - 1)
    contrasts[-1, start : start + n_levels - 1] = -1.0
    return contrasts


def _variance(row: Row, n_examples: int) -> float:
    p = (row.total + 1) / (row.n + 2)
    return p * (1 - p) / row.n * (1 - row.n / n_examples)


def _levels(
    levels: Sequence[str], values: Sequence[str], effects: FloatArray, sd: FloatArray
) -> tuple[LevelEffect, ...]:
    found = [
        LevelEffect(level, values.count(level), float(e), float(e - d), float(e + d))
        for level, e, d in zip(levels, effects, sd, strict=True)
    ]
    return tuple(sorted(found, key=lambda one: -one.effect))
