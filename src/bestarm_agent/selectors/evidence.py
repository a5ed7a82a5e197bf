"""Evidence about the candidates of a rule: estimates, intervals, the best, its rivals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bestarm_agent.selectors.ask_order_intervals import AskOrderIntervals
from bestarm_agent.selectors.paired_intervals import PairedIntervals
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import (
    Belief,
    BoolArray,
    Bounds,
    Estimates,
    FloatArray,
    Guarantee,
    IntArray,
    Problem,
    State,
    Stop,
    Verdict,
)
from bestarm_agent.stats.intervals.betting_bounds import Odds
from bestarm_agent.stats.keyed_random import KeyedRandom

_SHARE_NEW = 0.02  # of the scores, between two reviews


class Evidence:
    """Estimates, intervals and comparisons, all at ``problem.confidence``.

    ``odds_of`` gives the odds of an example that was asked. There are intervals only if the
    examples are drawn without regard to scores (``exogenous``), and comparisons in pairs only if
    candidates share one order of them (``paired``).

    Attributes:
        barred: (K,) candidates that left the competition for a reason that is not their scores.
        tie_ranks: (K,) random numbers in [0, 1) that put equals in order.
        good_enough: why the run may stop though the best is not established, as of the last
            review; else None.
        presumed_order: the candidates by a recent ranking, best first, or None. A rule whose belief
            is expensive may set it: what that order leaves undecided counts as not settled.
    """

    def __init__(
        self,
        problem: Problem,
        table: ScoreTable,
        belief: Callable[[], Belief],
        odds_of: Callable[[int], Odds],
        *,
        exogenous: bool,
        paired: bool,
    ) -> None:
        self._problem, self._table = problem, table
        self._belief, self._odds_of = belief, odds_of
        self._exogenous, self._paired = exogenous, paired
        self._ties = KeyedRandom(problem.seed, "ties")
        self.barred: BoolArray = np.empty(0, dtype=np.bool_)
        self.tie_ranks: FloatArray = np.empty(0)
        self.generations: list[int] = []
        self.presumed_order: IntArray | None = None
        self.good_enough: Stop | None = None
        self._intervals = AskOrderIntervals(table, (), None)
        self.restart()

    def restart(self) -> None:
        """Begin new intervals, over all rows and columns that the table has now."""
        n_old, n_new = len(self.barred), self._table.n_candidates - len(self.barred)
        self.barred = np.concatenate([self.barred, np.full(n_new, False)])
        self.tie_ranks = np.concatenate([self.tie_ranks, self._ties.at(n_old).random(n_new)])
        if joined := self._table.n_examples - sum(self.generations):
            self.generations.append(joined)
        tracked = self._problem.track_intervals and self._exogenous
        level = self._problem.confidence if tracked else None
        given = (self._table, self.generations, level, self._odds_of)
        self._intervals = (
            PairedIntervals(*given, self._intervals) if self._paired else AskOrderIntervals(*given)
        )
        self._settled: bool | None = None  # None: to be worked out again
        self._next_review = 0  # number of scores

    def asked(self, candidate: int) -> None:
        """Note that a candidate is asked for its next example."""
        self._intervals.asked(candidate)

    def advance(self, candidate: int) -> None:
        """Extend a candidate's interval with the trials that are told up to the first pending."""
        self._settled = None
        self._intervals.advance(candidate)

    def bar(self, candidates: list[int]) -> None:
        """Take candidates out of the competition."""
        self.barred[candidates] = True
        self._settled = None

    def estimates(self) -> Estimates:
        """Return point estimates and intervals of every candidate's mean over all N examples."""
        belief = self._belief()
        lower, upper = self._bounds(belief)
        return Estimates(
            mean=np.clip(belief.mean, 0.0, 1.0),
            lower=lower.copy(),
            upper=upper.copy(),
            n=self._table.n_scored,
            pending=self._table.count(State.PENDING).copy(),
            void=self._table.count(State.VOID).copy(),
            guarantee=self._guarantee(belief),
            confidence=self._problem.confidence,
        )

    def best(self) -> Verdict:
        """Name the candidate with the highest estimate, and those it is not shown to beat.

        Raises ValueError if there is no candidate.
        """
        belief = self._belief()
        order = self._ranked(belief)
        self._check_any(order)
        tied = np.flatnonzero(self._rivals(order[0], self._bounds(belief)))
        return Verdict(
            best=order[0],
            tied=tuple(tied.tolist()),
            runner_up=order[1] if len(order) > 1 else None,
            separated=not len(tied),
            confidence=self._problem.confidence,
            guarantee=self._guarantee(belief),
            probability=self._probability(order[0], belief),
        )

    def margin(self, candidate: int | None = None) -> float:
        """Bound how far a candidate, by default the leading one, is from the best, in [0, 1].

        Statements about the leading candidate hold together with those of ``best``, at all times;
        statements about any number of given candidates with the intervals. Raises ValueError if
        there is no candidate.
        """
        belief = self._belief()
        self._check_any(belief.mean)
        bounds = self._bounds(belief)
        if candidate is None:
            best, within = self._ranked(belief)[0], self._problem.within
            gap = self._intervals.lag(best, bounds, self.barred)
            if within is not None and gap > within and self._is_within(within, [best], belief):
                return within  # bounds are rounded upwards
            return gap
        return self._intervals.margin(candidate, bounds, self.barred)

    def ranking(self) -> list[int]:
        """Return the candidates by falling estimate, ties in random order.

        Those without an estimate come after the others, and the barred ones last.
        """
        return self._ranked(self._belief())

    def rivals(self, best: int) -> BoolArray:
        """(K,) mask of the candidates that ``best`` is not shown to beat."""
        return self._rivals(best, self._bounds(self._belief()))

    def contenders(self, order: IntArray | list[int], top_k: int) -> BoolArray:
        """(K,) mask of those whose scores can still show that the first ``top_k`` are the best."""
        field = self._undecided(list(order), top_k, self._intervals.bounds)
        if field.any() and self._intervals.awaited is not None:
            field[self._intervals.awaited] = True
        return field

    @property
    def awaited(self) -> int | None:
        """Return the candidate without whose next score nothing more can be shown, if any."""
        return self._intervals.awaited

    def is_separated(self, top_k: int) -> bool:
        """Tell whether the first ``top_k`` are shown to beat all others."""
        belief = self._belief()
        return not self._undecided(self._ranked(belief), top_k, self._bounds(belief)).any()

    def is_settled(self, top_k: int) -> bool:
        """Tell whether no more scores are needed to name the best ``top_k``.

        Only valid intervals may say so, and only if the problem asks to stop.
        """
        if not self._problem.stop_when_separated or self._table.n_candidates == 0:
            return False
        if self._settled is None:
            self._settled = self._works_out_settled(top_k)
        return self._settled

    def review(self, top_k: int) -> None:
        """See whether the best is good enough to stop, whenever 2 % more scores are in."""
        problem = self._problem
        if problem.within is None or (n := int(self._table.n_scored.sum())) < self._next_review:
            return
        self._next_review = n + max(1, int(_SHARE_NEW * n))
        belief, self.good_enough = self._belief(), None
        order = self._ranked(belief)
        if self._is_within(problem.within, order[:top_k], belief):
            self.good_enough = Stop.WITHIN

    def _is_within(self, gap: float, chosen: list[int], belief: Belief) -> bool:
        """Tell whether each of the ``chosen`` is shown to be at most ``gap`` below all others."""
        bounds = self._bounds(belief)
        if self._guarantee(belief) is Guarantee.HEURISTIC:
            return False
        if len(chosen) == 1:
            return self._intervals.lag(chosen[0], bounds, self.barred, gap) <= gap
        out = self.barred.copy()
        out[chosen] = True
        return all(self._intervals.margin(one, bounds, out) <= gap for one in chosen)

    def _works_out_settled(self, top_k: int) -> bool:
        if not (self._exogenous or self._is_exact()):
            return False
        presumed, bounds = self.presumed_order, self._intervals.bounds
        if presumed is not None and self._may_change(presumed.tolist(), top_k, bounds):
            return False
        belief = self._belief()
        if self._guarantee(belief) is Guarantee.HEURISTIC:
            return False
        return not self._may_change(self._ranked(belief), top_k, self._bounds(belief))

    def _voids_may_decide(self, best: int, mean: FloatArray) -> bool:
        """Tell whether void pairs could change which candidate is best, by the (K,) ``mean``.

        That is so if ``best``, its void pulls scored 0, would fall below another candidate, its
        void pulls scored 1. One with void pulls only could have any mean.
        """
        share, mean = self._table.void_share, np.nan_to_num(mean, nan=0.0)
        lowest, highest = mean[best] * (1.0 - share[best]), mean + share * (1.0 - mean)
        ahead = (highest > lowest) & (share + share[best] > 0.0) & ~self.barred
        ahead[best] = False
        return bool(ahead.any())

    def _probability(self, best: int, belief: Belief) -> float | None:
        """Return the model's probability that ``best`` is best; None if that is not to be known."""
        has_rival = np.count_nonzero(~self.barred) > 1
        if belief.chance is None or not has_rival or self._voids_may_decide(best, belief.mean):
            return None
        return belief.chance(best)

    def _bounds(self, belief: Belief) -> Bounds:
        return self._intervals.bounds if belief.bounds is None else belief.bounds

    def _is_exact(self) -> bool:
        missing = (self._table.n_scored < self._table.n_examples) & ~self.barred
        return not missing.any()

    def _guarantee(self, belief: Belief) -> Guarantee:
        if self._is_exact():
            return Guarantee.EXACT
        is_valid = self._exogenous and belief.bounds is None
        return Guarantee.ANYTIME_VALID if is_valid else Guarantee.HEURISTIC

    def _ranked(self, belief: Belief) -> list[int]:
        means = np.nan_to_num(belief.mean, nan=-np.inf)
        tier = np.zeros(len(means)) if belief.tier is None else belief.tier
        order: list[int] = np.lexsort((self.tie_ranks, -means, tier, self.barred)).tolist()
        return order

    def _rivals(self, best: int, bounds: Bounds) -> BoolArray:
        return self._intervals.rivals(best, bounds, self.barred)

    def _rivals_of_set(self, one: int, top_k: int, bounds: Bounds) -> BoolArray:
        """(K,) mask of those whom ``one`` of ``top_k`` is not shown to beat."""
        if top_k == 1:
            return self._rivals(one, bounds)
        return self._intervals.pair_rivals(one, bounds, self.barred)

    def _undecided(self, order: list[int], top_k: int, bounds: Bounds) -> BoolArray:
        """(K,) mask of the first ``top_k`` with a rival among the others, and of these rivals."""
        field = np.full(self._table.n_candidates, False)
        for one in order[:top_k]:
            rivals = self._rivals_of_set(one, top_k, bounds)
            rivals[order[:top_k]] = False
            field |= rivals
            field[one] |= rivals.any()
        return field

    def _may_change(self, order: list[int], top_k: int, bounds: Bounds) -> bool:
        """Tell whether more scores may part one of the first ``top_k`` from a rival.

        The complete rivals of a complete candidate stay as good as it.
        """
        chosen, others = order[:top_k], order[top_k:]
        complete = (self._table.n_unseen == 0) & (self._table.count(State.PENDING) == 0)
        for one in chosen if others else ():
            rivals = self._rivals_of_set(one, top_k, bounds)
            if (rivals & ~complete if complete[one] else rivals)[others].any():
                return True
        return False

    def _check_any(self, candidates: Sequence[int] | FloatArray) -> None:
        if not len(candidates):
            raise ValueError("there is no candidate to choose from; add one first")
