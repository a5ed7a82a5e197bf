"""Which of two candidates is better, from the examples that both have seen.

The noise that examples bring cancels in differences. Rows (candidates) take the examples in one
shared order, drawn at random before any score is seen, and each has come a different length. On
the common prefix, z = (1 + x_a - x_b) / 2 is a draw without replacement from N values in [0, 1],
whose mean exceeds 1/2 if and only if a's mean exceeds b's: a ``Wager`` against "at most 1/2" is an
e-process for "a beats b", however the lengths came about.

Union: the best row b* is lost only if some a "beats" it, and only K - 1 of the K (K - 1) ordered
pairs end in b*. So a pair decides at wealth (K - 1) / alpha, and the best survives with probability
at least 1 - alpha, over all pairs and times. What is decided depends on the values seen and on
nothing else: not on when, or how often, anybody asked.

State: a pair has one only once somebody asks for it. ``beaten_by(leader)`` opens the leader's pairs
and catches up with what came since, so the cost is that of the leaders there were, not K^2.

An example may be the more likely to come early the more it tells (``Odds``), as long as the chances
are known. Assumption that breaks it: an order that depends on scores.

References:
    Waudby-Smith and Ramdas (2024), JRSS B 86(1), section 5 (the wealth).
    Baharav and Tse (2019), "Ultra fast medoid identification via correlated sequential halving"
    (why common examples).
"""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.betting import EVEN, LowerBound, Odds, Wager, bet_grid

_FEW = 12  # draws up to which pushing one by one is faster than a vector
_FINE = 2.0**-11  # to which a shortfall is rounded upwards


class PairedSequences:
    """E-processes and intervals for differences of row means on common examples.

    Args:
        n_rows: K >= 0.
        n_examples: N >= 1, size of the population; all of one shared order.
        alpha: probability with which the best row may ever be beaten, in (0, 1).
        margin: in [0, 1). The hypothesis that a wager attacks is "mean of a <= mean of b - margin";
            a positive margin lets rows go that are better by less.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> pairs = PairedSequences(2, 40, alpha=0.05)
        >>> for example in range(25):
        ...     pairs.push(0, example, 1.0, 1.0)
        ...     pairs.push(1, example, 0.0, 0.0)
        >>> pairs.beaten_by(0)
        array([False,  True])
    """

    def __init__(self, n_rows: int, n_examples: int, alpha: float, margin: float = 0.0) -> None:
        if not 0.0 < alpha < 1.0:
            raise ValueError(f"alpha must be in (0, 1), got {alpha}")
        if not 0.0 <= margin < 1.0:
            raise ValueError(f"margin must be in [0, 1), got {margin}")
        self._size = n_examples
        self._enough = max(1, n_rows - 1) / alpha
        self._null = (1.0 - margin) / 2.0
        self._bets = bet_grid(n_examples, 1.0 / self._enough)
        self._order = array("q")  # the shared order, as far as the longest row has come
        self._odds = array("d")  # ratio and most of every place in it
        self._taken = bytearray(n_examples)
        self._low = [array("d") for _ in range(n_rows)]
        self._high = [array("d") for _ in range(n_rows)]
        self._length = np.zeros(n_rows, dtype=np.int64)
        self._duels: dict[int, _Duels] = {}

    def push(self, row: int, example: int, low: float, high: float, odds: Odds = EVEN) -> None:
        """Feed the row's next value along the shared order, known to lie in [low, high].

        The row that comes first to a place in the order says which example stands there, and with
        which ``odds`` it was drawn among those that were left.

        Raises:
            ValueError: not 0 <= low <= high <= 1, or the example is not the order's next one.
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
        """Say which rows ``leader`` is shown to beat.

        Args:
            leader: the row that is thought to be the best.
            among: (K,) rows to look at; None means all. Fewer rows cost less.

        Returns:
            (K,) mask, within ``among``; a row once in it stays in it.
        """
        duels = self._duels_of(leader)
        common = np.minimum(self._length, self._length[leader])
        due = (common > duels.n) & (duels.highest < self._enough)
        if among is not None:
            due &= among
        due[leader] = False
        for other in np.flatnonzero(due).tolist():
            self._catch_up(leader, other)
        beaten: NDArray[np.bool_] = duels.highest >= self._enough
        return beaten if among is None else beaten & among

    def wealth(self, better: int, worse: int) -> float:
        """Return the e-value for "``better`` beats ``worse``" on all common examples, >= 0."""
        return self._catch_up(better, worse).wealth

    def shortfall(self, leader: int, other: int, least: float = 0.0) -> float:
        """Bound by how much ``other`` may be better than ``leader``, at the level of decisions.

        As with ``beaten_by``, all such bounds against the best row hold together, at all times,
        with probability at least 1 - ``alpha``: so the leader is within the largest of them of the
        best row, whoever leads.

        Args:
            leader: the row that is thought to be the best.
            other: a row to compare it with.
            least: in [0, 1), a bound that is good enough; it saves work.

        Returns:
            The bound in [``least``, 1], rounded upwards.
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
        """Bound the mean of row ``a`` minus that of row ``b``, at level ``alpha`` at all times.

        Made for reports: it replays the common prefix, at some microseconds per example.

        Returns:
            Lower and upper end, in [-1, 1].

        Raises:
            ValueError: ``alpha`` outside (0, 1).
        """
        return self._least_difference(a, b, alpha / 2), -self._least_difference(b, a, alpha / 2)

    def _catch_up(self, better: int, worse: int) -> Wager:
        """Feed a pair's wager what came since, and note its highest wealth on the way.

        By Ville's inequality the highest wealth is as good as the last one.
        """
        duels = self._duels_of(better)
        wager = duels.wagers.get(worse) or Wager(self._null, self._bets, self._size)
        duels.wagers[worse] = wager
        stop = int(min(self._length[better], self._length[worse]))
        fresh, odds = self._differences(better, worse, wager.n, stop), self._odds_of(wager.n, stop)
        highest = wager.wealth
        if len(fresh) > _FEW:
            highest = max(highest, wager.climb(fresh, odds))
        else:
            for value, (ratio, most) in zip(fresh.tolist(), odds.tolist(), strict=True):
                wager.push(value, Odds(ratio, most))
                highest = max(highest, wager.wealth)
        duels.n[worse] = stop
        duels.highest[worse] = max(highest, float(duels.highest[worse]))
        return wager

    def _excludes(self, lead: float, draws: NDArray[np.float64], odds: NDArray[np.float64]) -> bool:
        """Whether the second row is shown not to be better by ``lead`` or more."""
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
        """The least that (1 + x_a - x_b) / 2 can be at places start..stop-1 of the order."""
        low = np.array(self._low[a][start:stop])
        high = np.array(self._high[b][start:stop])
        return np.asarray((1.0 + low - high) / 2.0)

    def _odds_of(self, start: int, stop: int) -> NDArray[np.float64]:
        """(n, 2) odds of places start..stop-1 of the order."""
        return np.array(self._odds[2 * start : 2 * stop]).reshape(-1, 2)

    def _duels_of(self, row: int) -> _Duels:
        if row not in self._duels:
            self._duels[row] = _Duels(len(self._length))
        return self._duels[row]

    def _append(self, example: int, odds: Odds) -> None:
        if not 0 <= example < self._size:
            raise ValueError(f"example must be in 0..{self._size - 1}, got {example}")
        if self._taken[example]:
            raise ValueError(f"example {example} has its place in the shared order already")
        self._taken[example] = 1
        self._order.append(example)
        self._odds.extend(odds)


class _Duels:
    """What is known of one row's duels with the others."""

    __slots__ = ("highest", "n", "wagers")

    def __init__(self, n_rows: int) -> None:
        self.wagers: dict[int, Wager] = {}
        self.n: NDArray[np.int64] = np.zeros(n_rows, dtype=np.int64)  # common examples counted in
        self.highest: NDArray[np.float64] = np.zeros(n_rows)  # wealth at any time so far
