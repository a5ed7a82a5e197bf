"""A one-factor Gaussian model of scores on common examples, and what it says of all rows' means.

Row i has seen the first L_i of m examples, in an order that all rows share. With the score E_ij
standardised by what is known of the example beforehand, y_ij = (E_ij - m_j) / c_j, the model is

    y_ij = b_j . a_i + u_i z_j + e_ij,   z_j ~ N(0, 1),   e_ij ~ N(0, s_i^2)                   (1)
    a_i ~ N(a_0, T),  T = diag(tau^2),   u_i ~ N(u_0, v)                                       (2)

with a row's levels a_i, loading u_i and noise s_i^2, and an example's easiness z_j. The profile
gives m_j, c_j, b_j: 0, 1, 1 without history, so that the only level is the row's mean. This is
factor analysis (rows are variables, examples observations) of incomplete data. It is fitted by ECM:
given loadings and noise, levels and easiness are jointly Gaussian; loadings, then noise, are
maximised given these. Sums over i below are over rows that have seen j (L_i > j).

E step. Let w_i = u_i / s_i^2, P_j = 1 + sum_i w_i u_i and p_j = sum_i w_i y_ij. Completing the
square in z_j, then in all levels together (blocks i, k), gives

    z_j | a ~ N((p_j - sum_i w_i b_j . a_i) / P_j, 1 / P_j)                                    (3)
    a ~ N(V h, V),  (V^-1)_ik = [i = k] (T^-1 + sum_{j < L_i} b_j b_j' / s_i^2)
                                - w_i w_k sum_{j < min(L_i, L_k)} b_j b_j' / P_j               (4)
    h_i = T^-1 a_0 + sum_{j < L_i} b_j y_ij / s_i^2 - w_i sum_{j < L_i} b_j p_j / P_j          (5)

CM steps, with a_i and z_j at their posterior means and Z_j = z_j^2 + 1 / P_j:

    u_i = (sum_{j < L_i} z_j (y_ij - b_j . a_i) + u_0 s_i^2 / v)
          / (sum_{j < L_i} Z_j + s_i^2 / v)                                                    (6)
    r_i = sum_{j < L_i} [(y_ij - b_j . a_i)^2 - 2 u_i z_j (y_ij - b_j . a_i) + u_i^2 Z_j
                         + b_j' V_ii b_j]                                                      (7)
    s_i^2 = (r_i + n_0 q) / (L_i + n_0)                                                        (8)

(6) and (7) leave out how levels and easiness vary together: Cov(a_i, z_j), and the levels' part of
Var z_j. (8) is the mode under a scaled inverse chi-squared prior that is worth n_0 scores as noisy
as those of all rows (q). Shrunk towards its own p (1 - p) instead, a row with four unlucky zeros
would seem free of noise and never be pulled again. a_0 and T are moments of the levels' posterior,
u_0 is the mean loading, weighted by L_i.

The mean over all m examples, seen and unseen (a finite population), is

    m M_i = sum_j m_j + sum_{j < L_i} c_j y_ij
            + sum_{j >= L_i} c_j (b_j . a_i + u_i z_j + e_ij)                                  (9)

With z_j from (3) it is linear in the levels, and so, with P_j = 1 where nobody has seen j,

    H_ik = (1/m) ([i = k] sum_{j >= L_i} c_j b_j - u_i w_k sum_{L_i <= j < L_k} c_j b_j / P_j)  (10)
    Cov(M)_ik = (H V H')_ik + (u_i u_k / m^2) sum_{j >= max(L_i, L_k)} c_j^2 / P_j
                + [i = k] (s_i^2 sum_{j >= L_i} c_j^2 + d_i^2 Var u_i) / m^2                   (11)

where the last term is what (6) does not know of u_i, Var u_i = s_i^2 / (sum_{j < L_i} Z_j +
s_i^2 / v), times its effect on m M_i if the levels follow by least squares:

    d_i = sum_{j >= L_i} c_j z_j
          - (sum_{j >= L_i} c_j b_j)' (sum_{j < L_i} b_j b_j')^-1 sum_{j < L_i} b_j z_j        (12)

Where models M_h of equal weight disagree, their mixture is wider than each of them:

    E M = mean_h E_h M,   Cov M = mean_h (Cov_h M + (E_h M - E M) (E_h M - E M)')             (13)

The weights stay equal. Learned from one-step-ahead log scores they go to the model that knows best
how noisy each example is, by hundreds of nats within a run, also where it misjudges candidates.

All sums over the examples that two rows share are differences of prefix sums, so a fit costs
O(t + n^3) for t scores of n rows, whatever m is. This is a model's opinion: nothing here bounds an
error probability.

References:
    Rubin and Thayer (1982), "EM algorithms for ML factor analysis", Psychometrika 47(1).
    Meng and Rubin (1993), "Maximum likelihood estimation via the ECM algorithm", Biometrika 80(2).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial, reduce
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.selectors.auto.prefix_rows import Block, PrefixRows, weighted_sum
from bestarm_agent.selectors.auto.profiles import Profile
from bestarm_agent.stats.arrays import FloatArray, IntArray, one_thread

_Array = TypeVar("_Array", bound=NDArray[np.generic])

_NOISE_WEIGHT = 20.0  # n_0
_LEAST_NOISE = 0.002
LOADING_SPREAD = 0.02  # v
_LEAST_VARIANCE = 1e-14
_LEAST_GRAM = 1e-9  # keeps (12) solvable where the examples seen do not determine all levels


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """Posterior of the rows' means over all m examples."""

    mean: FloatArray  # (K,) posterior means; not clipped to [0, 1]
    sd: FloatArray  # (K,) posterior standard deviations
    active: IntArray  # (n,) rows that are modelled jointly, ascending
    covariance: FloatArray  # (n, n) of their means; other rows count as independent

    def gap_variance(self, leader: int) -> FloatArray:
        """Return the (K,) variances of the leader's mean minus each other mean, > 0.

        Var(M_l - M_i) = C_ll + C_ii - 2 C_li among active rows, sd_l^2 + sd_i^2 elsewhere.
        """
        variance = self.sd**2 + self.sd[leader] ** 2
        at = int(np.searchsorted(self.active, leader))
        if at < len(self.active) and self.active[at] == leader:
            own = self.covariance.diagonal()
            variance[self.active] = own + own[at] - 2.0 * self.covariance[at]
        return np.asarray(np.maximum(variance, _LEAST_VARIANCE))


def nearest_first(mean: FloatArray, sd: FloatArray) -> IntArray:
    """Return all rows, sorted by how far they are behind the leader in standard deviations."""
    leader = int(np.argmax(mean))
    spread = np.sqrt(np.maximum(sd**2 + sd[leader] ** 2, _LEAST_VARIANCE))
    return np.argsort((mean[leader] - mean) / spread, kind="stable")


class OneFactor:
    """The model, fitted to rows that keep growing; every fit starts from the last one.

    At most ``most_active`` rows are modelled jointly: those nearest to the leader, in standard
    deviations. The levels of the others count as known, at their last estimates.

    Args:
        profile: of the m examples, in the order in which rows take them.
        most_active: most rows modelled jointly, >= 2.

    Example:
        >>> model = OneFactor(Profile.plain(4), n_rows=2)
        >>> for place, score in enumerate([1.0, 1.0, 0.0, 1.0]):
        ...     model.put(0, place, score)
        ...     model.put(1, place, score / 2)
        >>> model.fit(sweeps=4).mean.round(3)
        array([0.75 , 0.375])
    """

    def __init__(self, profile: Profile, n_rows: int, most_active: int = 128) -> None:
        n = n_rows
        self.profile = profile
        self.n_examples = len(profile.mean)
        self.rows = PrefixRows(n, np.column_stack([profile.slope, profile.scale]))
        self._most_active = most_active
        # sums over the first 0, 1, ..., m places of b_j b_j', c_j b_j and c_j^2
        self._gram = prefix(squares(profile.slope))
        self._effect = prefix(profile.scale[:, None] * profile.slope)
        self._unit_noise = prefix(profile.scale**2)
        self._centre, self._spread = profile.centre, profile.spread  # a_0, tau^2
        self._loading_centre, self._noise_centre = 0.25, 0.2  # u_0, q
        self._level: FloatArray = np.tile(self._centre, (n, 1))  # (K, r) a_i
        self._level_variance: FloatArray = np.tile(np.diag(self._spread), (n, 1, 1))  # V_ii
        self._loading: FloatArray = np.full(n, self._loading_centre)  # u_i
        self._noise: FloatArray = np.full(n, self._noise_centre)  # s_i^2
        self._misfit: FloatArray = np.zeros(n)  # r_i
        self._easiness: FloatArray = np.zeros(0)  # z_j, up to the longest row
        self._precision: FloatArray = np.zeros(0)  # P_j, as far
        self._slope_easiness: FloatArray = np.zeros((1, profile.n_levels))  # sums of b_j z_j
        self._square_easiness: FloatArray = np.zeros(1)  # sums of Z_j
        self._length: IntArray = np.zeros(n, dtype=np.int64)  # of the prefixes that are modelled
        self._others_sum: FloatArray = np.zeros(0)  # their part of p_j, less their levels
        self._posterior: Posterior | None = None

    def put(self, row: int, place: int, score: float) -> None:
        """Set a row's score at a place of the order."""
        self.rows.put(row, place, self.profile.standardised(place, score))

    def open(self, row: int, place: int) -> None:
        """Count a place as seen, with the expected score until the score is known."""
        self.rows.open(row, place, float(self._expected(row, np.array([place]))[0]))

    @one_thread
    def fit(self, sweeps: int = 2, *, all_rows: bool = True) -> Posterior:
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
    def peek(self, sweeps: int = 2) -> Posterior:
        """Return what ``fit(sweeps, all_rows=False)`` would, without changing the model."""
        return copy(self)._refine(sweeps, all_rows=False)

    def _refine(self, sweeps: int, *, all_rows: bool) -> Posterior:
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
                mean = (self.rows.totals[:, -1] + 1.0) / (self.rows.length + 2.0)
                order = nearest_first(mean, np.ones(len(mean)))
            else:
                order = nearest_first(self._posterior.mean, self._posterior.sd)
            active[order[self._most_active :]] = False
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
        slope = self.profile.slope[:reach]
        self._precision = 1.0 + suffix(self._length, weight * self._loading, reach)
        if all_rows:
            self._others_sum = weighted_sum(others, weight, reach)
            self._others_sum -= self._explained(self._others, weight, reach)
        weighted = weighted_sum(active, weight, reach)  # p_j, the others' levels being known
        weighted[: len(self._others_sum)] += self._others_sum
        shared = prefix(squares(slope) / self._precision[:, None, None])
        pulled = prefix((weighted / self._precision)[:, None] * slope)
        variance = self._solve_levels(weight[rows], shared, pulled)
        weighted -= self._explained(rows, weight, reach)
        self._easiness = weighted / self._precision  # (3)
        self._slope_easiness = prefix(self._easiness[:, None] * slope)
        self._square_easiness = prefix(self._easiness**2 + 1.0 / self._precision)  # Z_j
        if all_rows and len(self._others):
            self._solve_other_levels()
        return variance

    def _explained(self, who: IntArray, weight: FloatArray, reach: int) -> FloatArray:
        """Return the (reach,) sums over rows of w_i b_j . a_i."""
        levels = suffix(self._length[who], weight[who, None] * self._level[who], reach)
        return np.asarray((levels * self.profile.slope[:reach]).sum(axis=1))

    def _solve_levels(
        self, weight: FloatArray, shared: FloatArray, pulled: FloatArray
    ) -> FloatArray:
        """Set the levels of the active rows; return V (n r, n r), a row's r levels adjacent."""
        active, length = self._active, self._length[self._active]
        n, r = len(active), self.profile.n_levels
        noise = self._noise[active]
        common = np.minimum.outer(length, length)
        precision = -np.outer(weight, weight)[:, :, None, None] * shared[common]  # (4)
        at = np.arange(n)
        precision[at, at] += np.diag(1.0 / self._spread)
        precision[at, at] += self._gram[length] / noise[:, None, None]
        target = self._centre / self._spread + self.rows.totals[active, :r] / noise[:, None]
        target -= weight[:, None] * pulled[length]  # (5)
        flat = precision.transpose(0, 2, 1, 3).reshape(n * r, n * r)
        variance = np.asarray(np.linalg.inv(flat), dtype=np.float64)
        levels = (variance @ target.ravel()).reshape(n, r)
        self._level = _replaced(self._level, active, levels)
        own = variance.reshape(n, r, n, r)[at, :, at, :]
        self._level_variance = _replaced(self._level_variance, active, own)
        return variance

    def _solve_other_levels(self) -> None:
        """Set the levels of the others given the easiness: ridge regression, row by row."""
        rows, noise = self._others, self._noise[self._others, None]
        length, r = self._length[rows], self.profile.n_levels
        precision = self._gram[length] / noise[:, None] + np.diag(1.0 / self._spread)
        variance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        moved = self._loading[rows, None] * self._slope_easiness[length]
        target = self._centre / self._spread + (self.rows.totals[rows, :r] - moved) / noise
        self._level = _replaced(self._level, rows, (variance @ target[:, :, None])[:, :, 0])
        self._level_variance = _replaced(self._level_variance, rows, variance)

    def _maximise_loadings(self, who: IntArray, blocks: Sequence[Block]) -> None:
        """CM step 1: loadings of the rows ``who``, and their expected squared residuals."""
        products = np.zeros(len(self._level))  # sum of z_j y_ij
        for rows, values in blocks:
            products[rows] = values @ self._easiness[: values.shape[1]]
        length, level, r = self._length[who], self._level[who], self.profile.n_levels
        moment = products[who] - (level * self._slope_easiness[length]).sum(axis=1)
        ridge, square = self._noise[who] / LOADING_SPREAD, self._square_easiness[length]
        loading = (moment + ridge * self._loading_centre) / (square + ridge)  # (6)
        self._loading = _replaced(self._loading, who, loading)
        gram = self._gram[length]
        fitted = (gram @ level[:, :, None])[:, :, 0] - 2.0 * self.rows.totals[who, :r]
        around = self.rows.squares[who] + (level * fitted).sum(axis=1)
        misfit = around - 2.0 * loading * moment + loading**2 * square
        of_levels = (gram * self._level_variance[who]).sum(axis=(1, 2))
        self._misfit = _replaced(self._misfit, who, np.maximum(misfit, 0.0) + of_levels)  # (7)

    def _maximise_noise(self) -> None:
        """CM step 2: noise of all rows; then the centres and spreads of the priors."""
        length, profile = self._length, self.profile
        n_seen = max(1, int(length.sum()))
        self._noise_centre = max(float(self._misfit.sum()) / n_seen, _LEAST_NOISE)  # q
        worth = len(self._level) + profile.worth
        self._centre = (self._level.sum(axis=0) + profile.worth * profile.centre) / worth
        spread = (self._level - self._centre) ** 2
        spread = (spread + self._level_variance.diagonal(axis1=1, axis2=2)).sum(axis=0)
        spread = (spread + profile.worth * profile.spread) / worth
        self._spread = np.maximum(profile.least_spread, spread)
        self._loading_centre = float(length @ self._loading) / n_seen
        noise = (self._misfit + _NOISE_WEIGHT * self._noise_centre) / (length + _NOISE_WEIGHT)
        self._noise = np.maximum(noise, _LEAST_NOISE)  # (8)

    def _outlook(self, variance: FloatArray) -> Posterior:
        """Return the posterior of the rows' means, given V (n r, n r) of the n active rows."""
        m, length, reach = self.n_examples, self.rows.length, len(self._easiness)
        left = self._effect[-1] - self._effect[length]  # (K, r) sums of c_j b_j not seen
        eased = prefix(self.profile.scale[:reach] * self._easiness)  # sums of c_j z_j
        ahead = eased[-1] - eased[np.minimum(length, reach)]
        rest = self.rows.totals[:, -1] + (left * self._level).sum(axis=1) + self._loading * ahead
        mean = (float(self.profile.mean.sum()) + rest) / m  # (9)
        own = self._noise * (self._unit_noise[-1] - self._unit_noise[length]) / m**2
        left = left / m
        levels = (left[:, None, :] @ self._level_variance @ left[:, :, None])[:, 0, 0]
        sd = np.sqrt(levels + own)
        covariance = self._covariance(left, ahead, own, variance)
        sd[self._active] = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
        return Posterior(mean, sd, self._active, covariance)

    def _covariance(
        self, left: FloatArray, ahead: FloatArray, own: FloatArray, variance: FloatArray
    ) -> FloatArray:
        """Return the (n, n) posterior covariance of the active rows' M.

        (K, r) ``left`` and (K,) ``ahead`` are the sums of c_j b_j / m and of c_j z_j over the
        places not seen; (K,) ``own`` is the variance that the noise of unseen scores makes.
        """
        m, active, reach = self.n_examples, self._active, len(self._easiness)
        length, loading = self.rows.length[active], self._loading[active]
        noise, at = self._noise[active], np.arange(len(active))
        scale, slope = self.profile.scale[:reach], self.profile.slope[:reach]
        shorter, longer = np.minimum.outer(length, length), np.maximum.outer(length, length)
        sums = prefix((scale / self._precision)[:, None] * slope)
        moved = -np.outer(loading, loading / noise)[:, :, None] * (sums[length] - sums[shorter]) / m
        moved[at, at] += left[active]  # (10)
        moved = moved.reshape(len(active), -1)
        seen = prefix(scale**2 / self._precision)
        unseen = seen[-1] - seen[longer] + self._unit_noise[-1] - self._unit_noise[reach]
        rest = np.outer(loading, loading) * unseen / m**2
        gram = self._gram[length] + _LEAST_GRAM * np.eye(slope.shape[1])
        absorbed = np.linalg.solve(gram, self._slope_easiness[length][:, :, None])[:, :, 0]
        effect = ahead[active] - (m * left[active] * absorbed).sum(axis=1)  # (12)
        spread = self._square_easiness[length] + noise / LOADING_SPREAD
        rest[at, at] += own[active] + effect**2 / spread * noise / m**2
        return np.asarray(moved @ variance @ moved.T + rest)  # (11)

    def _expected(self, row: int, places: IntArray) -> FloatArray:
        """Return the expected y_ij of a row at some places; not clipped."""
        expected = self.profile.slope[places] @ self._level[row]
        known = places < len(self._easiness)
        expected[known] += self._loading[row] * self._easiness[places[known]]
        return np.asarray(expected)


def squares(slope: FloatArray) -> FloatArray:
    """Return the (m, r, r) outer products of the rows of (m, r)."""
    return slope[:, :, None] * slope[:, None, :]


def prefix(values: FloatArray) -> FloatArray:
    """Return the (m + 1, ...) running sums along the first axis, from 0."""
    return np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])


def suffix(length: IntArray, values: FloatArray, reach: int) -> FloatArray:
    """Return, for each place j, the sum of the values (K, ...) of the rows longer than j.

    Example:
        >>> suffix(np.array([1, 2]), np.array([10.0, 1.0]), reach=2)
        array([11.,  1.])
    """
    ends = np.zeros((reach + 1, *values.shape[1:]))
    np.add.at(ends, length, values)
    return np.asarray(np.cumsum(ends[::-1], axis=0)[::-1][1:])


def _replaced(values: _Array, at: IntArray, new: _Array) -> _Array:
    """Return a copy of ``values`` with other entries ``at`` some places."""
    copied = values.copy()
    copied[at] = new
    return copied


def mixture(parts: Sequence[Posterior]) -> Posterior:
    """Return the mixture (13) of posteriors of equal weight.

    Rows that one of them does not model jointly with others count as independent.

    Example:
        >>> one = Posterior(np.array([0.4]), np.array([0.3]), np.arange(1), np.array([[0.09]]))
        >>> two = Posterior(np.array([0.6]), np.array([0.3]), np.arange(1), np.array([[0.09]]))
        >>> both = mixture([one, two])
        >>> both.mean, both.covariance
        (array([0.5]), array([[0.1]]))
    """
    if len(parts) == 1:
        return parts[0]
    means = np.array([part.mean for part in parts])
    off = means - means.mean(axis=0)
    sd = np.sqrt(np.mean([part.sd**2 for part in parts], axis=0) + (off**2).mean(axis=0))
    active = reduce(np.intersect1d, [part.active for part in parts])
    within = [
        part.covariance[np.ix_(at, at)]
        for part in parts
        for at in [np.searchsorted(part.active, active)]
    ]
    apart = off[:, active].T @ off[:, active] / len(parts)
    return Posterior(means.mean(axis=0), sd, active, np.mean(within, axis=0) + apart)
