"""The contract of every selection rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.evidence import Evidence
from bestarm_agent.selectors.pull_costs import expected_costs, pull_weights
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.shared_order import SharedOrder
from bestarm_agent.selectors.types import (
    Ask,
    Belief,
    BoolArray,
    Choice,
    Estimates,
    FloatArray,
    IntArray,
    Problem,
    State,
    Stop,
    Tell,
    Verdict,
)
from bestarm_agent.stats.intervals.betting_bounds import EVEN, Odds
from bestarm_agent.stats.keyed_random import KeyedRandom


class Selector(ABC):
    """A rule that decides which (candidate, example) pair to evaluate next.

    Callers loop: ``ask`` for pairs, evaluate them in any order and number, ``tell`` the outcomes.
    Only one thread may use a selector. Its state changes by ``ask`` (or ``adopt``) and ``tell``
    alone: fed the same log, a new one asks the same pairs. ``ask(n)`` equals n times ``ask(1)``.

    A subclass writes ``_choose``. One that keeps more than ``table`` updates it in ``_asked``,
    ``_told`` and ``_grown``, which see every event, live or replayed. One with a model of scores
    also writes ``_belief``.

    Attributes:
        name: of the rule, for users.
        anytime: whether the rule asks the same pairs whatever ``Problem.budget`` is. Else its
            answer is meant for the end of that budget.
        heeds_costs: whether ``Problem.costs`` change which pairs the rule asks.
        exogenous: whether examples are drawn without regard to any score (uniformly among the
            candidate's unseen ones, or by a fixed random order). Only then do the intervals hold at
            every stopping time, and only then may they stop a run.
        common_examples: whether all candidates take their examples from one random order, drawn
            before any score is seen (``SharedOrder``). Then ``draw_unseen`` follows it, and they
            are also compared in pairs. Set before ``__init__`` if it depends on arguments.
        top_k: how many candidates are wanted; 1 unless the rule looks for a set.
        problem: as given at the start; candidates and budget may have grown.
        table: everything asked and told so far; read only for callers.
        evidence: what the table says about the candidates.
    """

    name: ClassVar[str]
    anytime: bool = True
    heeds_costs: bool = True
    exogenous: ClassVar[bool] = True
    common_examples: bool = False
    top_k: int = 1
    _order: SharedOrder  # only with common examples

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.table = ScoreTable(problem.n_candidates, problem.n_examples)
        if self.common_examples:
            self._order = SharedOrder(self.table, problem.seed)
        self.evidence = Evidence(
            problem,
            self.table,
            self._belief,
            self.odds_of,
            exogenous=self.exogenous,
            paired=self.common_examples,
        )
        self._random = KeyedRandom(problem.seed, "selector")
        self._open = np.full(problem.n_candidates, True)
        self._weights: FloatArray | None = None  # None: to be worked out again

    def ask(
        self, n: int = 1, *, allowed: BoolArray | None = None, busy: BoolArray | None = None
    ) -> list[Ask]:
        """Choose up to ``n`` >= 0 pairs and mark them as pending.

        ``allowed`` (K,) marks the candidates that can be called and paid for; None means all.
        ``busy`` (K,) marks those that have to wait now: when it is the turn of one of them, no
        other takes its place, or the budget would go to the fast ones.

        Fewer than ``n`` come back, or none, when nothing can be asked until something is told, or
        when no allowed candidate matters any more (see ``stopped`` for "never again").
        """
        asks: list[Ask] = []
        while len(asks) < n and (choice := self.next_choice(allowed)) is not None:
            if busy is not None and busy[choice.pair.candidate]:
                break
            ask = Ask(self.table.n_asked, *choice)
            self._register(ask)
            asks.append(ask)
        return asks

    def next_choice(self, allowed: BoolArray | None = None) -> Choice | None:
        """Return what would be asked next among the ``allowed`` (K,) candidates; change nothing."""
        open_rows = self._open if allowed is None else self._open & allowed
        done = self.evidence.is_settled(self.top_k) or self.evidence.good_enough is not None
        if done or not open_rows.any() or self._is_complete():
            return None
        matter = allowed is None or not self.problem.seeks_proof or self._may_decide(open_rows)
        return self._choose(open_rows, self._random.at(self.table.n_asked)) if matter else None

    def _may_decide(self, rows: BoolArray) -> bool:
        """Return whether scores of any of these rows can still help to establish the best."""
        order = self.evidence.presumed_order
        field = self.evidence.contenders(self.ranking() if order is None else order, self.top_k)
        return bool((rows & field).any()) or not field.any()

    def adopt(self, asks: Sequence[Ask]) -> None:
        """Mark pairs as pending that an earlier process of the same run asked, in order.

        Raises ValueError if an ask's number is not the next one, or its pair was asked before.
        """
        for ask in asks:
            self._register(ask)

    def tell(self, results: Sequence[Tell]) -> None:
        """Record outcomes, in any order; a second outcome of the same ask is ignored.

        Raises ValueError for an unknown ask number, a score outside [0, 1] or a negative cost.
        """
        for result in results:
            if self.table.tell(result):
                self._weights = None
                self.evidence.advance(int(self.table.candidate[result.seq]))
                self._told(result)
                self.evidence.review(self.top_k)

    def add_candidates(
        self, count: int, costs: Sequence[float] | None = None, axes: IntArray | None = None
    ) -> None:
        """Add ``count`` >= 0 candidates as the last rows; intervals begin anew over all of them.

        ``costs`` and ``axes`` are those of ``Problem.joined_by``, which raises ValueError.
        """
        self.problem = self.problem.joined_by(count, costs, axes)
        self.table.add_candidates(count)
        self._regrow()

    def add_examples(self, count: int) -> None:
        """Add ``count`` >= 0 examples as the last columns; intervals begin anew over all N."""
        self.table.add_examples(count)
        self._regrow()

    def add_budget(self, count: int) -> None:
        """Add ``count`` >= 0 pairs to the budget of rules that plan for one.

        Raises ValueError if ``count`` is negative, or no budget was given at the start.
        """
        if count < 0 or self.problem.budget is None:
            raise ValueError(f"cannot add {count} pairs to a budget of {self.problem.budget}")
        self.problem = replace(self.problem, budget=self.problem.budget + count)
        self._grown()

    def bar(self, candidates: Sequence[int]) -> None:
        """Take candidates out of the competition for good, for a reason that is not their scores.

        Statements about the others stay valid, since intervals are joint over all candidates.
        """
        rows = [candidate for candidate in candidates if not self.barred[candidate]]
        if rows:
            self.evidence.bar(rows)
            self._open[rows] = False
            self._left_race(rows)

    def stopped(self) -> Stop | None:
        """Return why nothing will be asked any more, or None while that may still happen."""
        is_settled = self.evidence.is_settled(self.top_k)
        if is_settled and self.evidence.is_separated(self.top_k):
            return Stop.SEPARATED
        if self.evidence.good_enough is not None:
            return self.evidence.good_enough
        if not self._open.any() and not self.table.count(State.PENDING).any():
            return Stop.EXHAUSTED
        if is_settled:
            return Stop.INDIFFERENT
        return Stop.BUDGET if self._is_complete() else None

    @property
    def barred(self) -> BoolArray:
        """(K,) candidates that ``bar`` took out of the competition; not to be written."""
        return self.evidence.barred

    def estimates(self) -> Estimates:
        """Return point estimates and intervals of every candidate's mean over all N examples."""
        return self.evidence.estimates()

    def best(self) -> Verdict:
        """Name the candidate with the highest estimate; raises ValueError if there is none."""
        return self.evidence.best()

    def margin(self, candidate: int | None = None) -> float:
        """Bound how far a candidate, by default the leading one, is from the best, in [0, 1]."""
        return self.evidence.margin(candidate)

    def ranking(self) -> list[int]:
        """Return all candidates, best first; rules that drop candidates rank those last."""
        return self.evidence.ranking()

    def top(self, count: int | None = None) -> tuple[int, ...]:
        """Return the ``count`` best candidates, best first; by default as many as are wanted."""
        return tuple(self.ranking()[: self.top_k if count is None else count])

    def expected_costs(self) -> FloatArray | None:
        """(K,) expected cost of one more pull, by what pulls have cost; None if none were given."""
        costs = self.problem.costs
        return None if costs is None else expected_costs(np.array(costs), self.table)

    @property
    def weights(self) -> FloatArray:
        """(K,) weight of a pull of each candidate where a rule spreads pulls; see ``pull_costs``.

        1 where the rule works per pull, and on common examples: examples that only one of two
        candidates has seen say nothing about their difference, so both are pulled alike.
        """
        if self._weights is None:
            costs = None if self.common_examples else self.expected_costs()
            ones = np.ones(self.table.n_candidates)
            self._weights = ones if costs is None or not len(costs) else pull_weights(costs)
        return self._weights

    @abstractmethod
    def _choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        """Pick the next pair among the ``allowed`` (K,) candidates, each with an unseen example.

        ``rng`` belongs to this ask number alone. Return None to wait until something is told.
        """

    def _asked(self, ask: Ask) -> None:  # noqa: B027
        """Update the rule after an ask; the table holds it already."""

    def _told(self, tell: Tell) -> None:  # noqa: B027
        """Update the rule after an outcome, once per ask; the table holds it already."""

    def _grown(self) -> None:  # noqa: B027
        """Update the rule after rows, columns or budget were added."""

    def _left_race(self, candidates: Sequence[int]) -> None:  # noqa: B027
        """Update the rule after candidates were barred."""

    def _belief(self) -> Belief:
        """Return what the rule thinks of the candidates: by default, the means of their scores."""
        return Belief(self.table.mean())

    @property
    def shared_order(self) -> IntArray:
        """(N,) the examples in the order in which all candidates take them; not to be written.

        Raises ValueError without common examples.
        """
        if not self.common_examples:
            raise ValueError(f"rule {self.name!r} does not take common examples in one order")
        return self._order.examples

    def odds_of(self, example: int) -> Odds:
        """Return how an example that was asked was drawn among those left of its generation."""
        return self._order.odds_of(example) if self.common_examples else EVEN

    def _is_complete(self) -> bool:
        """Return whether the rule has carried out its plan for the budget."""
        return False

    def draw_unseen(self, candidate: int, rng: np.random.Generator) -> tuple[int, float | None]:
        """Draw one of a candidate's unseen examples; return it and its propensity.

        Uniformly, or the next of the shared order where examples are common.
        """
        if self.common_examples:
            return self._order.draw(candidate)
        return self.table.draw_unseen(candidate, rng), 1.0 / self.table.n_unseen_of(candidate)

    def _register(self, ask: Ask) -> None:
        self.table.ask(ask)
        candidate = ask.pair.candidate
        self.evidence.asked(candidate)
        if self.table.n_unseen_of(candidate) == 0:
            self._open[candidate] = False
        self._asked(ask)

    def _regrow(self) -> None:
        self.evidence.restart()
        self._weights = None
        self._open = (self.table.n_unseen > 0) & ~self.barred
        if self.common_examples:
            self._order.grow()
        self._grown()
