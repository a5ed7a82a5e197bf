"""The pairs of a gate: baseline and open challengers, on the examples in one common order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from bestarm_agent.domain.example import Slice
from bestarm_agent.engine.pair_source import PlannedPairs
from bestarm_agent.gate.agenda import Agenda
from bestarm_agent.gate.challenger import Challenger, Part
from bestarm_agent.gate.forecast import Forecast, forecast, least_examples
from bestarm_agent.selectors.types import Ask, BoolArray, Choice, Pair, Problem, State, Stop, Tell
from bestarm_agent.stats.intervals.non_inferiority import Comparison, Question
from bestarm_agent.stats.keyed_random import KeyedRandom

_LEAD = 32  # places by which one of a pair may be ahead, while the other cannot be called
_FIRST_LOOK, _LOOK_AGAIN = 32, 1.25  # examples before, and between, two forecasts
_HOPELESS = 0.05  # chance of an answer below which a challenger is given up


class GatePairs(PlannedPairs):
    """Compares challengers with a baseline, example by example in one random order.

    A challenger is done with once it is decided, or given up when the budget of pairs leaves next
    to no chance of an answer. Candidates and examples that join later are not looked at.

    Where there are slices, the part that is furthest behind has the next example: all examples and
    every slice advance alike, so small slices are asked more at the start, and only what is open is
    asked at the end. Why that leaves all statements valid is said in ``non_inferiority``.

    Args:
        baseline: row of the baseline.
        question: what is asked of the challengers, over all examples.
        slices: each with its own question, of its size.

    Attributes:
        parts: all examples, then the slices.
        challengers: by row.
        given_up: rows of the challengers that were given up.
    """

    name = "gate"

    def __init__(
        self,
        problem: Problem,
        baseline: int,
        question: Question,
        seed: int,
        slices: Sequence[tuple[Slice, Question]] = (),
    ) -> None:
        super().__init__(replace(problem, stop_when_separated=True))  # a verdict ends the run
        self.baseline = baseline
        drawn = KeyedRandom(seed, "gate-order").at(0).permutation(problem.n_examples)
        order = [int(example) for example in drawn]
        place_of = {example: place for place, example in enumerate(order)}
        self.parts = [Part("", order, question)]
        for one, asked in slices:
            self.parts.append(Part(one.name, sorted(one.examples, key=place_of.__getitem__), asked))
        rows = [row for row in range(problem.n_candidates) if row != baseline]
        self.challengers = {row: Challenger(self.parts) for row in rows}
        self.given_up: set[int] = set()
        self._agenda = Agenda([part.examples for part in self.parts], problem.n_candidates)
        self._chance = KeyedRandom(seed, "gate-forecast")
        self._scores: list[dict[int, tuple[float, float]]] = [
            {} for _ in range(problem.n_candidates)
        ]
        self._next_look = dict.fromkeys(self.challengers, _FIRST_LOOK)
        self._budget = problem.budget

    @property
    def comparisons(self) -> dict[int, Comparison]:
        """The comparisons over all examples, by row of the challenger."""
        return {row: one.comparisons[0] for row, one in self.challengers.items()}

    @property
    def open(self) -> list[int]:
        """Rows of the challengers that still need examples."""
        return [
            row
            for row, challenger in self.challengers.items()
            if not challenger.is_decided and row not in self.given_up
        ]

    @property
    def examples_allowed(self) -> int:
        """The number of examples that the budget of pairs allows the open challengers."""
        return min(self.problem.n_examples, len(self._agenda) + self._left)

    @property
    def examples_needed(self) -> int:
        """The number of examples for an answer on a challenger that scores as the baseline does."""
        needed = set[int]()
        for part in self.parts:
            least = least_examples(part.question)
            needed.update(part.examples[: int(min(least, len(part.examples)))])
        return len(needed)

    def forecast(self, row: int, n_allowed: int, part: int = 0) -> Forecast:
        """Forecast a comparison of a challenger; by seed, row, part and number of examples."""
        comparison = self.challengers[row].comparisons[part]
        place = part * self.problem.n_candidates + row
        index = place * (self.problem.n_examples + 1) + comparison.n
        return forecast(comparison, max(n_allowed, comparison.n), self._chance.at(index))

    def stopped(self) -> Stop | None:
        """Say why nothing will be asked any more, or None while that may still happen."""
        if not self.open:
            return Stop.INDIFFERENT if self.given_up else Stop.VERDICT
        rows = [self.baseline, *self.open]
        exhausted = all(self._next_of(row) is None for row in rows)
        return Stop.EXHAUSTED if exhausted else None

    def next_choice(self, allowed: BoolArray | None = None) -> Choice | None:
        """Return the next pair: of those that may be asked, the one that is furthest behind."""
        rows = [row for row in self._due() if allowed is None or allowed[row]]
        if not rows:
            return None
        row = min(rows, key=self._agenda.place_of)
        example = self._next_of(row)
        assert example is not None
        reason = "baseline" if row == self.baseline else "challenger"
        return Choice(Pair(row, example), None, reason)

    def adopt(self, asks: Sequence[Ask]) -> None:
        """Mark pairs as pending."""
        super().adopt(asks)
        for ask in asks:
            self._agenda.note(*ask.pair)

    def tell(self, results: Sequence[Tell]) -> None:
        """Record outcomes, and take what is complete into the comparisons.

        One after the other, so that a log that is replayed leads to the same.
        """
        for result in results:
            if self.table.tell(result):
                row = int(self.table.candidate[result.seq])
                example = int(self.table.example[result.seq])
                void = result.state is State.VOID
                self._scores[row][example] = (0.0, 1.0) if void else (result.score, result.score)
                for one in self.open if row == self.baseline else {row}.intersection(self.open):
                    self._compare(one)

    def add_budget(self, count: int) -> None:
        """Allow more pairs, and take up again what was given up."""
        if self._budget is not None:
            self._budget += count
        self.given_up.clear()
        self._agenda.restart()
        self._next_look = {row: one.n + 1 for row, one in self.challengers.items()}
        for row in self.open:
            self._compare(row)

    @property
    def _left(self) -> int:
        """Number of examples that the budget still pays the open challengers and the baseline."""
        if self._budget is None:
            return self.problem.n_examples
        return max(0, self._budget - self.table.n_asked) // (1 + max(1, len(self.open)))

    def _needs(self, row: int, example: int) -> bool:
        rows = self.open if row == self.baseline else [row]
        return any(self.challengers[one].needs(example) for one in rows)

    def _next_of(self, row: int) -> int | None:
        """Return the next example of a candidate: one that others have, or one for its parts."""
        rows = self.open if row == self.baseline else [row]
        parts = {part for one in rows for part in self.challengers[one].open_parts}
        return self._agenda.next_of(row, lambda example: self._needs(row, example), sorted(parts))

    def _due(self) -> list[int]:
        """Return the baseline and the open challengers, as far as none is too far ahead."""
        challengers = self.open
        if not challengers:
            return []
        left = [row for row in (self.baseline, *challengers) if self._next_of(row) is not None]
        place_of = self._agenda.place_of
        limit = place_of(self.baseline) + _LEAD
        most = max(place_of(row) for row in challengers) + _LEAD
        return [row for row in left if place_of(row) < (most if row == self.baseline else limit)]

    def _compare(self, row: int) -> None:
        challenger = self.challengers[row]
        own, baseline = self._scores[row], self._scores[self.baseline]
        while row not in self.given_up and not challenger.is_decided:
            if not challenger.take(own, baseline):
                return
            if challenger.n >= self._next_look[row]:
                self._look_ahead(row)

    def _look_ahead(self, row: int) -> None:
        """Give a challenger up if the budget leaves it next to no chance of an answer.

        It passes if all its parts do, and fails if one does: with a chance of at most the least
        chance of a part to pass, and the sum of their chances to fail.
        """
        challenger = self.challengers[row]
        self._next_look[row] = math.ceil(challenger.n * _LOOK_AGAIN)
        if challenger.is_decided or self.examples_allowed == self.problem.n_examples:
            return
        found = []
        for part in challenger.open_parts:
            size, left = len(self.parts[part].examples), self._agenda.reach(part) + self._left
            found.append(self.forecast(row, min(size, left), part))
        fails = sum(one.fails for one in found)
        if min(one.chance - one.fails for one in found) + fails < _HOPELESS:
            self.given_up.add(row)
