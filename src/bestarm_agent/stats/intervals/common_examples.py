"""Values of many rows on the examples of one shared order, and who leads at every place of it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.arrays import FloatArray
from bestarm_agent.stats.intervals.betting_bounds import EVEN, Odds

LEADERS = -1  # stands for the committed leaders where a row is expected


class CommonExamples:
    """Rows that take the examples in one shared order, each as far as it has come.

    A leader is committed for every place when it is first asked of any row: the row of the highest
    mean among those that were asked all places before. No score of that place is known then.

    Args:
        n_examples: N >= 1, size of the population; all of one shared order.
        leaders: rows that were committed for the first places, where examples were asked before.
    """

    def __init__(self, n_rows: int, n_examples: int, leaders: Sequence[int] = ()) -> None:
        self._size = n_examples
        self._order = array("q")  # the shared order, as far as the longest row has come
        self._odds = array("d")  # ratio and most of every place in it
        self._taken = bytearray(n_examples)
        self._low = [array("d", [0.0]) for _ in range(n_rows)]  # sums of the first values
        self._high = [array("d", [0.0]) for _ in range(n_rows)]
        self._length = np.zeros(n_rows, dtype=np.int64)
        self._asked = np.zeros(n_rows, dtype=np.int64)
        self._total = np.zeros(n_rows)
        self._leaders = array("q", leaders)  # one per place
        self._led = array("d")  # the leader's sums before and after each place, where known

    @property
    def leaders(self) -> array[int]:
        """Return the row that was committed for every place; not to be changed."""
        return self._leaders

    @property
    def awaited(self) -> int | None:
        """Return the leader without which the wealths wait, if it was not asked; else None."""
        place = self._n_led()
        if place == len(self._leaders):
            return None
        leader = self._leaders[place]
        return leader if self._asked[leader] <= place else None

    def ask(self, row: int) -> None:
        """Note that a row is asked for its next value; commit a leader if it is the first there."""
        place = int(self._asked[row])
        if place == len(self._leaders):
            mean = np.where(self._asked == place, (self._total + 0.5) / (self._length + 1), -1.0)
            self._leaders.append(row if mean[row] >= mean.max() else int(mean.argmax()))
        self._asked[row] = place + 1

    def push(self, row: int, example: int, low: float, high: float, odds: Odds = EVEN) -> None:
        """Feed the row's next value along the shared order, known to lie in [low, high].

        The first row to come to a place of the order sets its example, and the ``odds`` with which
        it was drawn among those left. A row that was not asked is asked now. Raises ValueError if
        the example is not the order's next one.
        """
        if not 0.0 <= low <= high <= 1.0:  # NaN fails this too
            raise ValueError(f"0 <= low <= high <= 1 must hold, got low={low}, high={high}")
        place = int(self._length[row])
        if place == len(self._order):
            self._append(example, odds)
        elif self._order[place] != example:
            raise ValueError(
                f"row {row} must take example {self._order[place]} next, as the rows before it, "
                f"got {example}; paired sequences need one shared order"
            )
        if place == self._asked[row]:
            self.ask(row)
        self._low[row].append(self._low[row][-1] + low)
        self._high[row].append(self._high[row][-1] + high)
        self._length[row] = place + 1
        self._total[row] += low

    def n_known(self, opponent: int) -> int:
        """Return the number of places from the first at which an opponent's value is known."""
        return self._n_led() if opponent == LEADERS else int(self._length[opponent])

    def draws(
        self, opponent: int, rows: NDArray[np.int64], start: int, stop: int
    ) -> tuple[FloatArray, FloatArray, tuple[FloatArray, FloatArray]]:
        """Return the (rows, places) values x_t of ``rows``, sums before them, and their odds.

        x_t = (1 + the opponent's value - the row's) / 2, at the least that is possible.

        The ratio is (rows, places), 0 where a row would meet itself; most is (places,).
        """
        ratio, most = np.array(self._odds[2 * start : 2 * stop]).reshape(-1, 2).T
        high = np.array([self._high[row][start : stop + 1] for row in rows.tolist()])
        if opponent == LEADERS:
            before, after = np.array(self._led[2 * start : 2 * stop]).reshape(-1, 2).T
            leaders = np.array(self._leaders[start:stop])
            ratio = np.where(leaders == rows[:, None], 0.0, ratio)
        else:
            sums = np.array(self._low[opponent][start : stop + 1])
            before, after = sums[:-1], sums[1:]
            ratio = np.broadcast_to(ratio, (len(rows), stop - start))
        values = (1.0 + (after - before) - np.diff(high)) / 2.0
        drawn = (np.arange(start, stop) + before - high[:, :-1]) / 2.0
        return np.clip(values, 0.0, 1.0), drawn, (ratio, most)

    def _n_led(self) -> int:
        """Return the number of places from the first whose leaders' values are known."""
        place = len(self._led) // 2
        while place < len(self._leaders) and self._length[self._leaders[place]] > place:
            self._led.extend(self._low[self._leaders[place]][place : place + 2])
            place += 1
        return place

    def _append(self, example: int, odds: Odds) -> None:
        if not 0 <= example < self._size:
            raise ValueError(f"example must be in 0..{self._size - 1}, got {example}")
        if self._taken[example]:
            raise ValueError(f"example {example} has its place in the shared order already")
        self._taken[example] = 1
        self._order.append(example)
        self._odds.extend(odds)
