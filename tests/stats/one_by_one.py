"""Feeds of the betting classes, one value after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bestarm_agent.stats.arrays import FloatArray
from bestarm_agent.stats.betting import Bets, MeanInterval, Wealth
from bestarm_agent.stats.paired_sequences import PairedSequences


class Wager:
    """The wealth of one row."""

    def __init__(self, mean: float, bets: Bets, size: int | None = None) -> None:
        self._wealth = Wealth(1, mean, bets, size)

    def push(self, value: float) -> None:
        self._wealth.extend(np.array([[value]]))

    def extend(self, values: FloatArray) -> None:
        self._wealth.extend(values[None])

    @property
    def wealth(self) -> float:
        return float(self._wealth.now[0])

    @property
    def highest(self) -> float:
        return float(self._wealth.highest[0])


class Intervals:
    """Intervals of several rows."""

    def __init__(self, n_rows: int, size: int, alpha: float) -> None:
        self._rows = [MeanInterval(size, alpha) for _ in range(n_rows)]

    def push(self, row: int, low: float, high: float) -> None:
        self._rows[row].extend(np.array([low]), np.array([high]))

    def extend(self, row: int, values: Sequence[float] | FloatArray) -> None:
        self._rows[row].extend(np.asarray(values), np.asarray(values))

    @property
    def lower(self) -> FloatArray:
        return np.array([row.lower for row in self._rows])

    @property
    def upper(self) -> FloatArray:
        return np.array([row.upper for row in self._rows])


def push(pairs: PairedSequences, row: int, example: int, low: float, high: float) -> None:
    """Let a row have its next value."""
    pairs.extend(row, np.array([example]), np.array([low]), np.array([high]))
