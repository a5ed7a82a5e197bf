"""A Gaussian model of scores on common examples, and what it says of all rows' means.

Row i has seen the first L_i of m examples, in an order that all rows share. Its score is

    y_ij = x_i . b + d_i + z_j + r_cj + e_ij                                                   (1)

with x_i marking the effects that the row has: of a constant, of its level on every axis, and of its
combination of levels on every two axes; without axes, of the constant alone. Besides them are the
row's own deviation d_i, the example's easiness z_j, and how much easier it is for c, the row's
level on one axis: what one model finds easy, it finds easy with all prompts. So many prompts on few
examples tell less of a model than as many scores on different examples. All are independent and
Gaussian around 0 (scores are taken from 1/2),

    b_l ~ N(0, v_f),  d_i ~ N(0, v_d),  z_j ~ N(0, v_z),  r_cj ~ N(0, v_r),  e_ij ~ N(0, s^2)  (2)

v_f being one variance for all effects of a family f. A row without scores is known by its effects.
The axis of r is the first that several rows have each level of; without axes r is left out. It is
modelled at the first R places.

Posterior. Given t = (b, z, r) the deviations are independent. Let g_i = 1 / (s^2 + L_i v_d), and
w_ij = z_j + r_cj. Then

    d_i | t ~ N(v_d g_i sum_{j < L_i} (y_ij - x_i . b - w_ij), v_d s^2 g_i)                    (3)

and integrating them out leaves normal equations A t = h with the blocks

    A_bb = diag(1 / v_f) + sum_i L_i g_i x_i x_i'           A_bz = [sum_{L_i > j} g_i x_i]_j
    A_zz = diag(1 / v_z + n_j / s^2) - [S_{max(j, k)}]_jk,  S_j = sum_{L_i > j} v_d g_i / s^2  (4)
    h_b = sum_i g_i x_i Y_i,   h_z = [sum_{L_i > j} (y_ij - v_d g_i Y_i) / s^2]_j              (5)

where n_j rows have seen j and Y_i = sum_{j < L_i} y_ij. The blocks of r are those of z, with sums
over the rows of level c alone and v_r for v_z; those of two levels are 0, and A_zr has no 1 / v.
With u_L = sum_{j < L} w_ij and J the longest prefix, the mean over all m examples, less the
easiness of those that nobody has seen, is

    m M_i = Y_i + (m - L_i) (x_i . b + d_i) + u_J - u_{L_i} + noise,                           (6)
    Cov(M)_ik = c_i' A^-1 c_k + [i = k] ((m - L_i)^2 v_d s^2 g_i + (m - L_i) s^2) / m^2,       (7)

c_i being what (6) and (3) have of t: (m - L_i) (1 - L_i v_d g_i) / m at the effects of x_i, and for
the sums of z and of r_c each, 1 / m at J and -((m - L_i) v_d g_i + 1) / m at L_i.

Variances are those of MacKay's fixed point for the evidence, shrunk towards a guess that is worth
w effects: with b at its posterior mean and k_f effects in the family,

    v_f = (sum b^2 + w q_f) / (gamma_f + w),   gamma_f = k_f - sum Var(b) / v_f,               (8)

and likewise for d, z and r; s^2 is the sum of squared residuals over the number of scores less all
gammas. gamma counts the effects that the scores determine, so few scores change little.

A fit costs O(K F^2 + (E + J + C R)^3) for F effects per row and E of rows with scores. Where the
constant is the only effect, it costs O(K + J): of b and the sums u_1, ..., u_J, the matrix is
tridiagonal but for the row of b. With u_0 = 0 and the differences u_{j+1} - u_j = z_j,

    u' A_uu u = sum_j (l_j (u_{j+1} - u_j)^2 - s_j u_j^2),   A_bu = [sum_{L_i = j} g_i]_j      (9)
    l_j = 1 / v_z + n_j / s^2,   s_j = sum_{L_i = j} v_d g_i / s^2

The inverse of such a matrix A_uu is p_j q_k for j <= k: q is its first column, and p its last, over
that one's first number. The row of b adds r_j r_k, where r = (1, -A_uu^-1 A_ub) sd(b).

This is a model's opinion: nothing here bounds an error probability.

References:
    Searle, Casella and McCulloch (1992), "Variance Components", Wiley: mixed-model equations.
    MacKay (1992), "Bayesian Interpolation", Neural Computation 4(3): (8).
    Meurant (1992), "A review on the inverse of symmetric tridiagonal and block tridiagonal
    matrices", SIAM Journal on Matrix Analysis and Applications 13(3): (9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeAlias

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpttrf, dpttrs

from bestarm_agent.stats.arrays import FloatArray, IntArray, one_thread

Family: TypeAlias = tuple[int, ...]  # the axes whose levels its effects belong to, one or two
# (K, W) columns and weights of the entries of (K, D) rows; those of one column add up
Loads: TypeAlias = tuple[IntArray, FloatArray]
Covariance: TypeAlias = Callable[[IntArray, IntArray], FloatArray]  # of any columns, broadcast

CENTRE, CENTRE_VARIANCE = 0.5, 0.25  # of the constant
_MOST_EFFECTS = 1_000  # modelled; families beyond it count as deviations of the rows
_MOST_PLACES = 512  # J: later ones count as equally easy
_MOST_LEVELS, _MOST_SHARED = 64, 512  # C and C R; levels beyond it share no r
_GUESSES = {1: 0.02, 2: 0.005}  # q_f by the number of axes
_WORTH, _NOISE_WORTH = 2.0, 10.0  # w, in effects and in scores
_LEAST_VARIANCE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Effects:
    """Effects of every row; the first is the constant."""

    families: tuple[Family, ...]
    of_row: IntArray  # (K, 1 + families) numbers of the row's effects
    family: IntArray  # (E,) position of an effect's family; -1 for the constant
    block: IntArray  # (K,) c: the level by which rows share residuals; 0 where they share none

    @classmethod
    def of(cls, axes: IntArray) -> Effects:
        """Number the effects of rows with the (K, A) levels ``axes``."""
        keys: list[Family] = []
        columns, family = [np.zeros(len(axes), dtype=np.int64)], [-1]
        shared = list(_codes(axes))
        for key, codes in sorted(shared, key=lambda effect: int(effect[1].max())):
            n_levels = int(codes.max()) + 1
            if len(family) + n_levels > _MOST_EFFECTS:
                break
            columns.append(codes + len(family))
            family += [len(keys)] * n_levels
            keys.append(key)
        few = (codes for key, codes in shared if len(key) == 1 and codes.max() < _MOST_LEVELS)
        block = next(few, np.zeros(len(axes), dtype=np.int64))
        of_row = np.column_stack(columns)
        return cls(tuple(keys), of_row, np.array(family), block)

    def __len__(self) -> int:
        return len(self.family)

    @property
    def n_blocks(self) -> int:
        """Number C of the levels that have a residual of their own on an example; 1 without."""
        return int(self.block.max(initial=0)) + 1

    def later(self, place: IntArray, values: FloatArray, reach: int) -> FloatArray:
        """Return the (C, J) sums of values (K,) over the rows of block c longer than j."""
        shape = self.n_blocks, reach + 1
        return suffix(summed(values, self.block[:, None], place[:, None], shape))

    def later_by_effect(self, place: IntArray, values: FloatArray, reach: int) -> FloatArray:
        """Return the (E, J) sums of values (K,) over the rows with effect l longer than j."""
        return suffix(summed(values, self.of_row, place[:, None], (len(self), reach + 1)))


def _codes(axes: IntArray) -> Iterator[tuple[Family, IntArray]]:
    """Yield the families whose effects rows share, with the (K,) number of each row's effect."""
    alone = -1 - np.arange(len(axes))[:, None]
    levels = np.where(axes < 0, alone, axes)
    n_levels = {(axis,): len(np.unique(column)) for axis, column in enumerate(levels.T)}
    pairs = combinations(range(axes.shape[1]), 2)
    for key in (*n_levels, *pairs):
        effects, codes = np.unique(levels[:, key], axis=0, return_inverse=True)
        is_new = len(key) == 1 or len(effects) > max(n_levels[axis,] for axis in key)
        if is_new and 1 < len(effects) <= len(axes) / 2:
            yield key, codes.ravel().astype(np.int64)


@dataclass(frozen=True, slots=True)
class Variances:
    """Variances of the model, as learned so far."""

    effects: dict[Family, float] = field(default_factory=dict)  # v_f
    own: float = 0.01  # v_d
    easiness: float = 0.05  # v_z
    shared: float = 0.03  # v_r
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
    loads: Loads  # c_i
    shared: Covariance  # of what rows share

    def gap_variance(self, leader: int) -> FloatArray:
        """Return the (K,) variances of the leader's mean minus each other mean, > 0."""
        columns, weights = self.loads
        every = np.arange(columns.max() + 1)[:, None]
        with_leader = self.shared(every, columns[leader]) @ weights[leader]
        common = sum((weights * with_leader[columns]).T)  # from left to right
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
        self._covariance: Covariance
        self._level: FloatArray = np.zeros(len(axes))  # (K,) x_i . b + d_i
        # (C, J) z_j + r_cj, up to the longest row
        self._easiness: FloatArray = np.zeros((self.effects.n_blocks, 0))

    @one_thread
    def fit(self, row: IntArray, place: IntArray, score: FloatArray, sweeps: int = 2) -> Posterior:
        """Fit variances, then effects; return the posterior of the means.

        The pairs asked are (n,) rows, their places in the order, and scores: NaN where there is
        none yet, or none for good. Such a pair counts as seen, with the score that the last fit
        expects; so does a place that a row has skipped.
        """
        posterior = self._swept(row, place, score, sweeps)
        self.variances = self._next_variances()
        return posterior

    @one_thread
    def peek(self, row: IntArray, place: IntArray, score: FloatArray) -> Posterior:
        """Return what ``fit`` would, without changing the model."""
        return copy(self)._swept(row, place, score, sweeps=2)  # which changes no array in place

    def _swept(self, row: IntArray, place: IntArray, score: FloatArray, sweeps: int) -> Posterior:
        self._sum_up(row, place, score)
        self._solve()
        for _ in range(sweeps - 1):
            self.variances = self._next_variances()
            self._solve()
        return self._outlook()

    def _sum_up(self, row: IntArray, place: IntArray, score: FloatArray) -> None:
        """Sum up the scores, and what is expected where there is none."""
        model, n_rows, level = self.effects, len(self._level), self._level
        easiness = np.hstack([self._easiness, np.zeros((model.n_blocks, 1))])
        last = easiness.shape[1] - 1
        self._length = np.zeros(n_rows, dtype=np.int64)  # L_i
        np.maximum.at(self._length, row, place + 1)
        reach = min(int(self._length.max(initial=0)), _MOST_PLACES)
        self._place = np.minimum(self._length, reach)
        self._n_rows = model.later(self._place, np.ones(n_rows), reach)  # (C, J) n_cj
        # Every cell of a prefix as expected first, then the scores in place of what was expected
        # there. So cells without a score need not be listed.
        known = ~np.isnan(score)
        row, place, score = row[known], place[known], score[known] - CENTRE
        expected = level[row] + easiness[model.block[row], np.minimum(place, last)]
        residual, within = score - expected, place < reach
        upto = model.block, np.minimum(self._length, last)
        passed, squares = prefix(easiness)[upto], prefix(easiness**2)[upto]
        # (K,) Y_i, and (C, J) sums of the y_ij of the rows of a block that have seen j
        # Rounded, so that rows of equal scores tie, in whatever order these were summed.
        total = self._length * level + passed + np.bincount(row, residual, n_rows)
        self._total = np.round(total, 9)
        ease = np.zeros(self._n_rows.shape)
        ease[:, : last + 1] = easiness[:, :reach]
        self._at_place = model.later(self._place, level, reach) + self._n_rows * ease
        cells = np.bincount((model.block[row] * reach + place)[within], residual[within], ease.size)
        self._at_place += cells.reshape(ease.shape)
        self._square = float(level @ (self._length * level + 2.0 * passed) + squares.sum())
        self._square += float((score**2 - expected**2).sum())

    def _solve(self) -> None:
        """Find effects and their covariance, given the variances."""
        model, now, n = self.effects, self.variances, len(self.effects)
        weight = np.asarray(1.0 / (now.noise + self._length * now.own), dtype=np.float64)  # g_i
        self._gain = now.own * weight  # v_d g_i
        n_blocks, reach = self._n_rows.shape
        if n == 1:
            mean = self._solve_chain(weight)
        else:
            precision, target = self._normal_equations(weight)
            inverse = inverted(precision)
            mean = inverse @ target
            runs = [reach, *[self._near] * (n_blocks if self._near else 0)]
            # of b and of the running sums, from 0, of z and of each r_c
            sums = running(running(inverse, n, runs).T, n, runs)
            self._covariance = lambda one, two: sums[one, two]
            self._variance = inverse.diagonal().copy()  # of b, z and r
        self._b, self._z, self._r = np.split(mean, [n, n + reach])
        self._easiness = np.tile(self._z, (n_blocks, 1))
        self._easiness[:, : self._near] += self._r.reshape(n_blocks, self._near)
        self._passed = prefix(self._easiness)
        common = self._b[model.of_row].sum(axis=1)
        explained = self._length * common + self._passed[model.block, self._place]
        self._level = np.asarray(common + self._gain * (self._total - explained))  # (3)

    def _solve_chain(self, weight: FloatArray) -> FloatArray:
        """Solve the normal equations where the constant is the only effect: (9)."""
        now, size, total = self.variances, self._n_rows.shape[1] + 1, self._total
        gains, border, drawn = (
            np.bincount(self._place, values, size)
            for values in (self._gain, weight, self._gain * total)
        )
        link = 1.0 / now.easiness + self._n_rows[0] / now.noise  # l_j
        # u_0 = 0 is known, and so of infinite precision
        diagonal = np.append(np.inf, link + np.append(link[1:], 0.0)) - gains / now.noise
        pivots, factors, failed = dpttrf(diagonal, np.append(0.0, -link[1:]))
        if failed:
            raise np.linalg.LinAlgError("a precision matrix is not positive definite")
        sides = np.zeros((size, 4))
        sides[1, 0] = sides[-1, 1] = 1.0
        sides[:, 2] = border
        sides[:, 3] = -(np.diff(self._at_place[0], prepend=0.0, append=0.0) + drawn) / now.noise
        first, last, of_border, of_target = dpttrs(pivots, factors, sides)[0].T
        variance = 1.0 / (1.0 / CENTRE_VARIANCE + self._length @ weight - border @ of_border)
        constant = variance * (weight @ total - border @ of_target)
        p, q = np.append(0.0, last / last[1]), np.append(0.0, first)
        r = np.sqrt(variance) * np.append(1.0, -of_border)

        def covariance(one: IntArray, two: IntArray) -> FloatArray:
            own = p[np.minimum(one, two)] * q[np.maximum(one, two)]
            return np.asarray(own + r[one] * r[two])

        self._covariance = covariance
        of_z = q[2:] * np.diff(p[1:]) - p[1:-1] * np.diff(q[1:]) + np.diff(r[1:]) ** 2
        self._variance = np.append(variance, of_z)
        return np.append(constant, np.diff(of_target - constant * of_border))

    @property
    def _near(self) -> int:
        """Number R of places at which the rows of a block share residuals; 0 with one block."""
        n_blocks, reach = self._n_rows.shape
        return min(reach, _MOST_SHARED // n_blocks) if n_blocks > 1 else 0

    def _normal_equations(self, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the matrix (4) and the right side (5), for b, z and r."""
        model, now, place = self.effects, self.variances, self._place
        n, (n_blocks, reach), near = len(model), self._n_rows.shape, self._near
        gain, places = now.own * weight, np.arange(reach)
        size = n + reach + n_blocks * near
        z, r = slice(n, n + reach), slice(n + reach, size)
        precision, target = np.zeros((size, size)), np.zeros(size)
        precision[:n, :n] = summed(self._length * weight, model.of_row, model.of_row, (n, n))
        precision[:n, z] = model.later_by_effect(place, weight, reach)
        later = model.later(place, gain / now.noise, reach)  # S_cj
        precision[z, z] = -later.sum(axis=0)[np.maximum.outer(places, places)]
        seen = self._n_rows / now.noise
        for block in range(n_blocks if near else 0):
            own = slice(n + reach + block * near, n + reach + (block + 1) * near)
            members = np.where(model.block == block, weight, 0.0)
            precision[:n, own] = model.later_by_effect(np.minimum(place, near), members, near)
            cross = -later[block, np.maximum.outer(places, places[:near])]
            cross[places[:near], places[:near]] += seen[block, :near]
            precision[z, own], precision[own, z] = cross, cross.T
            precision[own, own] = cross[:near]
        precision[n:, :n] = precision[:n, n:].T
        family = np.array([CENTRE_VARIANCE, *map(now.of, model.families)])
        diagonal = np.full(size, 1.0 / now.shared)
        diagonal[:n] = 1.0 / family[model.family + 1]
        diagonal[z] = 1.0 / now.easiness + seen.sum(axis=0)
        precision[np.diag_indices(size)] += diagonal
        residual = self._at_place - model.later(place, gain * self._total, reach)
        target[:n] = model.later_by_effect(np.minimum(place, 1), weight * self._total, 1)[:, 0]
        target[z] = residual.sum(axis=0) / now.noise
        target[r] = residual[:, :near].ravel() / now.noise
        return precision, target

    def _next_variances(self) -> Variances:
        """Return the next step of (8)."""
        model, now, seen = self.effects, self.variances, self._length > 0
        easy, shared = np.split(self._variance[len(model) :], [self._n_rows.shape[1]])
        used = (self._n_rows[:, : self._near] > 0).ravel()
        loads = self._loads(self._gain * self._length, self._gain, np.zeros(len(seen)))
        own = self._level - self._b[model.of_row].sum(axis=1)
        own_variance = self._gain * now.noise + variances_of(loads, self._covariance)
        v_d, n_own = _shrunk(own[seen], own_variance[seen], now.own, GUESS.own)
        v_z, n_easy = _shrunk(self._z, easy, now.easiness, GUESS.easiness)
        v_r, n_shared = _shrunk(self._r[used], shared[used], now.shared, GUESS.shared)
        n_known, effects = 1.0 + n_own + n_easy + n_shared, {}
        for number, family in enumerate(model.families):
            members = np.flatnonzero(model.family == number)
            effects[family], known = _shrunk(
                self._b[members], self._variance[members], now.of(family), GUESS.of(family)
            )
            n_known += known
        free = max(0.0, float(self._length.sum()) - n_known) + _NOISE_WORTH
        noise = (self._misfit() + _NOISE_WORTH * GUESS.noise) / free
        return Variances(effects, v_d, v_z, v_r, max(noise, _LEAST_VARIANCE))

    def _misfit(self) -> float:
        """Return the sum of squared residuals of the scores."""
        level, easiness = self._level, self._easiness
        of_rows = self._length * level - 2.0 * self._total
        of_rows += 2.0 * self._passed[self.effects.block, self._place]
        of_places = easiness * (self._n_rows * easiness - 2.0 * self._at_place)
        return max(0.0, self._square + float(level @ of_rows) + float(of_places.sum()))

    def _outlook(self) -> Posterior:
        """Return the posterior of the rows' means over all m examples."""
        m, length, gain = self.n_examples, self._length, self._gain
        unseen, block = m - length, self.effects.block
        ahead = self._passed[block, -1] - self._passed[block, self._place]
        mean = CENTRE + (self._total + unseen * self._level + ahead) / m  # (6)
        level, seen = unseen * (1.0 - length * gain) / m, -(unseen * gain + 1.0) / m
        loads = self._loads(level, seen, np.full(len(length), 1.0 / m))
        own = (unseen**2 * gain + unseen) * self.variances.noise / m**2
        variance = own + variances_of(loads, self._covariance)  # (7)
        return Posterior(mean, np.sqrt(variance), loads, self._covariance)

    def _loads(self, level: FloatArray, seen: FloatArray, end: FloatArray) -> Loads:
        """Return rows c_i: weights (K,) of the effects, of u_{L_i} and of u_J, of both runs."""
        n, reach, near = len(self.effects), self._n_rows.shape[1], self._near
        columns = [self.effects.of_row, n + self._place, np.full(len(self._place), n + reach)]
        if near:
            start = n + reach + 1 + self.effects.block * (near + 1)
            columns += [start + np.minimum(self._place, near), start + near]
        weights = [level] * (1 + len(self.effects.families)) + [seen, end] * (len(columns) // 2)
        return np.column_stack(columns), np.column_stack(weights)


def _shrunk(
    mean: FloatArray, variance: FloatArray, now: float, guess: float
) -> tuple[float, float]:
    """Return the next variance of effects by (8), and their gamma."""
    known = float(np.clip(len(mean) - variance.sum() / now, 0.0, len(mean)))
    estimate = (float(mean @ mean) + _WORTH * guess) / (known + _WORTH)
    return max(estimate, _LEAST_VARIANCE), known


def inverted(precision: FloatArray) -> FloatArray:
    """Invert a positive definite matrix; what no score has touched yet stands on its diagonal."""
    inverse = np.diag(1.0 / precision.diagonal())
    touched = np.ix_(*[np.count_nonzero(precision, axis=1) > 1] * 2)
    # by Cholesky's factors, in half the time of an inverse that knows of no symmetry
    factor, failed = dpotrf(precision[touched].T, clean=False)
    if failed:
        raise np.linalg.LinAlgError("a precision matrix is not positive definite")
    upper, _ = dpotri(factor, overwrite_c=True)
    inverse[touched] = np.triu(upper) + np.triu(upper, 1).T
    return inverse


def summed(values: FloatArray, one: IntArray, two: IntArray, shape: tuple[int, int]) -> FloatArray:
    """Return sums of values (K,) by every index of a row in (K, V) ``one`` and (K, W) ``two``."""
    cells = one[:, :, None] * shape[1] + two[:, None, :]
    each = np.broadcast_to(values[:, None, None], cells.shape).ravel()
    sums = np.bincount(cells.ravel(), each, shape[0] * shape[1])
    return np.asarray(sums, dtype=np.float64).reshape(shape)


def prefix(values: FloatArray) -> FloatArray:
    """Return the (C, J + 1) running sums, from 0, of each row."""
    return np.hstack([np.zeros((len(values), 1)), values.cumsum(axis=1)])


def suffix(ends: FloatArray) -> FloatArray:
    """Return, for each place j, the sums of the (..., J + 1) values of rows that end after j.

    Example:
        >>> suffix(np.array([[0.0, 10.0, 1.0]]))
        array([[11.,  1.]])
    """
    return np.asarray(ends[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:])


def running(matrix: FloatArray, n: int, runs: list[int]) -> FloatArray:
    """Replace each of the runs of columns from ``n`` on by its running sums, from 0."""
    sums = np.zeros((len(matrix), matrix.shape[1] + len(runs)))
    sums[:, :n] = matrix[:, :n]
    start, to = n, n
    for run in runs:
        np.cumsum(matrix[:, start : start + run], axis=1, out=sums[:, to + 1 : to + 1 + run])
        start, to = start + run, to + run + 1
    return sums


def variances_of(loads: Loads, covariance: Covariance) -> FloatArray:
    """Return the (K,) variances c_i' C c_i."""
    columns, weights = loads
    total = np.zeros(len(columns))
    for column, weight in zip(columns.T, weights.T, strict=True):
        total += weight * (weights * covariance(column[:, None], columns)).sum(axis=1)
    return total
