"""The contract of every selection rule, and all bookkeeping that rules share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.costs import expected_costs, pull_weights
from bestarm_agent.selectors.intervals import AskOrderIntervals
from bestarm_agent.selectors.paired_intervals import PairedIntervals
from bestarm_agent.selectors.table import ScoreTable
from bestarm_agent.selectors.types import (
    Ask,
    BoolArray,
    Choice,
    Estimates,
    FloatArray,
    Guarantee,
    Problem,
    State,
    Stop,
    Tell,
    Verdict,
)
from bestarm_agent.stats.keyed import KeyedRandom

_UNSEEN = int(State.UNSEEN)


class Selector(ABC):
    """A rule that decides which (candidate, example) pair to evaluate next.

    Callers loop: ``ask`` for pairs, evaluate them in any order and number, ``tell`` the outcomes.
    Only one thread may use a selector. Every state change comes in through ``ask`` (or ``adopt``)
    and ``tell``, so a rule is a fold over that log: fed the same log, a fresh instance asks the
    same next pairs. ``ask(n)`` equals n times ``ask(1)``.

    A subclass writes ``_choose``. One that keeps more than ``table`` updates it in ``_asked``,
    ``_told`` and ``_grown``, which see every event, live or replayed.

    Attributes:
        name: what users call the rule.
        exogenous: whether the example is drawn without regard to any score (uniformly among the
            candidate's unseen ones, or by a fixed random order). Only then do the intervals hold at
            every stopping time, and only then may they stop a run.
        anytime: whether the rule asks the same pairs whatever ``Problem.budget`` is. A rule that
            plans for a budget sets False, or sets it when it was given one: its answer is meant for
            the end of that budget.
        common_examples: whether all candidates take their examples from one random order, drawn
            before any score is seen (``SharedOrder``). Then they are also compared in pairs, which
            needs far fewer examples. Set before ``Selector.__init__`` if it depends on arguments.
        top_k: how many candidates are wanted; 1 unless the rule looks for a set.
        problem: what the selector was told at the start; candidates and budget may have grown.
        table: everything asked and told so far; read only for callers.
        barred: (K,) candidates that are out of the competition for another reason than their
            scores (``bar``): neither asked nor compared with others; read only for callers.
    """

    name: ClassVar[str]
    exogenous: ClassVar[bool] = True
    anytime: bool = True
    common_examples: bool = False
    top_k: int = 1

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.table = ScoreTable(problem.n_candidates, problem.n_examples)
        self._random = KeyedRandom(problem.seed, "selector")
        self._ties = KeyedRandom(problem.seed, "ties")
        self._tie_ranks = self._ties.at(0).random(problem.n_candidates)
        self._generations = [problem.n_examples]  # examples that joined together
        self._intervals = self._new_intervals()
        self._open = np.full(problem.n_candidates, True)
        self.barred = np.full(problem.n_candidates, False)
        self._settled: bool | None = None  # None: to be worked out again
        self._weights: FloatArray | None = None  # likewise

    def ask(
        self,
        n: int = 1,
        *,
        affordable: BoolArray | None = None,
        available: BoolArray | None = None,
    ) -> list[Ask]:
        """Choose up to ``n`` pairs and mark them as pending.

        Args:
            n: how many pairs are wanted, >= 0.
            affordable: (K,) candidates whose next call the budget can still pay; None means all.
            available: (K,) candidates that can be called now; None means all.

        Returns:
            The asks; fewer than ``n``, or none, when nothing can be asked until something is told
            (see ``stopped`` for "never again").
        """
        allowed = _both(affordable, available)
        asks: list[Ask] = []
        while len(asks) < n and (choice := self.next_choice(allowed)) is not None:
            ask = Ask(self.table.n_asked, *choice)
            self._register(ask)
            asks.append(ask)
        return asks

    def next_choice(self, allowed: BoolArray | None = None) -> Choice | None:
        """Say what would be asked next among the ``allowed`` (K,) candidates; changes nothing."""
        open_rows = self._open if allowed is None else self._open & allowed
        if not open_rows.any() or self._is_settled() or self._is_complete():
            return None
        return self._choose(open_rows, self._random.at(self.table.n_asked))

    def adopt(self, asks: Sequence[Ask]) -> None:
        """Mark pairs as pending that were asked in an earlier life of the same run, in order.

        Raises:
            ValueError: an ask's number is not the next one, or its pair was asked before.
        """
        for ask in asks:
            self._register(ask)

    def tell(self, results: Sequence[Tell]) -> None:
        """Record outcomes, in any order; a second outcome of the same ask is ignored.

        Raises:
            ValueError: an unknown ask number, a score outside [0, 1] or a negative cost.
        """
        for result in results:
            if self.table.tell(result):
                self._settled = None
                self._weights = None
                self._intervals.advance(int(self.table.candidate[result.seq]))
                self._told(result)

    def add_candidates(self, count: int, costs: Sequence[float] | None = None) -> None:
        """Let ``count`` >= 0 new candidates join as the last rows.

        Intervals are joint over the candidates present; adding some starts a new statement.

        Args:
            count: how many join.
            costs: (count,) expected cost of one pull of each, as in ``Problem.costs``; needed
                exactly where that was given.

        Raises:
            ValueError: costs are missing, or given though the rule works per pull.
        """
        self.problem = self.problem.joined_by(count, costs)
        n_old = self.table.n_candidates
        self.table.add_candidates(count)
        new_ranks = self._ties.at(n_old).random(count)
        self._tie_ranks = np.concatenate([self._tie_ranks, new_ranks])
        self._regrow()

    def add_examples(self, count: int) -> None:
        """Let ``count`` >= 0 new examples join as the last columns.

        The means are then over all N examples, old and new; adding some starts a new statement.
        """
        self.table.add_examples(count)
        if count:
            self._generations.append(count)
        self._regrow()

    def add_budget(self, count: int) -> None:
        """Let rules that plan for ``Problem.budget`` count on ``count`` >= 0 more pairs.

        Raises:
            ValueError: ``count`` is negative, or no budget was given at the start.
        """
        if count < 0 or self.problem.budget is None:
            raise ValueError(f"cannot add {count} pairs to a budget of {self.problem.budget}")
        self.problem = replace(self.problem, budget=self.problem.budget + count)
        self._grown()

    def bar(self, candidates: Sequence[int]) -> None:
        """Take candidates out of the competition for good, for a reason that is not their scores.

        What the run states is then about the others. Statements stay valid, since intervals are
        joint over all candidates.
        """
        rows = [candidate for candidate in candidates if not self.barred[candidate]]
        self.barred[rows] = True
        self._open[rows] = False
        self._settled = None
        if rows:
            self._left_race(rows)

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

    def stopped(self) -> Stop | None:
        """Say why nothing will be asked any more, or None while that may still happen."""
        is_settled = self._is_settled()
        if is_settled and not self._any_undecided(self._rivals):
            return Stop.SEPARATED
        if not self._open.any() and not self.table.count(State.PENDING).any():
            return Stop.EXHAUSTED
        if is_settled:
            return Stop.INDIFFERENT
        return Stop.BUDGET if self._is_complete() else None

    def expected_costs(self) -> FloatArray | None:
        """(K,) expected cost of one more pull, by what pulls have cost; None if none were given."""
        costs = self.problem.costs
        return None if costs is None else expected_costs(np.array(costs), self.table)

    @property
    def weights(self) -> FloatArray:
        """(K,) what a pull of each candidate counts where a rule spreads pulls; see ``costs``.

        1 where the rule works per pull. Also 1 where candidates are compared on common examples:
        then what one has seen more than the other says nothing about their difference, so that
        all who are still compared are pulled alike, whatever they cost.
        """
        if self._weights is None:
            costs = None if self.common_examples else self.expected_costs()
            ones = np.ones(self.table.n_candidates)
            self._weights = ones if costs is None or not len(costs) else pull_weights(costs)
        return self._weights

    @abstractmethod
    def _choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        """Pick the next pair among the ``allowed`` (K,) candidates, each with an unseen example.

        ``rng`` belongs to this ask number alone. None means: not before something is told.
        """

    def _asked(self, ask: Ask) -> None:  # noqa: B027 - a hook, empty by default
        """Take note of an ask; the table holds it already."""

    def _told(self, tell: Tell) -> None:  # noqa: B027 - a hook
        """Take note of an outcome; the table holds it already. Called once per ask."""

    def _grown(self) -> None:  # noqa: B027 - a hook
        """Take note of new rows, columns or budget; the table and the problem have them already."""

    def _left_race(self, candidates: Sequence[int]) -> None:  # noqa: B027 - a hook
        """Take note of candidates that were barred; ``barred`` has them already."""

    def _is_complete(self) -> bool:
        """Whether the rule has carried out its plan for the budget."""
        return False

    def _means(self) -> FloatArray:
        """(K,) point estimates in [0, 1]; NaN where nothing is known."""
        return self.table.mean()

    def draw_unseen(self, candidate: int, rng: np.random.Generator) -> tuple[int, float]:
        """Draw one of a candidate's unseen examples uniformly; return it and its propensity."""
        n_unseen = self.table.n_unseen_of(candidate)
        row = self.table.cells[candidate]
        if 8 * n_unseen > len(row):  # a few tries find one, without scanning the row
            while row[example := int(rng.integers(len(row)))] != _UNSEEN:
                pass
        else:
            example = int(rng.choice(self.table.unseen(candidate)))
        return example, 1.0 / n_unseen

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

    def _register(self, ask: Ask) -> None:
        self.table.ask(ask)
        candidate = ask.pair.candidate
        if self.table.n_unseen_of(candidate) == 0:
            self._open[candidate] = False
        self._asked(ask)

    def _new_intervals(self) -> AskOrderIntervals:
        track = self.problem.track_intervals and self.exogenous
        confidence = self.problem.confidence if track else None
        kind = PairedIntervals if self.common_examples else AskOrderIntervals
        return kind(self.table, self._generations, confidence)

    def _regrow(self) -> None:
        self._intervals = self._new_intervals()
        self._weights = None
        n_new = self.table.n_candidates - len(self.barred)
        self.barred = np.concatenate([self.barred, np.full(n_new, False)])
        self._open = (self.table.n_unseen > 0) & ~self.barred
        self._settled = None
        self._grown()


def _both(one: BoolArray | None, other: BoolArray | None) -> BoolArray | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other
