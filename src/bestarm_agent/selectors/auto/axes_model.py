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

Integrating them out, and with the running sums u_k = z_0 + ... + z_{k-1} and s_ck likewise of r_c,
minus twice the logarithm of the posterior of t is, but for a constant,

    sum_f |b_f|^2 / v_f + sum_j (z_j^2 / v_z + sum_c (r_cj^2 / v_r + n_cj w_cj^2 / s^2))
    + sum_i (L_i g_i (x_i . b)^2 + 2 g_i (x_i . b) p_i - v_d g_i p_i^2 / s^2) - 2 h't         (4)
    h't = sum_cj y_cj w_cj / s^2 + sum_i g_i Y_i (x_i . b - v_d p_i / s^2)                    (5)

where p_i = u_{L_i} + s_{c,L_i} is the row's sum of w_ij, n_cj rows of level c have seen j, y_cj is
the sum of their scores there, and Y_i = sum_{j < L_i} y_ij. So u_k and the s_ck are coupled to b
and to their neighbours alone. They are the two chains of ``chains``, up to R and behind it; the
border is b, u_R and the s_cR, to which the later rows are coupled, too. With J the longest prefix,
the mean over all m examples, less the easiness of those that nobody has seen, is

    m M_i = Y_i + (m - L_i) (x_i . b + d_i) + u_J + s_cJ - p_i + noise,                       (6)
    Cov(M)_ik = c_i' C c_k + [i = k] ((m - L_i)^2 v_d s^2 g_i + (m - L_i) s^2) / m^2,         (7)

where C is the covariance of b, u and s, and c_i what (6) and (3) have of them: at the effects of
x_i (m - L_i) (1 - L_i v_d g_i) / m, at the sums up to J 1 / m, and at those up to L_i
-((m - L_i) v_d g_i + 1) / m.

Variances are those of MacKay's fixed point for the evidence, shrunk towards a guess that is worth
w effects: with b at its posterior mean and k_f effects in the family,

    v_f = (sum b^2 + w q_f) / (gamma_f + w),   gamma_f = k_f - sum Var(b) / v_f,               (8)

and likewise for d, z and r; s^2 is the sum of squared residuals over the number of scores less all
gammas. gamma counts the effects that the scores determine, so few scores change little.

A fit costs O(K F^2 + (E + C + J)^2 (E + C) + R^2 C^3) for F effects per row and E in all; without
axes O(K + J).

This is a model's opinion: nothing here bounds an error probability.

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

from bestarm_agent.selectors.auto.chains import Chains, Covariance
from bestarm_agent.stats.arrays import FloatArray, IntArray, one_thread

Family: TypeAlias = tuple[int, ...]  # the axes whose levels its effects belong to, one or two
# (K, W) columns and weights of the entries of (K, D) rows; those of one column add up
Loads: TypeAlias = tuple[IntArray, FloatArray]

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
        self._sums = self._number_sums()
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
        found, self._covariance = self._equations(weight).solved()
        self._b, sums = found[:n], found[self._sums]
        self._passed = sums[:1] + (sums[1:] if self._near else np.zeros((model.n_blocks, 1)))
        self._easiness = np.diff(self._passed)
        self._z, self._r = np.diff(sums[0]), np.diff(sums[1:, : self._near + 1])
        common = self._b[model.of_row].sum(axis=1)
        explained = self._length * common + self._passed[model.block, self._place]
        self._level = np.asarray(common + self._gain * (self._total - explained))  # (3)

    @property
    def _near(self) -> int:
        """Number R of places at which the rows of a block share residuals; 0 with one block."""
        n_blocks, reach = self._n_rows.shape
        return min(reach, _MOST_SHARED // n_blocks) if n_blocks > 1 else 0

    def _number_sums(self) -> IntArray:
        """Return the numbers of the unknowns u_0 to u_J, and of s_c0 to s_cJ for each c.

        b comes first, then u_R and all s_cR; then u and all s of each place before R, place by
        place; then u behind R. The last number is that of the sums of nothing, which are 0.
        """
        n, (n_blocks, reach), near = len(self.effects), self._n_rows.shape, self._near
        size = 1 + n_blocks if near else 0  # of a group
        end = n + near * size + reach - near
        sums = np.full((max(1, size), reach + 1), end)
        if near:
            group = n + np.arange(size)
            sums[:, near:] = group[:, None]
            sums[:, 1:near] = group[:, None] + size * np.arange(1, near)
        sums[0, near + 1 :] = np.arange(end - reach + near, end)
        return sums

    def _equations(self, weight: FloatArray) -> Chains:
        """Return what the least (4) solves."""
        model, now, near, sums = self.effects, self.variances, self._near, self._sums
        n, end, n_rows, noise = len(model), int(sums[0, 0]), len(weight), now.noise
        group = n + (len(sums) if near else 0)  # where the border ends
        path = sums[:1, self._place].T  # (K, 1 or 2) the sums of which p_i is made
        if near:
            path = np.column_stack([path, sums[1 + model.block, self._place]])
        # Rows are added up by the pairs of unknowns that they couple. The row of what is 0 is left
        # out in the end.
        gain, border = self._gain / noise, np.zeros((end + 1, group))
        border[:n, :n] = summed(self._length * weight, model.of_row, model.of_row, (n, n))
        border[:, :n] += summed(weight, path, model.of_row, (end + 1, n))
        inside = np.minimum(path, group) - n  # others in a column of their own
        border[:, n:] = summed(-gain, path, inside, (end + 1, group - n + 1))[:, :-1]
        border[:n, n:] = border[n:group, :n].T
        prior = np.array([CENTRE_VARIANCE, *map(now.of, model.families)])
        border[np.diag_indices(n)] += 1.0 / prior[model.family + 1]
        column, shape = np.zeros((n_rows, 1), dtype=np.int64), (end + 1, 1)
        target = summed(weight * self._total, model.of_row, column, shape)[:, 0]
        target -= summed(gain * self._total, path, column, shape)[:, 0]
        target[sums[0, 1:]] -= np.diff(self._at_place.sum(axis=0), append=0.0) / noise
        # of steps from one place to the next, and of rows that end at a place
        step, shape = self._n_rows / noise, (len(self._n_rows), sums.shape[1])
        ends = summed(gain, model.block[:, None], self._place[:, None], shape)
        groups = links = np.empty((0, len(sums), len(sums)))
        far = 1.0 / now.easiness + step[:, near:].sum(axis=0)
        if near:
            of_r = np.diff(self._at_place[:, :near], append=0.0) / noise
            target[sums[1:, 1 : near + 1]] -= of_r
            links = stars(step[:, :near].T, 1.0 / now.easiness, 1.0 / now.shared)
            groups = links[:-1] + links[1:] - stars(ends[:, 1:near].T)
            border[n:group, n:group] += links[-1]
            border[sums[:, near - 1], n:group] -= links[-1]
            border[n, n] += far[:1].sum()
            border[sums[0, near + 1 : near + 2], n] -= far[:1]
        single = far - ends[:, near + 1 :].sum(axis=0)
        single[:-1] += far[1:]
        return Chains(border[:end], target[:end], groups, links[1:-1], single, far[1:])

    def _next_variances(self) -> Variances:
        """Return the next step of (8)."""
        model, now, seen = self.effects, self.variances, self._length > 0
        near, every = self._near, np.arange(len(model))
        variance = self._covariance(every, every)  # of b
        easy, shared = map(self._of_steps, (self._sums[0], self._sums[1:, : near + 1]))
        used = (self._n_rows[:, :near] > 0).ravel()
        loads = self._loads(self._gain * self._length, self._gain, np.zeros(len(seen)))
        own = self._level - self._b[model.of_row].sum(axis=1)
        own_variance = self._gain * now.noise + variances_of(loads, self._covariance)
        v_d, n_own = _shrunk(own[seen], own_variance[seen], now.own, GUESS.own)
        v_z, n_easy = _shrunk(self._z, easy, now.easiness, GUESS.easiness)
        r, r_variance = self._r.ravel()[used], shared.ravel()[used]
        v_r, n_shared = _shrunk(r, r_variance, now.shared, GUESS.shared)
        n_known, effects = 1.0 + n_own + n_easy + n_shared, {}
        for number, family in enumerate(model.families):
            members = np.flatnonzero(model.family == number)
            effects[family], known = _shrunk(
                self._b[members], variance[members], now.of(family), GUESS.of(family)
            )
            n_known += known
        free = max(0.0, float(self._length.sum()) - n_known) + _NOISE_WORTH
        noise = (self._misfit() + _NOISE_WORTH * GUESS.noise) / free
        return Variances(effects, v_d, v_z, v_r, max(noise, _LEAST_VARIANCE))

    def _of_steps(self, sums: IntArray) -> FloatArray:
        """Return the variances of the differences between neighbours of (..., J + 1) sums."""
        one, two, covariance = sums[..., :-1], sums[..., 1:], self._covariance
        return covariance(one, one) + covariance(two, two) - 2.0 * covariance(one, two)

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
        """Return rows c_i: weights (K,) of the effects, and of the sums up to L_i and up to J."""
        place, block, sums = self._place, self.effects.block, self._sums
        columns = [self.effects.of_row, sums[0, place], np.full(len(place), sums[0, -1])]
        if self._near:
            columns += [sums[1 + block, place], sums[1 + block, -1]]
        weights = [level] * (1 + len(self.effects.families)) + [seen, end] * (len(columns) // 2)
        return np.column_stack(columns), np.column_stack(weights)


def _shrunk(
    mean: FloatArray, variance: FloatArray, now: float, guess: float
) -> tuple[float, float]:
    """Return the next variance of effects by (8), and their gamma."""
    known = float(np.clip(len(mean) - variance.sum() / now, 0.0, len(mean)))
    estimate = (float(mean @ mean) + _WORTH * guess) / (known + _WORTH)
    return max(estimate, _LEAST_VARIANCE), known


def stars(arms: FloatArray, centre: float = 0.0, own: float = 0.0) -> FloatArray:
    """Return (m, C + 1, C + 1) matrices of squares a_c (x_0 + x_c)^2, for (m, C) ``arms`` a_c.

    ``centre`` and ``own`` are added to the squares of x_0 and of each x_c.
    """
    m, n = arms.shape
    made, each = np.zeros((m, n + 1, n + 1)), np.arange(1, n + 1)
    made[:, 0, 0] = centre + arms.sum(axis=1)
    made[:, 0, 1:] = made[:, 1:, 0] = arms
    made[:, each, each] = own + arms
    return made


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


def variances_of(loads: Loads, covariance: Covariance) -> FloatArray:
    """Return the (K,) variances c_i' C c_i."""
    columns, weights = loads
    total = np.zeros(len(columns))
    for column, weight in zip(columns.T, weights.T, strict=True):
        total += weight * (weights * covariance(column[:, None], columns)).sum(axis=1)
    return total
