"""Proofs about the means over all N examples.

Statements (A) and (B) of ``answer``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bestarm_agent.selectors.on_new import OnNewExamples, fed
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import Problem, State
from bestarm_agent.stats.arrays import BoolArray, FloatArray, IntArray
from bestarm_agent.stats.betting import MeanIntervals
from bestarm_agent.stats.control import Controls
from bestarm_agent.stats.paired_sequences import PairedSequences

_SLACK = 1e-9  # of means that are equal but for rounding
_FURTHER = 1.6  # times the examples that are worth asking to prove a lead on new ones, too


class Proofs:
    """Who may still be better than a candidate, and by how much, over all N examples.

    Args:
        problem: the task.
        table: everything asked and told.
        pairs: the candidates on common examples, with (A) at alpha and the fixed pairs of (B).
        on_new: what is said of new examples.
        barred: (K,) candidates that left the competition; may change.
        alpha: of the intervals (B) of all means together; None: no intervals.
        controls: of what past candidates scored, where that helps the intervals.
    """

    def __init__(
        self,
        problem: Problem,
        table: ScoreTable,
        pairs: PairedSequences | None,
        on_new: OnNewExamples,
        barred: BoolArray,
        alpha: float | None,
        controls: Controls | None = None,
    ) -> None:
        self._problem, self._table, self._pairs, self._barred = problem, table, pairs, barred
        self._on_new = on_new
        # Of examples that were drawn by scores, only what is certain can be said.
        self._is_biased = alpha is None and problem.track_intervals
        self._intervals = MeanIntervals(table.n_candidates, table.n_examples, alpha)
        self._controls = None if alpha is None else controls
        self._rivals: tuple[int, BoolArray] | None = None  # of the leading one, by (A)

    def forget(self) -> None:
        """Work out who may be better than the leading one again: scores came in."""
        self._rivals = None

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Return the (K,) ends of the intervals (B), brought up to date; not to be written."""
        if self._is_biased:
            return self._table.certain()
        trials = self._table.told_since(self._intervals.length)
        if self._controls is None:
            self._intervals.extend_all((row, low, high) for row, _, low, high in trials)
        else:
            self._controls.extend(self._intervals, trials)
        return self._intervals.lower, self._intervals.upper

    def undecided(self, best: Sequence[int]) -> Iterator[tuple[int, BoolArray]]:
        """Yield each of the best, and a (K,) mask of the others that it is not proved to beat."""
        for candidate in best:
            if len(best) == 1:
                rivals = self.rivals_of_leader(candidate)
            else:
                rivals = self.rivals_of_any(candidate, self._barred)
            rivals[best] = False
            yield candidate, rivals

    def may_change(self, best: list[int]) -> bool:
        """Tell whether more scores may part one of the best from a rival.

        The complete rivals of a complete candidate stay as good as it.
        """
        table = self._table
        # Two rows that are complete have exact means: if they are equal they stay equal, and no
        # score can part them. A rival that may still get scores can.
        growing = (table.n_unseen > 0) | (table.count(State.PENDING) > 0)  # more scores may come
        return any(
            bool((rivals if growing[candidate] else rivals & growing).any())
            for candidate, rivals in self.undecided(best)
        )

    def rivals_of_leader(self, leader: int) -> BoolArray:
        """Return a (K,) mask of those who may be better than the leading one, by (A)."""
        if self._pairs is None or self._barred.any():
            return self.rivals_of_any(leader, self._barred)
        # Kept until a score comes in or another one leads: an ask alone changes nothing here.
        if self._rivals is None or self._rivals[0] != leader:
            pairs = fed(self._pairs, self._table)
            least, most = self._table.certain()
            if self._problem.for_new:
                rivals = ~self._on_new.proved_behind(pairs, leader)
            else:
                beaten = pairs.rejected()
                rivals = ~beaten | self._nearly_proved(pairs, beaten)
                rivals &= most >= least[leader] - _SLACK
            rivals[leader] = False
            self._rivals = leader, rivals
        return self._rivals[1]

    def _nearly_proved(self, pairs: PairedSequences, beaten: BoolArray) -> BoolArray:
        """(K,) mask of the ``beaten`` whom a few more examples prove to be behind on new ones.

        Where few more examples may do, these are asked: users ask about new ones.
        """
        if not (self._problem.ends_level and beaten.any()):
            return np.full(len(beaten), False)
        # The wealth grows about exponentially, so its logarithm grows like the number of examples:
        # a row at the share p of what is enough takes about 1 / p times the examples. Where 1.6
        # times do, and there are as many, the run goes on a little and can speak of new examples,
        # too.
        progress = pairs.progress_on_new(self._on_new.alpha, beaten)
        is_near = beaten & (progress < 1.0) & (_FURTHER * progress >= 1.0)
        return np.asarray(is_near & (_FURTHER * pairs.length <= self._table.n_examples))

    def rivals_of_any(self, candidate: int, out: BoolArray) -> BoolArray:
        """Return a (K,) mask of those not ``out`` who may be better than any candidate, by (B).

        Where intervals contradict a pair, they win: of two rows known in full they are exact.
        """
        lower, upper = self.bounds()
        # Pairs are looked at only where the intervals leave the question undecided, as each costs a
        # wealth.
        rivals: BoolArray = (upper >= lower[candidate]) & ~out
        rivals[candidate] = False
        if self._pairs is None:
            return rivals
        pairs = fed(self._pairs, self._table)
        return rivals & ~pairs.beaten_by(candidate, rivals & (lower < upper[candidate]))

    def gap_of_leader(self, leader: int, enough: float = 0.0) -> float:
        """Bound how far the leading one is below the best, by (A).

        With ``enough`` > 0 it only matters whether the bound is above that.
        """
        if self._pairs is None or self._barred.any():
            return self.gap_of_any(leader, self._barred)
        least, most = self._table.certain()
        rivals, gaps = self.rivals_of_leader(leader), most - least[leader]
        return _largest(self._pairs.lag, leader, rivals, gaps, enough)

    def gap_of_any(self, candidate: int, out: BoolArray) -> float:
        """Bound how far any candidate is below the best of those not ``out``, by (B)."""
        lower, upper = self.bounds()
        rivals, gaps = self.rivals_of_any(candidate, out), upper - lower[candidate]
        if self._pairs is None:
            return float(gaps.max(initial=0.0, where=rivals))
        return _largest(self._pairs.shortfall, candidate, rivals, gaps)

    def are_within(self, gap: float, best: list[int]) -> bool:
        """Tell whether each of the best is proved to be at most ``gap`` below all others."""
        if len(best) == 1:
            return self.gap_of_leader(best[0], gap) <= gap
        out = self._barred.copy()
        out[best] = True
        return all(self.gap_of_any(candidate, out) <= gap for candidate in best)


def _largest(
    bound: Callable[[int, IntArray, float, FloatArray], float],
    leader: int,
    among: BoolArray,
    bounds: FloatArray,
    enough: float = 0.0,
) -> float:
    """Return the largest bound of those ``among``, none above its (K,) ``bounds``.

    At least ``enough``.
    """
    others = np.flatnonzero(among & (bounds > max(_SLACK, enough)))
    return float(bound(leader, others, enough, bounds[others]))
