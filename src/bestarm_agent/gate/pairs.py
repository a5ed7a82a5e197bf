"""The pairs of a gate: a baseline and its challengers, on examples in one common order.

1. One random order of all examples, from the study's seed. Where it is in a slice, it is a random
   order of the slice. All examples and each slice are the *parts*.
2. The agenda lists the examples that were asked, then by turns the next one of the part that has
   come least far. So small slices are asked more at the start.
3. Every candidate answers along the agenda what is wanted of it: a challenger, the examples of the
   parts that are open for it; the baseline, those of any challenger.
4. A part takes its examples in its own order, as far as both scores are known. So a slow answer is
   waited for, whatever it may be, and the verdict does not depend on who answers first.
5. A part that is decided wants nothing more, and the agenda is drawn up again without it. A
   challenger fails once a part does, and passes once all do; then nothing more is wanted of it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import numpy as np

from bestarm_agent.domain.values import Slice
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import Choice, Pair, Problem, State, Stop, Tell
from bestarm_agent.stats.arrays import BoolArray
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.stats.non_inferiority import Comparison, Conclusion, Question

_LEAD = 32  # examples by which one side may be ahead, while the other cannot be called

Ranges: TypeAlias = Mapping[int, tuple[float, float]]  # known scores [low, high], by example


@dataclass(frozen=True, slots=True)
class Part:
    """All examples or a slice of them, in the order in which they count."""

    name: str  # of the slice; empty for all examples
    examples: Sequence[int]
    question: Question


class Challenger:
    """The comparisons of one challenger with the baseline.

    Attributes:
        parts: all examples, then the slices.
        comparisons: one for each part.
        verdict: failed as soon as one part is; passed once all are.
        open_parts: numbers of the parts that still need examples.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = parts
        self.comparisons = [Comparison(part.question) for part in parts]
        self.verdict = Conclusion.UNDECIDED
        self.open_parts = list(range(len(parts)))

    def take(self, own: Ranges, baseline: Ranges) -> bool:
        """Take the next examples of the open parts, as far as both scores are known.

        Return whether a part was decided by them.
        """
        before = len(self.open_parts)
        for number in list(self.open_parts):
            part, comparison = self.parts[number], self.comparisons[number]
            while not comparison.is_decided and comparison.n < len(part.examples):
                example = part.examples[comparison.n]
                # Examples count in the part's own order and none is skipped: a pair that is still
                # under way holds all behind it back, or slow answers, which are not like the
                # others, would be left out.
                if example not in own or example not in baseline:
                    break
                comparison.push(own[example], baseline[example])
            if comparison.is_decided:
                self.open_parts.remove(number)
            # One failed part decides about the challenger, so what its other parts would need is
            # not paid.
            if comparison.verdict is Conclusion.FAILED:
                self.open_parts.clear()
                break
        if len(self.open_parts) == before:
            return False
        self.verdict = worst(test.verdict for test in self.comparisons)
        return True

    def doubted(self) -> Challenger:
        """Return it as it is told where scores are not to be trusted: it passes nowhere."""
        other = copy(self)
        other.comparisons = [test.doubted() for test in self.comparisons]
        other.verdict = worst(test.verdict for test in other.comparisons)
        return other


class GatePlan(Rule):
    """Asks for what the verdicts on the challengers need; see above.

    Candidates and examples that join later are not looked at. Why the order in which pairs are
    asked leaves all statements valid is said in ``non_inferiority``.

    Args:
        baseline: row of the baseline.
        question: what is asked of the challengers, over all examples.
        slices: each with its own question, of its size.
        examples: those that are asked; by default all.

    Attributes:
        parts: all examples, then the slices.
        challengers: by row.
        undecided: rows of the challengers that still need examples.
    """

    name: ClassVar[str] = "gate"
    exogenous: ClassVar[bool] = False
    seeks_best: ClassVar[bool] = False

    def __init__(
        self,
        problem: Problem,
        baseline: int,
        question: Question,
        seed: int,
        slices: Sequence[tuple[Slice, Question]] = (),
        examples: Sequence[int] | None = None,
    ) -> None:
        super().__init__(replace(problem, stop_when_separated=True))  # a verdict ends the run
        n_rows = problem.n_candidates
        self.baseline = baseline
        # The order has a seed of its own, apart from the selector's: the same examples come first
        # whoever the challengers are, so a gate that is run again takes most answers from the reply
        # cache.
        own = np.arange(problem.n_examples) if examples is None else np.array(examples)
        order = KeyedRandom(seed, "gate-order").at(0).permutation(own)
        place = {example: i for i, example in enumerate(order.tolist())}  # in the order of asking
        self.parts = [Part("", order.tolist(), question)]
        for sub, asked in slices:
            self.parts.append(Part(sub.name, sorted(sub.examples, key=place.__getitem__), asked))
        rows = [row for row in range(n_rows) if row != baseline]
        self.challengers = {row: Challenger(self.parts) for row in rows}
        self.undecided = rows
        self._members = np.zeros((len(self.parts), problem.n_examples), dtype=bool)
        for number, part in enumerate(self.parts):
            self._members[number, part.examples] = True
        self._scores: list[dict[int, tuple[float, float]]] = [{} for _ in range(n_rows)]
        self._plan()

    @property
    def examples_allowed(self) -> int:
        """The number of examples that the budget of pairs allows the open challengers."""
        n = self.parts[0].question.n_examples
        if self.problem.budget is None:
            return n
        remaining = max(0, self.problem.budget - self.table.n_asked)
        asked = len(set(self.table.example.tolist()))
        return min(n, asked + remaining // (1 + max(1, len(self.undecided))))

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | Stop | None:
        """Pick, of the pairs that may be asked, the one that is furthest behind."""
        if not self.undecided:
            return Stop.VERDICT
        # Rows that joined later have no place in ``_wanted``, so the table is cut to those that
        # have.
        unseen = self.table.cells[: len(self._wanted), self._agenda] == State.UNSEEN
        rest = self._wanted & unseen
        rows = [row for row in (self.baseline, *self.undecided) if rest[row].any()]
        if not rows:
            return Stop.EXHAUSTED
        places = {row: int(rest[row].argmax()) for row in rows if allowed[row]}
        ready = [row for row, place in places.items() if not self._is_ahead(row, rest[:, :place])]
        if not ready:
            return None
        # Whoever is furthest behind on the agenda comes next, the baseline too: it is asked only
        # what some challenger still needs, and never twice.
        row = min(ready, key=places.__getitem__)
        reason = "baseline" if row == self.baseline else "challenger"
        return Choice(Pair(row, int(self._agenda[places[row]])), reason)

    def _is_ahead(self, row: int, before: BoolArray) -> bool:
        """Return whether the other side has too many examples to be asked ``before`` (K, n) this.

        The other side of the baseline is the challenger that has come furthest.
        """
        others = self.undecided if row == self.baseline else [self.baseline]
        # ``before`` marks what is still unasked before the place: an answer far ahead of the other
        # side's may never be compared, so a blocked side stops the other one after ``_LEAD``
        # examples.
        missing = [int(np.count_nonzero(before[other])) for other in others]
        return min(missing, default=0) >= _LEAD

    def told(self, tell: Tell) -> None:
        """Take what is complete now into the comparisons."""
        row, example = int(self.table.candidate[tell.seq]), int(self.table.example[tell.seq])
        void = tell.state is State.VOID
        self._scores[row][example] = (0.0, 1.0) if void else (tell.score, tell.score)
        for other in self.undecided if row == self.baseline else {row}.intersection(self.undecided):
            if self.challengers[other].take(self._scores[other], self._scores[self.baseline]):
                self.undecided = [k for k in self.undecided if self.challengers[k].open_parts]
                self._plan()

    def _plan(self) -> None:
        """Draw up the agenda, and note what is wanted of whom."""
        wanted = np.zeros((1 + len(self.challengers), self._members.shape[1]), dtype=bool)
        for row in self.undecided:
            wanted[row] = self._members[self.challengers[row].open_parts].any(axis=0)
        wanted[self.baseline] = wanted.any(axis=0)
        parts = sorted(
            {part for row in self.undecided for part in self.challengers[row].open_parts}
        )
        asked = self.table.example.tolist()
        listed = agenda([self.parts[part].examples for part in parts], asked)
        self._agenda = np.array(listed, dtype=np.int64)
        self._wanted = wanted[:, self._agenda]  # (K, n) by place on the agenda


def agenda(parts: Sequence[Sequence[int]], asked: Iterable[int] = ()) -> list[int]:
    """List what was ``asked``, then by turns the next example of the part that has come least far.

    A part has come as far as all its examples before are listed.

    Example:
        >>> agenda([[0, 1, 2, 3], [2, 3]])
        [0, 2, 1, 3]
    """
    listed = dict.fromkeys(asked)
    # A heap of (how far a part has come, its number). The reach of a part grows also when another
    # one lists its examples, which its entry does not know: so a popped entry whose reach was out
    # of date goes back with the true one before anything is listed for it.
    waiting = [(0, number) for number in range(len(parts))]  # how far each had come, when last seen
    while waiting:
        reach, number = heapq.heappop(waiting)
        examples, place = parts[number], reach
        while place < len(examples) and examples[place] in listed:
            place += 1
        if place < len(examples):
            if place == reach:  # no part has come less far
                listed[examples[place]] = None
            heapq.heappush(waiting, (place, number))
    return list(listed)


def worst(verdicts: Iterable[Conclusion]) -> Conclusion:
    """Return failed if any verdict is, else undecided if any is, else passed."""
    distinct = set(verdicts)
    for verdict in (Conclusion.FAILED, Conclusion.UNDECIDED):
        if verdict in distinct:
            return verdict
    return Conclusion.PASSED
