"""What scores on common examples say about the means of all rows: a one-factor Gaussian model.

    E_ij = a_i + u_i z_j + e_ij,    z_j ~ N(0, 1),  e_ij ~ N(0, s_i^2),  a_i ~ N(a_0, tau^2)

a_i is the level of row i, z_j the easiness of example j, u_i how strongly row i feels it. Given u
and s, levels and easiness are jointly Gaussian and everything below is exact. u and s are fitted by
ECM. What is asked for is the mean of row i over all m examples, seen and unseen (a finite
population): it is known once the row is full, and the covariance knows which examples two rows
share. It is a model's opinion: nothing here bounds an error probability.

Every row holds a prefix of one order, so all sums over the examples that two rows share are
differences of prefix sums, and a fit costs O(t + n^3) for t scores of n rows, whatever m is.

The noise of a row is shrunk towards that of the leading rows, not towards its own p (1 - p): a row
with four unlucky zeros would else seem free of noise, and be given up for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.prefixes import Block, PrefixRows

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]

_N_LEADERS = 5  # rows whose noise is what a good row is expected to have
_NOISE_WEIGHT = 20.0  # scores that this expectation is worth
_LEAST_NOISE = 0.002
_LEAST_SPREAD = 0.02  # of levels (tau^2): else a few examples make all rows seem alike for good
_LOADING_SPREAD = 0.02  # prior variance of a row's loading around the average
_LEAST_VARIANCE = 1e-14


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """Posterior of the rows' means over all m examples.

    Attributes:
        mean: (K,) posterior means; not clipped to [0, 1].
        sd: (K,) posterior standard deviations.
        active: (n,) rows that are modelled jointly, ascending.
        covariance: (n, n) of their means.
    """

    mean: FloatArray
    sd: FloatArray
    active: IntArray
    covariance: FloatArray

    def gap_variance(self, leader: int) -> FloatArray:
        """(K,) posterior variance of the leader's mean minus each other's, > 0."""
        variance = self.sd**2 + self.sd[leader] ** 2
        at = int(np.searchsorted(self.active, leader))
        if at < len(self.active) and self.active[at] == leader:
            own = self.covariance.diagonal()
            variance[self.active] = own + own[at] - 2.0 * self.covariance[at]
        return np.asarray(np.maximum(variance, _LEAST_VARIANCE))


class OneFactor:
    """The model, fitted to rows that keep growing; every fit goes on from the last one.

    Only ``most_active`` rows are modelled jointly: those nearest to the lead, in standard
    deviations. The others stay as the last fit of everybody left them.

    Args:
        rows: the scores; may grow.
        n_examples: m >= 1, places in the order.
        most_active: limit of the rows modelled jointly, >= 2.

    Example:
        >>> rows = PrefixRows(2)
        >>> for place, score in enumerate([1.0, 1.0, 0.0, 1.0]):
        ...     rows.put(0, place, score)
        ...     rows.put(1, place, score / 2)
        >>> OneFactor(rows, n_examples=4).fit(sweeps=4).mean.round(3)
        array([0.75 , 0.375])
    """

    def __init__(self, rows: PrefixRows, n_examples: int, most_active: int = 128) -> None:
        self.rows = rows
        self.n_examples = n_examples
        self._most_active = most_active
        self._centre, self._spread = 0.5, 0.05  # a_0, tau^2
        self._loading_centre, self._noise_centre = 0.25, 0.2
        self._level: FloatArray = np.zeros(0)  # a_i
        self._level_variance: FloatArray = np.zeros(0)
        self._loading: FloatArray = np.zeros(0)  # u_i
        self._noise: FloatArray = np.zeros(0)  # s_i^2
        self._misfit: FloatArray = np.zeros(0)  # expected sums of squared residuals
        self._easiness: FloatArray = np.zeros(0)  # z_j, of the examples that anybody has seen
        self._length: IntArray = np.zeros(0, dtype=np.int64)  # of the prefixes that are modelled
        self._others_pull: FloatArray = np.zeros(0)
        self._outlook: Outlook | None = None
        self.grow()

    def grow(self) -> None:
        """Take in the rows that joined."""
        n = len(self.rows.length)
        self._level = _longer(self._level, n, self._centre)
        self._level_variance = _longer(self._level_variance, n, self._spread)
        self._loading = _longer(self._loading, n, self._loading_centre)
        self._noise = _longer(self._noise, n, self._noise_centre)
        self._misfit = _longer(self._misfit, n, 0.0)
        self._length = np.append(self._length, np.zeros(n - len(self._length), dtype=np.int64))
        self._outlook = None

    def fit(self, sweeps: int = 2, *, everybody: bool = True) -> Outlook:
        """Bring the model up to date and say what it expects.

        Args:
            sweeps: ECM steps, >= 1.
            everybody: whether to fit all rows, and to choose anew which are modelled jointly.
        """
        everybody = everybody or self._outlook is None
        if everybody:
            self._choose_active()
        for row in range(len(self._level)) if everybody else self._active.tolist():
            self.rows.fill(row, partial(self._expected, row))
        return self._refine(sweeps, everybody=everybody)

    def peek(self, sweeps: int = 2) -> Outlook:
        """What ``fit`` would say; changes nothing."""
        other = copy(self)
        for name in ("_level", "_level_variance", "_loading", "_noise", "_misfit", "_length"):
            setattr(other, name, getattr(self, name).copy())
        return other._refine(sweeps, everybody=False)

    def expected(self, row: int, place: int) -> float:
        """The score that the model expects of a row at a place of the order; not clipped."""
        easiness = self._easiness.item(place) if place < len(self._easiness) else 0.0
        return float(self._level[row] + self._loading[row] * easiness)

    def _refine(self, sweeps: int, *, everybody: bool) -> Outlook:
        near = self.rows.blocks(self._active)
        far = self.rows.blocks(self._others) if everybody else []
        fitted = np.arange(len(self._level)) if everybody else self._active
        for _ in range(sweeps):
            sums, variance = self._sweep(near, far, everybody=everybody)
            self._refit_loadings(fitted, near + far, sums)
            self._refit_centres(sums)
        self._outlook = self._look(sums, variance)
        return self._outlook

    def _choose_active(self) -> None:
        n = len(self._level)
        active = np.ones(n, dtype=bool)
        if n > self._most_active:
            look = self._outlook
            mean = self.rows.total + 1.0 if look is None else look.mean
            mean = mean / (self.rows.length + 2.0) if look is None else mean
            sd = np.ones(n) if look is None else look.sd
            leader = int(np.argmax(mean))
            spread = np.sqrt(np.maximum(sd**2 + sd[leader] ** 2, _LEAST_VARIANCE))
            behind = (mean[leader] - mean) / spread
            active[np.argsort(behind, kind="stable")[self._most_active :]] = False
        self._active = np.flatnonzero(active)
        self._others = np.flatnonzero(~active)

    def _sweep(
        self, near: Sequence[Block], far: Sequence[Block], *, everybody: bool
    ) -> tuple[_Sums, FloatArray]:
        """Levels and easiness given loadings and noise; also the active levels' covariance."""
        active, weight = self._active, self._loading / self._noise
        self._length[active] = self.rows.length[active]
        if everybody:
            self._length[self._others] = self.rows.length[self._others]
        reach = int(self._length.max(initial=0))
        precision = 1.0 + _suffix(self._length, weight * self._loading, reach)  # P_j
        if everybody:
            self._others_pull = _pull(far, weight, reach)
            self._others_pull -= self._explained(self._others, weight, reach)
        pull = _pull(near, weight, reach)  # y_j, less what the others' levels explain
        pull[: len(self._others_pull)] += self._others_pull
        shared = _prefix(1.0 / precision)
        variance = self._solve(weight[active], shared, _prefix(pull / precision))
        pull -= self._explained(active, weight, reach)
        self._easiness = pull / precision  # z_j
        sums = _Sums(
            shared, _prefix(self._easiness), _prefix(self._easiness**2 + 1.0 / precision), reach
        )
        if everybody and len(self._others):
            self._follow(sums)
        return sums, variance

    def _explained(self, who: IntArray, weight: FloatArray, reach: int) -> FloatArray:
        """(reach,) what the rows' levels explain of their pull."""
        return _suffix(self._length[who], weight[who] * self._level[who], reach)

    def _solve(self, weight: FloatArray, shared: FloatArray, pulled: FloatArray) -> FloatArray:
        """Levels of the active rows, easiness integrated out; returns their covariance."""
        active, length = self._active, self._length[self._active]
        noise = self._noise[active]
        common = np.minimum.outer(length, length)
        precision = -np.outer(weight, weight) * shared[common]  # - G G'
        precision[np.diag_indices(len(active))] += 1.0 / self._spread + length / noise
        target = self._centre / self._spread + self.rows.total[active] / noise
        variance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        self._level[active] = variance @ (target - weight * pulled[length])
        self._level_variance[active] = variance.diagonal()
        return variance

    def _follow(self, sums: _Sums) -> None:
        """Levels of the others, given the easiness."""
        rows, noise = self._others, self._noise[self._others]
        length = self._length[rows]
        precision = 1.0 / self._spread + length / noise
        seen = self.rows.total[rows] - self._loading[rows] * sums.easiness[length]
        self._level[rows] = (self._centre / self._spread + seen / noise) / precision
        self._level_variance[rows] = 1.0 / precision

    def _refit_loadings(self, who: IntArray, blocks: Sequence[Block], sums: _Sums) -> None:
        """Ridge regression of E_i - a_i on the easiness, towards the average loading."""
        seen = np.zeros(len(self._level))
        for rows, values in blocks:
            seen[rows] = values @ self._easiness[: values.shape[1]]
        length, level = self._length[who], self._level[who]
        felt = seen[who] - level * sums.easiness[length]
        ridge, square = self._noise[who] / _LOADING_SPREAD, sums.square[length]
        loading = (felt + ridge * self._loading_centre) / (square + ridge)
        self._loading[who] = loading
        around = self.rows.squares[who] - level * (2.0 * self.rows.total[who] - length * level)
        misfit = around - 2.0 * loading * felt + loading**2 * square
        self._misfit[who] = np.maximum(misfit, 0.0) + length * self._level_variance[who]

    def _refit_centres(self, sums: _Sums) -> None:
        length = self._length
        leaders = np.argsort(-self._means(sums), kind="stable")[:_N_LEADERS]
        n_seen = max(1, int(length[leaders].sum()))
        self._noise_centre = max(float(self._misfit[leaders].sum()) / n_seen, _LEAST_NOISE)
        self._centre = float(self._level.mean())
        spread = (self._level - self._centre) ** 2 + self._level_variance
        self._spread = max(_LEAST_SPREAD, float(spread.mean()))
        self._loading_centre = float(length @ self._loading) / max(1, int(length.sum()))
        noise = self._misfit + _NOISE_WEIGHT * self._noise_centre
        self._noise = np.maximum(noise / (length + _NOISE_WEIGHT), _LEAST_NOISE)

    def _means(self, sums: _Sums) -> FloatArray:
        """(K,) M_i: the scores seen, and for each unseen one a_i + u_i z_j."""
        left = self.n_examples - self.rows.length
        ahead = sums.easiness[sums.reach] - sums.easiness[np.minimum(self.rows.length, sums.reach)]
        unseen = left * self._level + self._loading * ahead
        means: FloatArray = (self.rows.total + unseen) / self.n_examples
        return means

    def _look(self, sums: _Sums, variance: FloatArray) -> Outlook:
        m, left = self.n_examples, self.n_examples - self.rows.length
        sd = np.sqrt((left / m) ** 2 * self._level_variance + self._noise * left / m**2)
        covariance = self._covariance(sums, variance)
        sd[self._active] = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
        return Outlook(self._means(sums), sd, self._active, covariance)

    def _covariance(self, sums: _Sums, variance: FloatArray) -> FloatArray:
        """Of the active rows' M: levels, shared unseen examples, own noise, own loading."""
        m, active = self.n_examples, self._active
        length, loading = self._length[active], self._loading[active]
        noise, left = self._noise[active], m - self._length[active]
        less, more = np.minimum.outer(length, length), np.maximum.outer(length, length)
        # H = diag((m - k) / m) - Q B' / m
        moved = -np.outer(loading, loading / noise) * (sums.shared[length] - sums.shared[less]) / m
        moved[np.diag_indices(len(active))] += left / m
        unseen = sums.shared[sums.reach] - sums.shared[more] + (m - sums.reach)
        rest = np.outer(loading, loading) * unseen / m**2
        easier = sums.easiness[sums.reach] - sums.easiness[length]
        shift = easier - left * sums.easiness[length] / np.maximum(length, 1)
        ridge = sums.square[length] + noise / _LOADING_SPREAD
        own = noise * left / m**2 + noise / ridge * (shift / m) ** 2
        rest[np.diag_indices(len(active))] += own
        covariance: FloatArray = moved @ variance @ moved.T + rest
        return covariance

    def _expected(self, row: int, places: IntArray) -> FloatArray:
        easiness = np.zeros(len(places))
        known = places < len(self._easiness)
        easiness[known] = self._easiness[places[known]]
        return np.asarray(self._level[row] + self._loading[row] * easiness)


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """Prefix sums over the order, from 0 places to ``reach``.

    Attributes:
        shared: of 1 / P_j.
        easiness: of z_j.
        square: of E[z_j^2] = z_j^2 + 1 / P_j.
        reach: length of the longest row.
    """

    shared: FloatArray
    easiness: FloatArray
    square: FloatArray
    reach: int


def _prefix(values: FloatArray) -> FloatArray:
    return np.concatenate([[0.0], np.cumsum(values)])


def _pull(blocks: Sequence[Block], weight: FloatArray, reach: int) -> FloatArray:
    """(reach,) sum over some rows of u_i E_ij / s_i^2."""
    pull = np.zeros(reach)
    for rows, values in blocks:
        pull[: values.shape[1]] += weight[rows] @ values
    return pull


def _suffix(length: IntArray, values: FloatArray, reach: int) -> FloatArray:
    """(reach,) at place j the sum of the values of the rows that are longer than j."""
    ends = np.bincount(length, weights=values, minlength=reach + 1)
    return np.asarray(np.cumsum(ends[::-1])[::-1][1 : reach + 1])


def _longer(values: FloatArray, size: int, fill: float) -> FloatArray:
    return np.append(values, np.full(size - len(values), fill))
