"""Intervals and comparisons for candidates that share one order of the examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bestarm_agent.selectors.ask_order_intervals import AskOrderIntervals, even_odds
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import BoolArray, Bounds, FloatArray
from bestarm_agent.stats.intervals.betting_bounds import Odds
from bestarm_agent.stats.intervals.paired_sequences import PairedSequences

_SLACK = 1e-9  # of means that are equal but for rounding


class PairedIntervals(AskOrderIntervals):
    """Every candidate's interval, and comparisons on the examples that candidates have in common.

    What makes an example hard for all candidates cancels in differences, so two candidates are told
    apart long before their intervals are. All must be asked along one shared order that was drawn
    without regard to any score. Two statements are made, each at ``confidence``:

    - which candidate is the best, and how far the leading one may be behind (``rivals``,
      ``lag``);
    - all intervals and all fixed pairs together (``pair_rivals``, ``margin``), each with half of
      the error probability.

    Candidates that join later take the same order from its beginning; whoever led at a place stays
    its leader. Examples that join after the first ask fall anywhere in the order, which is then no
    longer one random order of all: comparisons are given up and the intervals get the whole error
    probability. A candidate that was written after looking at scores is compared on the very
    examples that it was made for; no order drawn beforehand can make up for that.

    Args:
        earlier: the object that this one replaces, where candidates joined.
    """

    def __init__(
        self,
        table: ScoreTable,
        generations: Sequence[int],
        confidence: float | None,
        odds: Callable[[int], Odds] = even_odds,
        earlier: AskOrderIntervals | None = None,
    ) -> None:
        self._pairs: PairedSequences | None = None
        if confidence is not None and len(generations) == 1:
            known = earlier.leaders if isinstance(earlier, PairedIntervals) else ()
            alpha = 1 - confidence
            self._pairs = PairedSequences(
                table.n_candidates, table.n_examples, alpha, pair_alpha=alpha / 2, leaders=known
            )
            for row in range(table.n_candidates):
                for _ in table.row(row):
                    self._pairs.ask(row)
            confidence = 1 - alpha / 2
        super().__init__(table, generations, confidence, odds)

    @property
    def leaders(self) -> Sequence[int]:
        """Return the row that was committed for every place so far."""
        return () if self._pairs is None else self._pairs.leaders

    def asked(self, row: int) -> None:
        """Note that a row is asked for its next example."""
        if self._pairs is not None:
            self._pairs.ask(row)

    @property
    def awaited(self) -> int | None:
        """Return the row without whose next example no row can be rejected, if there is one."""
        return None if self._pairs is None else self._pairs.awaited

    def rivals(self, best: int, bounds: Bounds, out: BoolArray) -> BoolArray:
        """(K,) mask of the rows that are not shown to be others than the best.

        Opponents that left the competition may have been better than the best of the others, so
        fixed pairs have to say it then.
        """
        if self._pairs is None or out.any():
            return self.pair_rivals(best, bounds, out)
        least, most = self._certain()
        rivals: BoolArray = ~self._pairs.rejected() & (most >= least[best] - _SLACK)
        rivals[best] = False
        return rivals

    def pair_rivals(self, one: int, bounds: Bounds, out: BoolArray) -> BoolArray:
        """(K,) mask of those whose interval reaches the one's, and whom no pair shows beaten.

        Where intervals contradict a pair, they win: of two rows known in full they are exact.
        """
        reach = super().pair_rivals(one, bounds, out)
        if self._pairs is None:
            return reach
        return reach & ~self._pairs.beaten_by(one, reach & (self.lower < self.upper[one]))

    def lag(self, best: int, bounds: Bounds, out: BoolArray, enough: float = 0.0) -> float:
        """Bound how far the leading row is below the best, together with ``rivals``."""
        if self._pairs is None or out.any():
            return self.margin(best, bounds, out)
        least, most = self._certain()
        gaps = most - least[best]
        return _largest(self._pairs.lag, best, self.rivals(best, bounds, out), gaps, enough)

    def margin(self, one: int, bounds: Bounds, out: BoolArray) -> float:
        """Bound as the base class does, and by pairs where they know better."""
        if self._pairs is None:
            return super().margin(one, bounds, out)
        lower, upper = bounds
        rivals = self.pair_rivals(one, bounds, out)
        return _largest(self._pairs.shortfall, one, rivals, upper - lower[one])

    def _certain(self) -> Bounds:
        """(K,) least and highest means that the scores seen leave possible."""
        table = self._table
        least = table.total / table.n_examples
        return least, least + 1.0 - table.n_scored / table.n_examples

    def _push(self, row: int, example: int, low: float, high: float, odds: Odds) -> None:
        super()._push(row, example, low, high, odds)
        if self._pairs is not None:
            self._pairs.push(row, example, low, high, odds)


def _largest(
    bound: Callable[[int, int, float], float],
    leader: int,
    among: BoolArray,
    bounds: FloatArray,
    largest: float = 0.0,
) -> float:
    """Return the largest bound of those ``among``, none above its (K,) ``bounds``."""
    for other in (among & (bounds > _SLACK)).nonzero()[0].tolist():
        if bounds[other] > largest:
            largest = min(bounds[other], bound(leader, other, largest))
    return float(largest)
