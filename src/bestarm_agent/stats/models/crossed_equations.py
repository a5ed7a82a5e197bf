"""Sufficient statistics and normal equations of ``crossed_effects``; notation as there."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bestarm_agent.stats.arrays import FloatArray, IntArray
from bestarm_agent.stats.models.crossed_design import Effects, Family
from bestarm_agent.stats.models.prefix_scores import PrefixRows
from bestarm_agent.stats.models.prefix_sums import weighted_sum

CENTRE, CENTRE_VARIANCE = 0.5, 0.25  # of the constant
_MOST_PLACES = 512  # J: later ones count as equally easy
_GUESSES = {1: 0.02, 2: 0.005}  # q_f by the number of axes


@dataclass(frozen=True, slots=True)
class Variances:
    """Variances of the model, as learned so far."""

    effects: dict[Family, float] = field(default_factory=dict)  # v_f
    own: float = 0.01  # v_d
    easiness: float = 0.05  # v_z
    residual: float = 0.03  # v_r
    noise: float = 0.12  # s^2

    def of(self, family: Family) -> float:
        """Return v_f; the guess for a family that has not been fitted."""
        return self.effects.get(family, _GUESSES[len(family)])


GUESS = Variances()  # q_f


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums of the scores that the posterior needs; (C, J) sums are over a block's rows."""

    length: IntArray  # (K,) L_i
    place: IntArray  # (K,) L_i, at most J
    total: FloatArray  # (K,) Y_i
    square: float  # sum of all y_ij^2
    at_place: FloatArray  # (C, J) sums of the y_ij of the rows that have seen j
    n_rows: FloatArray  # (C, J) their number n_cj

    @classmethod
    def of(cls, rows: PrefixRows, model: Effects) -> Sums:
        """Sum up the scores, and the guesses in their holes."""
        length, ones = rows.length.copy(), np.ones(len(rows.length))
        longest = int(length.max(initial=0))
        reach = min(longest, _MOST_PLACES)
        place = np.minimum(length, reach)
        at_place = np.zeros((model.n_blocks, reach))
        for block in range(model.n_blocks):
            members = np.flatnonzero((model.block == block) & (length > 0))
            at_place[block] = weighted_sum(rows.blocks(members), ones, longest)[:reach]
        n_rows = model.longer(place, ones, reach)
        total, square = rows.totals[:, 0].copy(), float(rows.squares.sum())
        return cls(length, place, total, square, at_place, n_rows)


def normal_equations(
    model: Effects, sums: Sums, variances: Variances, weight: FloatArray, near: int
) -> tuple[FloatArray, FloatArray]:
    """Return the matrix (4) and the right side (5), for b, z and r; ``near`` is R."""
    noise, n, (n_blocks, reach) = variances.noise, len(model), sums.n_rows.shape
    gain, rows = variances.own * weight, model.design()
    size = n + reach + n_blocks * near
    z, r = slice(n, n + reach), slice(n + reach, size)
    precision, target = np.zeros((size, size)), np.zeros(size)
    precision[:n, :n] = (rows.T @ (rows * (sums.length * weight)[:, None])).toarray()
    effects = model.longer_by_effect(sums.place, weight, reach)  # (E, C, J)
    precision[:n, z] = effects.sum(axis=1)
    precision[:n, r] = effects[:, :, :near].reshape(n, -1)
    places, near_places = np.arange(reach), np.arange(near)
    later = model.longer(sums.place, gain / noise, reach)  # S_cj
    precision[z, z] = -later.sum(axis=0)[np.maximum.outer(places, places)]
    cross = -later[:, np.maximum.outer(places, near_places)]  # (C, J, R)
    cross[:, near_places, near_places] += sums.n_rows[:, :near] / noise
    precision[z, r] = cross.transpose(1, 0, 2).reshape(reach, -1)
    for block in range(n_blocks if near else 0):
        own = slice(n + reach + block * near, n + reach + (block + 1) * near)
        precision[own, own] = cross[block, :near]
    upper = np.triu(precision, 1)
    precision = upper + upper.T + np.diag(precision.diagonal())
    family = np.array([CENTRE_VARIANCE, *map(variances.of, model.families)])
    at = np.arange(size)
    precision[at[:n], at[:n]] += 1.0 / family[model.family + 1]
    precision[at[z], at[z]] += 1.0 / variances.easiness + sums.n_rows.sum(axis=0) / noise
    precision[at[r], at[r]] += 1.0 / variances.residual
    left = sums.at_place - model.longer(sums.place, gain * sums.total, reach)
    target[:n] = rows.T @ (weight * sums.total)
    target[z] = left.sum(axis=0) / noise
    target[r] = left[:, :near].ravel() / noise
    return precision, target
