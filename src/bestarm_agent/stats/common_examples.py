"""Values of rows along one shared order of the examples, each row as far as it has come.

What ``paired_sequences`` tests: the draws x_t, the sums before them, and who leads at each place.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import numpy as np

from bestarm_agent.stats.arrays import BoolArray, FloatArray, IntArray
from bestarm_agent.stats.betting import check_ranges

LEADERS = -1  # stands for the committed leaders where a row is expected
_BLOCK = 1 << 20  # numbers that are worked out at a time


class CommonExamples:
    """The values of K rows on the examples that they have in common.

    Rows take the examples in one shared order, each as far as it has come. A leader is committed
    for every place when it is first asked of any row: the row of the highest mean among those that
    were asked all places before, as far as ``extend`` has told it. No score of that place is known
    then.

    Args:
        n_rows: K >= 0.
        n_examples: N >= 1, size of the population; all of one shared order.
        leaders: rows that were committed for the first places, where examples were asked before.
        draws: columns of one example: j, j + N / draws, ... are draws of one.
        independent: the examples that are bet on for new ones; all, if empty.

    Attributes:
        asked: (K,) places that every row was asked; not to be written.
        length: (K,) places whose values are known; not to be written.
        leaders: row that was committed for every place; not to be changed.
        size: N.
    """

    def __init__(
        self,
        n_rows: int,
        n_examples: int,
        leaders: Sequence[int],
        draws: int,
        independent: Sequence[int],
    ) -> None:
        self.asked: IntArray = np.zeros(n_rows, dtype=np.int64)
        self.length: IntArray = np.zeros(n_rows, dtype=np.int64)
        self.leaders = array("q", leaders)
        self.size = n_examples
        self._order = array("q")  # the shared order, as far as the longest row has come
        self._taken = bytearray(n_examples)
        # Examples of which a draw has its place, or of which none is to be bet on. The first draw
        # of an example is bet on for new examples, and no other. Where examples come in clusters,
        # all but the independent ones are marked from the start, and so are never the first.
        self._met = bytearray([bool(independent)]) * (n_examples // draws)
        for example in independent:
            self._met[example] = 0
        self.n_independent = len(independent) or len(self._met)
        self._first = bytearray()  # of every place of the order: whether it is their first
        # Running sums instead of values: a wealth needs the sum before a place at every place (2),
        # and the value is the difference of two neighbouring sums. Two of them, as a value that
        # could not be measured enters each hypothesis at the end that speaks against it.
        self._low = [array("d", [0.0]) for _ in range(n_rows)]  # sums of the first values
        self._high = [array("d", [0.0]) for _ in range(n_rows)]
        self._led = array("d")  # the leader's sums before and after each place, where known

    @property
    def front(self) -> IntArray:
        """Return the rows that were asked all places so far: one of them leads at the next."""
        return np.flatnonzero(self.asked == len(self.leaders))

    @property
    def awaited(self) -> int | None:
        """Return the leader without which the wealths wait, if it was not asked; else None."""
        place = self.n_led()
        if place == len(self.leaders):
            return None
        leader = self.leaders[place]
        return leader if self.asked[leader] <= place else None

    def commits(self, rows: IntArray) -> BoolArray:
        """Mark (n,) those that commit a leader, if these rows are asked one after the other."""
        # Each row's own place: those that it was asked, and its earlier ones among these.
        order = np.argsort(rows, kind="stable")
        starts = np.searchsorted(rows[order], rows[order])
        place = np.empty(len(rows), dtype=np.int64)
        place[order] = self.asked[rows[order]] + np.arange(len(rows)) - starts
        n_led = np.maximum.accumulate(np.concatenate([[len(self.leaders)], place + 1]))
        return np.asarray(place == n_led[:-1])

    def ask(self, row: int) -> None:
        """Note that a row is asked for its next value; commit a leader if it is the first there."""
        # The leader is chosen here and not when the first score of the place comes in: (2) holds
        # for an opponent that is chosen before any score of the place is known, and only then.
        # Means are shrunk towards 1/2 by one score, so that rows without scores have one. Of equals
        # the asked row itself leads: its score comes soonest, and without the leader's score no
        # wealth moves on (``awaited``).
        if self.asked[row] == len(self.leaders):
            front = self.front
            totals = np.array([self._low[rival][-1] for rival in front.tolist()])
            means = (totals + 0.5) / (self.length[front] + 1)
            best = int(front[means.argmax()])
            self.leaders.append(row if means[front == row] >= means.max() else best)
        self.asked[row] += 1

    def extend(
        self, row: int | IntArray, examples: IntArray, low: FloatArray, high: FloatArray
    ) -> None:
        """Take the next values of a row, or of (n,) rows, known to lie in [low, high].

        They come along the shared order. The first row to come to a place of it sets its example. A
        row that was not asked is asked now.

        Raises:
            ValueError: an example is not the order's next one, or a range is not within [0, 1].
        """
        check_ranges(low, high)
        columns = np.full(len(low), row), examples, low, high
        for mine, example, least, most in zip(*(c.tolist() for c in columns), strict=True):
            lows, highs = self._low[mine], self._high[mine]
            place = len(lows) - 1
            if place == len(self._order):
                self._append(example)
            elif self._order[place] != example:
                raise ValueError(
                    f"row {mine} must take example {self._order[place]} next, as the rows before "
                    f"it, got {example}; paired sequences need one shared order"
                )
            if place == self.asked[mine]:
                self.ask(mine)
            lows.append(lows[-1] + least)
            highs.append(highs[-1] + most)
            self.length[mine] = place + 1

    def common_sums(self, a: int, others: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
        """Sum up the values of row ``a`` minus those of each of ``others``, as far as both go.

        Of each example the first draw counts, with the middle of its range. Returns (k,) sums, (k,)
        sums of squares, and their (k,) numbers.
        """
        stops = np.minimum(self.length[a], self.length[others])
        total, squares = np.zeros((2, len(others)))
        n: IntArray = np.zeros(len(others), dtype=np.int64)
        for part, stop in in_step(stops):
            first = self._firsts(0, stop)
            own, its = (
                (
                    np.diff(_block(self._low, rows, 0, stop))
                    + np.diff(_block(self._high, rows, 0, stop))
                )[:, first]
                for rows in (np.array([a]), others[part])
            )
            middle = (own - its) / 2.0
            total[part], squares[part] = middle.sum(axis=1), (middle**2).sum(axis=1)
            n[part] = first.sum()
        return total, squares, n

    def places_led(self, leader: int) -> BoolArray:
        """Return a (places,) mask of those at which a row leads."""
        return np.asarray(np.frombuffer(self.leaders, dtype=np.int64) == leader)

    def n_known(self, opponent: int) -> int:
        """Return the number of places from the first at which an opponent's value is known."""
        return self.n_led() if opponent == LEADERS else int(self.length[opponent])

    def draws_of(
        self, opponent: int, rows: IntArray, start: int, stop: int, *, on_new: bool
    ) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Return the (rows, places) values x_t of ``rows``, sums before them, and where they lead.

        x_t = (1 + the opponent's value - the row's) / 2, at the least that is possible. Where a row
        leads it would meet itself, and nothing is bet; nor, ``on_new``, on later draws.
        """
        # The least possible x: the opponent's value enters at its low end and the row's at its high
        # end. Both sums that follow are taken at the same ends, as D in (2) belongs to the values
        # bet on.
        high = _block(self._high, rows, start, stop)
        if opponent == LEADERS:
            before, after = np.array(self._led[2 * start : 2 * stop]).reshape(-1, 2).T
            idle = np.array(self.leaders[start:stop]) == rows[:, None]
        else:
            sums = np.array(self._low[opponent][start : stop + 1])
            before, after = sums[:-1], sums[1:]
            idle = np.full((len(rows), stop - start), False)
        if on_new:
            idle = idle | ~self._firsts(start, stop)
        values = (1.0 + (after - before) - np.diff(high)) / 2.0
        drawn = (np.arange(start, stop) + before - high[:, :-1]) / 2.0
        return np.clip(values, 0.0, 1.0), drawn, idle

    def _firsts(self, start: int, stop: int) -> BoolArray:
        return np.array(self._first[start:stop], dtype=np.bool_)

    def n_led(self) -> int:
        """Return the number of places from the first whose leaders' values are known."""
        # The leader changes from place to place, so its sums are kept beside each other, two for
        # each place: before it and after it. They end at the first place whose leader has no value
        # yet.
        place = len(self._led) // 2
        while place < len(self.leaders) and self.length[self.leaders[place]] > place:
            self._led.extend(self._low[self.leaders[place]][place : place + 2])
            place += 1
        return place

    def _append(self, example: int) -> None:
        if not 0 <= example < self.size:
            raise ValueError(f"example must be in 0..{self.size - 1}, got {example}")
        if self._taken[example]:
            raise ValueError(f"example {example} has its place in the shared order already")
        self._taken[example] = 1
        row = example % len(self._met)
        self._first.append(not self._met[row])
        self._met[row] = 1
        self._order.append(example)


def _block(sums: Sequence[array[float]], rows: IntArray, start: int, stop: int) -> FloatArray:
    """(rows, places + 1) sums before each place from ``start`` to ``stop``, and at the end."""
    parts: list[array[float] | memoryview] = [sums[row] for row in rows.tolist()]
    # most rows are looked at as far as they have come: a view of each would take longest here
    if start or sum(map(len, parts)) != len(parts) * (stop + 1):
        parts = [memoryview(part)[start : stop + 1] for part in parts]
    return np.frombuffer(b"".join(parts)).reshape(len(parts), -1)


def in_step(stops: IntArray, width: int = 1) -> Iterator[tuple[IntArray, int]]:
    """Yield places of those ``stops`` that are equal and above 0, in parts that fit the memory."""
    for stop in np.unique(stops[stops > 0]).tolist():
        alike = np.flatnonzero(stops == stop)
        step = max(1, _BLOCK // (stop * width))
        for start in range(0, len(alike), step):
            yield alike[start : start + step], stop
