"""A Gaussian model of scores on common examples, and what it says of all rows' means.

Row i has seen the first L_i of m examples, in an order that all rows share. Its score is

    y_ij = x_i . b + d_i + z_j + e_ij                                                          (1)

with x_i marking the effects that the row has: of a constant, of its level on every axis, and of its
combination of levels on every two axes; without axes, of the constant alone. Besides them are the
row's own deviation d_i and the example's easiness z_j. All are independent and Gaussian around 0
(scores are taken from 1/2),

    b_l ~ N(0, v_f),  d_i ~ N(0, v_d),  z_j ~ N(0, v_z),  e_ij ~ N(0, s^2),                    (2)

v_f being one variance for all effects of a family f. A row without scores is known by its effects.

Posterior. Given t = (b, z) the deviations are independent. Let g_i = 1 / (s^2 + L_i v_d). Then

    d_i | t ~ N(v_d g_i sum_{j < L_i} (y_ij - x_i . b - z_j), v_d s^2 g_i)                     (3)

and integrating them out leaves normal equations A t = h with the blocks

    A_bb = diag(1 / v_f) + sum_i L_i g_i x_i x_i'           A_bz = [sum_{L_i > j} g_i x_i]_j
    A_zz = diag(1 / v_z + n_j / s^2) - [S_{max(j, k)}]_jk,  S_j = sum_{L_i > j} v_d g_i / s^2  (4)
    h_b = sum_i g_i x_i Y_i,   h_z = [sum_{L_i > j} (y_ij - v_d g_i Y_i) / s^2]_j              (5)

where n_j rows have seen j and Y_i = sum_{j < L_i} y_ij. With u_L = sum_{j < L} z_j and J the
longest prefix, the mean over all m examples, less the easiness of those that nobody has seen, is

    m M_i = Y_i + (m - L_i) (x_i . b + d_i) + u_J - u_{L_i} + noise,                           (6)
    Cov(M)_ik = c_i' A^-1 c_k + [i = k] ((m - L_i)^2 v_d s^2 g_i + (m - L_i) s^2) / m^2,       (7)

c_i being what (6) and (3) have of t: (m - L_i) (1 - L_i v_d g_i) / m at the effects of x_i, 1 / m
at u_J, and -((m - L_i) v_d g_i + 1) / m at u_{L_i}.

Variances are those of MacKay's fixed point for the evidence, shrunk towards a guess that is worth
w effects: with b at its posterior mean and k_f effects in the family,

    v_f = (sum b^2 + w q_f) / (gamma_f + w),   gamma_f = k_f - sum Var(b) / v_f,               (8)

and likewise for d and z; s^2 is the sum of squared residuals over the number of scores less all
gammas. gamma counts the effects that the scores determine, so few scores change little.

A fit costs O(K F^2 + (E + J)^3) for F effects per row and E effects of rows with scores. This is a
model's opinion: nothing here bounds an error probability.

References:
    Searle, Casella and McCulloch (1992), "Variance Components", Wiley: mixed-model equations.
    MacKay (1992), "Bayesian Interpolation", Neural Computation 4(3): (8).
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeAlias

import numpy as np
from scipy import sparse

from bestarm_agent.stats.arrays import FloatArray, IntArray, one_thread

Family: TypeAlias = tuple[int, ...]  # the axes whose levels its effects belong to, one or two

CENTRE, CENTRE_VARIANCE = 0.5, 0.25  # of the constant
_MOST_EFFECTS = 1_000  # modelled; families beyond it count as deviations of the rows
_MOST_PLACES = 512  # J: later ones count as equally easy
_GUESSES = {1: 0.02, 2: 0.005}  # q_f by the number of axes
_WORTH, _NOISE_WORTH = 2.0, 10.0  # w, in effects and in scores
_LEAST_VARIANCE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Effects:
    """Effects of every row; the first is the constant."""

    families: tuple[Family, ...]
    of_row: IntArray  # (K, 1 + families) numbers of the row's effects
    family: IntArray  # (E,) position of an effect's family; -1 for the constant

    @classmethod
    def of(cls, axes: IntArray) -> Effects:
        """Number the effects of rows with the (K, A) levels ``axes``."""
        keys: list[Family] = []
        columns, family = [np.zeros(len(axes), dtype=np.int64)], [-1]
        for key, codes in sorted(_codes(axes), key=lambda found: int(found[1].max())):
            n_levels = int(codes.max()) + 1
            if len(family) + n_levels > _MOST_EFFECTS:
                break
            columns.append(codes + len(family))
            family += [len(keys)] * n_levels
            keys.append(key)
        return cls(tuple(keys), np.column_stack(columns), np.array(family))

    def __len__(self) -> int:
        return len(self.family)

    def design(self) -> sparse.csr_array:
        """Return the (K, E) rows x_i."""
        n_rows, width = self.of_row.shape
        ends = np.arange(0, n_rows * width + 1, width)
        ones = np.ones(n_rows * width)
        return sparse.csr_array((ones, self.of_row.ravel(), ends), shape=(n_rows, len(self)))

    def longer(self, place: IntArray, values: FloatArray, reach: int) -> FloatArray:
        """Return the (E, J) sums of values (K,) over the rows with effect l longer than j."""
        n_rows = len(place)
        ends = sparse.csr_array((values, (np.arange(n_rows), place)), shape=(n_rows, reach + 1))
        by_effect = (self.design().T @ ends).toarray()
        return np.asarray(by_effect[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:])


def _codes(axes: IntArray) -> Iterator[tuple[Family, IntArray]]:
    """Yield the families whose effects rows share, with the (K,) number of each row's effect."""
    alone = -1 - np.arange(len(axes))[:, None]
    levels = np.where(axes < 0, alone, axes)
    n_levels = {(axis,): len(np.unique(column)) for axis, column in enumerate(levels.T)}
    pairs = combinations(range(axes.shape[1]), 2)
    for key in (*n_levels, *pairs):
        found, codes = np.unique(levels[:, key], axis=0, return_inverse=True)
        is_new = len(key) == 1 or len(found) > max(n_levels[axis,] for axis in key)
        if is_new and 1 < len(found) <= len(axes) / 2:
            yield key, codes.ravel().astype(np.int64)


@dataclass(frozen=True, slots=True)
class Variances:
    """Variances of the model, as learned so far."""

    effects: dict[Family, float] = field(default_factory=dict)  # v_f
    own: float = 0.01  # v_d
    easiness: float = 0.05  # v_z
    noise: float = 0.12  # s^2

    def of(self, family: Family) -> float:
        """Return v_f; the guess for a family that has not been fitted."""
        return self.effects.get(family, _GUESSES[len(family)])


GUESS = Variances()  # q_f


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """Posterior of the rows' means over all m examples; it knows the covariance of any two."""

    mean: FloatArray  # (K,) posterior means; not clipped to [0, 1]
    sd: FloatArray  # (K,) posterior standard deviations
    loads: sparse.csr_array  # (K, D) c_i
    shared: FloatArray  # (D, D) covariance of what rows share

    def gap_variance(self, leader: int) -> FloatArray:
        """Return the (K,) variances of the leader's mean minus each other mean, > 0."""
        common = self.loads @ (self.shared @ self.loads[[leader]].toarray().ravel())
        variance = self.sd**2 + self.sd[leader] ** 2 - 2.0 * common
        return np.asarray(np.maximum(variance, _LEAST_VARIANCE))


class CrossedEffects:
    """The model, fitted to rows that keep growing; a fit starts from the last one's variances.

    Families whose effects are not shared by two rows on average are left out, since they could not
    be told from the rows' own deviations; so are the largest, beyond 1,000 effects in all.

    Args:
        axes: (K, A) level of every row on every axis, any integers; -1 for one that no other row
            shares.
        n_examples: m >= 1.

    Example:
        >>> model = CrossedEffects(np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), n_examples=50)
        >>> row, place = np.array([0, 2] * 4), np.repeat(np.arange(4), 2)
        >>> mean = model.fit(row, place, np.array([1.0, 0.0] * 4), sweeps=4).mean
        >>> # rows 1 and 3 have no score
        >>> bool(mean[0] > mean[1] > mean[3] > mean[2])
        True
    """

    def __init__(self, axes: IntArray, n_examples: int) -> None:
        self.n_examples = n_examples
        self.variances = Variances()
        self.effects = Effects.of(axes)
        self._level: FloatArray = np.zeros(len(axes))  # (K,) x_i . b + d_i
        self._easiness: FloatArray = np.zeros(0)  # (J,) z_j, up to the longest row

    @one_thread
    def fit(self, row: IntArray, place: IntArray, score: FloatArray, sweeps: int = 2) -> Posterior:
        """Fit variances, then effects; return the posterior of the means.

        The pairs asked are (n,) rows, their places in the order, and scores: NaN where there is
        none yet, or none for good. Such a pair counts as seen, with the score that the last fit
        expects; so does a place that a row has skipped.
        """
        self._sum_up(row, place, score)
        for _ in range(sweeps):
            self._solve()
            noise = self.variances.noise
            self.variances = self._next_variances()
        return self._outlook(noise)

    def peek(self, row: IntArray, place: IntArray, score: FloatArray) -> Posterior:
        """Return what ``fit`` would, without changing the model."""
        return copy(self).fit(row, place, score)  # which changes no array in place

    def _sum_up(self, row: IntArray, place: IntArray, score: FloatArray) -> None:
        """Sum up the scores, and what is expected where there is none."""
        n_rows, level, easiness = len(self._level), self._level, np.append(self._easiness, 0.0)
        self._length = np.zeros(n_rows, dtype=np.int64)  # L_i
        np.maximum.at(self._length, row, place + 1)
        reach = min(int(self._length.max(initial=0)), _MOST_PLACES)
        self._place = np.minimum(self._length, reach)
        self._n_rows = suffix(self._place, np.ones(n_rows), reach)  # n_j
        # Every cell of a prefix as expected first, then the scores in place of what was expected
        # there. So cells without a score need not be listed.
        known = ~np.isnan(score)
        row, place, score = row[known], place[known], score[known] - CENTRE
        expected = level[row] + easiness[np.minimum(place, len(easiness) - 1)]
        more, within = score - expected, place < reach
        upto = np.minimum(self._length, len(easiness) - 1)
        passed, squares = prefix(easiness)[upto], prefix(easiness**2)[upto]
        # (K,) Y_i, and (J,) sums of the y_ij of the rows that have seen j
        self._total = self._length * level + passed + np.bincount(row, more, n_rows)
        ease = np.zeros(reach)
        ease[: len(easiness)] = easiness[:reach]
        self._at_place = suffix(self._place, level, reach) + self._n_rows * ease
        self._at_place += np.bincount(place[within], more[within], reach)
        self._square = float(level @ (self._length * level + 2.0 * passed) + squares.sum())
        self._square += float((score**2 - expected**2).sum())

    def _solve(self) -> None:
        """Solve the normal equations, given the variances."""
        model, now, n = self.effects, self.variances, len(self.effects)
        weight = np.asarray(1.0 / (now.noise + self._length * now.own), dtype=np.float64)  # g_i
        precision, target = self._normal_equations(weight)
        inverse = inverted(precision)
        mean = inverse @ target
        # of b and of the running sums, from 0, of z
        self._covariance = running(running(inverse, n).T, n)
        self._variance = inverse.diagonal().copy()  # (E + J,) of b and z
        self._gain = now.own * weight  # v_d g_i
        self._b, self._easiness = mean[:n], mean[n:]
        self._passed = prefix(self._easiness)
        common = self._b[model.of_row].sum(axis=1)
        explained = self._length * common + self._passed[self._place]
        self._level = np.asarray(common + self._gain * (self._total - explained))  # (3)

    def _normal_equations(self, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the matrix (4) and the right side (5), for b and z."""
        model, now, n_rows, place = self.effects, self.variances, self._n_rows, self._place
        n, reach, gain, rows = len(model), len(n_rows), now.own * weight, model.design()
        z, places = slice(n, n + reach), np.arange(reach)
        precision, target = np.zeros((n + reach, n + reach)), np.zeros(n + reach)
        precision[:n, :n] = (rows.T @ (rows * (self._length * weight)[:, None])).toarray()
        precision[:n, z] = model.longer(place, weight, reach)
        precision[z, :n] = precision[:n, z].T
        later = suffix(place, gain / now.noise, reach)  # S_j
        precision[z, z] = -later[np.maximum.outer(places, places)]
        family = np.array([CENTRE_VARIANCE, *map(now.of, model.families)])
        precision[np.diag_indices(n)] += 1.0 / family[model.family + 1]
        precision[n + places, n + places] += 1.0 / now.easiness + n_rows / now.noise
        target[:n] = rows.T @ (weight * self._total)
        target[z] = (self._at_place - suffix(place, gain * self._total, reach)) / now.noise
        return precision, target

    def _next_variances(self) -> Variances:
        """Return the next step of (8)."""
        model, now, seen = self.effects, self.variances, self._length > 0
        n = len(model)
        loads = self._loads(self._gain * self._length, self._gain, np.zeros(len(seen)))
        own = self._level - self._b[model.of_row].sum(axis=1)
        own_variance = self._gain * now.noise + variances_of(loads, self._covariance)
        v_d, n_own = _shrunk(own[seen], own_variance[seen], now.own, GUESS.own)
        v_z, n_easy = _shrunk(self._easiness, self._variance[n:], now.easiness, GUESS.easiness)
        n_known, effects = 1.0 + n_own + n_easy, {}
        for at, family in enumerate(model.families):
            members = np.flatnonzero(model.family == at)
            effects[family], known = _shrunk(
                self._b[members], self._variance[members], now.of(family), GUESS.of(family)
            )
            n_known += known
        free = max(0.0, float(self._length.sum()) - n_known) + _NOISE_WORTH
        noise = (self._misfit() + _NOISE_WORTH * GUESS.noise) / free
        return Variances(effects, v_d, v_z, max(noise, _LEAST_VARIANCE))

    def _misfit(self) -> float:
        """Return the sum of squared residuals of the scores."""
        level, easiness = self._level, self._easiness
        of_rows = self._length * level - 2.0 * self._total + 2.0 * self._passed[self._place]
        of_places = easiness * (self._n_rows * easiness - 2.0 * self._at_place)
        return max(0.0, self._square + float(level @ of_rows) + float(of_places.sum()))

    def _outlook(self, noise: float) -> Posterior:
        """Return the posterior of the rows' means over all m examples."""
        m, length, gain = self.n_examples, self._length, self._gain
        left = m - length
        ahead = self._passed[-1] - self._passed[self._place]
        mean = CENTRE + (self._total + left * self._level + ahead) / m  # (6)
        loads = self._loads(
            left * (1.0 - length * gain) / m,
            -(left * gain + 1.0) / m,
            np.full(len(length), 1.0 / m),
        )
        own = (left**2 * gain + left) * noise / m**2
        sd = np.sqrt(own + variances_of(loads, self._covariance))  # (7)
        return Posterior(mean, sd, loads, self._covariance)

    def _loads(self, level: FloatArray, seen: FloatArray, end: FloatArray) -> sparse.csr_array:
        """Return (K, D) rows: weights (K,) of the effects, of u_{L_i} and of u_J."""
        n, last = len(self.effects), len(self._covariance) - 1
        of_row, place = self.effects.of_row, n + self._place
        index = np.column_stack([of_row, place, np.full(len(place), last)])
        value = np.column_stack([*[level] * of_row.shape[1], seen, end])
        ends = np.arange(0, index.size + 1, index.shape[1])
        shape = (len(index), len(self._covariance))
        return sparse.csr_array((value.ravel(), index.ravel(), ends), shape=shape)


def _shrunk(
    mean: FloatArray, variance: FloatArray, now: float, guess: float
) -> tuple[float, float]:
    """Return the next variance of effects by (8), and their gamma."""
    known = float(np.clip(len(mean) - variance.sum() / now, 0.0, len(mean)))
    found = (float(mean @ mean) + _WORTH * guess) / (known + _WORTH)
    return max(found, _LEAST_VARIANCE), known


def inverted(precision: FloatArray) -> FloatArray:
    """Invert a matrix; what no score has touched yet stands apart, on the diagonal."""
    inverse = np.diag(1.0 / precision.diagonal())
    touched = np.ix_(*2 * [np.count_nonzero(precision, axis=1) > 1])
    inverse[touched] = np.linalg.inv(precision[touched])
    return inverse


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


def running(matrix: FloatArray, n: int) -> FloatArray:
    """Replace the columns from ``n`` on by their running sums, from 0."""
    sums = np.zeros((len(matrix), matrix.shape[1] + 1))
    sums[:, :n] = matrix[:, :n]
    np.cumsum(matrix[:, n:], axis=1, out=sums[:, n + 1 :])
    return sums


def variances_of(loads: sparse.csr_array, covariance: FloatArray) -> FloatArray:
    """Return the (K,) variances c_i' C c_i, where all rows have as many entries."""
    n_rows = loads.shape[0]
    at, weight = loads.indices.reshape(n_rows, -1), loads.data.reshape(n_rows, -1)
    found = np.zeros(n_rows)
    for column, own in zip(at.T, weight.T, strict=True):
        found += own * (weight * covariance[column[:, None], at]).sum(axis=1)
    return found
