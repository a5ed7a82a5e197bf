"""Which of two candidates is better, from the examples that both have seen.

The noise that examples bring cancels in differences. Rows (candidates) take the examples in one
shared order, drawn at random before any score is seen, and each has come a different length. On
the common prefix, z = (1 + x_a - x_b) / 2 is a draw without replacement from N values in [0, 1],
whose mean exceeds 1/2 if and only if a's mean exceeds b's: a ``Wager`` against "at most 1/2" is an
e-process for "a beats b", however the lengths came about.

Union: the best row b* is lost only if some a "beats" it, and only K - 1 of the K (K - 1) ordered
pairs end in b*. So a pair decides at wealth (K - 1) / alpha, and the best survives with probability
at least 1 - alpha, over all pairs and times.

State: a pair has one only once somebody asks for it. ``challenge(leader)`` opens the leader's pairs
and catches up with what came since, so the cost is that of the leaders there were, not K^2.

Assumption that breaks it: an order that depends on scores.

References:
    Waudby-Smith and Ramdas (2024), JRSS B 86(1), section 5 (the wealth).
    Baharav and Tse (2019), "Ultra fast medoid identification via correlated sequential halving"
    (why common examples).
"""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.betting import LowerBound, Wager, bet_grid

_FEW = 12  # draws up to which pushing one by one is faster than a vector


class PairedSequences:
    """E-processes and intervals for differences of row means on common examples.

    Args:
        n_rows: K >= 0.
        n_examples: N >= 1, size of the population; all of one shared order.
        alpha: probability with which the best row may ever be eliminated, in (0, 1).
        margin: in [0, 1). The hypothesis that a wager attacks is "mean of a <= mean of b - margin";
            a positive margin lets rows go that are better by less.

    Attributes:
        eliminated: (K,) whether some challenger was ever shown to beat the row.
        eliminated_by: (K,) that challenger, the first one; -1 where there is none.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> pairs = PairedSequences(2, 40, alpha=0.05)
        >>> for example in range(25):
        ...     pairs.push(0, example, 1.0, 1.0)
        ...     pairs.push(1, example, 0.0, 0.0)
        >>> pairs.challenge(0)
        array([False,  True])
    """

    def __init__(self, n_rows: int, n_examples: int, alpha: float, margin: float = 0.0) -> None:
        if not 0.0 < alpha < 1.0:
            raise ValueError(f"alpha must be in (0, 1), got {alpha}")
        if not 0.0 <= margin < 1.0:
            raise ValueError(f"margin must be in [0, 1), got {margin}")
        self.eliminated: NDArray[np.bool_] = np.zeros(n_rows, dtype=bool)
        self.eliminated_by: NDArray[np.int64] = np.full(n_rows, -1)
        self._size = n_examples
        self._enough = max(1, n_rows - 1) / alpha
        self._null = (1.0 - margin) / 2.0
        self._bets = bet_grid(n_examples, 1.0 / self._enough)
        self._order = array("q")  # the shared order, as far as the longest row has come
        self._taken = bytearray(n_examples)
        self._low = [array("d") for _ in range(n_rows)]
        self._high = [array("d") for _ in range(n_rows)]
        self._length = np.zeros(n_rows, dtype=np.int64)
        self._challengers: dict[int, _Challenger] = {}

    def push(self, row: int, example: int, low: float, high: float) -> None:
        """Feed the row's next value along the shared order, known to lie in [low, high].

        The row that comes first to a place in the order says which example stands there.

        Raises:
            ValueError: not 0 <= low <= high <= 1, or the example is not the order's next one.
        """
        if not 0.0 <= low <= high <= 1.0:  # NaN fails this too
            raise ValueError(f"0 <= low <= high <= 1 must hold, got low={low}, high={high}")
        place = len(self._low[row])
        if place == len(self._order):
            self._append(example)
        elif self._order[place] != example:
            raise ValueError(
                f"row {row} must take example {self._order[place]} next, as the rows before it, "
                f"got {example}; paired sequences need one shared order"
            )
        self._low[row].append(low)
        self._high[row].append(high)
        self._length[row] = place + 1

    def challenge(self, leader: int) -> NDArray[np.bool_]:
        """Say which rows ``leader`` itself is shown to beat, and mark them as eliminated.

        Rows that were eliminated before are left alone unless there is a margin (being beaten
        within a margin is not transitive, so then the winner must beat each row itself).

        Returns:
            (K,) mask; a row once in it stays in it.
        """
        challenger = self._challenger(leader)
        common = np.minimum(self._length, self._length[leader])
        behind = (common > challenger.judged) & ~challenger.beaten
        if self._null == 0.5:
            behind &= ~self.eliminated
        behind[leader] = False
        for other in np.flatnonzero(behind).tolist():
            if self.wealth(leader, other) >= self._enough:
                challenger.beaten[other] = True
                if not self.eliminated[other]:
                    self.eliminated[other] = True
                    self.eliminated_by[other] = leader
        challenger.judged[behind] = common[behind]
        return challenger.beaten.copy()

    def wealth(self, better: int, worse: int) -> float:
        """Return the e-value for "``better`` beats ``worse``" on all common examples, >= 0."""
        wagers = self._challenger(better).wagers
        if worse not in wagers:
            wagers[worse] = Wager(self._null, self._bets, self._size)
        wager = wagers[worse]
        stop = int(min(self._length[better], self._length[worse]))
        fresh = self._differences(better, worse, wager.n, stop)
        if len(fresh) <= _FEW:
            for value in fresh.tolist():
                wager.push(value)
        else:
            wager.extend(fresh)
        return wager.wealth

    def difference(self, a: int, b: int, alpha: float) -> tuple[float, float]:
        """Bound the mean of row ``a`` minus that of row ``b``, at level ``alpha`` at all times.

        Made for reports: it replays the common prefix, at some microseconds per example.

        Returns:
            Lower and upper end, in [-1, 1].

        Raises:
            ValueError: ``alpha`` outside (0, 1).
        """
        return self._least_difference(a, b, alpha / 2), -self._least_difference(b, a, alpha / 2)

    def _least_difference(self, a: int, b: int, alpha: float) -> float:
        bound = LowerBound(alpha, bet_grid(self._size, alpha), self._size)
        stop = int(min(self._length[a], self._length[b]))
        for value in self._differences(a, b, 0, stop).tolist():
            bound.push(value)
        return 2.0 * max(bound.lower, bound.total / self._size) - 1.0

    def _differences(self, a: int, b: int, start: int, stop: int) -> NDArray[np.float64]:
        """The least that (1 + x_a - x_b) / 2 can be at places start..stop-1 of the order."""
        low = np.array(self._low[a][start:stop])
        high = np.array(self._high[b][start:stop])
        return np.asarray((1.0 + low - high) / 2.0)

    def _challenger(self, row: int) -> _Challenger:
        if row not in self._challengers:
            self._challengers[row] = _Challenger(len(self.eliminated))
        return self._challengers[row]

    def _append(self, example: int) -> None:
        if not 0 <= example < self._size:
            raise ValueError(f"example must be in 0..{self._size - 1}, got {example}")
        if self._taken[example]:
            raise ValueError(f"example {example} has its place in the shared order already")
        self._taken[example] = 1
        self._order.append(example)


class _Challenger:
    """What is known of one row's duels with the others."""

    __slots__ = ("beaten", "judged", "wagers")

    def __init__(self, n_rows: int) -> None:
        self.wagers: dict[int, Wager] = {}
        self.judged: NDArray[np.int64] = np.zeros(n_rows, dtype=np.int64)  # at how many examples
        self.beaten: NDArray[np.bool_] = np.zeros(n_rows, dtype=bool)
