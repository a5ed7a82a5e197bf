"""Effects of model, prompt and parameters: how far each level of an axis moves the mean score.

The model is additive: the mean of candidate i is a constant plus one effect per axis. Effects are
its least-squares solution over the candidates, all with equal weight, so an effect is a fixed
linear function of the candidates' means on the study's examples. In a full grid it is the mean over
all candidates with that level, less the mean over all: what is asked for also where axes interact.
The normal equations have the size of the levels, not of the candidates.

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

from bestarm_agent.domain.values import Candidate
from bestarm_agent.engine.results.standing import Row, Standing
from bestarm_agent.stats.agreement import Measure

_MOST_LEVELS = 500  # of all axes; more are neither read nor worth the seconds


@dataclass(frozen=True, slots=True)
class LevelEffect:
    """One level of an axis, compared with the mean over the levels."""

    level: str
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

    @property
    def is_clear(self) -> bool:
        """Return whether some level is shown to be above or below the mean of its axis."""
        # the intervals of all levels hold together, so one that leaves out 0 is enough
        return any(level.effect.lower > 0 or level.effect.upper < 0 for level in self.levels)


def axis_effects(standing: Standing) -> tuple[AxisEffects, ...]:
    """Estimate the effects per axis, the axis with the largest spread first.

    An axis is left out if it has one level, or if its effects cannot be told from another's.
    """
    rows = [row for row in standing.rows if row.n]
    axes = _axes([row.candidate for row in rows])
    coded = [np.unique(v, return_inverse=True) for v in axes.values()]
    starts = np.cumsum([0, *(len(levels) for levels, _ in coded)])
    n = int(starts[-1])
    if not 0 < n <= _MOST_LEVELS:
        return ()
    from scipy.special import ndtri  # takes half a second to import

    means = np.array([row.total / row.n for row in rows])
    variances = np.array([_variance(row, standing.n_examples) for row in rows])
    # Least squares by the normal equations. With X the (K, n) matrix of ones where a candidate has
    # a level, ``gram`` is X'X, ``total`` X'm of the means m, and ``noise`` X'VX of their variances.
    # X is never made: each candidate has one level on each axis, so every pair of axes adds one
    # entry for each candidate. X'X is singular, as the levels of each axis add up to the constant;
    # its pseudo-inverse gives the shortest of the equal solutions.
    gram, noise, total = np.zeros((n, n)), np.zeros((n, n)), np.zeros(n)
    level_numbers = [start + places for start, (_, places) in zip(starts, coded, strict=False)]
    for numbers in level_numbers:  # (K,) numbers of the candidates' levels on an axis
        np.add.at(total, numbers, means)
        for others in level_numbers:
            np.add.at(gram, (numbers, others), 1.0)
            np.add.at(noise, (numbers, others), variances)  # the covariance of ``total``
    inverse = np.linalg.pinv(gram, rcond=1e-10, hermitian=True)
    z = -float(ndtri((1 - standing.confidence) / (2 * n)))
    effects_by_axis = []
    for axis, (levels, _), start in zip(axes, coded, starts, strict=False):
        contrasts = np.zeros((len(levels), n))  # each level less the mean over all of the axis
        contrasts[:, start : start + len(levels)] = np.eye(len(levels)) - 1 / len(levels)
        # a contrast c can be estimated if it is a combination of the rows of X'X, which the
        # pseudo-inverse P leaves as it is: c P X'X = c
        weights = contrasts @ inverse
        if not np.allclose(weights @ gram, contrasts, atol=1e-8):
            continue  # other axes move together with it
        halves = z * np.sqrt(np.maximum(0.0, ((weights @ noise) * weights).sum(axis=1)))
        means_of = zip(levels, (weights @ total).tolist(), halves.tolist(), strict=True)
        effects = [LevelEffect(str(name), Measure(e, e - h, e + h)) for name, e, h in means_of]
        ordered = sorted(effects, key=lambda level: -level.effect.value)
        effects_by_axis.append(AxisEffects(axis, tuple(ordered)))
    return tuple(sorted(effects_by_axis, key=lambda axis: -axis.spread))


def _axes(candidates: Sequence[Candidate]) -> dict[str, list[str]]:
    """Return each axis on which the candidates differ, with the level of each candidate."""
    # two prompts of one text that differ in their number of examples differ on the axis of shots
    names = sorted({name for x in candidates for name in x.params})
    axes = {
        "model": _model_names(candidates),
        "prompt": [x.prompt.name for x in candidates],
        "shots": [str(x.prompt.n_shots or 0) for x in candidates],
        **{name: [str(x.params.get(name, "not set")) for x in candidates] for name in names},
    }
    return {axis: levels for axis, levels in axes.items() if len(set(levels)) > 1}


def _model_names(candidates: Sequence[Candidate]) -> list[str]:
    """Return the last part of each model's name, or all of it where two would be the same."""
    whole = [f"{candidate.provider}/{candidate.model}" for candidate in candidates]
    last = [name.rsplit("/", 1)[-1] for name in whole]
    return last if len(set(last)) == len(set(whole)) else whole


def _variance(row: Row, n_examples: int) -> float:
    """Return the variance of a candidate's mean of the scores seen."""
    p = (row.total + 1) / (row.n + 2)
    return p * (1 - p) / row.n * (1 - row.n / n_examples)
