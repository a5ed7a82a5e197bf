"""By how much candidates are worse than the baseline on the slice where they are worst.

On each slice a candidate is compared with the baseline as in a gate (``non_inferiority``), on the
examples that both have answered, in one random order. The K - 1 candidates share the error
probability of the limit. That the loss is larger than some value on *any* of S slices is a
statement about all of them, each at the S-th part; that it is at most some value on all of them
needs no part: it is wrong only if it is so on the one slice that loses most.

The candidate that leads and the baseline answer examples of its open slices beside the rule
(``next_pair``). Each comparison takes the examples of its slice in their order, so it does not
matter which are asked first (``non_inferiority``). The rule is not told of them: what it says of
the means over all examples rests on the common order alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from bestarm_agent.config.study.constraints import Constraint
from bestarm_agent.domain.events import (
    SLICE,
    SLICE_BASELINE,
    Asked,
    CandidatesAdded,
    Event,
    ExamplesAdded,
    Told,
)
from bestarm_agent.domain.example import Slice
from bestarm_agent.engine.confirmed_pairs import CONFIRMING
from bestarm_agent.engine.results.constraint_trackers import Finding
from bestarm_agent.selectors.types import BoolArray, Choice, FloatArray, Pair
from bestarm_agent.stats.intervals.non_inferiority import Comparison, Question, Verdict

_Range = tuple[float, float]
_GROWN = 1.25  # examples after which an interval is computed again, as a multiple
_LEAD = 32  # examples that may be asked beyond those known in order
_COST = {SLICE: 2, SLICE_BASELINE: 0}  # of a pair beside the rule, by reason, in pairs by the rule


class SliceLossTracker:
    """Keeps what is known of ``slice_loss``, fed with a run's events.

    Args:
        constraint: the limit, which is the margin of the comparisons.
        baseline: label of the candidate to compare with.
        confidence: of all statements together, in (0, 1); None states nothing.
        order: the examples in a random order, without those kept back, which are of no slice.
    """

    def __init__(
        self,
        constraint: Constraint,
        baseline: str,
        confidence: float | None,
        order: Sequence[int],
    ) -> None:
        self.constraint = constraint
        self.baseline: int | None = None  # row
        self._label = baseline
        self._confidence = confidence
        self._order = order
        self._parts: list[list[int]] = []  # of each slice: its examples, in order
        self._asked: list[set[int]] = []  # by row: examples
        self._ranges: list[dict[int, _Range]] = []  # by row: known scores, by example
        self._comparisons: dict[tuple[int, int], Comparison] = {}  # by row and slice
        self._intervals: dict[tuple[int, int], tuple[int, _Range]] = {}  # with examples then
        self._places: dict[tuple[int, int], int] = {}  # by row and slice: all before it are asked
        self._credit = Counter[int]()  # by row: pairs that may be asked beside the rule
        self._pending: dict[int, tuple[int, int]] = {}  # row and example, by number of the ask

    def take(self, event: Event) -> None:
        """Take the run's next event in."""
        match event:
            case Asked() if event.reason not in CONFIRMING:
                self._pending[event.seq] = event.candidate, event.example
                self._asked[event.candidate].add(event.example)
                self._credit[event.candidate] -= _COST.get(event.reason, -1)
            case Told() if event.seq in self._pending:
                row, example = self._pending.pop(event.seq)
                known = (0.0, 1.0) if event.score is None else (event.score, event.score)
                self._ranges[row][example] = known
            case ExamplesAdded():
                parts = [self._in_order(one) for one in event.slices]
                self._parts += [part for part in parts if part]
            case CandidatesAdded():
                labels = [candidate.label for candidate in event.candidates]
                if self.baseline is None and self._label in labels:
                    self.baseline = len(self._asked) + labels.index(self._label)
                self._asked += [set() for _ in labels]
                self._ranges += [{} for _ in labels]
                self._comparisons.clear()  # they share the error with those that joined
                self._intervals.clear()

    def next_pair(self, row: int, allowed: BoolArray | None, *, is_best: bool) -> Choice | None:
        """Return the pair that a candidate's open slices need next; None if there is none.

        It is of the slice that has come least far, so small ones are asked first, and of the
        candidate or the baseline, whichever of the ``allowed`` (K,) has come less far there. Unless
        the candidate ``is_best``, it has at most half as many pairs beside the rule as by it.
        """
        if self.baseline is None or row == self.baseline:
            return None
        if self._credit[row] <= 0 and not is_best:
            return None
        compared = [self._advanced(row, k) for k in range(len(self._parts))]
        if any(one.verdict is Verdict.FAILED for one in compared):
            return None
        ahead = [
            (self._place(who, k), k, who)
            for who in (self.baseline, row)
            if allowed is None or allowed[who]
            for k, one in enumerate(compared)
            if not one.is_decided and self._place(who, k) < min(len(self._parts[k]), one.n + _LEAD)
        ]
        if not ahead:
            return None
        place, k, who = min(ahead)
        reason = SLICE if who == row else SLICE_BASELINE
        return Choice(Pair(who, self._parts[k][place]), None, reason)

    def finding(self) -> Finding:
        """Return what is known of the largest loss on any slice, now."""
        losses = [self._loss(row) for row in range(len(self._asked))]
        mean, lower, upper = np.array(losses, dtype=float).reshape(-1, 3).T
        return Finding(self.constraint, mean, lower, upper)

    def _in_order(self, one: Slice) -> list[int]:
        members = set(one.examples)
        return [example for example in self._order if example in members]

    def _place(self, row: int, k: int) -> int:
        """Return how many of a slice's examples, from the first on, were asked of a candidate."""
        place, part, asked = self._places.get((row, k), 0), self._parts[k], self._asked[row]
        while place < len(part) and part[place] in asked:
            place += 1
        self._places[row, k] = place
        return place

    def _loss(self, row: int) -> tuple[float, float, float]:
        """Return the largest mean loss so far, and what bounds the largest loss."""
        if row == self.baseline or not self._parts:
            return 0.0, 0.0, 0.0
        found = [self._advanced(row, k) for k in range(len(self._parts))]
        means = [0.0 - float(_middles(one).mean()) for one in found if one.n]
        bounds = [self._bounds(one, self._interval(row, k, one)) for k, one in enumerate(found)]
        lowers, uppers = zip(*bounds, strict=True)
        return max(means, default=np.nan), max(lowers), max(uppers)

    def _interval(self, row: int, k: int, comparison: Comparison) -> _Range:
        """Return an interval of the difference, of some time ago: it holds at all times."""
        n, known = self._intervals.get((row, k), (0, (-1.0, 1.0)))
        if n < comparison.n and (comparison.n >= _GROWN * n or comparison.is_complete):
            known = comparison.interval()
            self._intervals[row, k] = comparison.n, known
        return known

    def _bounds(self, comparison: Comparison, known: _Range) -> _Range:
        """Return the ends of the loss; by the verdict, on which side of the limit they are."""
        if self._confidence is None:
            return -1.0, 1.0
        low, high = known
        limit, beyond = self.constraint.limit, float(np.nextafter(self.constraint.limit, 1.0))
        is_broken = comparison.verdict is Verdict.FAILED
        is_kept = comparison.verdict is Verdict.PASSED
        lower = max(-high, beyond) if is_broken else min(-high, limit)
        return lower, min(-low, limit) if is_kept else max(-low, beyond)

    def _advanced(self, row: int, k: int) -> Comparison:
        """Return the comparison on a slice, with all examples that are known of both in order."""
        if (row, k) not in self._comparisons:
            self._comparisons[row, k] = self._new(k)
        comparison, part = self._comparisons[row, k], self._parts[k]
        own, other = self._ranges[row], self._ranges[self.baseline or 0]
        while not comparison.is_complete:
            example = part[comparison.n]
            if example not in own or example not in other:
                break
            comparison.push(own[example], other[example])
        return comparison

    def _new(self, k: int) -> Comparison:
        confidence = 0.5 if self._confidence is None else self._confidence
        return Comparison(
            Question(
                margin=self.constraint.limit,
                improve=False,
                alpha=1.0 - confidence,
                n_challengers=max(1, len(self._asked) - 1),
                n_examples=len(self._parts[k]),
                n_parts=len(self._parts),
            )
        )


def _middles(comparison: Comparison) -> FloatArray:
    return np.asarray(np.subtract(comparison.gains, comparison.losses) / 2.0)
