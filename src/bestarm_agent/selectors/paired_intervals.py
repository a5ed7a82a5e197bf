"""Intervals and comparisons in pairs, for candidates that share one order of the examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bestarm_agent.selectors.ask_order_intervals import AskOrderIntervals, even_odds
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import BoolArray, FloatArray
from bestarm_agent.stats.intervals.betting_bounds import Odds
from bestarm_agent.stats.intervals.paired_sequences import PairedSequences


class PairedIntervals(AskOrderIntervals):
    """Every candidate's interval, and which one beats which on the examples that both have seen.

    What makes an example hard for all candidates cancels in differences, so two candidates are told
    apart long before their intervals are. All must be asked along one shared order that was drawn
    without regard to any score. The error probability is halved, one half for all intervals and one
    for all pairs, so everything stated holds together at ``confidence``.

    Candidates that join later take the same order from its beginning. Examples that join after the
    first ask fall anywhere in the order, which is then no longer one random order of all: pairs are
    given up and the intervals get the whole error probability. A candidate that was written after
    looking at scores is compared on the very examples that it was made for; no order drawn
    beforehand can make up for that.
    """

    def __init__(
        self,
        table: ScoreTable,
        generations: Sequence[int],
        confidence: float | None,
        odds: Callable[[int], Odds] = even_odds,
    ) -> None:
        self._pairs: PairedSequences | None = None
        if confidence is not None and len(generations) == 1:
            alpha = (1 - confidence) / 2
            self._pairs = PairedSequences(table.n_candidates, table.n_examples, alpha)
            confidence = 1 - alpha
        super().__init__(table, generations, confidence, odds)

    def beaten_by(self, leader: int, among: BoolArray) -> BoolArray:
        """(K,) mask of those ``among`` that the leader is shown to beat on common examples.

        Where intervals contradict a pair, they win: of two rows known in full they are exact.
        """
        if self._pairs is None:
            return super().beaten_by(leader, among)
        return self._pairs.beaten_by(leader, among & (self.lower < self.upper[leader]))

    def margin(self, leader: int, among: BoolArray, bounds: FloatArray) -> float:
        """Bound as the base class does, and by pairs where they know better."""
        if self._pairs is None:
            return super().margin(leader, among, bounds)
        margin = 0.0
        for other in (among & (bounds > 0)).nonzero()[0].tolist():
            if bounds[other] > margin:
                margin = min(bounds[other], self._pairs.shortfall(leader, other, margin))
        return float(margin)

    def _push(self, row: int, example: int, low: float, high: float, odds: Odds) -> None:
        super()._push(row, example, low, high, odds)
        if self._pairs is not None:
            self._pairs.push(row, example, low, high, odds)
