"""Confidence sequences for the means of finite populations that are sampled row by row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class PopulationSequences:
    """Interim: deterministic bounds only; unseen examples count as anything in [0, 1]."""

    def __init__(self, n_rows: int, strata: Sequence[int], alpha: float) -> None:
        self._n = sum(strata)
        self._alpha = alpha
        self.lower: NDArray[np.float64] = np.zeros(n_rows)
        self.upper: NDArray[np.float64] = np.ones(n_rows)

    def push(self, row: int, example: int, low: float, high: float) -> None:
        """Feed the next value of a row, known to lie in [low, high]."""
        self.lower[row] += low / self._n
        self.upper[row] -= (1 - high) / self._n
