"""The examples of a gate in the order in which they are first asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Agenda:
    """A common list of examples that the candidates walk along.

    It depends on what was asked alone, so a log that is replayed leads to the same list.

    Args:
        parts: examples of each part, in the order in which they count there.
        n_rows: number of candidates.
    """

    def __init__(self, parts: Sequence[Sequence[int]], n_rows: int) -> None:
        self._parts = parts
        self._listed: list[int] = []
        self._known = set[int]()
        self._reach = [0] * len(parts)  # all examples of a part before it are listed
        self._place = [0] * n_rows  # on the list; all before it are asked, or were not needed
        self._asked: list[set[int]] = [set() for _ in range(n_rows)]

    def __len__(self) -> int:
        return len(self._listed)

    def note(self, row: int, example: int) -> None:
        """Note that a candidate was asked for an example."""
        self._asked[row].add(example)
        if example not in self._known:
            self._known.add(example)
            self._listed.append(example)

    def place_of(self, row: int) -> int:
        """Return how far a candidate has come, as of the last ``next_of``."""
        return self._place[row]

    def reach(self, part: int) -> int:
        """Return the number of a part's examples from its first on that are listed."""
        examples, at = self._parts[part], self._reach[part]
        while at < len(examples) and examples[at] in self._known:
            at += 1
        self._reach[part] = at
        return at

    def next_of(self, row: int, needs: Callable[[int], bool], parts: Sequence[int]) -> int | None:
        """Return the next listed example that a candidate needs, or a new one; or None.

        A new one is the next of the part among ``parts`` that has come least far.
        """
        listed, asked, at = self._listed, self._asked[row], self._place[row]
        while at < len(listed) and (listed[at] in asked or not needs(listed[at])):
            at += 1
        self._place[row] = at
        if at < len(listed):
            return listed[at]
        left = [part for part in parts if self.reach(part) < len(self._parts[part])]
        if not left:
            return None
        part = min(left, key=self.reach)
        return self._parts[part][self.reach(part)]

    def restart(self) -> None:
        """Let every candidate look at the whole list again, since more is needed now."""
        self._place = [0] * len(self._place)
