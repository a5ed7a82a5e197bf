"""A rule's pairs, among examples that it does not all see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bestarm_agent.engine.pair_source import PlannedPairs
from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import (
    Ask,
    BoolArray,
    Choice,
    Estimates,
    IntArray,
    Pair,
    Problem,
    Stop,
    Tell,
    Verdict,
)
from bestarm_agent.stats.intervals.betting_bounds import EVEN, Odds
from bestarm_agent.stats.keyed_random import KeyedRandom


class RulePairs(PlannedPairs):
    """A rule that sees the examples that are not ``held``; those that join later are not.

    Args:
        problem: all N examples.
        rule: of a problem without those held; its column j is the j-th of the others.
        held: examples that the rule does not see.

    Attributes:
        order: the examples that the rule sees in a random order, if possible in its own.
    """

    def __init__(self, problem: Problem, rule: Selector, held: Sequence[int] = ()) -> None:
        own = replace(rule.problem, n_examples=problem.n_examples, budget=problem.budget)
        super().__init__(own)
        self.name = rule.name
        self.rule = rule
        self.held = tuple(held)
        self._shown = sorted(set(range(problem.n_examples)) - set(held))
        self._column_of = {example: column for column, example in enumerate(self._shown)}
        self._rule_seq: dict[int, int] = {}  # by number of the ask
        self.order = [self._shown[column] for column in _random_order(rule)]

    def ask(
        self, n: int = 1, *, allowed: BoolArray | None = None, busy: BoolArray | None = None
    ) -> list[Ask]:
        """Ask the rule for up to ``n`` pairs."""
        asks: list[Ask] = []
        while len(asks) < n and (found := self.rule.ask(allowed=allowed, busy=busy)):
            [one] = found
            pair = Pair(one.pair.candidate, self._shown[one.pair.example])
            asks.append(Ask(self.table.n_asked, pair, one.propensity, one.reason))
            self.table.ask(asks[-1])
            self._rule_seq[asks[-1].seq] = one.seq
        return asks

    def next_choice(self, allowed: BoolArray | None = None) -> Choice | None:
        """Return what the rule would ask next; change nothing."""
        choice = self.rule.next_choice(allowed)
        if choice is None:
            return None
        pair = Pair(choice.pair.candidate, self._shown[choice.pair.example])
        return choice._replace(pair=pair)

    def stopped(self) -> Stop | None:
        """Return why nothing will be asked any more, or None."""
        return self.rule.stopped()

    def adopt(self, asks: Sequence[Ask]) -> None:
        """Mark pairs as pending; whether they are the rule's, their reason tells."""
        for ask in asks:
            candidate, example = ask.pair
            self.table.ask(ask)
            self._rule_seq[ask.seq] = self.rule.table.n_asked
            pair = Pair(candidate, self._column_of[example])
            self.rule.adopt([replace(ask, seq=self.rule.table.n_asked, pair=pair)])

    def tell(self, results: Sequence[Tell]) -> None:
        """Record outcomes; the rule is told those of its own asks."""
        for result in results:
            if self.table.tell(result) and (seq := self._rule_seq.get(result.seq)) is not None:
                self.rule.tell([replace(result, seq=seq)])

    def add_candidates(
        self, count: int, costs: Sequence[float] | None = None, axes: IntArray | None = None
    ) -> None:
        """Let candidates join the selection."""
        super().add_candidates(count, costs, axes)
        self.rule.add_candidates(count, costs, axes)

    def add_examples(self, count: int) -> None:
        """Let examples join the selection."""
        for example in range(self.table.n_examples, self.table.n_examples + count):
            self._column_of[example] = len(self._shown)
            self._shown.append(example)
        super().add_examples(count)
        self.rule.add_examples(count)

    def add_budget(self, count: int) -> None:
        """Add pairs to the rule's budget."""
        self.rule.add_budget(count)

    def bar(self, candidates: Sequence[int]) -> None:
        """Take candidates out of the competition."""
        self.rule.bar(candidates)

    @property
    def barred(self) -> BoolArray:
        """(K,) candidates that ``bar`` took out of the competition."""
        return self.rule.barred

    @property
    def exogenous(self) -> bool:
        """True if the rule draws examples without regard to scores."""
        return self.rule.exogenous

    def odds_of(self, example: int) -> Odds:
        """Return how an example that was asked was drawn among those left of its generation."""
        column = self._column_of.get(example)
        return EVEN if column is None else self.rule.odds_of(column)

    def estimates(self) -> Estimates:
        """Return the rule's estimates of the means over the examples that it sees."""
        return self.rule.estimates()

    def best(self) -> Verdict:
        """Return the rule's verdict."""
        return self.rule.best()

    def margin(self, candidate: int | None = None) -> float:
        """Return the rule's bound of the distance from the best, in [0, 1]."""
        return self.rule.margin(candidate)

    def ranking(self) -> list[int]:
        """Return the rule's ranking."""
        return self.rule.ranking()


def _random_order(rule: Selector) -> list[int]:
    """Return the columns in the order in which a rule asks them, if that is uniformly random."""
    n = rule.table.n_examples
    if rule.common_examples and all(rule.odds_of(column) == EVEN for column in range(n)):
        order: IntArray = rule.shared_order
    else:
        order = KeyedRandom(rule.problem.seed, "slice-order").at(0).permutation(n)
    return [int(column) for column in order]
