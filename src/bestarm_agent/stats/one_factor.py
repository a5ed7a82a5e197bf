"""What scores on common examples say about the means of all rows: a one-factor Gaussian model.

    E_ij = m_j + c_j (b_j . a_i + u_i z_j + e_ij),
    z_j ~ N(0, 1),  e_ij ~ N(0, s_i^2),  a_i ~ N(a_0, diag(tau^2))

a_i are the levels of row i, z_j the easiness of example j, u_i how strongly row i feels it; m_j,
c_j and b_j are what is known of the example beforehand (``profiles``): 0, 1 and 1 without history,
so that the only level is the row's mean. Given u and s, levels and easiness are jointly Gaussian
and everything below is exact. u and s are fitted by ECM. What is asked for is the mean of row i
over all m examples, seen and unseen (a finite population): it is known once the row is full, and
the covariance knows which examples two rows share. It is a model's opinion: nothing here bounds an
error probability.

Every row holds a prefix of one order, so all sums over the examples that two rows share are
differences of prefix sums, and a fit costs O(t + n^3) for t scores of n rows, whatever m is.

The noise of a row is shrunk towards that of the leading rows, not towards its own p (1 - p): a row
with four unlucky zeros would else seem free of noise, and be given up for good. Somewhat also
towards that of all rows: those that lead had luck, and little noise is a part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.outlook import Outlook
from bestarm_agent.stats.prefix_sums import (
    FittedSums,
    KnownSums,
    prefix,
    squares,
    suffix,
    weighted_sum,
)
from bestarm_agent.stats.prefixes import Block, PrefixRows
from bestarm_agent.stats.profiles import Profile

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
_Number = TypeVar("_Number", np.float64, np.int64)

_N_LEADERS = 5  # rows whose noise is what a good row is expected to have
_NOISE_WEIGHT = 20.0  # scores that this expectation is worth
_COMMON_NOISE_WEIGHT = 5.0  # and what all rows together have: the leaders also were lucky
_LEAST_NOISE = 0.002
_LOADING_SPREAD = 0.02  # prior variance of a row's loading around the average
_LEAST_VARIANCE = 1e-14
_LEAST_GRAM = 1e-9  # makes the levels that a single example cannot tell apart solvable


class OneFactor:
    """The model, fitted to rows that keep growing; every fit goes on from the last one.

    Only ``most_active`` rows are modelled jointly: those nearest to the lead, in standard
    deviations. The others stay as the last fit of everybody left them.

    Args:
        profile: of the m examples, in the order in which rows take them.
        n_rows: K >= 0, may grow.
        most_active: limit of the rows modelled jointly, >= 2.

    Attributes:
        rows: the scores, standardised by the profile; to be filled by ``put`` and ``open``.

    Example:
        >>> model = OneFactor(Profile.plain(4), n_rows=2)
        >>> for place, score in enumerate([1.0, 1.0, 0.0, 1.0]):
        ...     model.put(0, place, score)
        ...     model.put(1, place, score / 2)
        >>> model.fit(sweeps=4).mean.round(3)
        array([0.75 , 0.375])
    """

    def __init__(self, profile: Profile, n_rows: int, most_active: int = 128) -> None:
        self.profile = profile
        self.n_examples = len(profile.mean)
        self.rows = PrefixRows(n_rows, np.column_stack([profile.slope, profile.scale]))
        self._known = KnownSums.of(profile)
        self._most_active = most_active
        self._centre, self._spread = profile.centre, profile.spread  # a_0, tau^2
        self._loading_centre, self._noise_centre = 0.25, 0.2
        n_levels = profile.n_levels
        self._level: FloatArray = np.zeros((0, n_levels))  # a_i
        self._level_variance: FloatArray = np.zeros((0, n_levels, n_levels))
        self._loading: FloatArray = np.zeros(0)  # u_i
        self._noise: FloatArray = np.zeros(0)  # s_i^2
        self._misfit: FloatArray = np.zeros(0)  # expected sums of squared residuals
        self._easiness: FloatArray = np.zeros(0)  # z_j, of the examples that anybody has seen
        self._length: IntArray = np.zeros(0, dtype=np.int64)  # of the prefixes that are modelled
        self._others_pull: FloatArray = np.zeros(0)
        self._outlook: Outlook | None = None
        self.grow(n_rows)

    def grow(self, n_rows: int) -> None:
        """Make it ``n_rows`` rows; new ones are empty."""
        self.rows.grow(n_rows)
        self._level = _longer(self._level, n_rows, self._centre)
        self._level_variance = _longer(self._level_variance, n_rows, np.diag(self._spread))
        self._loading = _longer(self._loading, n_rows, self._loading_centre)
        self._noise = _longer(self._noise, n_rows, self._noise_centre)
        self._misfit = _longer(self._misfit, n_rows, 0.0)
        self._length = _longer(self._length, n_rows, 0)
        self._outlook = None

    def put(self, row: int, place: int, score: float) -> None:
        """Set a row's score at a place of the order."""
        self.rows.put(row, place, self.profile.standardised(place, score))

    def open(self, row: int, place: int) -> None:
        """Count a place as seen, at what the model expects, until its score is known."""
        self.rows.open(row, place, float(self._expected(row, np.array([place]))[0]))

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
            look = self._outlook or self._first_look()
            leader = int(np.argmax(look.mean))
            spread = np.sqrt(np.maximum(look.sd**2 + look.sd[leader] ** 2, _LEAST_VARIANCE))
            behind = (look.mean[leader] - look.mean) / spread
            active[np.argsort(behind, kind="stable")[self._most_active :]] = False
        self._active = np.flatnonzero(active)
        self._others = np.flatnonzero(~active)

    def _first_look(self) -> Outlook:
        """Means of what was seen, before any fit."""
        n = len(self._level)
        mean = (self.rows.totals[:, -1] + 1.0) / (self.rows.length + 2.0)
        return Outlook(mean, np.ones(n), np.arange(0), np.zeros((0, 0)))

    def _sweep(
        self, near: Sequence[Block], far: Sequence[Block], *, everybody: bool
    ) -> tuple[FittedSums, FloatArray]:
        """Levels and easiness given loadings and noise; also the active levels' covariance."""
        active, weight = self._active, self._loading / self._noise
        self._length[active] = self.rows.length[active]
        if everybody:
            self._length[self._others] = self.rows.length[self._others]
        reach = int(self._length.max(initial=0))
        slope = self.profile.slope[:reach]
        precision = 1.0 + suffix(self._length, weight * self._loading, reach)  # P_j
        if everybody:
            self._others_pull = weighted_sum(far, weight, reach)
            self._others_pull -= self._explained(self._others, weight, reach)
        pull = weighted_sum(near, weight, reach)  # y_j, less what the others' levels explain
        pull[: len(self._others_pull)] += self._others_pull
        shared = prefix(squares(slope) / precision[:, None, None])
        variance = self._solve(weight[active], shared, prefix((pull / precision)[:, None] * slope))
        pull -= self._explained(active, weight, reach)
        self._easiness = pull / precision  # z_j
        sums = FittedSums.of(self.profile, self._easiness, precision)
        if everybody and len(self._others):
            self._follow(sums)
        return sums, variance

    def _explained(self, who: IntArray, weight: FloatArray, reach: int) -> FloatArray:
        """(reach,) what the rows' levels explain of their pull."""
        levels = suffix(self._length[who], weight[who, None] * self._level[who], reach)
        return np.asarray((levels * self.profile.slope[:reach]).sum(axis=1))

    def _solve(self, weight: FloatArray, shared: FloatArray, pulled: FloatArray) -> FloatArray:
        """Levels of the active rows, easiness integrated out; returns their covariance.

        That is (n r, n r), the r levels of a row next to each other.
        """
        active, length = self._active, self._length[self._active]
        n, r = len(active), self.profile.n_levels
        noise = self._noise[active]
        common = np.minimum.outer(length, length)
        precision = -np.outer(weight, weight)[:, :, None, None] * shared[common]  # - G G'
        at = np.arange(n)
        precision[at, at] += np.diag(1.0 / self._spread)
        precision[at, at] += self._known.gram[length] / noise[:, None, None]
        target = self._centre / self._spread + self.rows.totals[active, :r] / noise[:, None]
        target -= weight[:, None] * pulled[length]
        flat = precision.transpose(0, 2, 1, 3).reshape(n * r, n * r)
        variance = np.asarray(np.linalg.inv(flat), dtype=np.float64)
        self._level[active] = (variance @ target.ravel()).reshape(n, r)
        self._level_variance[active] = variance.reshape(n, r, n, r)[at, :, at, :]
        return variance

    def _follow(self, sums: FittedSums) -> None:
        """Levels of the others, given the easiness."""
        rows, noise = self._others, self._noise[self._others, None]
        length, r = self._length[rows], self.profile.n_levels
        precision = self._known.gram[length] / noise[:, None] + np.diag(1.0 / self._spread)
        variance = np.linalg.inv(precision)
        seen = self.rows.totals[rows, :r] - self._loading[rows, None] * sums.easiness[length]
        target = self._centre / self._spread + seen / noise
        self._level[rows] = (variance @ target[:, :, None])[:, :, 0]
        self._level_variance[rows] = variance

    def _refit_loadings(self, who: IntArray, blocks: Sequence[Block], sums: FittedSums) -> None:
        """Ridge regression of what the levels leave on the easiness, towards the average loading.

        Then also the expected squares of what is left after that.
        """
        seen = np.zeros(len(self._level))
        for rows, values in blocks:
            seen[rows] = values @ self._easiness[: values.shape[1]]
        length, level, r = self._length[who], self._level[who], self.profile.n_levels
        felt = seen[who] - (level * sums.easiness[length]).sum(axis=1)
        ridge, square = self._noise[who] / _LOADING_SPREAD, sums.square[length]
        loading = (felt + ridge * self._loading_centre) / (square + ridge)
        self._loading[who] = loading
        gram = self._known.gram[length]
        fitted = (gram @ level[:, :, None])[:, :, 0] - 2.0 * self.rows.totals[who, :r]
        around = self.rows.squares[who] + (level * fitted).sum(axis=1)
        misfit = around - 2.0 * loading * felt + loading**2 * square
        unsure = (gram * self._level_variance[who]).sum(axis=(1, 2))
        self._misfit[who] = np.maximum(misfit, 0.0) + unsure

    def _refit_centres(self, sums: FittedSums) -> None:
        length, profile = self._length, self.profile
        leaders = np.argsort(-self._means(sums), kind="stable")[:_N_LEADERS]
        n_seen = max(1, int(length[leaders].sum()))
        self._noise_centre = max(float(self._misfit[leaders].sum()) / n_seen, _LEAST_NOISE)
        worth = len(self._level) + profile.worth
        self._centre = (self._level.sum(axis=0) + profile.worth * profile.centre) / worth
        spread = (self._level - self._centre) ** 2
        spread = (spread + self._level_variance.diagonal(axis1=1, axis2=2)).sum(axis=0)
        spread = (spread + profile.worth * profile.spread) / worth
        self._spread = np.maximum(profile.least_spread, spread)
        self._loading_centre = float(length @ self._loading) / max(1, int(length.sum()))
        common = float(self._misfit.sum()) / max(1, int(length.sum()))
        noise = self._misfit + _NOISE_WEIGHT * self._noise_centre + _COMMON_NOISE_WEIGHT * common
        n_scores = length + _NOISE_WEIGHT + _COMMON_NOISE_WEIGHT
        self._noise = np.maximum(noise / n_scores, _LEAST_NOISE)

    def _means(self, sums: FittedSums) -> FloatArray:
        """(K,) M_i: the scores seen, and for each unseen one m_j + c_j (b_j . a_i + u_i z_j)."""
        length, effect = self.rows.length, self._known.effect
        unseen = ((effect[-1] - effect[length]) * self._level).sum(axis=1)
        ahead = sums.ease[sums.reach] - sums.ease[np.minimum(length, sums.reach)]
        rest = self.rows.totals[:, -1] + unseen + self._loading * ahead
        means: FloatArray = (self._known.mean + rest) / self.n_examples
        return means

    def _look(self, sums: FittedSums, variance: FloatArray) -> Outlook:
        m, length, known = self.n_examples, self.rows.length, self._known
        left = (known.effect[-1] - known.effect[length]) / m
        own = self._noise * (known.noise[-1] - known.noise[length]) / m**2
        levels = (left[:, None, :] @ self._level_variance @ left[:, :, None])[:, 0, 0]
        sd = np.sqrt(levels + own)
        covariance = self._covariance(sums, variance)
        sd[self._active] = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
        return Outlook(self._means(sums), sd, self._active, covariance)

    def _covariance(self, sums: FittedSums, variance: FloatArray) -> FloatArray:
        """Of the active rows' M: levels, shared unseen examples, own noise, own loading."""
        m, active, known = self.n_examples, self._active, self._known
        length, loading = self._length[active], self._loading[active]
        noise, at = self._noise[active], np.arange(len(active))
        less, more = np.minimum.outer(length, length), np.maximum.outer(length, length)
        left = known.effect[-1] - known.effect[length]
        # H = diag(left / m) - Q B' / m
        crossed = (sums.crossed[length] - sums.crossed[less]) / m
        moved = -np.outer(loading, loading / noise)[:, :, None] * crossed
        moved[at, at] += left / m
        unseen = sums.doubt[-1] - sums.doubt[more] + known.noise[-1] - known.noise[sums.reach]
        rest = np.outer(loading, loading) * unseen / m**2
        own = noise * (known.noise[-1] - known.noise[length]) / m**2
        rest[at, at] += own + self._loading_doubt(sums, left) * noise / m**2
        moved = moved.reshape(len(active), -1)
        covariance: FloatArray = moved @ variance @ moved.T + rest
        return covariance

    def _loading_doubt(self, sums: FittedSums, left: FloatArray) -> FloatArray:
        """(n,) variance of the active rows' loadings times the effect squared, over the noise.

        A loading that is higher lowers the levels that fit what was seen.
        """
        length, noise = self._length[self._active], self._noise[self._active]
        gram = self._known.gram[length] + _LEAST_GRAM * np.eye(self.profile.n_levels)
        absorbed = np.linalg.solve(gram, sums.easiness[length][:, :, None])[:, :, 0]
        effect = sums.ease[-1] - sums.ease[length] - (left * absorbed).sum(axis=1)
        return np.asarray(effect**2 / (sums.square[length] + noise / _LOADING_SPREAD))

    def _expected(self, row: int, places: IntArray) -> FloatArray:
        """What the model expects at some places, standardised; not clipped."""
        expected = self.profile.slope[places] @ self._level[row]
        known = places < len(self._easiness)
        expected[known] += self._loading[row] * self._easiness[places[known]]
        return np.asarray(expected)


def _longer(
    values: NDArray[_Number], size: int, fill: NDArray[_Number] | float
) -> NDArray[_Number]:
    """Append ``fill`` until there are ``size`` entries along the first axis."""
    new = np.broadcast_to(np.asarray(fill, values.dtype), (size - len(values), *values.shape[1:]))
    return np.concatenate([values, new])
