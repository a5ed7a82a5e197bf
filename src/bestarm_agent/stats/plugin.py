"""Closed-form confidence sequences with predictable plug-in weights, vectorised over rows.

Idea: the weighted mean of the draws, each with its odds of the past taken out, is within
(log(2/alpha) + sum of psi(lambda)) / (sum of lambda) of the mean at all times at once, for any
weights lambda_t chosen before draw t. Constant memory per row and no search, so thousands of rows
move in one call; the betting bounds of ``sequences`` are narrower.

Assumption: as in ``betting``.

References:
    Waudby-Smith and Ramdas (2020), "Confidence sequences for sampling without replacement",
    NeurIPS, theorems 3.1 (Hoeffding) and 3.2 (empirical Bernstein). With replacement: the same
    authors (2024), JRSS B 86(1), section 3.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = int | slice | NDArray[np.int64] | NDArray[np.bool_]

_MAX_WEIGHT = 0.5  # of the empirical Bernstein form, whose psi is infinite at 1


class PlugInSequences(ABC):
    """One two-sided confidence sequence per row, for the mean of the row's values.

    Args:
        n_rows: number of rows, >= 0.
        alpha: probability with which a row's mean may ever lie outside, in (0, 1).
        size: N, number of values per row, drawn without replacement; None with replacement.

    Attributes:
        n: (n_rows,) number of values seen.
        lower: (n_rows,) lower ends, in [0, 1]; never fall.
        upper: (n_rows,) upper ends, in [0, 1]; never rise. The two may cross when a sequence has
            failed.

    Raises:
        ValueError: ``alpha`` or ``size`` is out of range.
    """

    def __init__(self, n_rows: int, alpha: float, size: int | None = None) -> None:
        if not 0.0 < alpha < 1.0:
            raise ValueError(f"alpha must be in (0, 1), got {alpha}")
        if size is not None and size < 1:
            raise ValueError(f"size must be >= 1, got {size}")
        self.n: NDArray[np.int64] = np.zeros(n_rows, dtype=np.int64)
        self.lower: FloatArray = np.zeros(n_rows)
        self.upper: FloatArray = np.ones(n_rows)
        self._size = size
        self._log = math.log(2.0 / alpha)
        self._total: FloatArray = np.zeros(n_rows)
        self._weighted: FloatArray = np.zeros(n_rows)  # sum of lambda_t (x_t + S / left)
        self._weight: FloatArray = np.zeros(n_rows)  # sum of lambda_t N / left
        self._penalty: FloatArray = np.zeros(n_rows)  # sum of the psi's

    def push(self, rows: Rows, values: ArrayLike) -> None:
        """Feed the next value of each of ``rows`` (an index, distinct indices, a mask or a slice).

        Raises:
            ValueError: a value outside [0, 1], or more than ``size`` for a row.
        """
        x = np.asarray(values, dtype=float)
        if not ((x >= 0.0) & (x <= 1.0)).all():
            raise ValueError(f"values must be in [0, 1], got {x}")
        if self._size is not None and (self.n[rows] >= self._size).any():
            raise ValueError(f"all {self._size} values of a row were pushed before")
        past, growth = self._odds(rows)
        weight = self._weigh(rows)
        self._penalty[rows] += self._charge(rows, weight, x)
        self._weighted[rows] += weight * (x + past)
        self._weight[rows] += weight * growth
        self.n[rows] += 1
        self._total[rows] += x
        self._learn(rows, x)
        self._narrow(rows)

    def _odds(self, rows: Rows) -> tuple[FloatArray, FloatArray]:
        """(p, g) such that the next draw's conditional mean is g * mean - p."""
        if self._size is None:
            return np.zeros(()), np.ones(())
        left = self._size - self.n[rows]
        return np.asarray(self._total[rows] / left), np.asarray(self._size / left)

    def _narrow(self, rows: Rows) -> None:
        center = self._weighted[rows] / self._weight[rows]
        radius = (self._log + self._penalty[rows]) / self._weight[rows]
        lower, upper = center - radius, center + radius
        if self._size is not None:  # what is certain
            lower = np.maximum(lower, self._total[rows] / self._size)
            upper = np.minimum(upper, 1.0 - (self.n[rows] - self._total[rows]) / self._size)
        self.lower[rows] = np.maximum(self.lower[rows], lower)
        self.upper[rows] = np.minimum(self.upper[rows], upper)

    @abstractmethod
    def _weigh(self, rows: Rows) -> FloatArray:
        """lambda_t of the coming draws, from the past alone."""

    @abstractmethod
    def _charge(self, rows: Rows, weight: FloatArray, x: FloatArray) -> FloatArray:
        """What the draws add to the sum of the psi's."""

    def _learn(self, rows: Rows, x: FloatArray) -> None:  # noqa: B027 - a hook
        """Update what ``_weigh`` needs."""


class HoeffdingSequences(PlugInSequences):
    """Knows only that values are in [0, 1].

    Example:
        >>> sequences = HoeffdingSequences(2, alpha=0.05, size=100)
        >>> for _ in range(60):
        ...     sequences.push(slice(None), [0.0, 1.0])
        >>> sequences.lower.round(3), sequences.upper.round(3)
        (array([0.   , 0.864]), array([0.136, 1.   ]))
    """

    def _weigh(self, rows: Rows) -> FloatArray:
        t = self.n[rows] + 1
        return np.asarray(np.minimum(1.0, np.sqrt(8.0 * self._log / (t * np.log1p(t)))))

    def _charge(self, rows: Rows, weight: FloatArray, x: FloatArray) -> FloatArray:
        return weight**2 / 8.0


class EmpiricalBernsteinSequences(PlugInSequences):
    """Adapts to the variance of the values.

    Example:
        >>> sequences = EmpiricalBernsteinSequences(2, alpha=0.05, size=100)
        >>> for t in range(60):
        ...     sequences.push(slice(None), [0.5 + 0.1 * (t % 2), t % 2])
        >>> (sequences.upper - sequences.lower).round(3)
        array([0.164, 0.307])
    """

    def __init__(self, n_rows: int, alpha: float, size: int | None = None) -> None:
        super().__init__(n_rows, alpha, size)
        self._mean: FloatArray = np.full(n_rows, 0.5)  # of the draws and one imagined draw of 1/2
        self._squares: FloatArray = np.full(n_rows, 0.25)

    def _weigh(self, rows: Rows) -> FloatArray:
        t = self.n[rows] + 1
        scale = self._squares[rows] * np.log1p(t)  # variance * t * log(1 + t)
        return np.asarray(np.minimum(_MAX_WEIGHT, np.sqrt(2.0 * self._log / scale)))

    def _charge(self, rows: Rows, weight: FloatArray, x: FloatArray) -> FloatArray:
        return np.asarray((x - self._mean[rows]) ** 2 * (-np.log1p(-weight) - weight))

    def _learn(self, rows: Rows, x: FloatArray) -> None:
        self._mean[rows] = (0.5 + self._total[rows]) / (self.n[rows] + 1)
        self._squares[rows] += (x - self._mean[rows]) ** 2
