"""The seen cells of a sparsely seen matrix, and sums over the cells of each row or column."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bestarm_agent.stats.arrays import FloatArray, IndexArray


class SeenCells:
    """The seen cells of a (K, N) matrix, given by (n,) rows, columns and scores; no cell twice."""

    def __init__(
        self,
        rows: NDArray[np.integer] | list[int],
        columns: NDArray[np.integer] | list[int],
        scores: FloatArray | list[float],
        shape: tuple[int, int],
    ) -> None:
        by_row = csr_array((np.asarray(scores, dtype=float), (rows, columns)), shape=shape)
        self.shape = shape
        self.by_row = Cells(by_row)
        self.by_column = Cells(by_row.T.tocsr())
        self.row_totals: FloatArray = sums_at(self.by_row.of, self.by_row.scores, shape[0])

    def __len__(self) -> int:
        return len(self.by_row.scores)


class Cells:
    """Seen cells sorted by one axis, in sparse form.

    There are ``size`` items along this axis. Arrays (n,) give each cell's item ``of`` (ascending),
    its place along the ``other`` axis, and its score.
    """

    def __init__(self, sparse: csr_array) -> None:
        self.size = sparse.shape[0]
        self.of: IndexArray = np.repeat(np.arange(self.size), np.diff(sparse.indptr))
        self.other: IndexArray = sparse.indices.astype(np.intp)
        self.scores: FloatArray = sparse.data
        ones = np.ones_like(sparse.data)
        self._values = sparse
        self._pattern = csr_array((ones, sparse.indices, sparse.indptr), shape=sparse.shape)

    def weigh(self, factors: FloatArray) -> FloatArray:
        """Return (size, ...) sums of scores times ``factors`` (other size, ...) over the cells."""
        return _product(self._values, factors)

    def add_up(self, factors: FloatArray) -> FloatArray:
        """Return (size, ...) sums of ``factors`` (other size, ...) over the cells."""
        return _product(self._pattern, factors)


def _product(sparse: csr_array, factors: FloatArray) -> FloatArray:
    flat: FloatArray = sparse @ factors.reshape(len(factors), -1)
    return flat.reshape(-1, *factors.shape[1:])


def sums_at(at: IndexArray, weights: FloatArray, size: int) -> FloatArray:
    """Return the (size,) sums of the weights at each place."""
    return np.bincount(at, weights=weights, minlength=size).astype(np.float64, copy=False)
