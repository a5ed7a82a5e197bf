"""Equations whose unknowns stand in chains behind a border, and the inverse of their matrix.

The matrix A is symmetric and positive definite. Of its unknowns, B are the border, which any other
may be coupled to; m groups of q follow, each coupled to the groups beside it; then n single ones,
each coupled to those beside it. No group is coupled to a single one. With I all but the border

    X = A_II^-1 A_IB,  S = (A_BB - A_BI X)^-1 = R R',  Cov = diag(0, A_II^-1) + Y Y'             (1)

where Y = (R, -X R). Eliminating groups in order (block Cholesky), with U_k = -A_{k,k+1},

    D_k = A_kk - U_{k-1}' W_{k-1},  W_k = D_k^-1 U_k                                            (2)
    G_kk = D_k^-1 + W_k G_{k+1,k+1} W_k',  G_kl = W_k G_{k+1,l}  for l > k                      (3)

G being the inverse of their part. That of the single ones is p_j q_k for j <= k: q is its first
column, and p its last over that one's first number.

It costs O((m q)^2 q + (B + m q + n)^2 B + B^3), in place of the cube of all.

References:
    Meurant (1992), "A review on the inverse of symmetric tridiagonal and block tridiagonal
    matrices", SIAM Journal on Matrix Analysis and Applications 13(3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf, dpotri, dpttrf, dpttrs, dtrtri

from bestarm_agent.stats.arrays import FloatArray, IntArray

_TOGETHER = 40  # unknowns of small groups that are eliminated together
Covariance: TypeAlias = Callable[[IntArray, IntArray], FloatArray]  # of any unknowns, broadcast


@dataclass(frozen=True, slots=True, eq=False)
class Chains:
    """A matrix A of u = B + m q + n unknowns, and the right side of its equations.

    Attributes:
        border: (u, B) columns of A.
        target: (u,) the right side.
        groups: (m, q, q) blocks A_kk.
        links: (m - 1, q, q) blocks U_k, which are symmetric.
        single: (n,) A's diagonal.
        steps: (n - 1,) minus what stands beside it.
    """

    border: FloatArray
    target: FloatArray
    groups: FloatArray
    links: FloatArray
    single: FloatArray
    steps: FloatArray

    def solved(self) -> tuple[FloatArray, Covariance]:
        """Return the (u + 1,) solution, and any numbers of the inverse of A.

        One unknown more, the last, is 0. Raises LinAlgError if A is not positive definite.
        """
        n_border, n_grouped = self.border.shape[1], self.groups.shape[0] * self.groups.shape[1]
        sides = np.column_stack([self.border, self.target])
        of_border, inner = np.split(sides, [n_border])
        inverse, of_groups = self._of_groups(inner[:n_grouped])
        first, last, of_single = self._of_single(inner[n_grouped:])
        found = np.vstack([of_groups, of_single])  # (1): X, and the same of the right side
        left = of_border - inner[:, :-1].T @ found
        root = dtrtri(_cholesky(left[:, :-1]), lower=1)[0].T  # (1): R
        mean = root @ (root.T @ left[:, -1])
        mean = np.concatenate([mean, found[:, -1] - found[:, :-1] @ mean, [0.0]])
        spread = np.vstack([root, -found[:, :-1] @ root, np.zeros((1, n_border))])  # (1): Y
        p, q = (np.pad(one, (n_border + n_grouped, 1)) for one in (last, first))
        if n_border == 1:  # a column of numbers need not become a matrix
            column = spread[:, 0]

            def shared(low: IntArray, high: IntArray) -> FloatArray:
                return np.asarray(column[low] * column[high])
        else:
            matrix = dsyrk(1.0, spread.T, trans=1)  # the upper half: the lower is 0
            matrix[n_border : n_border + n_grouped, n_border : n_border + n_grouped] += inverse

            def shared(low: IntArray, high: IntArray) -> FloatArray:
                return np.asarray(matrix[low, high])

        def covariance(one: IntArray, two: IntArray) -> FloatArray:
            low, high = np.minimum(one, two), np.maximum(one, two)
            return shared(low, high) + p[low] * q[high]

        return mean, covariance

    def _of_groups(self, sides: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the inverse of the groups' part, and that times (m q, B + 1) ``sides``.

        Of the inverse the upper half counts.
        """
        m, q = self.groups.shape[:2]
        found, inverse = sides.copy(), np.zeros((m * q, m * q))
        # Several small groups are eliminated together, as one. Only the first q columns of its W
        # are not 0: they belong to the first group behind it.
        starts = range(0, m, max(1, _TOGETHER // q))
        spans = [slice(one * q, min(one + starts.step, m) * q) for one in starts]
        each, ahead = list[FloatArray](), list[FloatArray]()  # D_k^-1 and W_k
        for start, here in zip(starts, spans, strict=True):
            block = self._block(start, min(start + starts.step, m))
            if start:
                link, first = self.links[start - 1], slice(here.start, here.start + q)
                ahead.append(each[-1][:, -q:] @ link)  # (2): W
                block[:q, :q] -= link @ ahead[-1][-q:]  # (2): D
                found[first] += ahead[-1].T @ found[spans[len(each) - 1]]
            lower, _ = dpotri(_cholesky(block), lower=1)
            lower[np.diag_indices(len(lower))] /= 2.0  # its upper half is 0
            each.append(lower + lower.T)
        for k, here in reversed([*enumerate(spans)]):
            own, later = each[k], slice(here.stop, m * q)
            found[here] = own @ found[here]
            if here.stop < m * q:
                first = slice(here.stop, here.stop + q)
                found[here] += ahead[k] @ found[first]
                others = ahead[k] @ inverse[first, later]  # (3): G_kl
                own = own + others[:, :q] @ ahead[k].T  # (3): G_kk
                inverse[here, later] = others
            inverse[here, here] = own
        return inverse, found

    def _block(self, start: int, stop: int) -> FloatArray:
        """Return the part of A that some groups have among themselves."""
        n, q, each = stop - start, self.groups.shape[1], np.arange(stop - start)
        block = np.zeros((n, q, n, q))
        block[each, :, each, :] = self.groups[start:stop]
        before, after = each[:-1], each[1:]
        block[before, :, after, :] = block[after, :, before, :] = -self.links[start : stop - 1]
        return block.reshape(n * q, n * q)

    def _of_single(self, sides: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return q, p, and the inverse of the single ones' part times (n, B + 1) ``sides``."""
        n = len(self.single)
        if not n:
            return self.single, self.single, sides
        steps = -self.steps if n > 1 else np.zeros(1)  # the routine wants one at least
        pivots, factors, failed = dpttrf(self.single, steps)
        _check(failed)
        ends = np.zeros((n, 2))
        ends[0, 0] = ends[-1, 1] = 1.0
        found = dpttrs(pivots, factors, np.hstack([ends, sides]))[0]
        return found[:, 0], found[:, 1] / found[0, 1], found[:, 2:]


def _cholesky(matrix: FloatArray) -> FloatArray:
    factor, failed = dpotrf(matrix, lower=1)
    _check(failed)
    return np.asarray(factor)


def _check(failed: int) -> None:
    if failed:
        raise np.linalg.LinAlgError("a precision matrix is not positive definite")
