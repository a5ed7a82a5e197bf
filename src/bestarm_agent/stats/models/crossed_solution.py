"""The posterior of ``crossed_effects`` and the next step of its variances; notation as there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from bestarm_agent.stats.arrays import FloatArray, one_thread
from bestarm_agent.stats.models.crossed_design import Effects
from bestarm_agent.stats.models.crossed_equations import (
    CENTRE,
    GUESS,
    Sums,
    Variances,
    normal_equations,
)
from bestarm_agent.stats.models.posterior import Posterior

_MOST_ACTIVE = 128  # rows whose joint covariance is worked out
_WORTH, _NOISE_WORTH = 2.0, 10.0  # w, in effects and in scores
_LEAST_VARIANCE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class CrossedPosterior(Posterior):
    """A posterior that knows the covariance of any two rows."""

    loads: sparse.csr_array  # (K, D) c_i
    shared: FloatArray  # (D, D) covariance of what rows share

    def gap_variance(self, leader: int) -> FloatArray:
        """Return the (K,) variances of the leader's mean minus each other mean, > 0."""
        common = self.loads @ (self.shared @ self.loads[[leader]].toarray().ravel())
        variance = self.sd**2 + self.sd[leader] ** 2 - 2.0 * common
        return np.asarray(np.maximum(variance, _LEAST_VARIANCE))


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """Posterior of effects, deviations, easiness and shared residuals, given the variances."""

    model: Effects
    sums: Sums
    variances: Variances
    gain: FloatArray  # (K,) v_d g_i
    effects: FloatArray  # (E,) b
    easiness: FloatArray  # (J,) z_j
    shared: FloatArray  # (C, R) r_cj
    variance: FloatArray  # (E + J + C R,) of these
    covariance: FloatArray  # (D, D) of b and of the running sums, from 0, of z and of each r_c

    @classmethod
    def of(cls, model: Effects, sums: Sums, variances: Variances) -> Solution:
        """Solve the normal equations."""
        n, (n_blocks, reach) = len(model), sums.n_rows.shape
        near = min(reach, model.reach)  # R
        spread = variances.noise + sums.length * variances.own
        weight = np.asarray(1.0 / spread, dtype=np.float64)  # g_i
        precision, target = normal_equations(model, sums, variances, weight, near)
        inverse = inverted(precision)
        mean = inverse @ target
        runs = [reach, *[near] * (n_blocks if near else 0)]
        return cls(
            model=model,
            sums=sums,
            variances=variances,
            gain=variances.own * weight,
            effects=mean[:n],
            easiness=mean[n : n + reach],
            shared=mean[n + reach :].reshape(n_blocks, near),
            variance=inverse.diagonal().copy(),
            covariance=running(running(inverse, n, runs).T, n, runs),
        )

    @property
    def residual(self) -> FloatArray:
        """Return the (C, J) z_j + r_cj."""
        residual = np.tile(self.easiness, (self.model.n_blocks, 1))
        residual[:, : self.shared.shape[1]] += self.shared
        return residual

    @property
    def passed(self) -> FloatArray:
        """Return the (C, J + 1) sums of residuals over the first 0, 1, ..., J places."""
        return np.pad(np.cumsum(self.residual, axis=1), ((0, 0), (1, 0)))

    @property
    def level(self) -> FloatArray:
        """Return the (K,) x_i . b + d_i."""
        sums, common = self.sums, self.effects[self.model.of_row].sum(axis=1)
        explained = sums.length * common + self.passed[self.model.block, sums.place]
        return np.asarray(common + self.gain * (sums.total - explained))  # (3)

    def posterior(self, m: int) -> Posterior:
        """Return the posterior of the rows' means over all ``m`` examples."""
        length, gain, passed = self.sums.length, self.gain, self.passed
        left, block = m - length, self.model.block
        ahead = passed[block, -1] - passed[block, self.sums.place]
        mean = CENTRE + (self.sums.total + left * self.level + ahead) / m  # (6)
        loads = self._loads(
            left * (1.0 - length * gain) / m,
            -(left * gain + 1.0) / m,
            np.full(len(length), 1.0 / m),
        )
        own = (left**2 * gain + left) * self.variances.noise / m**2
        sd = np.sqrt(own + variances_of(loads, self.covariance))
        nearest = Posterior(mean, sd, np.arange(0), np.zeros((0, 0))).nearest_first()
        active = np.sort(nearest[:_MOST_ACTIVE])
        some = loads[active]
        among = np.asarray(some @ (some @ self.covariance).T) + np.diag(own[active])  # (7)
        return CrossedPosterior(mean, sd, active, among, loads, self.covariance)

    def next_variances(self) -> Variances:
        """Return the next step of (8)."""
        model, sums, now = self.model, self.sums, self.variances
        n, reach, seen = len(model), len(self.easiness), sums.length > 0
        loads = self._loads(self.gain * sums.length, self.gain, np.zeros(len(seen)))
        own = self.level - self.effects[model.of_row].sum(axis=1)
        own_variance = self.gain * now.noise + variances_of(loads, self.covariance)
        shared = (sums.n_rows[:, : self.shared.shape[1]] > 0).ravel()
        parts = {
            "own": (own[seen], own_variance[seen]),
            "easiness": (self.easiness, self.variance[n : n + reach]),
            "residual": (self.shared.ravel()[shared], self.variance[n + reach :][shared]),
        }
        found, n_known, effects = {}, 1.0, {}
        for name, (mean, variance) in parts.items():
            found[name], known = _shrunk(mean, variance, getattr(now, name), getattr(GUESS, name))
            n_known += known
        for at, family in enumerate(model.families):
            members = np.flatnonzero(model.family == at)
            effects[family], known = _shrunk(
                self.effects[members], self.variance[members], now.of(family), GUESS.of(family)
            )
            n_known += known
        free = max(0.0, float(sums.length.sum()) - n_known) + _NOISE_WORTH
        noise = (self._misfit() + _NOISE_WORTH * GUESS.noise) / free
        return Variances(effects, noise=max(noise, _LEAST_VARIANCE), **found)

    def _misfit(self) -> float:
        """Return the sum of squared residuals of the scores."""
        sums, level, residual = self.sums, self.level, self.residual
        of_rows = sums.length * level - 2.0 * sums.total
        of_rows += 2.0 * self.passed[self.model.block, sums.place]
        of_places = residual * (sums.n_rows * residual - 2.0 * sums.at_place)
        return max(0.0, sums.square + float(level @ of_rows) + float(of_places.sum()))

    def _loads(self, level: FloatArray, seen: FloatArray, end: FloatArray) -> sparse.csr_array:
        """Return (K, D) rows: weights (K,) of the effects, of u_{L_i} and of u_J, of both runs."""
        n, reach, near = len(self.model), len(self.easiness), self.shared.shape[1]
        place = self.sums.place
        at = [n + place, np.full(len(place), n + reach)]
        if near:
            start = n + reach + 1 + self.model.block * (near + 1)
            at += [start + np.minimum(place, near), start + near]
        effects = self.model.of_row
        weights = [level] * effects.shape[1] + [seen, end] * (len(at) // 2)
        index, value = np.column_stack([effects, *at]), np.column_stack(weights)
        ends = np.arange(0, index.size + 1, index.shape[1])
        shape = (len(index), len(self.covariance))
        return sparse.csr_array((value.ravel(), index.ravel(), ends), shape=shape)


def _shrunk(
    mean: FloatArray, variance: FloatArray, now: float, guess: float
) -> tuple[float, float]:
    """Return the next variance of effects by (8), and their gamma."""
    known = float(np.clip(len(mean) - variance.sum() / now, 0.0, len(mean)))
    found = (float(mean @ mean) + _WORTH * guess) / (known + _WORTH)
    return max(found, _LEAST_VARIANCE), known


@one_thread
def inverted(precision: FloatArray) -> FloatArray:
    """Invert a matrix; what no score has touched yet stands apart, on the diagonal."""
    inverse = np.diag(1.0 / precision.diagonal())
    touched = np.ix_(*2 * [np.count_nonzero(precision, axis=1) > 1])
    inverse[touched] = np.linalg.inv(precision[touched])
    return inverse


def running(matrix: FloatArray, n: int, runs: Sequence[int]) -> FloatArray:
    """Replace each of the runs of columns from ``n`` on by its running sums, from 0."""
    sums = np.zeros((len(matrix), matrix.shape[1] + len(runs)))
    sums[:, :n] = matrix[:, :n]
    start, to = n, n
    for run in runs:
        np.cumsum(matrix[:, start : start + run], axis=1, out=sums[:, to + 1 : to + 1 + run])
        start, to = start + run, to + run + 1
    return sums


def variances_of(loads: sparse.csr_array, covariance: FloatArray) -> FloatArray:
    """Return the (K,) variances c_i' C c_i, where all rows have as many entries."""
    n_rows = loads.shape[0]
    at, weight = loads.indices.reshape(n_rows, -1), loads.data.reshape(n_rows, -1)
    found = np.zeros(n_rows)
    for column, own in zip(at.T, weight.T, strict=True):
        found += own * (weight * covariance[column[:, None], at]).sum(axis=1)
    return found
