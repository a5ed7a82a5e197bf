"""Two-sided betting confidence sequences for the means of many rows, fed one value at a time.

Each row (candidate) has N values in [0, 1], of which more and more are seen without replacement. A
row's interval joins the bound L_t of ``betting_bounds`` (4) for x with that for 1 - x, each at
level alpha / 2: P(mean outside [L_t(x), 1 - L_t(1 - x)] for some t) <= alpha (union bound). With S
strata of sizes N_s, each has level alpha / S, and the row's ends are the sums of N_s times the
stratum's ends, divided by N. Both ends are cut to what is certain, as unseen values lie in [0, 1]:
(sum of the values seen) / N, and that plus (number unseen) / N.

Assumptions and source are those of ``betting_bounds``.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.intervals.betting_bounds import EVEN, Odds, early_bets
from bestarm_agent.stats.intervals.lower_bound import LowerBound


class PopulationSequences:
    """One two-sided confidence sequence per row, for the row's mean over the whole population.

    With probability at least 1 - ``alpha`` per row, the mean lies in [lower, upper] at every time,
    so the number of values seen may depend on anything. Once all values were pushed, the ends are
    the mean, if all could be measured. Before that both ends only move inwards, unless certainty
    contradicts them (probability at most ``alpha``): then certainty wins.

    Args:
        strata: sizes of the strata, each >= 1; example j belongs to the stratum in which j falls
            when strata follow one another. Within a stratum examples must come in random order,
            uniform or with the odds given with each.
        alpha: error probability of each row's sequence, in (0, 1).

    Example:
        >>> sequences = PopulationSequences(1, [3], alpha=0.05)
        >>> sequences.push(0, 2, 1.0, 1.0)
        >>> sequences.push(0, 0, 0.0, 1.0)
        >>> sequences.push(0, 1, 0.5, 0.5)
        >>> float(sequences.lower[0]), float(sequences.upper[0])
        (0.5, 0.8333333333333334)
    """

    def __init__(self, n_rows: int, strata: Sequence[int], alpha: float) -> None:
        if not strata or min(strata) < 1:
            raise ValueError(f"strata must be one or more sizes >= 1, got {list(strata)}")
        self.lower: NDArray[np.float64] = np.zeros(n_rows)
        self.upper: NDArray[np.float64] = np.ones(n_rows)
        self._sizes = tuple(strata)
        self._ends = list(accumulate(strata))
        self._side = _one_side(alpha, len(strata))
        self._bets = [early_bets(size, self._side) for size in strata]
        self._rows: list[list[_StratumInterval] | None] = [None] * n_rows

    def push(self, row: int, example: int, low: float, high: float, odds: Odds = EVEN) -> None:
        """Feed the next value of a row, known to lie in [low, high].

        ``odds`` say how it was drawn among what is left of its stratum. ``low < high`` if the value
        could not be measured: the lower bound then uses ``low`` and the upper bound ``high``.
        """
        _check_range(low, high)
        if not 0 <= example < self._ends[-1]:
            raise ValueError(f"example must be in 0..{self._ends[-1] - 1}, got {example}")
        parts = self._rows[row] or self._open(row)
        parts[bisect_right(self._ends, example)].push(low, high, odds)
        if len(parts) == 1:
            low_total, high_total = parts[0].low, parts[0].high
        else:
            low_total = math.fsum(part.low for part in parts)
            high_total = math.fsum(part.high for part in parts)
        self.lower[row] = low_total / self._ends[-1]
        self.upper[row] = high_total / self._ends[-1]

    def _open(self, row: int) -> list[_StratumInterval]:
        """Set a row up when it is first used: most rows of a large pool never are."""
        parts = [
            _StratumInterval(size, self._side, *bets)
            for size, bets in zip(self._sizes, self._bets, strict=True)
        ]
        self._rows[row] = parts
        return parts


def _one_side(alpha: float, n_strata: int) -> float:
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must be in (0, 1), got {alpha}")
    return alpha / (2 * n_strata)


def _check_range(low: float, high: float) -> None:
    if not 0.0 <= low <= high <= 1.0:  # NaN fails this too
        raise ValueError(f"0 <= low <= high <= 1 must hold, got low={low}, high={high}")


class _StratumInterval:
    """Two-sided bounds [low, high] of the sum of one stratum of one row."""

    __slots__ = ("_above", "_below", "_n_left", "_size", "high", "low", "n_vague")

    def __init__(
        self, size: int, alpha: float, bets: tuple[float, ...], shares: tuple[float, ...]
    ) -> None:
        self.low = 0.0
        self.high = float(size)
        self.n_vague = 0  # values that are known as a range only
        self._size = size
        self._n_left = size
        self._below = LowerBound(alpha, bets, size, shares)  # of x
        self._above = LowerBound(alpha, bets, size, shares)  # of 1 - x

    def push(self, low: float, high: float, odds: Odds) -> None:
        if self._n_left == 0:
            raise ValueError(f"all {self._size} values of this stratum were pushed before")
        self._n_left -= 1
        self.n_vague += low < high
        self._below.push(low, odds)
        self._above.push(1.0 - high, odds)
        if self._n_left == 0:
            self._finish()
        else:
            self._narrow()

    def _narrow(self) -> None:
        size = self._size
        least, most = self._below.total, size - self._above.total  # certain
        low = max(self._below.lower * size, least)
        high = min(size - self._above.lower * size, most)
        if low > high:  # one of the bounds has failed: stay, as far as certainty allows
            low, high = self.low, self.high
        self.low = min(max(low, least), most)
        self.high = max(min(high, most), least)

    def _finish(self) -> None:
        """Set the exact sums; ``fsum`` makes rows of equal values tie in any order."""
        self.low = math.fsum(self._below.draws())
        vague_high = self._size - math.fsum(self._above.draws())
        self.high = max(self.low, vague_high) if self.n_vague else self.low
