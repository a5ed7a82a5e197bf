"""Confidence sequences over a score table, fed in ask order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import BoolArray, Bounds, FloatArray, State
from bestarm_agent.stats.intervals.betting_bounds import EVEN, Odds
from bestarm_agent.stats.intervals.confidence_sequences import PopulationSequences

_PENDING, _VOID = int(State.PENDING), int(State.VOID)


def even_odds(_example: int) -> Odds:
    """Return the odds of an example that was drawn uniformly."""
    return EVEN


class AskOrderIntervals:
    """Intervals of every candidate's mean, jointly valid at every time (union bound).

    A candidate's scores enter in the order of asking, as far as all of them are told: in order of
    completion they would be biased whenever wrong answers take longer. A void trial is unknown for
    good and enters as anything in [0, 1].

    Args:
        generations: numbers of examples that joined together, in random order within each: strata.
        confidence: joint level in (0, 1); None leaves every interval at [0, 1], at no cost.
        odds: gives those of an example that was asked, among those left of its generation.
    """

    def __init__(
        self,
        table: ScoreTable,
        generations: Sequence[int],
        confidence: float | None,
        odds: Callable[[int], Odds] = even_odds,
    ) -> None:
        n_rows = table.n_candidates
        self._table = table
        self._odds = odds
        self._prefix = [0] * n_rows  # trials already fed in, per row
        self._sequences: PopulationSequences | None = None
        self.lower: FloatArray = np.zeros(n_rows)
        self.upper: FloatArray = np.ones(n_rows)
        if confidence is not None:
            alpha = (1 - confidence) / max(1, n_rows)
            self._sequences = PopulationSequences(n_rows, generations, alpha)
            self.lower, self.upper = self._sequences.lower, self._sequences.upper
            for row in range(n_rows):
                self.advance(row)

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """(K,) lower and (K,) upper ends, in [0, 1]; views, not to be written."""
        return self.lower, self.upper

    def advance(self, row: int) -> None:
        """Feed in the trials of a row that are told, up to the first pending one."""
        if self._sequences is None:
            return
        table, seqs = self._table, self._table.row(row)
        state, scores = table.state, table.score
        at = self._prefix[row]
        while at < len(seqs) and (known := state[seqs[at]]) != _PENDING:
            score = float(scores[seqs[at]])
            low, high = (0.0, 1.0) if known == _VOID else (score, score)
            example = int(table.example[seqs[at]])
            self._push(row, example, low, high, self._odds(example))
            at += 1
        self._prefix[row] = at

    def asked(self, row: int) -> None:
        """Note that a row is asked for its next example."""

    @property
    def awaited(self) -> int | None:
        """Return a row without whose next example nothing more can be shown; None here."""
        return None

    def rivals(self, best: int, bounds: Bounds, out: BoolArray) -> BoolArray:
        """(K,) mask of the rows that may be better than the ``best`` of all, for all that is shown.

        Rows that are ``out`` (K,) do not compete; ``bounds`` are (K,) lower and upper ends.
        """
        return self.pair_rivals(best, bounds, out)

    def pair_rivals(self, one: int, bounds: Bounds, out: BoolArray) -> BoolArray:
        """(K,) mask of the rows whose interval reaches that of any ``one``."""
        lower, upper = bounds
        reach: BoolArray = (upper >= lower[one]) & ~out
        reach[one] = False
        return reach

    def lag(self, best: int, bounds: Bounds, out: BoolArray, enough: float = 0.0) -> float:
        """Bound how far the leading row is below the best, in [0, 1].

        Below ``enough`` the bound need not be close.
        """
        return self.margin(best, bounds, out)

    def margin(self, one: int, bounds: Bounds, out: BoolArray) -> float:
        """Bound how far any ``one`` row is below the best, in [0, 1]."""
        lower, upper = bounds
        rivals = self.pair_rivals(one, bounds, out)
        return float((upper - lower[one]).max(initial=0.0, where=rivals))

    def _push(self, row: int, example: int, low: float, high: float, odds: Odds) -> None:
        if self._sequences is not None:
            self._sequences.push(row, example, low, high, odds)
