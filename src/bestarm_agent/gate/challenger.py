"""A challenger: what is asked of it, over all examples and in each slice of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bestarm_agent.stats.intervals.non_inferiority import Comparison, Question, Verdict

Ranges: TypeAlias = Mapping[int, tuple[float, float]]


@dataclass(frozen=True)
class Part:
    """All examples or a slice of them, in the order in which they count."""

    name: str  # of the slice; empty for all examples
    examples: Sequence[int]  # in the one random order of all
    question: Question


class Challenger:
    """The comparisons of one challenger with the baseline, one for each part.

    Each takes the examples of its part in order, as far as both scores are known, so a slow answer
    is waited for, whatever it may be.

    Attributes:
        comparisons: one for each part; the first is over all examples.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._parts_of: dict[int, list[int]] = {}
        for number, part in enumerate(parts):
            for example in part.examples:
                self._parts_of.setdefault(example, []).append(number)
        self.comparisons = [Comparison(part.question) for part in parts]

    @property
    def verdict(self) -> Verdict:
        """Failed as soon as one part is; passed once all are."""
        found = {one.verdict for one in self.comparisons}
        for verdict in (Verdict.FAILED, Verdict.UNDECIDED):
            if verdict in found:
                return verdict
        return Verdict.PASSED

    @property
    def is_decided(self) -> bool:
        """Return whether there is an answer."""
        return self.verdict is not Verdict.UNDECIDED

    @property
    def open_parts(self) -> list[int]:
        """Numbers of the parts that still need examples."""
        if self.verdict is Verdict.FAILED:
            return []
        return [k for k, one in enumerate(self.comparisons) if not one.is_decided]

    @property
    def n(self) -> int:
        """Number of examples that were taken, in all parts together."""
        return sum(one.n for one in self.comparisons)

    def needs(self, example: int) -> bool:
        """Return whether an open part has the example."""
        parts = self._parts_of[example]
        return not self.is_decided and any(not self.comparisons[k].is_decided for k in parts)

    def take(self, own: Ranges, baseline: Ranges) -> bool:
        """Take the next example of a part, if both scores are known; return whether there is one.

        ``own`` and ``baseline`` are the ranges [low, high] of the known scores, by example.
        """
        for part, comparison in zip(self._parts, self.comparisons, strict=True):
            if comparison.is_decided or comparison.n == len(part.examples):
                continue
            example = part.examples[comparison.n]
            if example in own and example in baseline:
                comparison.push(own[example], baseline[example])
                return True
        return False
