"""Feeds of the betting classes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from bestarm_agent.stats.betting import Bets, MeanInterval, Wealth
from bestarm_agent.stats.paired_sequences import PairedSequences


def wealth_path(values: ArrayLike, mean: float, bets: Bets, size: int | None = None) -> list[float]:
    """Return the wealth after each of one row's values."""
    rows = np.asarray(values, dtype=float)[None]
    path: list[float] = Wealth(1, mean, bets, size).extend(rows)[0].tolist()
    return path


def ends(
    low: ArrayLike, size: int, alpha: float, high: ArrayLike | None = None
) -> tuple[float, float]:
    """Return the interval after one row's values, known as ranges if ``high`` is given."""
    interval, least = MeanInterval(size, alpha), np.asarray(low, dtype=float)
    interval.extend(least, least if high is None else np.asarray(high, dtype=float))
    return interval.lower, interval.upper


def push(pairs: PairedSequences, row: int, example: int, low: float, high: float) -> None:
    """Let a row have its next value."""
    pairs.extend(row, np.array([example]), np.array([low]), np.array([high]))


def feed(pairs: PairedSequences, row: int, values: ArrayLike, start: int = 0) -> None:
    """Let a row have its next values, from the example ``start`` on."""
    known = np.asarray(values, dtype=float)
    pairs.extend(row, np.arange(start, start + len(known)), known, known)


def compared(values: ArrayLike, size: int, alpha: float) -> PairedSequences:
    """Return sequences of which every row has all of its (K, n) values."""
    rows = np.asarray(values, dtype=float)
    pairs = PairedSequences(len(rows), size, alpha)
    for row, known in enumerate(rows):
        feed(pairs, row, known)
    return pairs


def wealth(pairs: PairedSequences, better: int, worse: int) -> float:
    """Return the e-value for "``better`` beats ``worse``", up to where it was first enough."""
    test = pairs._against(better)
    pairs._highest(test, np.arange(len(pairs.length)) == worse)
    return float(pairs._wealth[test].now[worse])
