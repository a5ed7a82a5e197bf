"""Proofs: who may still be better than a candidate, and by how much.

Statements (A) and (B) of ``answer``, about the means over all N examples, are those of ``Proofs``;
(C), about examples that nobody has asked, drawn like those of the study, are ``OnNewExamples``.
Both rest on one ``Evidence``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from bestarm_agent.selectors.score_table import ScoreTable, by_row
from bestarm_agent.selectors.types import Problem, State
from bestarm_agent.stats.arrays import BoolArray, FloatArray, IntArray
from bestarm_agent.stats.betting import MeanIntervals, early_bets, lower_bounds
from bestarm_agent.stats.control import Controls
from bestarm_agent.stats.new_examples import SHARE_OF_TEST, Leads
from bestarm_agent.stats.paired_sequences import PairedSequences

_SLACK = 1e-9  # of means that are equal but for rounding
_FURTHER = 1.6  # times the examples that are worth asking to prove a lead on new ones, too


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Evidence on the candidates, on which all proofs rest."""

    problem: Problem
    table: ScoreTable
    pairs: PairedSequences | None  # on common examples; None where candidates share no order
    barred: BoolArray  # (K,) candidates that left the competition; may change

    @property
    def race(self) -> PairedSequences | None:
        """The pairs, unless somebody left: it may have been the best that the leaders met."""
        return None if self.barred.any() else self.pairs

    def feed(self, pairs: PairedSequences, rows: IntArray | None = None) -> PairedSequences:
        """Let the pairs have what is told of some rows, by default of all; return them."""
        pairs.extend(*self.table.told_since(pairs.length, rows))
        return pairs


class OnNewExamples:
    """Bounds of means and leads on new examples, all valid at all times."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence, self._problem, self._table = evidence, evidence.problem, evidence.table
        # (K, 2) bounds of the means, and (K,) the number of outcomes that they rest on
        self._means = np.tile([0.0, 1.0], (self._table.n_candidates, 1))
        self._n_told = np.zeros_like(self._table.n_trials)

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
        is_rival = ~self._evidence.barred
        is_rival[candidate] = False
        if (pairs := self._evidence.race) is not None:
            is_rival &= ~self._evidence.feed(pairs).rejected_on_new(candidate, self.alpha)
        else:
            is_rival[is_rival] = self._least_leads(candidate, np.flatnonzero(is_rival)) <= 0.0
        rivals: list[int] = np.flatnonzero(is_rival).tolist()
        return rivals

    def behind(self, candidate: int) -> float:
        """Bound how far a candidate is behind the best of the others on new examples, in [0, 1].

        0 if it is proved to be ahead of them all.
        """
        rivals = np.array(self.rivals(candidate), dtype=np.int64)
        if (pairs := self._evidence.race) is None:
            return float((-self._least_leads(candidate, rivals)).max(initial=0.0))
        return pairs.lag_on_new(candidate, rivals, self.alpha)

    def leads_over(self, candidate: int, others: Sequence[int]) -> Leads:
        """Return what is seen of one candidate's leads over others, in their order."""
        rows = np.array(others, dtype=np.int64)
        if (pairs := self._evidence.pairs) is not None:
            return Leads.by_sums(*self._evidence.feed(pairs).common_sums(candidate, rows))
        means = np.nan_to_num(self._table.mean())
        n = np.minimum(self._table.n_scored, self.n_independent)
        return Leads.by_means((float(means[candidate]), int(n[candidate])), means[rows], n[rows])

    def _least_leads(self, candidate: int, others: IntArray) -> FloatArray:
        """Return the lower bound that ``lead`` has for each of the others."""
        if self._evidence.pairs is not None:
            return np.array([self.lead(candidate, other)[0] for other in others.tolist()])
        least, _ = self.mean(candidate)
        return np.asarray(least - self._bounds(others)[:, 1])

    def lead(self, candidate: int, other: int) -> tuple[float, float]:
        """Bound the lead of one candidate over another on new examples, in [-1, 1].

        The bounds of all pairs hold together, at all times.
        """
        if (pairs := self._evidence.pairs) is None:
            (lower, upper), (least, most) = self.mean(candidate), self.mean(other)
            return lower - most, upper - least
        # All pairs together, as which one is asked about is not known beforehand; the other part of
        # the error probability belongs to the proof that one is ahead of all.
        n_pairs = max(1, comb(self._table.n_candidates, 2))
        alpha = (1.0 - SHARE_OF_TEST) * (1.0 - self._problem.confidence) / n_pairs
        return self._evidence.feed(pairs).difference(candidate, other, alpha, on_new=True)

    def mean(self, candidate: int) -> tuple[float, float]:
        """Bound a candidate's mean on new examples; the bounds of all hold together."""
        lower, upper = self._bounds(np.array([candidate]))[0].tolist()
        return lower, upper

    def _bounds(self, rows: IntArray) -> FloatArray:
        """Return the (n, 2) bounds of the means of different rows.

        Worked out again only for those of which more is told.
        """
        table = self._table
        n_told = table.n_trials - table.count(State.PENDING)
        late = rows[self._n_told[rows] != n_told[rows]]
        if len(late):
            values = {row: (np.empty(0), np.empty(0)) for row in late.tolist()}
            told = table.told_since(np.zeros_like(n_told), late)
            for row, examples, low, high in by_row(told):
                counted = self._counted(examples)
                values[row] = low[counted], 1.0 - high[counted]
            alpha = (1.0 - self._problem.confidence) / table.n_candidates / 2
            bets = early_bets(table.n_examples, alpha)
            lows, gaps = zip(*values.values(), strict=True)
            self._means[late, 0] = lower_bounds(lows, alpha, None, bets)
            self._means[late, 1] = 1.0 - lower_bounds(gaps, alpha, None, bets)
            self._n_told[late] = n_told[late]
        return np.asarray(self._means[rows])

    def _counted(self, examples: IntArray) -> IntArray | slice:
        """Return the places, among some examples in the order of asking, of those that count.

        Of several draws of one example it is the first; of a cluster its independent example.
        """
        problem = self._problem
        if problem.draws == 1 and not problem.independent:
            return slice(None)
        n_drawn = self._table.n_examples // problem.draws
        drawn, first = np.unique(examples % n_drawn, return_index=True)
        if problem.independent:
            first = first[np.isin(drawn, problem.independent)]
        return np.sort(first)


class Proofs:
    """Who may still be better than a candidate, and by how much, over all N examples.

    What is said of the leading one alone rests on (A), unless somebody has left; what is said of
    any other, or of a set of the best, on (B).

    Args:
        evidence: of it, pairs have (A) at alpha and the fixed pairs of (B).
        on_new: what is said of new examples.
        alpha: of the intervals (B) of all means together; None: no intervals.
        controls: of what past candidates scored, where that helps the intervals.
    """

    def __init__(
        self,
        evidence: Evidence,
        on_new: OnNewExamples,
        alpha: float | None,
        controls: Controls | None = None,
    ) -> None:
        self._evidence, self._on_new = evidence, on_new
        self._problem, self._table = evidence.problem, evidence.table
        # Of examples that were drawn by scores, only what is certain can be said.
        self._is_biased = alpha is None and self._problem.track_intervals
        self._intervals = MeanIntervals(self._table.n_candidates, self._table.n_examples, alpha)
        self._controls = None if alpha is None else controls
        self._rivals: tuple[int, BoolArray] | None = None  # of the leading one, by (A)
        self._a_rival = 0  # one that ``may_change`` found

    def forget(self) -> None:
        """Work out who may be better than the leading one again: scores came in."""
        self._rivals = None

    def bounds(self, rows: IntArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Return the (K,) ends of the intervals (B); not to be written.

        Those of ``rows``, by default of all, are brought up to date.
        """
        if self._is_biased:
            return self._table.certain()
        trials = by_row(self._table.told_since(self._intervals.length, rows))
        if self._controls is None:
            self._intervals.extend_all((row, low, high) for row, _, low, high in trials)
        else:
            self._controls.extend(self._intervals, trials)
        return self._intervals.lower, self._intervals.upper

    def undecided(self, best: Sequence[int]) -> Iterator[tuple[int, BoolArray]]:
        """Yield each of the best, and a (K,) mask of the others that it is not proved to beat."""
        return ((candidate, self.rivals(candidate, best)) for candidate in best)

    def may_change(self, best: Sequence[int]) -> bool:
        """Tell whether more scores may part one of the best from a rival.

        The complete rivals of a complete candidate stay as good as it.
        """
        table = self._table
        # Two rows that are complete have exact means: if they are equal they stay equal, and no
        # score can part them. A rival that may still get scores can.
        growing = (table.n_unseen > 0) | (table.count(State.PENDING) > 0)  # more scores may come
        every = np.arange(len(growing))
        for candidate in best:
            # One rival is enough, and the last one that was found most often still is: of it and
            # the candidate alone the intervals are brought up to date first.
            two = np.array([*{candidate, self._a_rival}])
            for rows in (every,) if self._evidence.pairs is not None else (two, every):
                open_rows = self.rivals(candidate, best, rows) & (growing | growing[candidate])
                if len(found := rows[open_rows[rows]]):
                    self._a_rival = int(found[0])
                    return True
        return False

    def rivals(
        self, candidate: int, best: Sequence[int] = (), rows: IntArray | None = None
    ) -> BoolArray:
        """Return a (K,) mask of those who may be better than a candidate; not to be written.

        Neither one of the ``best``, among which it may be, nor any that left is in it. Where
        intervals contradict a pair, they win: of two rows known in full they are exact. ``rows``
        are those for which it matters, the candidate among them; by default all.
        """
        if (pairs := self._race(candidate, best)) is not None:
            return self._rivals_of_leader(pairs, candidate)
        lower, upper = self.bounds(rows)
        rivals: BoolArray = (upper >= lower[candidate]) & ~self._evidence.barred
        rivals[[candidate, *best]] = False
        if (pairs := self._evidence.pairs) is None:
            return rivals
        # Pairs are looked at only where the intervals leave the question undecided, as each costs a
        # wealth.
        is_open = rivals & (lower < upper[candidate])
        return rivals & ~self._evidence.feed(pairs).beaten_by(candidate, is_open)

    def gap(self, candidate: int, best: Sequence[int] = (), enough: float = 0.0) -> float:
        """Bound how far a candidate is below the best of its ``rivals``.

        With ``enough`` > 0 it only matters whether the bound is above that.
        """
        rivals, race = self.rivals(candidate, best), self._race(candidate, best)
        least, most = self.bounds() if race is None else self._table.certain()
        gaps = most - least[candidate]
        if (pairs := self._evidence.pairs) is None:
            return float(gaps.max(initial=0.0, where=rivals))
        bound, enough = (pairs.shortfall, 0.0) if race is None else (race.lag, enough)
        others = np.flatnonzero(rivals & (gaps > max(_SLACK, enough)))
        return bound(candidate, others, enough, gaps[others])

    def are_within(self, gap: float, best: Sequence[int]) -> bool:
        """Tell whether each of the best is proved to be at most ``gap`` below all others."""
        return all(self.gap(candidate, best, gap) <= gap for candidate in best)

    def _race(self, candidate: int, best: Sequence[int]) -> PairedSequences | None:
        """Return the pairs where (A) speaks of a candidate, as the leading one; else None."""
        return self._evidence.race if [*best] == [candidate] else None

    def _rivals_of_leader(self, pairs: PairedSequences, leader: int) -> BoolArray:
        # Kept until a score comes in or another one leads: an ask alone changes nothing here.
        if self._rivals is None or self._rivals[0] != leader:
            self._evidence.feed(pairs)
            least, most = self._table.certain()
            if self._problem.for_new:
                rivals = ~pairs.rejected_on_new(leader, self._on_new.alpha)
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
