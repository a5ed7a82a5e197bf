"""Sets of rows, stored as ranges: thousands of candidates of one model are few numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rows:
    """A set of rows; iterating yields them in ascending order."""

    ranges: tuple[tuple[int, int], ...] = ()  # (first, last) of each, ascending, not adjacent

    @classmethod
    def of(cls, rows: Iterable[int]) -> Rows:
        """Collect rows that are given in ascending order.

        Example:
            >>> Rows.of([1, 2, 3, 7]).ranges
            ((1, 3), (7, 7))
        """
        ranges: list[tuple[int, int]] = []
        for row in rows:
            if ranges and row == ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], row)
            else:
                ranges.append((row, row))
        return cls(tuple(ranges))

    def __iter__(self) -> Iterator[int]:
        for first, last in self.ranges:
            yield from range(first, last + 1)

    def __bool__(self) -> bool:
        return bool(self.ranges)


NO_ROWS = Rows()
