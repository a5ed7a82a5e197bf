"""Running moments of many rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class RunningMoments:
    """Numbers, means and standard deviations of many rows, one value at a time (Welford).

    Feeds ``intervals`` incrementally: ``empirical_bernstein(m.mean, m.std, m.n, alpha)``.

    Attributes:
        n: (n_rows,) numbers of values.
        mean: (n_rows,) means; 0 where there is no value.

    Example:
        >>> moments = RunningMoments(2)
        >>> for value in (0.0, 1.0, 1.0, 1.0):
        ...     moments.push(1, value)
        >>> moments.mean, moments.std
        (array([0.  , 0.75]), array([0.       , 0.4330127]))
    """

    def __init__(self, n_rows: int) -> None:
        self.n: NDArray[np.int64] = np.zeros(n_rows, dtype=np.int64)
        self.mean: NDArray[np.float64] = np.zeros(n_rows)
        self._squares: NDArray[np.float64] = np.zeros(n_rows)

    def push(self, row: int, value: float) -> None:
        """Take a row's next value."""
        self.n[row] += 1
        off = value - self.mean[row]
        self.mean[row] += off / self.n[row]
        self._squares[row] += off * (value - self.mean[row])

    @property
    def std(self) -> NDArray[np.float64]:
        """(n_rows,) standard deviations with divisor n."""
        return np.asarray(np.sqrt(self._squares / np.maximum(self.n, 1)))
