"""A one-factor Gaussian model of scores on common examples, and what it says of all rows' means.

Row i has seen the first L_i of m examples, in an order that all rows share. Its score is

    y_ij = a_i + u_i z_j + e_ij,   z_j ~ N(0, 1),   e_ij ~ N(0, s_i^2)                         (1)
    a_i ~ N(a_0, tau^2),   u_i ~ N(u_0, v)                                                     (2)

with a row's level a_i, loading u_i and noise s_i^2, and an example's easiness z_j. This is factor
analysis (rows are variables, examples observations) of incomplete data. It is fitted by ECM: given
loadings and noise, levels and easiness are jointly Gaussian; loadings, then noise, are maximised
given these. Sums over i below are over rows that have seen j (L_i > j).

E step. Let w_i = u_i / s_i^2, P_j = 1 + sum_i w_i u_i and p_j = sum_i w_i y_ij. Completing the
square in z_j, then in all levels together, gives

    z_j | a ~ N((p_j - sum_i w_i a_i) / P_j, 1 / P_j)                                          (3)
    a ~ N(V h, V),  (V^-1)_ik = [i = k] (1 / tau^2 + L_i / s_i^2)
                                - w_i w_k sum_{j < min(L_i, L_k)} 1 / P_j                      (4)
    h_i = a_0 / tau^2 + sum_{j < L_i} y_ij / s_i^2 - w_i sum_{j < L_i} p_j / P_j               (5)

CM steps, with a_i and z_j at their posterior means and Z_j = z_j^2 + 1 / P_j:

    u_i = (sum_{j < L_i} z_j (y_ij - a_i) + u_0 s_i^2 / v) / (sum_{j < L_i} Z_j + s_i^2 / v)   (6)
    r_i = sum_{j < L_i} [(y_ij - a_i)^2 - 2 u_i z_j (y_ij - a_i) + u_i^2 Z_j + V_ii]           (7)
    s_i^2 = (r_i + n_0 q) / (L_i + n_0)                                                        (8)

(6) and (7) leave out how levels and easiness vary together: Cov(a_i, z_j), and the levels' part of
Var z_j. (8) is the mode under a scaled inverse chi-squared prior that is worth n_0 scores as noisy
as those of all rows (q). Shrunk towards its own p (1 - p) instead, a row with four unlucky zeros
would seem free of noise and never be pulled again. a_0 and tau^2 are moments of the levels'
posterior, u_0 is the mean loading, weighted by L_i.

The mean over all m examples, seen and unseen (a finite population), is

    m M_i = sum_{j < L_i} y_ij + sum_{j >= L_i} (a_i + u_i z_j + e_ij)                         (9)

With z_j from (3) it is linear in the levels, and so, with P_j = 1 where nobody has seen j,

    H_ik = (1/m) ([i = k] (m - L_i) - u_i w_k sum_{L_i <= j < L_k} 1 / P_j)                    (10)
    Cov(M)_ik = (H V H')_ik + (u_i u_k / m^2) sum_{j >= max(L_i, L_k)} 1 / P_j
                + [i = k] ((m - L_i) s_i^2 + d_i^2 Var u_i) / m^2                              (11)

where the last term is what (6) does not know of u_i, Var u_i = s_i^2 / (sum_{j < L_i} Z_j +
s_i^2 / v), times its effect on m M_i if the level follows by least squares:

    d_i = sum_{j >= L_i} z_j - (m - L_i) / L_i sum_{j < L_i} z_j                               (12)

All sums over the examples that two rows share are differences of prefix sums, so a fit costs
O(t + n^3) for t scores of n rows, whatever m is. This is a model's opinion: nothing here bounds an
error probability.

References:
    Rubin and Thayer (1982), "EM algorithms for ML factor analysis", Psychometrika 47(1).
    Meng and Rubin (1993), "Maximum likelihood estimation via the ECM algorithm", Biometrika 80(2).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.selectors.auto.prefix_rows import Block, PrefixRows, weighted_sum
from bestarm_agent.stats.arrays import FloatArray, IntArray, one_thread

_Array = TypeVar("_Array", bound=NDArray[np.generic])

_NOISE_WEIGHT = 20.0  # n_0
_LEAST_NOISE = 0.002
LOADING_SPREAD = 0.02  # v
_LEAST_VARIANCE = 1e-14
_LEAST_SPREAD = 0.02  # of tau^2: else a few examples make all rows seem equal for good
_NO_EXAMPLE = 1e-9  # in place of L_i = 0 in (12)


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """Posterior of the rows' means over all m examples."""

    mean: FloatArray  # (K,) posterior means; not clipped to [0, 1]
    sd: FloatArray  # (K,) posterior standard deviations

    @abstractmethod
    def gap_variance(self, leader: int) -> FloatArray:
        """Return the (K,) variances of the leader's mean minus each other mean, > 0."""


@dataclass(frozen=True, slots=True, eq=False)
class JointPosterior(Posterior):
    """A posterior that knows the covariance of some rows."""

    active: IntArray  # (n,) rows that are modelled jointly, ascending
    covariance: FloatArray  # (n, n) of their means; other rows count as independent

    def gap_variance(self, leader: int) -> FloatArray:
        """Return C_ll + C_ii - 2 C_li for active rows i, sd_l^2 + sd_i^2 elsewhere."""
        variance = self.sd**2 + self.sd[leader] ** 2
        at = int(np.searchsorted(self.active, leader))
        if at < len(self.active) and self.active[at] == leader:
            own = self.covariance.diagonal()
            variance[self.active] = own + own[at] - 2.0 * self.covariance[at]
        return np.asarray(np.maximum(variance, _LEAST_VARIANCE))


class OneFactor:
    """The model, fitted to rows that keep growing; every fit starts from the last one.

    At most ``most_active`` rows are modelled jointly: those nearest to the leader, in standard
    deviations. The levels of the others count as known, at their last estimates.

    Args:
        n_rows: K >= 0.
        n_examples: m >= 1.
        most_active: most rows modelled jointly, >= 2.

    Example:
        >>> model = OneFactor(n_rows=2, n_examples=4)
        >>> for place, score in enumerate([1.0, 1.0, 0.0, 1.0]):
        ...     model.put(0, place, score)
        ...     model.put(1, place, score / 2)
        >>> model.fit(sweeps=4).mean.round(3)
        array([0.75 , 0.375])
    """

    def __init__(self, n_rows: int, n_examples: int, most_active: int = 128) -> None:
        n = n_rows
        self.n_examples = n_examples
        self.rows = PrefixRows(n)
        self._most_active = most_active
        self._centre, self._spread = 0.5, 0.05  # a_0, tau^2
        self._loading_centre, self._noise_centre = 0.25, 0.2  # u_0, q
        self._level: FloatArray = np.full(n, self._centre)  # a_i
        self._level_variance: FloatArray = np.full(n, self._spread)  # V_ii
        self._loading: FloatArray = np.full(n, self._loading_centre)  # u_i
        self._noise: FloatArray = np.full(n, self._noise_centre)  # s_i^2
        self._misfit: FloatArray = np.zeros(n)  # r_i
        self._easiness: FloatArray = np.zeros(0)  # z_j, up to the longest row
        self._precision: FloatArray = np.zeros(0)  # P_j, as far
        self._eased: FloatArray = np.zeros(1)  # sums of z_j over the first 0, 1, ... places
        self._square_easiness: FloatArray = np.zeros(1)  # sums of Z_j
        self._length: IntArray = np.zeros(n, dtype=np.int64)  # of the prefixes that are modelled
        self._others_sum: FloatArray = np.zeros(0)  # their part of p_j, less their levels
        self._posterior: JointPosterior | None = None

    def put(self, row: int, place: int, score: float) -> None:
        """Set a row's score at a place of the order."""
        self.rows.put(row, place, score)

    def open(self, row: int, place: int) -> None:
        """Count a place as seen, with the expected score until the score is known."""
        ease = float(self._easiness[place]) if place < len(self._easiness) else 0.0
        self.rows.open(row, place, float(self._level[row]) + float(self._loading[row]) * ease)

    @one_thread
    def fit(self, sweeps: int = 2, *, all_rows: bool = True) -> JointPosterior:
        """Fit the model to the scores so far; return the posterior of the rows' means.

        ``all_rows`` fits all rows and chooses again which are modelled jointly, else only these are
        fitted.
        """
        all_rows = all_rows or self._posterior is None
        if all_rows:
            self._choose_active()
        for row in range(len(self._level)) if all_rows else self._active.tolist():
            self.rows.fill(row, partial(self._expected, row))
        return self._refine(sweeps, all_rows=all_rows)

    @one_thread
    def peek(self, sweeps: int = 2) -> JointPosterior:
        """Return what ``fit(sweeps, all_rows=False)`` would, without changing the model."""
        return copy(self)._refine(sweeps, all_rows=False)

    def _refine(self, sweeps: int, *, all_rows: bool) -> JointPosterior:
        """Fit to the guesses in the holes; no array is changed in place, as a copy shares them."""
        active = self.rows.blocks(self._active)
        others = self.rows.blocks(self._others) if all_rows else []
        fitted = np.arange(len(self._level)) if all_rows else self._active
        for _ in range(sweeps):
            variance = self._expect(active, others, all_rows=all_rows)
            self._maximise_loadings(fitted, active + others)
            self._maximise_noise()
        self._posterior = self._outlook(variance)
        return self._posterior

    def _choose_active(self) -> None:
        active = np.ones(len(self._level), dtype=bool)
        if len(active) > self._most_active:
            if self._posterior is None:  # smoothed means of the scores seen
                mean, sd = (self.rows.totals + 1.0) / (self.rows.length + 2.0), np.ones(len(active))
            else:
                mean, sd = self._posterior.mean, self._posterior.sd
            leader = int(np.argmax(mean))
            spread = np.sqrt(np.maximum(sd**2 + sd[leader] ** 2, _LEAST_VARIANCE))
            nearest_first = np.argsort((mean[leader] - mean) / spread, kind="stable")
            active[nearest_first[self._most_active :]] = False
        self._active = np.flatnonzero(active)
        self._others = np.flatnonzero(~active)

    def _expect(
        self, active: Sequence[Block], others: Sequence[Block], *, all_rows: bool
    ) -> FloatArray:
        """E step: levels and easiness given loadings and noise; return V of the active rows."""
        rows, weight = self._active, self._loading / self._noise  # w_i
        known = np.arange(len(weight)) if all_rows else rows
        self._length = _replaced(self._length, known, self.rows.length[known])
        reach = int(self._length.max(initial=0))
        self._precision = 1.0 + suffix(self._length, weight * self._loading, reach)
        if all_rows:
            self._others_sum = weighted_sum(others, weight, reach)
            self._others_sum -= self._explained(self._others, weight, reach)
        weighted = weighted_sum(active, weight, reach)  # p_j, the others' levels being known
        weighted[: len(self._others_sum)] += self._others_sum
        shared, pulled = prefix(1.0 / self._precision), prefix(weighted / self._precision)
        variance = self._solve_levels(weight[rows], shared, pulled)
        weighted -= self._explained(rows, weight, reach)
        self._easiness = weighted / self._precision  # (3)
        self._eased = prefix(self._easiness)
        self._square_easiness = prefix(self._easiness**2 + 1.0 / self._precision)  # Z_j
        if all_rows and len(self._others):
            self._solve_other_levels()
        return variance

    def _explained(self, who: IntArray, weight: FloatArray, reach: int) -> FloatArray:
        """Return the (reach,) sums over rows of w_i a_i."""
        return suffix(self._length[who], weight[who] * self._level[who], reach)

    def _solve_levels(
        self, weight: FloatArray, shared: FloatArray, pulled: FloatArray
    ) -> FloatArray:
        """Set the levels of the active rows; return their V (n, n)."""
        active, length = self._active, self._length[self._active]
        noise, at = self._noise[active], np.arange(len(active))
        precision = -np.outer(weight, weight) * shared[np.minimum.outer(length, length)]  # (4)
        precision[at, at] += 1.0 / self._spread
        precision[at, at] += length / noise
        target = self._centre / self._spread + self.rows.totals[active] / noise
        target -= weight * pulled[length]  # (5)
        variance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        self._level = _replaced(self._level, active, variance @ target)
        self._level_variance = _replaced(self._level_variance, active, variance.diagonal())
        return variance

    def _solve_other_levels(self) -> None:
        """Set the levels of the others given the easiness: ridge regression, row by row."""
        rows, noise = self._others, self._noise[self._others]
        length = self._length[rows]
        variance = 1.0 / (length / noise + 1.0 / self._spread)
        moved = self._loading[rows] * self._eased[length]
        target = self._centre / self._spread + (self.rows.totals[rows] - moved) / noise
        self._level = _replaced(self._level, rows, variance * target)
        self._level_variance = _replaced(self._level_variance, rows, variance)

    def _maximise_loadings(self, who: IntArray, blocks: Sequence[Block]) -> None:
        """CM step 1: loadings of the rows ``who``, and their expected squared residuals."""
        products = np.zeros(len(self._level))  # sum of z_j y_ij
        for rows, values in blocks:
            products[rows] = values @ self._easiness[: values.shape[1]]
        length, level = self._length[who], self._level[who]
        moment = products[who] - level * self._eased[length]
        ridge, square = self._noise[who] / LOADING_SPREAD, self._square_easiness[length]
        loading = (moment + ridge * self._loading_centre) / (square + ridge)  # (6)
        self._loading = _replaced(self._loading, who, loading)
        around = self.rows.squares[who] + level * (length * level - 2.0 * self.rows.totals[who])
        misfit = around - 2.0 * loading * moment + loading**2 * square
        of_levels = length * self._level_variance[who]
        self._misfit = _replaced(self._misfit, who, np.maximum(misfit, 0.0) + of_levels)  # (7)

    def _maximise_noise(self) -> None:
        """CM step 2: noise of all rows; then the centres and spreads of the priors."""
        length = self._length
        n_seen = max(1, int(length.sum()))
        self._noise_centre = max(float(self._misfit.sum()) / n_seen, _LEAST_NOISE)  # q
        self._centre = float(self._level.mean())
        spread = (self._level - self._centre) ** 2 + self._level_variance
        self._spread = max(_LEAST_SPREAD, float(spread.mean()))
        self._loading_centre = float(length @ self._loading) / n_seen
        noise = (self._misfit + _NOISE_WEIGHT * self._noise_centre) / (length + _NOISE_WEIGHT)
        self._noise = np.maximum(noise, _LEAST_NOISE)  # (8)

    def _outlook(self, variance: FloatArray) -> JointPosterior:
        """Return the posterior of the rows' means, given V (n, n) of the n active rows."""
        m, length, reach = self.n_examples, self.rows.length, len(self._easiness)
        left = m - length
        ahead = self._eased[-1] - self._eased[np.minimum(length, reach)]  # sums of z_j not seen
        mean = (self.rows.totals + left * self._level + self._loading * ahead) / m  # (9)
        own = self._noise * left / m**2  # what the noise of unseen scores makes
        sd = np.sqrt((left / m) ** 2 * self._level_variance + own)
        covariance = self._covariance(ahead, own, variance)
        sd[self._active] = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
        return JointPosterior(mean, sd, self._active, covariance)

    def _covariance(self, ahead: FloatArray, own: FloatArray, variance: FloatArray) -> FloatArray:
        """Return the (n, n) posterior covariance of the active rows' M.

        (K,) ``ahead`` are the sums of z_j over the places not seen, ``own`` the variances that the
        noise of unseen scores makes.
        """
        m, active, reach = self.n_examples, self._active, len(self._easiness)
        length, loading = self.rows.length[active], self._loading[active]
        noise, at = self._noise[active], np.arange(len(active))
        shorter, longer = np.minimum.outer(length, length), np.maximum.outer(length, length)
        sums = prefix(1.0 / self._precision)
        moved = -np.outer(loading, loading / noise) * (sums[length] - sums[shorter]) / m
        moved[at, at] += (m - length) / m  # (10)
        unseen = sums[-1] - sums[longer] + (m - reach)
        rest = np.outer(loading, loading) * unseen / m**2
        absorbed = self._eased[length] / (length + _NO_EXAMPLE)
        effect = ahead[active] - (m - length) * absorbed  # (12)
        spread = self._square_easiness[length] + noise / LOADING_SPREAD
        rest[at, at] += own[active] + effect**2 / spread * noise / m**2
        return np.asarray(moved @ variance @ moved.T + rest)  # (11)

    def _expected(self, row: int, places: IntArray) -> FloatArray:
        """Return the expected y_ij of a row at some places; not clipped."""
        expected = np.full(len(places), self._level[row])
        known = places < len(self._easiness)
        expected[known] += self._loading[row] * self._easiness[places[known]]
        return expected


def prefix(values: FloatArray) -> FloatArray:
    """Return the (m + 1,) running sums, from 0."""
    return np.concatenate([np.zeros(1), np.cumsum(values)])


def suffix(length: IntArray, values: FloatArray, reach: int) -> FloatArray:
    """Return, for each place j, the sum of the values (K,) of the rows longer than j.

    Example:
        >>> suffix(np.array([1, 2]), np.array([10.0, 1.0]), reach=2)
        array([11.,  1.])
    """
    ends = np.bincount(length, weights=values, minlength=reach + 1)
    return np.asarray(np.cumsum(ends[::-1])[::-1][1:])


def _replaced(values: _Array, at: IntArray, new: _Array) -> _Array:
    """Return a copy of ``values`` with other entries ``at`` some places."""
    copied = values.copy()
    copied[at] = new
    return copied
