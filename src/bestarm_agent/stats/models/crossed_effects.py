"""A Gaussian model of candidates that have axes: what the levels of an axis share is learned.

Row i has seen the first L_i of m examples, in an order that all rows share. Its score is

    y_ij = x_i . b + d_i + z_j + e_ij                                                          (1)

with x_i marking the effects that the row has: of a constant, of its level on every axis, and of its
combination of levels on every two axes. Besides them are the row's own deviation d_i and the
example's easiness z_j. All are independent and Gaussian around 0 (scores are taken from 1/2),

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

from copy import copy
from functools import partial

import numpy as np

from bestarm_agent.stats.arrays import FloatArray, IntArray
from bestarm_agent.stats.models.crossed_design import Effects
from bestarm_agent.stats.models.crossed_equations import CENTRE, Sums, Variances
from bestarm_agent.stats.models.crossed_solution import Solution
from bestarm_agent.stats.models.posterior import Posterior
from bestarm_agent.stats.models.prefix_scores import PrefixRows


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
        >>> for place in range(4):
        ...     model.put(0, place, 1.0)
        ...     model.put(2, place, 0.0)
        >>> mean = model.fit(sweeps=4).mean  # rows 1 and 3 have no score
        >>> bool(mean[0] > mean[1] > mean[3] > mean[2])
        True
    """

    def __init__(self, axes: IntArray, n_examples: int) -> None:
        self.n_examples = n_examples
        self.rows = PrefixRows(len(axes), np.ones((n_examples, 1)))
        self.variances = Variances()
        self._effects = Effects.of(axes)
        self._level: FloatArray = np.zeros(len(axes))
        blocks = self._effects.n_blocks
        self._residual: FloatArray = np.zeros((blocks, 0))  # z_j + r_cj, up to the longest row

    @property
    def n_families(self) -> int:
        """Return how many families of effects there are; 0 where rows share no level."""
        return len(self._effects.families)

    def put(self, row: int, place: int, score: float) -> None:
        """Set a row's score at a place of the order."""
        self.rows.put(row, place, score - CENTRE)

    def open(self, row: int, place: int) -> None:
        """Count a place as seen, with the expected score until the score is known."""
        self.rows.open(row, place, float(self._expected(row, np.array([place]))[0]))

    def fit(self, sweeps: int = 2, *, all_rows: bool = True) -> Posterior:
        """Fit variances, then effects, to the scores so far; return the posterior of the means.

        All rows are fitted in any case.
        """
        for row in np.flatnonzero(self.rows.length).tolist():
            self.rows.fill(row, partial(self._expected, row))
        return self._refine(sweeps)

    def peek(self, sweeps: int = 2) -> Posterior:
        """Return what ``fit`` would for the guesses of the last fit, without changing the model."""
        return copy(self)._refine(sweeps)

    def _refine(self, sweeps: int) -> Posterior:
        sums = Sums.of(self.rows, self._effects)
        for _ in range(sweeps):
            solution = Solution.of(self._effects, sums, self.variances)
            self.variances = solution.next_variances()
        self._level, self._residual = solution.level, solution.residual
        return solution.posterior(self.n_examples)

    def _expected(self, row: int, places: IntArray) -> FloatArray:
        """Return the expected scores, less 1/2, of a row at some places; not clipped."""
        expected = np.full(len(places), self._level[row])
        known = places < self._residual.shape[1]
        expected[known] += self._residual[self._effects.block[row], places[known]]
        return expected
