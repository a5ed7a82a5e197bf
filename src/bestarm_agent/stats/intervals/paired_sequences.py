"""E-processes for "row a beats row b" on the examples that both have seen.

The noise that examples bring cancels in differences. Rows (candidates) take the examples in one
shared order, drawn at random before any score is seen; each has come a different length. On the
common prefix

    z_t = (1 + x_a,t - x_b,t) / 2                                                          (1)

is a draw without replacement from N values in [0, 1] of mean 1/2 + (mu_a - mu_b) / 2. So the wealth
W_ab against "the mean of z is at most 1/2" (``betting_bounds``) is an e-process against
"mu_a <= mu_b", however the lengths came about.

    a beats b once W_ab >= (K - 1) / alpha                                                 (2)

The best row is beaten only if one of the K - 1 pairs (a, best) errs, each with
probability at most alpha / (K - 1): so it survives all pairs and times with probability at least
1 - alpha. The same union bounds by how much another row may be better: the least d for which
"mu_leader <= mu_other - d" is rejected at that level (``shortfall``).

A pair has a wager only once it is looked at: ``beaten_by(leader)`` opens the leader's pairs and
feeds what came since, so the cost is that of the leaders there were, not K^2. Results depend on
the values alone, not on when or how often they are looked at.

Examples may have unequal chances (``Odds``) if these are known. An order that depends on scores
breaks the guarantee.

References:
    Waudby-Smith and Ramdas (2024), JRSS B 86(1), section 5 (the wealth).
    Baharav and Tse (2019), "Ultra fast medoid identification via correlated sequential halving"
    (why common examples).
"""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.intervals.betting_bounds import EVEN, LowerBound, Odds, Wager, bet_grid

_FEW = 12  # up to this many draws, pushing one by one is faster
_FINE = 2.0**-11  # precision of a shortfall, rounded upwards


class PairedSequences:
    """E-processes and intervals for differences of row means on common examples.

    Args:
        n_examples: N >= 1, size of the population; all of one shared order.
        alpha: probability with which the best row may ever be beaten, in (0, 1).

    Example:
        >>> pairs = PairedSequences(2, 40, alpha=0.05)
        >>> for example in range(25):
        ...     pairs.push(0, example, 1.0, 1.0)
        ...     pairs.push(1, example, 0.0, 0.0)
        >>> pairs.beaten_by(0)
        array([False,  True])
    """

    def __init__(self, n_rows: int, n_examples: int, alpha: float) -> None:
        if not 0.0 < alpha < 1.0:
            raise ValueError(f"alpha must be in (0, 1), got {alpha}")
        self._size = n_examples
        self._enough = max(1, n_rows - 1) / alpha  # (2)
        self._bets = bet_grid(n_examples, 1.0 / self._enough)
        self._order = array("q")  # the shared order, as far as the longest row has come
        self._odds = array("d")  # ratio and most of every place in it
        self._taken = bytearray(n_examples)
        self._low = [array("d") for _ in range(n_rows)]
        self._high = [array("d") for _ in range(n_rows)]
        self._length = np.zeros(n_rows, dtype=np.int64)
        self._by_row: dict[int, _RowWagers] = {}

    def push(self, row: int, example: int, low: float, high: float, odds: Odds = EVEN) -> None:
        """Feed the row's next value along the shared order, known to lie in [low, high].

        The first row to come to a place of the order sets its example, and the ``odds`` with which
        it was drawn among those left. Raises ValueError if the example is not the order's next one.
        """
        if not 0.0 <= low <= high <= 1.0:  # NaN fails this too
            raise ValueError(f"0 <= low <= high <= 1 must hold, got low={low}, high={high}")
        place = len(self._low[row])
        if place == len(self._order):
            self._append(example, odds)
        elif self._order[place] != example:
            raise ValueError(
                f"row {row} must take example {self._order[place]} next, as the rows before it, "
                f"got {example}; paired sequences need one shared order"
            )
        self._low[row].append(low)
        self._high[row].append(high)
        self._length[row] = place + 1

    def beaten_by(self, leader: int, among: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """Return a (K,) mask of the rows ``among`` that ``leader`` is shown to beat.

        A row once in it stays in it. Looking at fewer rows costs less.
        """
        row = self._wagers_of(leader)
        common = np.minimum(self._length, self._length[leader])
        due = (common > row.n) & (row.highest < self._enough)
        if among is not None:
            due &= among
        due[leader] = False
        for other in np.flatnonzero(due).tolist():
            self._catch_up(leader, other)
        beaten: NDArray[np.bool_] = row.highest >= self._enough
        return beaten if among is None else beaten & among

    def wealth(self, better: int, worse: int) -> float:
        """Return the e-value for "``better`` beats ``worse``" on all common examples, >= 0."""
        return self._catch_up(better, worse).wealth

    def shortfall(self, leader: int, other: int, least: float = 0.0) -> float:
        """Bound by how much ``other`` may be better than ``leader``, at the level of decisions.

        All such bounds against the best row hold together, at all times, with probability at least
        1 - ``alpha``: so any leader is within the largest of them of the best row. The bound is in
        [``least``, 1], rounded upwards; a larger ``least`` saves work.
        """
        stop = int(min(self._length[leader], self._length[other]))
        draws, odds = self._differences(leader, other, 0, stop), self._odds_of(0, stop)
        low, high = least, 1.0
        if self._excludes(least, draws, odds):
            return least
        while high - low > _FINE:
            middle = (low + high) / 2
            low, high = (low, middle) if self._excludes(middle, draws, odds) else (middle, high)
        return high

    def difference(self, a: int, b: int, alpha: float) -> tuple[float, float]:
        """Bound the mean of row ``a`` minus that of ``b``, in [-1, 1], at all times at ``alpha``.

        For reports: replays the common prefix, at some microseconds per example.
        """
        return self._least_difference(a, b, alpha / 2), -self._least_difference(b, a, alpha / 2)

    def _catch_up(self, better: int, worse: int) -> Wager:
        """Feed a pair's wager the new examples; keep its highest wealth, valid by Ville."""
        row = self._wagers_of(better)
        wager = row.by_opponent.get(worse) or Wager(0.5, self._bets, self._size)
        row.by_opponent[worse] = wager
        stop = int(min(self._length[better], self._length[worse]))
        fresh, odds = self._differences(better, worse, wager.n, stop), self._odds_of(wager.n, stop)
        highest = wager.wealth
        if len(fresh) > _FEW:
            highest = max(highest, wager.climb(fresh, odds))
        else:
            for value, (ratio, most) in zip(fresh.tolist(), odds.tolist(), strict=True):
                wager.push(value, Odds(ratio, most))
                highest = max(highest, wager.wealth)
        row.n[worse] = stop
        row.highest[worse] = max(highest, float(row.highest[worse]))
        return wager

    def _excludes(self, lead: float, draws: NDArray[np.float64], odds: NDArray[np.float64]) -> bool:
        """Return whether "the second row is better by ``lead`` or more" is rejected."""
        wager = Wager((1.0 - lead) / 2.0, self._bets, self._size)
        wager.extend(draws, odds)
        return wager.wealth >= self._enough

    def _least_difference(self, a: int, b: int, alpha: float) -> float:
        bound = LowerBound(alpha, bet_grid(self._size, alpha), self._size)
        stop = int(min(self._length[a], self._length[b]))
        draws, odds = self._differences(a, b, 0, stop), self._odds_of(0, stop)
        for value, (ratio, most) in zip(draws.tolist(), odds.tolist(), strict=True):
            bound.push(value, Odds(ratio, most))
        return 2.0 * max(bound.lower, bound.total / self._size) - 1.0

    def _differences(self, a: int, b: int, start: int, stop: int) -> NDArray[np.float64]:
        """Return the least possible (1) at places start..stop-1 of the order."""
        low = np.array(self._low[a][start:stop])
        high = np.array(self._high[b][start:stop])
        return np.asarray((1.0 + low - high) / 2.0)

    def _odds_of(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return the (n, 2) odds of places start..stop-1 of the order."""
        return np.array(self._odds[2 * start : 2 * stop]).reshape(-1, 2)

    def _wagers_of(self, row: int) -> _RowWagers:
        if row not in self._by_row:
            self._by_row[row] = _RowWagers(len(self._length))
        return self._by_row[row]

    def _append(self, example: int, odds: Odds) -> None:
        if not 0 <= example < self._size:
            raise ValueError(f"example must be in 0..{self._size - 1}, got {example}")
        if self._taken[example]:
            raise ValueError(f"example {example} has its place in the shared order already")
        self._taken[example] = 1
        self._order.append(example)
        self._odds.extend(odds)


class _RowWagers:
    __slots__ = ("by_opponent", "highest", "n")

    def __init__(self, n_rows: int) -> None:
        self.by_opponent: dict[int, Wager] = {}
        self.n: NDArray[np.int64] = np.zeros(n_rows, dtype=np.int64)  # common examples counted in
        self.highest: NDArray[np.float64] = np.zeros(n_rows)  # wealth at any time so far
