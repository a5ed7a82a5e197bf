"""Intervals and comparisons in pairs, for candidates that share one order of the examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bestarm_agent.selectors.intervals import AskOrderIntervals, even_odds
from bestarm_agent.selectors.table import ScoreTable
from bestarm_agent.selectors.types import BoolArray, FloatArray
from bestarm_agent.stats.betting import Odds
from bestarm_agent.stats.paired import PairedSequences


class PairedIntervals(AskOrderIntervals):
    """Every candidate's interval, and who beats whom on the examples that both have seen.

    What makes an example hard for all candidates cancels in differences, so two candidates are told
    apart long before their intervals are. The error probability is halved: one half for all
    intervals, one for all pairs. So everything stated holds together at ``confidence``.

    Scores enter as in ``AskOrderIntervals``; a candidate's trials in ask order are then the first
    of the shared order, whatever is in flight. Candidates that join later take the same order from
    its beginning. Examples that join after the first ask fall anywhere in the order, which is then
    no longer one random order of all: pairs are given up and the intervals get the whole error
    probability.

    A candidate that somebody wrote after looking at scores is compared on the very examples that
    it was made for; no order drawn beforehand can make up for that.

    Args:
        table: what was asked and told so far; each candidate asked along one shared order that was
            drawn without regard to any score, uniformly or with the ``odds``.
        generations: numbers of examples that joined together.
        confidence: joint level in (0, 1); None states nothing, at no cost.
        odds: how an example that was asked was drawn among those left of its generation.
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
        """Which of the (K,) candidates ``among`` the leader is shown to beat on common examples.

        Where intervals contradict a pair, they win: of two rows known in full they are exact.
        """
        if self._pairs is None:
            return super().beaten_by(leader, among)
        return self._pairs.beaten_by(leader, among & (self.lower < self.upper[leader]))

    def margin(self, leader: int, among: BoolArray, bounds: FloatArray) -> float:
        """How far the leader can be below the best of the (K,) candidates ``among``, in [0, 1].

        ``bounds`` (K,) says how far it can be below each; pairs may know better.
        """
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
