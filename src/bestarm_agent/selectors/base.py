"""The contract of every selection rule: what is asked, and what becomes of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.costs import expected_costs, pull_weights
from bestarm_agent.selectors.statements import Statements
from bestarm_agent.selectors.types import (
    Ask,
    BoolArray,
    Choice,
    FloatArray,
    Problem,
    State,
    Stop,
    Tell,
    both,
)
from bestarm_agent.stats.keyed import KeyedRandom

_UNSEEN = int(State.UNSEEN)


class Selector(Statements, ABC):
    """A rule that decides which (candidate, example) pair to evaluate next.

    Callers loop: ``ask`` for pairs, evaluate them in any order and number, ``tell`` the outcomes.
    Only one thread may use a selector. Every state change comes in through ``ask`` (or ``adopt``)
    and ``tell``, so a rule is a fold over that log: fed the same log, a fresh instance asks the
    same next pairs. ``ask(n)`` equals n times ``ask(1)``.

    A subclass writes ``_choose``. One that keeps more than ``table`` updates it in ``_asked``,
    ``_told`` and ``_grown``, which see every event, live or replayed.

    Attributes:
        name: what users call the rule.
        anytime: whether the rule asks the same pairs whatever ``Problem.budget`` is. A rule that
            plans for a budget sets False, or sets it when it was given one: its answer is meant for
            the end of that budget.
        heeds_costs: whether ``Problem.costs`` change which pairs the rule asks.
    """

    name: ClassVar[str]
    anytime: bool = True
    heeds_costs: ClassVar[bool] = True

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._random = KeyedRandom(problem.seed, "selector")
        self._open = np.full(problem.n_candidates, True)
        self._weights: FloatArray | None = None  # None: to be worked out again

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
        allowed = both(affordable, available)
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
                self._weights = None
                self._hear(int(self.table.candidate[result.seq]))
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
        self.table.add_candidates(count)
        self._regrow()

    def add_examples(self, count: int) -> None:
        """Let ``count`` >= 0 new examples join as the last columns.

        The means are then over all N examples, old and new; adding some starts a new statement.
        """
        self.table.add_examples(count)
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

    def _asked(self, ask: Ask) -> None:
        """Take note of an ask; the table holds it already."""

    def _told(self, tell: Tell) -> None:
        """Take note of an outcome; the table holds it already. Called once per ask."""

    def _grown(self) -> None:
        """Take note of new rows, columns or budget; the table and the problem have them already."""

    def _left_race(self, candidates: Sequence[int]) -> None:
        """Take note of candidates that were barred; ``barred`` has them already."""

    def _is_complete(self) -> bool:
        """Whether the rule has carried out its plan for the budget."""
        return False

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

    def _register(self, ask: Ask) -> None:
        self.table.ask(ask)
        candidate = ask.pair.candidate
        if self.table.n_unseen_of(candidate) == 0:
            self._open[candidate] = False
        self._asked(ask)

    def _regrow(self) -> None:
        self._begin_anew()
        self._weights = None
        self._open = (self.table.n_unseen > 0) & ~self.barred
        self._grown()
