"""The pairs of a gate: baseline and open challengers, on the examples in one common order."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bestarm_agent.engine.pair_source import PlannedPairs
from bestarm_agent.gate.evidence import Comparison, Question
from bestarm_agent.gate.forecast import Forecast, forecast
from bestarm_agent.selectors.types import Ask, BoolArray, Choice, Pair, Problem, State, Stop, Tell
from bestarm_agent.stats.keyed_random import KeyedRandom

_LEAD = 32  # places by which one of a pair may be ahead, while the other cannot be called
_FIRST_LOOK, _LOOK_AGAIN = 32, 1.25  # examples before, and between, two forecasts
_HOPELESS = 0.05  # chance of an answer below which a comparison is given up


class GatePairs(PlannedPairs):
    """Compares challengers with a baseline, example by example in one random order.

    A comparison takes the longest run of places at which both outcomes are known, so a slow answer
    is waited for, whatever it may be. It is closed by its answer, or given up when the budget of
    pairs leaves next to no chance of one. Candidates and examples that join later are not looked
    at.

    Attributes:
        baseline: row of the baseline.
        question: what is asked of the challengers.
        comparisons: by row of the challenger.
        given_up: rows of the challengers that were given up.
    """

    name = "gate"

    def __init__(self, problem: Problem, baseline: int, question: Question, seed: int) -> None:
        super().__init__(problem)
        self.baseline = baseline
        self.question = question
        self.comparisons = {
            row: Comparison(question) for row in range(problem.n_candidates) if row != baseline
        }
        self.given_up: set[int] = set()
        order = KeyedRandom(seed, "gate-order").at(0).permutation(problem.n_examples)
        self._order = [int(example) for example in order]
        self._place_of = {example: place for place, example in enumerate(self._order)}
        self._chance = KeyedRandom(seed, "gate-forecast")
        self._asked = [0] * problem.n_candidates  # places asked, by row
        self._scores: list[dict[int, tuple[float, float]]] = [{} for _ in self._asked]
        self._next_look = dict.fromkeys(self.comparisons, _FIRST_LOOK)
        self._budget = problem.budget

    @property
    def open(self) -> list[int]:
        """Rows of the challengers that still need examples."""
        return [
            row
            for row, comparison in self.comparisons.items()
            if not comparison.is_decided and row not in self.given_up
        ]

    @property
    def examples_allowed(self) -> int:
        """The number of examples that the budget of pairs allows the open challengers."""
        n = self.problem.n_examples
        if self._budget is None:
            return n
        left = max(0, self._budget - self.table.n_asked) // (1 + max(1, len(self.open)))
        return min(n, max(self._asked) + left)

    def forecast(self, row: int, n_allowed: int) -> Forecast:
        """Forecast the comparison of a challenger; by seed, row and number of examples alone."""
        comparison = self.comparisons[row]
        index = row * (self.problem.n_examples + 1) + comparison.n
        return forecast(comparison, max(n_allowed, comparison.n), self._chance.at(index))

    def stopped(self) -> Stop | None:
        """Say why nothing will be asked any more, or None while that may still happen."""
        if not self.open:
            return Stop.INDIFFERENT if self.given_up else Stop.VERDICT
        rows = [self.baseline, *self.open]
        exhausted = all(self._asked[row] == self.problem.n_examples for row in rows)
        return Stop.EXHAUSTED if exhausted else None

    def next_choice(self, allowed: BoolArray | None = None) -> Choice | None:
        """Return the next pair: of those that may be asked, the one that is furthest behind."""
        rows = [row for row in self._due() if allowed is None or allowed[row]]
        if not rows:
            return None
        row = min(rows, key=lambda row: self._asked[row])
        reason = "baseline" if row == self.baseline else "challenger"
        return Choice(Pair(row, self._order[self._asked[row]]), None, reason)

    def adopt(self, asks: Sequence[Ask]) -> None:
        """Mark pairs as pending."""
        super().adopt(asks)
        for ask in asks:
            self._asked[ask.pair.candidate] += 1

    def tell(self, results: Sequence[Tell]) -> None:
        """Record outcomes, and take what is complete into the comparisons.

        One after the other, so that a log that is replayed leads to the same.
        """
        for result in results:
            if self.table.tell(result):
                row = int(self.table.candidate[result.seq])
                place = self._place_of[int(self.table.example[result.seq])]
                void = result.state is State.VOID
                self._scores[row][place] = (0.0, 1.0) if void else (result.score, result.score)
                for one in self.open if row == self.baseline else {row}.intersection(self.open):
                    self._compare(one)

    def add_budget(self, count: int) -> None:
        """Allow more pairs, and take up again what was given up."""
        if self._budget is not None:
            self._budget += count
        self.given_up.clear()
        self._next_look = {row: one.n + 1 for row, one in self.comparisons.items()}

    def _due(self) -> list[int]:
        """Return the baseline and the open challengers, as far as none is too far ahead."""
        asked, last = self._asked, self.problem.n_examples
        challengers = self.open
        if not challengers:
            return []
        limit = min(last, asked[self.baseline] + _LEAD)
        due = [row for row in challengers if asked[row] < limit]
        most = min(last, max(asked[row] for row in challengers) + _LEAD)
        return [self.baseline, *due] if asked[self.baseline] < most else due

    def _compare(self, row: int) -> None:
        comparison = self.comparisons[row]
        challenger, baseline = self._scores[row], self._scores[self.baseline]
        while row not in self.given_up and not comparison.is_decided:
            if comparison.n not in challenger or comparison.n not in baseline:
                return
            comparison.push(challenger[comparison.n], baseline[comparison.n])
            if comparison.n >= self._next_look[row]:
                self._look_ahead(row)

    def _look_ahead(self, row: int) -> None:
        """Give a comparison up if the budget leaves it next to no chance of an answer."""
        comparison, allowed = self.comparisons[row], self.examples_allowed
        self._next_look[row] = math.ceil(comparison.n * _LOOK_AGAIN)
        if comparison.is_decided or allowed == self.problem.n_examples:
            return
        if self.forecast(row, allowed).chance < _HOPELESS:
            self.given_up.add(row)
