"""One random order of the examples that all candidates share."""

from __future__ import annotations

import numpy as np

from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import FloatArray, IntArray, State
from bestarm_agent.stats.betting import Odds
from bestarm_agent.stats.keyed_random import KeyedRandom

_UNSEEN = int(State.UNSEEN)


class SharedOrder:
    """A random order of the examples, fixed before any score is seen.

    Candidates that follow it are compared on common examples: what makes an example hard for all
    of them cancels in the differences. A candidate's next example is its unseen one of the lowest
    rank, so examples that join later fall anywhere in the order. Ranks are exponential times at the
    examples' rates: of those left, each comes next with a chance proportional to its weight.

    Chances are right only if the draws have nothing to do with the weights. Weights learned from a
    run of the same seed do, so they need draws of their own, by another ``purpose``.

    Args:
        weights: (N,) how likely an example is to come early, > 0; None for all alike. Examples that
            join later have weight 1.

    Attributes:
        examples: (N,) in their order; not to be written.
        places: (N,) place of every example in the order, from 0; not to be written.
    """

    def __init__(
        self,
        table: ScoreTable,
        seed: int,
        weights: FloatArray | None = None,
        purpose: str = "shared-order",
    ) -> None:
        self._table = table
        self._random = KeyedRandom(seed, purpose)
        self._ranks = np.empty(0)
        self._odds = np.empty((0, 2))
        self.is_even = weights is None
        self._has_joined = False  # whether examples joined after the first ones
        self._join(np.ones(table.n_examples) if weights is None else weights)

    def grow(self) -> None:
        """Add the examples and candidates that joined the table."""
        self._join(np.ones(self._table.n_examples - len(self._ranks)))

    def _join(self, weights: FloatArray) -> None:
        self._has_joined = len(self._ranks) > 0 and (self._has_joined or len(weights) > 0)
        random = self._random.at(len(self._ranks)).random(len(weights))
        ranks = -np.log1p(-random) / weights
        self._odds = np.concatenate([self._odds, _odds_along(ranks, weights)])
        self._ranks = np.concatenate([self._ranks, ranks])
        self.examples: IntArray = np.argsort(self._ranks, kind="stable")
        self.places: IntArray = np.argsort(self.examples)
        self._at = [0] * self._table.n_candidates  # all before it are seen, per candidate

    def odds_of(self, example: int) -> Odds:
        """Return how an example is drawn when it comes next among those that joined with it."""
        ratio, most = self._odds[example].tolist()
        return Odds(ratio, most)

    def draw(self, candidate: int) -> tuple[int, float | None]:
        """Return the candidate's next example, and the chance with which it came next.

        The chance is None once examples have joined: it then depends on those passed over.
        """
        example = self.next_of(candidate)
        if self._has_joined:
            return example, None
        return example, 1.0 / (self._table.n_unseen_of(candidate) * float(self._odds[example, 0]))

    def next_of(self, candidate: int) -> int:
        """Return the candidate's next example; raise ValueError if none is left."""
        row, at = self._table.cells[candidate], self._at[candidate]
        while at < len(row) and row[self.examples[at]] != _UNSEEN:
            at += 1
        self._at[candidate] = at
        if at == len(row):
            raise ValueError(f"candidate {candidate} has no unseen example left")
        return int(self.examples[at])


def _odds_along(ranks: FloatArray, weights: FloatArray) -> FloatArray:
    """(n, 2) ratio and largest possible ratio of each when it comes next, by rising rank."""
    order = np.argsort(ranks, kind="stable")[::-1]  # from the last
    ordered = weights[order]
    mean_left = np.cumsum(ordered) / np.arange(1, len(order) + 1)
    least_left = np.minimum.accumulate(ordered)
    odds = np.empty((len(order), 2))
    odds[order] = np.column_stack([mean_left / ordered, mean_left / least_left])
    return odds
