"""By how much candidates are worse than the baseline on the slice where they are worst.

On each slice a candidate is compared with the baseline as in a gate (``non_inferiority``), on the
examples that both have answered of the one order that all candidates share. The K - 1 candidates
share the error probability of the limit. That the loss is larger than some value on *any* of S
slices is a statement about all of them, each at the S-th part; that it is at most some value on all
of them needs no part: it is wrong only if it is so on the one slice that loses most.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bestarm_agent.config.study.constraints import Constraint
from bestarm_agent.domain.events import Asked, CandidatesAdded, Event, ExamplesAdded, Told
from bestarm_agent.domain.example import Slice
from bestarm_agent.engine.confirmed_pairs import CONFIRMING
from bestarm_agent.engine.results.constraint_trackers import Finding
from bestarm_agent.selectors.types import FloatArray
from bestarm_agent.stats.intervals.non_inferiority import Comparison, Question, Verdict

_Range = tuple[float, float]
_GROWN = 1.25  # examples after which an interval is worked out anew, as a multiple


@dataclass(slots=True)
class _Answers:
    """Asks and known scores of one candidate on one slice, in order."""

    examples: list[int] = field(default_factory=list)
    ranges: dict[int, _Range] = field(default_factory=dict)  # by example, of the known scores


class SliceLossTracker:
    """Keeps what is known of ``slice_loss``, fed with a run's events.

    Args:
        constraint: the limit, which is the margin of the comparisons.
        baseline: label of the candidate to compare with.
        confidence: of all statements together, in (0, 1); None states nothing.
    """

    def __init__(self, constraint: Constraint, baseline: str, confidence: float | None) -> None:
        self.constraint = constraint
        self.baseline: int | None = None  # row
        self._label = baseline
        self._confidence = confidence
        self._slices: tuple[Slice, ...] = ()
        self._slices_of: dict[int, list[int]] = {}  # by example
        self._answers: list[list[_Answers]] = []  # by row and slice
        self._comparisons: dict[tuple[int, int], Comparison] = {}  # by row and slice
        self._intervals: dict[tuple[int, int], tuple[int, _Range]] = {}  # with examples then
        self._asks: dict[int, tuple[int, int]] = {}  # pending: row and example

    def take(self, event: Event) -> None:
        """Take the run's next event in."""
        match event:
            case Asked() if event.reason not in CONFIRMING:
                self._asks[event.seq] = event.candidate, event.example
                for k in self._slices_of.get(event.example, ()):
                    self._answers[event.candidate][k].examples.append(event.example)
            case Told() if event.seq in self._asks:
                row, example = self._asks.pop(event.seq)
                known = (0.0, 1.0) if event.score is None else (event.score, event.score)
                for k in self._slices_of.get(example, ()):
                    self._answers[row][k].ranges[example] = known
            case ExamplesAdded():
                self._slices += event.slices
                for k, one in enumerate(self._slices):
                    for example in one.examples:
                        self._slices_of.setdefault(example, []).append(k)
            case CandidatesAdded():
                labels = [candidate.label for candidate in event.candidates]
                if self.baseline is None and self._label in labels:
                    self.baseline = len(self._answers) + labels.index(self._label)
                self._answers += [[_Answers() for _ in self._slices] for _ in labels]
                self._comparisons.clear()  # they share the error with those that joined
                self._intervals.clear()

    def finding(self) -> Finding:
        """Return what is known of the largest loss on any slice, now."""
        losses = [self._loss(row) for row in range(len(self._answers))]
        mean, lower, upper = np.array(losses, dtype=float).reshape(-1, 3).T
        return Finding(self.constraint, mean, lower, upper)

    def behind(self, row: int) -> int | None:
        """Return who of a candidate and the baseline has answered fewer examples; None if alike."""
        if self.baseline is None or row == self.baseline:
            return None
        counts = [sum(len(one.examples) for one in self._answers[i]) for i in (row, self.baseline)]
        return (row, self.baseline)[counts.index(min(counts))]

    def _loss(self, row: int) -> tuple[float, float, float]:
        """Return the largest mean loss so far, and what bounds the largest loss."""
        if row == self.baseline or not self._slices:
            return 0.0, 0.0, 0.0
        found = [self._advanced(row, k) for k in range(len(self._slices))]
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
        comparison = self._comparisons[row, k]
        own, other = self._answers[row][k], self._answers[self.baseline or 0][k]
        while comparison.n < min(len(own.examples), len(other.examples)):
            example = own.examples[comparison.n]
            in_order = example == other.examples[comparison.n]
            if not in_order or example not in own.ranges or example not in other.ranges:
                break
            comparison.push(own.ranges[example], other.ranges[example])
        return comparison

    def _new(self, k: int) -> Comparison:
        confidence = 0.5 if self._confidence is None else self._confidence
        return Comparison(
            Question(
                margin=self.constraint.limit,
                improve=False,
                alpha=1.0 - confidence,
                n_challengers=max(1, len(self._answers) - 1),
                n_examples=len(self._slices[k].examples),
                n_parts=len(self._slices),
            )
        )


def _middles(comparison: Comparison) -> FloatArray:
    return np.asarray(np.subtract(comparison.gains, comparison.losses) / 2.0)
