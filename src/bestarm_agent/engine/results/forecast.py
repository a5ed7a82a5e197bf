"""A forecast of the pairs that would settle who is best. It guarantees nothing.

It supposes that every estimate stays as it is, and that the distance between an estimate and an end
of its interval is c sd sqrt((1 - n / N) / n) after n of N examples, where sd is the deviation of a
score of 0 or 1 and c is the median over the intervals that do not touch 0 or 1. It counts the pairs
until the leading candidate's interval lies above that of every one not ruled out. A run stops
earlier, since it compares candidates on common examples, and asks others beside these: in replayed
runs it took .6 of that count, and mostly .2 to 1.8 (`benchmarks/stopping/forecast.py` of
commit e83ff81).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.engine.results.standing import Row, Standing
from bestarm_agent.selectors.types import Guarantee

LEVEL = 0.005  # leaders nearer to each other than this are called level
_FEWEST, _TYPICAL, _MOST = 0.2, 0.6, 1.8  # pairs needed, in pairs until intervals part


@dataclass(frozen=True, slots=True)
class Forecast:
    """The pairs still needed, by the estimates so far."""

    pairs: int  # further pairs until the leading candidate is established
    fewest: int  # lower end of the range in which they probably lie
    most: int  # upper end
    gap: float  # between the two highest estimates, >= 0

    @property
    def level(self) -> bool:
        """Return whether the two leading candidates are too near to each other to be told apart."""
        return self.gap < LEVEL


def forecast(standing: Standing) -> Forecast | None:
    """Return what would settle the run; None if it is settled, or nothing can be said yet.

    Nothing is said before every candidate has a score, nor where intervals are heuristic or the
    objective depends on prices.
    """
    best, rivals = standing.best, [row for row in standing.rivals if row.problem is None]
    settled = standing.established or standing.guarantee is Guarantee.HEURISTIC
    if best is None or not rivals or settled or standing.objective is not None or standing.unseen:
        return None
    n_examples = standing.n_examples
    grid = np.arange(1, n_examples + 1, dtype=float)
    c = _factor(standing)
    later = _distances(best, best.lower, c, grid)
    needed = [
        _needed(_gap(best, row), later + _distances(row, row.upper, c, grid)) for row in rivals
    ]
    more = sum(max(0, n - row.n) for n, row in zip(needed, rivals, strict=True))
    gap = min(_gap(best, row) for row in rivals)
    apart = max(1, more + max(0, max(needed) - best.n))
    left = standing.grid - standing.asked
    pairs, fewest, most = (min(left, ceil(part * apart)) for part in (_TYPICAL, _FEWEST, _MOST))
    return Forecast(pairs, fewest, most, max(0.0, gap))


def _gap(best: Row, rival: Row) -> float:
    return (best.estimate or 0.0) - (rival.estimate or 0.0)


def _needed(gap: float, widths: NDArray[np.float64]) -> int:
    """Return how many common examples two candidates need until their intervals part."""
    enough = np.flatnonzero(widths <= gap)
    return int(enough[0]) + 1 if len(enough) else len(widths)


def _factor(standing: Standing) -> float:
    """Return half the width of an interval in standard errors; 4 where none tells."""
    inner = [row for row in standing.rows if row.lower > 0 and row.upper < 1]
    errors = [(row, _error(row, standing.n_examples)) for row in inner]
    return float(
        np.median([(row.upper - row.lower) / 2 / error for row, error in errors if error] or [4.0])
    )


def _error(row: Row, n_examples: int) -> float:
    p = (row.total + 1) / (row.n + 2)
    return float(np.sqrt(p * (1 - p) / row.n * (1 - row.n / n_examples)))


def _distances(
    row: Row, end: float, factor: float, grid: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the distances from estimate to end after each number of examples in ``grid``."""
    later, n_examples = np.maximum(grid, row.n), len(grid)
    left = 1 - row.n / n_examples
    if left <= 0:
        return np.zeros(n_examples)
    now = max(abs(end - (row.estimate or 0.0)), factor * _error(row, n_examples))
    found: NDArray[np.float64] = now * np.sqrt(row.n / later * (1 - later / n_examples) / left)
    return found
