"""Sources of a run's pairs: a selection rule, or the plan of another mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import (
    Ask,
    BoolArray,
    Choice,
    Estimates,
    Guarantee,
    IntArray,
    Problem,
    State,
    Stop,
    Tell,
    Verdict,
    both,
)


class PlannedPairs:
    """Pairs of a mode that does not look for the best candidate; a subclass plans them."""

    name: str

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.table = ScoreTable(problem.n_candidates, problem.n_examples)

    def next_choice(self, allowed: BoolArray | None = None) -> Choice | None:
        """Return the next pair of the plan; None if its candidate is not ``allowed``, or none."""
        return None

    def stopped(self) -> Stop | None:
        """Return why nothing will be asked any more, or None."""
        return None

    def ask(
        self, n: int = 1, *, allowed: BoolArray | None = None, busy: BoolArray | None = None
    ) -> list[Ask]:
        """Ask for up to ``n`` pairs, in the order of the plan; of busy candidates later."""
        allowed = both(allowed, None if busy is None else ~busy)
        asks: list[Ask] = []
        while len(asks) < n and (choice := self.next_choice(allowed)) is not None:
            ask = Ask(self.table.n_asked, *choice)
            self.adopt([ask])
            asks.append(ask)
        return asks

    def adopt(self, asks: Sequence[Ask]) -> None:
        """Mark pairs as pending."""
        for ask in asks:
            self.table.ask(ask)

    def tell(self, results: Sequence[Tell]) -> None:
        """Record outcomes, in any order; a second outcome of the same ask is ignored."""
        for result in results:
            self.table.tell(result)

    def add_candidates(
        self, count: int, costs: Sequence[float] | None = None, axes: IntArray | None = None
    ) -> None:
        """Let candidates join; the plan stays as it is."""
        self.problem = self.problem.joined_by(count, costs, axes)
        self.table.add_candidates(count)

    def add_examples(self, count: int) -> None:
        """Let examples join; the plan stays as it is."""
        self.table.add_examples(count)

    def add_budget(self, count: int) -> None:
        """Change nothing: no plan depends on the budget."""

    def bar(self, candidates: Sequence[int]) -> None:
        """Change nothing: no candidate leaves for its price."""

    @property
    def barred(self) -> BoolArray:
        """(K,) none."""
        return np.full(self.table.n_candidates, False)

    def estimates(self) -> Estimates:
        """Return the means seen so far, with no interval."""
        table, n = self.table, self.table.n_candidates
        return Estimates(
            mean=table.mean(),
            lower=np.zeros(n),
            upper=np.ones(n),
            n=table.n_scored,
            pending=table.count(State.PENDING).copy(),
            void=table.count(State.VOID).copy(),
            guarantee=Guarantee.HEURISTIC,
            confidence=self.problem.confidence,
        )

    def best(self) -> Verdict:
        """Name the first of the ranking; it is not shown to beat any other."""
        first, *others = self.ranking()
        return Verdict(
            best=first,
            tied=tuple(sorted(others)),
            runner_up=others[0] if others else None,
            separated=not others,
            confidence=self.problem.confidence,
            guarantee=Guarantee.HEURISTIC,
        )

    def margin(self, candidate: int | None = None) -> float:
        """Return 1: nothing is known."""
        return 1.0

    def ranking(self) -> list[int]:
        """Order the candidates by their mean, those without one last."""
        means = np.nan_to_num(self.table.mean(), nan=-np.inf)
        return [int(i) for i in np.argsort(-means, kind="stable")]


PairSource: TypeAlias = Selector | PlannedPairs
