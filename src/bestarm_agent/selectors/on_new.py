"""Bounds for examples that nobody has asked, drawn like those of the study.

Statement (C) of ``answer``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np

from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import Problem, State
from bestarm_agent.stats.arrays import BoolArray, IntArray
from bestarm_agent.stats.betting import early_bets, lower_bounds
from bestarm_agent.stats.new_examples import SHARE_OF_TEST, Leads
from bestarm_agent.stats.paired_sequences import PairedSequences


class OnNewExamples:
    """Bounds of means and leads on new examples, all valid at all times.

    Args:
        problem: the task.
        table: everything asked and told.
        pairs: the candidates on common examples; None where they share no order.
        barred: (K,) candidates that left the competition; may change.
    """

    def __init__(
        self, problem: Problem, table: ScoreTable, pairs: PairedSequences | None, barred: BoolArray
    ) -> None:
        self._problem, self._table, self._pairs, self._barred = problem, table, pairs, barred
        self._means: dict[int, tuple[int, tuple[float, float]]] = {}  # by the number of outcomes

    @property
    def n_independent(self) -> int:
        """Return the number of examples that do not depend on each other; draws count once."""
        return len(self._problem.independent) or self._table.n_examples // self._problem.draws

    @property
    def alpha(self) -> float:
        """Return the error probability of "ahead of all others on new examples", in (0, 1)."""
        return SHARE_OF_TEST * (1.0 - self._problem.confidence)

    def rivals(self, candidate: int) -> list[int]:
        """Return the others that may be better than a candidate on new examples.

        Those that left the competition are not among them.
        """
        is_rival = ~self._barred
        is_rival[candidate] = False
        rivals: list[int] = np.flatnonzero(is_rival).tolist()
        if self._pairs is None or self._barred.any():
            leads = self._least_leads(candidate, rivals)
            return [other for other, least in zip(rivals, leads, strict=True) if least <= 0.0]
        behind = self.proved_behind(self._pairs, candidate)
        return [other for other in rivals if not behind[other]]

    def proved_behind(self, pairs: PairedSequences, candidate: int) -> BoolArray:
        """Return a (K,) mask of those proved to be behind it, or not the best, on new ones.

        Whoever leads may be known by examples of the cluster whose turn it is: with clusters,
        candidates meet in fixed pairs.
        """
        fed(pairs, self._table)
        if self._problem.independent:
            return pairs.beaten_on_new(candidate, self.alpha)
        return pairs.rejected_on_new(self.alpha)

    def behind(self, candidate: int) -> float:
        """Bound how far a candidate is behind the best of the others on new examples, in [0, 1].

        0 if it is proved to be ahead of them all.
        """
        rivals = np.array(self.rivals(candidate), dtype=np.int64)
        if self._pairs is None or self._barred.any():
            return max([0.0, *(-least for least in self._least_leads(candidate, rivals.tolist()))])
        bound = self._pairs.lag_on_new
        if self._problem.independent:
            bound = self._pairs.shortfall_on_new
        return bound(candidate, rivals, self.alpha)

    def leads_over(self, candidate: int, others: Sequence[int]) -> Leads:
        """Return what is seen of one candidate's leads over others, in their order."""
        rows = np.array(others, dtype=np.int64)
        if self._pairs is None:
            means = np.nan_to_num(self._table.mean())
            n = np.minimum(self._table.n_scored, self.n_independent)
            return Leads.by_means(
                (float(means[candidate]), int(n[candidate])), means[rows], n[rows]
            )
        return Leads.by_sums(*fed(self._pairs, self._table).common_sums(candidate, rows))

    def _least_leads(self, candidate: int, others: Sequence[int]) -> list[float]:
        """Return the lower bound that ``lead`` has for each of the others."""
        if self._pairs is not None:
            return [self.lead(candidate, other)[0] for other in others]
        least, _ = self.mean(candidate)
        return [least - most for _, most in self.means(np.array(others, dtype=np.int64))]

    def lead(self, candidate: int, other: int) -> tuple[float, float]:
        """Bound the lead of one candidate over another on new examples, in [-1, 1].

        The bounds of all pairs hold together, at all times.
        """
        if self._pairs is None:
            (lower, upper), (least, most) = self.mean(candidate), self.mean(other)
            return lower - most, upper - least
        # All pairs together, as which one is asked about is not known beforehand; the other part of
        # the error probability belongs to the proof that one is ahead of all.
        n_pairs = max(1, comb(self._table.n_candidates, 2))
        alpha = (1.0 - SHARE_OF_TEST) * (1.0 - self._problem.confidence) / n_pairs
        return fed(self._pairs, self._table).difference(candidate, other, alpha, on_new=True)

    def mean(self, candidate: int) -> tuple[float, float]:
        """Bound a candidate's mean on new examples; the bounds of all hold together."""
        [bounds] = self.means(np.array([candidate]))
        return bounds

    def means(self, candidates: IntArray) -> list[tuple[float, float]]:
        """Return what ``mean`` bounds of some candidates.

        Worked out again only for those of whom more is told.
        """
        table, n_drawn = self._table, self._table.n_examples // self._problem.draws
        n_told = (table.n_trials - table.count(State.PENDING)).tolist()
        rows = candidates.tolist()
        late = [row for row in rows if self._means.get(row, (0, ()))[0] != n_told[row]]
        lows, gaps = dict.fromkeys(late, np.empty(0)), dict.fromkeys(late, np.empty(0))
        start = np.zeros_like(table.n_trials)
        for row, examples, low, high in table.told_since(start, np.array(late, dtype=np.int64)):
            lows[row], gaps[row] = low, 1.0 - high
            if self._problem.draws > 1 or self._problem.independent:
                columns, first = np.unique(examples % n_drawn, return_index=True)
                if self._problem.independent:
                    first = first[np.isin(columns, self._problem.independent)]
                first = np.sort(first)  # of each example, one draw
                lows[row], gaps[row] = low[first], gaps[row][first]
        if late:
            alpha = (1.0 - self._problem.confidence) / table.n_candidates / 2
            bets = early_bets(table.n_examples, alpha)
            lower, upper = (
                lower_bounds(list(side.values()), alpha, None, bets) for side in (lows, gaps)
            )
            ends = zip(lower.tolist(), (1.0 - upper).tolist(), strict=True)
            for row, bounds in zip(lows, ends, strict=True):
                self._means[row] = n_told[row], bounds
        return [self._means[row][1] if row in self._means else (0.0, 1.0) for row in rows]


def fed(pairs: PairedSequences, table: ScoreTable, rows: IntArray | None = None) -> PairedSequences:
    """Let the paired sequences have what is told of some rows, by default of all; return them."""
    for row, examples, low, high in table.told_since(pairs.length, rows):
        pairs.extend(row, examples, low, high)
    return pairs
