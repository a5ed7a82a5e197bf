"""Evidence about the candidates of a rule: estimates, intervals, the best, its rivals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bestarm_agent.selectors.ask_order_intervals import AskOrderIntervals
from bestarm_agent.selectors.paired_intervals import PairedIntervals
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import (
    BoolArray,
    Estimates,
    FloatArray,
    Guarantee,
    IntArray,
    Problem,
    State,
    Verdict,
)
from bestarm_agent.stats.intervals.betting_bounds import Odds
from bestarm_agent.stats.keyed_random import KeyedRandom

Bounds: TypeAlias = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """A rule's model-based estimates of its candidates.

    Attributes:
        bounds: (K,) lower and upper ends by the rule's model, used in place of the betting
            intervals; heuristic.
        chance: the model's probability that a candidate is the best; None if another's is higher.
    """

    mean: FloatArray  # (K,) point estimates; NaN where nothing is known
    bounds: Bounds | None = None
    tier: IntArray | None = None  # (K,) numbers that rank before the estimates, lowest first
    chance: Callable[[int], float | None] | None = None


class Evidence:
    """Estimates, intervals and comparisons, all at ``problem.confidence``.

    ``odds_of`` gives the odds of an example that was asked. There are intervals only if the
    examples are drawn without regard to scores (``exogenous``), and comparisons in pairs only if
    candidates share one order of them (``paired``).

    Attributes:
        barred: (K,) candidates that left the competition for a reason that is not their scores.
        tie_ranks: (K,) random numbers in [0, 1) that put equals in order.
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
        self.restart()

    def restart(self) -> None:
        """Begin new intervals, over all rows and columns that the table has now."""
        n_old, n_new = len(self.barred), self._table.n_candidates - len(self.barred)
        self.barred = np.concatenate([self.barred, np.full(n_new, False)])
        self.tie_ranks = np.concatenate([self.tie_ranks, self._ties.at(n_old).random(n_new)])
        if joined := self._table.n_examples - sum(self.generations):
            self.generations.append(joined)
        tracked = self._problem.track_intervals and self._exogenous
        kind = PairedIntervals if self._paired else AskOrderIntervals
        self._intervals = kind(
            self._table,
            self.generations,
            self._problem.confidence if tracked else None,
            self._odds_of,
        )
        self._settled: bool | None = None  # None: to be worked out again

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

        Under the guarantee of ``best``; statements about any number of candidates, at any times,
        hold together. Raises ValueError if there is no candidate.
        """
        belief = self._belief()
        self._check_any(belief.mean)
        one = self._ranked(belief)[0] if candidate is None else candidate
        bounds = self._bounds(belief)
        lower, upper = bounds
        return self._intervals.margin(one, self._rivals(one, bounds), upper - lower[one])

    def ranking(self) -> list[int]:
        """Return the candidates by falling estimate, ties in random order.

        Those without an estimate come after the others, and the barred ones last.
        """
        return self._ranked(self._belief())

    def rivals(self, best: int) -> BoolArray:
        """(K,) mask of the candidates that ``best`` is not shown to beat."""
        return self._rivals(best, self._bounds(self._belief()))

    def is_separated(self, top_k: int) -> bool:
        """Tell whether the first ``top_k`` are shown to beat all others."""
        belief = self._belief()
        return not self._is_undecided(self._ranked(belief), top_k, self._bounds(belief))

    def is_settled(self, top_k: int) -> bool:
        """Tell whether no more scores are needed to name the best ``top_k``.

        Only valid intervals may say so, and only if the problem asks to stop.
        """
        if not self._problem.stop_when_separated or self._table.n_candidates == 0:
            return False
        if self._settled is None:
            self._settled = self._works_out_settled(top_k)
        return self._settled

    def _works_out_settled(self, top_k: int) -> bool:
        if not (self._exogenous or self._is_exact()):
            return False
        presumed, intervals = self.presumed_order, self._intervals
        if presumed is not None and self._may_change(presumed.tolist(), top_k, intervals.bounds):
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
        """(K,) mask of those whose interval reaches ``best``'s, and who are not beaten in pairs."""
        lower, upper = bounds
        reach: BoolArray = (upper >= lower[best]) & ~self.barred
        reach[best] = False
        return reach & ~self._intervals.beaten_by(best, reach)

    def _is_undecided(self, order: list[int], top_k: int, bounds: Bounds) -> bool:
        chosen, others = order[:top_k], order[top_k:]
        return bool(others) and any(self._rivals(one, bounds)[others].any() for one in chosen)

    def _may_change(self, order: list[int], top_k: int, bounds: Bounds) -> bool:
        """Tell whether more scores may part one of the first ``top_k`` from a rival.

        The complete rivals of a complete candidate stay as good as it.
        """
        chosen, others = order[:top_k], order[top_k:]
        complete = (self._table.n_unseen == 0) & (self._table.count(State.PENDING) == 0)
        for one in chosen if others else ():
            rivals = self._rivals(one, bounds)
            if (rivals & ~complete if complete[one] else rivals)[others].any():
                return True
        return False

    def _check_any(self, candidates: Sequence[int] | FloatArray) -> None:
        if not len(candidates):
            raise ValueError("there is no candidate to choose from; add one first")
