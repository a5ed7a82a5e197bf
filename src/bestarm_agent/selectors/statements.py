"""What a rule may say of its candidates by what was told: estimates, intervals, the best."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.intervals import AskOrderIntervals
from bestarm_agent.selectors.paired_intervals import PairedIntervals
from bestarm_agent.selectors.table import ScoreTable
from bestarm_agent.selectors.types import (
    BoolArray,
    Estimates,
    FloatArray,
    Guarantee,
    Problem,
    State,
    Verdict,
)
from bestarm_agent.stats.betting import EVEN, Odds
from bestarm_agent.stats.keyed import KeyedRandom


class Statements:
    """The score table of a rule, and what it says at ``problem.confidence``.

    A rule with a model of scores has its own ``_means``, and ``_bounds`` with the ``_guarantee``
    that stands behind them.

    Attributes:
        exogenous: whether the example is drawn without regard to any score (uniformly among the
            candidate's unseen ones, or by a fixed random order). Only then do the intervals hold at
            every stopping time, and only then may they stop a run.
        common_examples: whether all candidates take their examples from one random order, drawn
            before any score is seen (``SharedOrder``). Then they are also compared in pairs, which
            needs far fewer examples. Set before ``__init__`` if it depends on arguments.
        top_k: how many candidates are wanted; 1 unless the rule looks for a set.
        problem: what the rule was told at the start; candidates and budget may have grown.
        table: everything asked and told so far; read only for callers.
        barred: (K,) candidates that are out of the competition for another reason than their
            scores (``Selector.bar``): neither asked nor compared with others; read only for
            callers.
    """

    exogenous: ClassVar[bool] = True
    common_examples: bool = False
    top_k: int = 1

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.table = ScoreTable(problem.n_candidates, problem.n_examples)
        self.barred = np.full(problem.n_candidates, False)
        self._ties = KeyedRandom(problem.seed, "ties")
        self._tie_ranks = self._ties.at(0).random(problem.n_candidates)
        self._generations = [problem.n_examples]  # examples that joined together
        self._intervals = self._new_intervals()
        self._settled: bool | None = None  # None: to be worked out again

    def estimates(self) -> Estimates:
        """Return point estimates and intervals of every candidate's mean over all N examples."""
        table = self.table
        lower, upper = self._bounds()
        return Estimates(
            mean=np.clip(self._means(), 0.0, 1.0),
            lower=lower.copy(),
            upper=upper.copy(),
            n=table.n_scored,
            pending=table.count(State.PENDING).copy(),
            void=table.count(State.VOID).copy(),
            guarantee=self._guarantee(),
            confidence=self.problem.confidence,
        )

    def best(self) -> Verdict:
        """Name the candidate with the highest estimate, and those it is not shown to beat.

        Raises:
            ValueError: there is no candidate.
        """
        if self.table.n_candidates == 0:
            raise ValueError("there is no candidate to choose from; add one first")
        order = self.ranking()
        tied = self._tied_with(order[0])
        return Verdict(
            best=order[0],
            tied=tied,
            runner_up=order[1] if len(order) > 1 else None,
            separated=not tied,
            confidence=self.problem.confidence,
            guarantee=self._guarantee(),
        )

    def margin(self, candidate: int | None = None) -> float:
        """Bound how far a candidate is from the best one, at ``problem.confidence``.

        Args:
            candidate: whose distance; the leading one's by default. What is said of any number of
                candidates, at any times, holds together.

        Returns:
            The smallest distance in [0, 1] within which its mean is shown to be of the highest
            mean, under the guarantee of ``best``.

        Raises:
            ValueError: there is no candidate.
        """
        one = self.ranking()[0] if candidate is None and self.table.n_candidates else candidate
        if one is None:
            raise ValueError("there is no candidate to choose from; add one first")
        lower, upper = self._bounds()
        return self._intervals.margin(one, self._rivals(one), upper - lower[one])

    def ranking(self) -> list[int]:
        """Candidates by falling estimate, those without one last, ties at random; then the barred.

        Rules that drop candidates rank those they kept above those they dropped.
        """
        means = np.nan_to_num(self._means(), nan=-np.inf)
        return [int(i) for i in np.lexsort((self._tie_ranks, -means, self.barred))]

    def top(self, count: int | None = None) -> tuple[int, ...]:
        """The ``count`` best candidates, best first; as many as the rule looks for by default."""
        return tuple(self.ranking()[: self.top_k if count is None else count])

    def odds_of(self, _example: int) -> Odds:
        """How an example that was asked was drawn among those left of its generation."""
        return EVEN

    def _means(self) -> FloatArray:
        """(K,) point estimates in [0, 1]; NaN where nothing is known."""
        return self.table.mean()

    def _bounds(self) -> tuple[FloatArray, FloatArray]:
        return self._intervals.lower, self._intervals.upper

    def _guarantee(self) -> Guarantee:
        missing = (self.table.n_scored < self.table.n_examples) & ~self.barred
        if not missing.any():
            return Guarantee.EXACT
        return Guarantee.ANYTIME_VALID if self.exogenous else Guarantee.HEURISTIC

    def _tied_with(self, best: int) -> tuple[int, ...]:
        """The candidates that ``best`` is not shown to beat."""
        return tuple(int(i) for i in np.flatnonzero(self._rivals(best)))

    def _rivals(self, best: int) -> BoolArray:
        """(K,) mask of those whose interval reaches ``best``'s, and who are not beaten in pairs."""
        lower, upper = self._bounds()
        reach: BoolArray = (upper >= lower[best]) & ~self.barred
        reach[best] = False
        return reach & ~self._intervals.beaten_by(best, reach)

    def _contenders(self, best: int) -> BoolArray:
        """(K,) mask of the rivals that more scores may yet part from ``best``.

        Where ``best`` is complete, the complete ones among its rivals stay as good as it.
        """
        rivals = self._rivals(best)
        is_complete = (self.table.n_unseen == 0) & (self.table.count(State.PENDING) == 0)
        return rivals & ~is_complete if is_complete[best] else rivals

    def _is_settled(self) -> bool:
        """Whether no more scores are needed to name the best; only valid intervals may say so."""
        if not self.problem.stop_when_separated or self.table.n_candidates == 0:
            return False
        if self._settled is None:
            self._settled = self._guarantee() is not Guarantee.HEURISTIC and self._stands_apart()
        return self._settled

    def _stands_apart(self) -> bool:
        """Whether no more scores can change which candidates are on top."""
        return not self._any_undecided(self._contenders)

    def _any_undecided(self, rivals: Callable[[int], BoolArray]) -> bool:
        """Whether one of the top candidates has ``rivals`` among the others."""
        ranking = self.ranking()
        chosen, others = ranking[: self.top_k], ranking[self.top_k :]
        return bool(others) and any(rivals(one)[others].any() for one in chosen)

    def _hear(self, candidate: int) -> None:
        """Count what a candidate's row has become able to tell."""
        self._settled = None
        self._intervals.advance(candidate)

    def _begin_anew(self) -> None:
        """Begin a new statement, over all rows and columns that the table has now."""
        n_old, n_now = len(self.barred), self.table.n_candidates
        self.barred = np.concatenate([self.barred, np.full(n_now - n_old, False)])
        new_ranks = self._ties.at(n_old).random(n_now - n_old)
        self._tie_ranks = np.concatenate([self._tie_ranks, new_ranks])
        if n_new := self.table.n_examples - sum(self._generations):
            self._generations.append(n_new)
        self._intervals = self._new_intervals()
        self._settled = None

    def _new_intervals(self) -> AskOrderIntervals:
        track = self.problem.track_intervals and self.exogenous
        confidence = self.problem.confidence if track else None
        kind = PairedIntervals if self.common_examples else AskOrderIntervals
        return kind(self.table, self._generations, confidence, self.odds_of)
