"""Scores of many rows along one order of the examples, a prefix per row, and sums over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from bestarm_agent.stats.arrays import FloatArray, IntArray

Block: TypeAlias = tuple[IntArray, FloatArray]  # rows of one length, their values (rows, length)


class PrefixRows:
    """Rows that each hold a prefix of one shared order, with holes.

    A hole (a pending, void or skipped cell) holds a guess, so that sums over a prefix can include
    it. ``length`` (K,) are the places each row has come to.

    Example:
        >>> rows = PrefixRows(2)
        >>> rows.put(0, 1, 1.0, guess=0.5)
        >>> rows.values(0)
        array([0.5, 1. ])
    """

    def __init__(self, n_rows: int) -> None:
        self._values = [np.zeros(16) for _ in range(n_rows)]
        self._holes: list[set[int]] = [set() for _ in range(n_rows)]
        self.length: IntArray = np.zeros(n_rows, dtype=np.int64)

    def open(self, row: int, place: int, guess: float = 0.0) -> None:
        """Extend a row to ``place``; the new places are holes that hold ``guess``."""
        length = int(self.length[row])
        if place < length:
            return
        # At least doubled, so that a row that grows one by one is copied seldom.
        if place >= len(self._values[row]):
            longer = np.zeros(max(place + 1, 2 * len(self._values[row])))
            longer[:length] = self._values[row][:length]
            self._values[row] = longer
        self._values[row][length : place + 1] = guess
        self._holes[row].update(range(length, place + 1))
        self.length[row] = place + 1

    def put(self, row: int, place: int, value: float, guess: float = 0.0) -> None:
        """Set a value; if that extends the row, skipped places hold ``guess``."""
        self.open(row, place, guess)
        self._values[row][place] = value
        self._holes[row].discard(place)

    def fill(self, row: int, guess: Callable[[IntArray], FloatArray]) -> None:
        """Update the guesses in a row's holes, given their places."""
        if not self._holes[row]:
            return
        places = np.array(sorted(self._holes[row]), dtype=np.int64)
        self._values[row][places] = guess(places)

    def blocks(self, rows: IntArray) -> list[Block]:
        """Group rows of the same length, shortest first, with copies of their values."""
        if not len(rows):
            return []
        # Sums over rows of one length are products of dense matrices. A stable order adds the same
        # numbers in the same order in every process.
        order = np.argsort(self.length[rows], kind="stable")
        ordered = rows[order]
        ends = np.flatnonzero(np.diff(self.length[ordered])) + 1
        blocks = []
        for who in np.split(ordered, ends):
            size = int(self.length[who[0]])
            values = np.concatenate([self._values[row][:size] for row in who.tolist()])
            blocks.append((who, values.reshape(len(who), size)))
        return blocks

    def values(self, row: int) -> FloatArray:
        """Return the row's prefix; a view, not to be written."""
        return self._values[row][: self.length[row]]


def weighted_sum(blocks: Sequence[Block], weight: FloatArray, reach: int) -> FloatArray:
    """Return the (reach,) sums over the rows of some blocks of weight (K,) times value."""
    total = np.zeros(reach)
    for rows, values in blocks:
        total[: values.shape[1]] += weight[rows] @ values
    return total
