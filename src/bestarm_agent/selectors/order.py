"""One random order of the examples that all candidates share."""

from __future__ import annotations

import numpy as np

from bestarm_agent.selectors.table import ScoreTable
from bestarm_agent.selectors.types import IntArray, State
from bestarm_agent.stats.keyed import KeyedRandom

_UNSEEN = int(State.UNSEEN)


class SharedOrder:
    """A random order of the examples, fixed before any score is seen.

    Candidates that follow it are compared on common examples: what makes an example hard for all
    of them cancels in the differences. Every example has a random rank; a candidate's next example
    is its unseen one of the lowest rank, so examples that join later fall anywhere in the order.

    Args:
        table: whose examples are put in order; may grow.
        seed: >= 0.

    Example:
        >>> order = SharedOrder(ScoreTable(2, 3), seed=0)
        >>> order.next_of(0) == order.next_of(1)
        True
    """

    def __init__(self, table: ScoreTable, seed: int) -> None:
        self._table = table
        self._random = KeyedRandom(seed, "shared-order")
        self._ranks = np.empty(0)
        self.grow()

    def grow(self) -> None:
        """Take in the examples and candidates that joined the table."""
        n_known = len(self._ranks)
        n_new = self._table.n_examples - n_known
        new = self._random.at(n_known).random(n_new)
        self._ranks = np.concatenate([self._ranks, new])
        self._order: IntArray = np.argsort(self._ranks, kind="stable")
        self._places: IntArray = np.argsort(self._order)
        self._at = [0] * self._table.n_candidates  # all before it are seen, per candidate

    @property
    def places(self) -> IntArray:
        """(N,) place of every example in the order, from 0; a view, not to be written."""
        return self._places

    def next_of(self, candidate: int) -> int:
        """Return the candidate's next example.

        Raises:
            ValueError: the candidate has no unseen example left.
        """
        row, at = self._table.cells[candidate], self._at[candidate]
        while at < len(row) and row[self._order[at]] != _UNSEEN:
            at += 1
        self._at[candidate] = at
        if at == len(row):
            raise ValueError(f"candidate {candidate} has no unseen example left")
        return int(self._order[at])
