"""Assertions of a test, and how their grades combine, as in promptfoo."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from statistics import fmean
from typing import NamedTuple, TypeAlias

from pydantic import Field, JsonValue

from bestarm_agent.domain.outcome import Vote
from bestarm_agent.judges.base_judge import JudgeOptions

Grade: TypeAlias = tuple[float, bool]  # the score of an assertion, and whether it passes


class Combined(NamedTuple):
    """The grade of a group; by metric, sums of weighted scores and of weights."""

    score: float
    passes: bool
    sums: Mapping[str, tuple[float, float]]


class Assertion(JudgeOptions):
    """One assertion of a test, or a group of them (``assert-set``), which combines like a test."""

    type: str = "assert-set"  # a check, perhaps with `not-` before it
    value: JsonValue = None  # what the reply is compared with; of ``python`` the function
    judge: str | None = None  # the member that scores the reply, with ``value`` as the reference
    threshold: float | None = None  # least score to pass; of ``cost`` and ``latency`` the most
    weight: float = Field(1.0, ge=0, allow_inf_nan=False)
    metric: str | None = None  # its name in reports
    members: tuple[Assertion, ...] = Field((), alias="assert")

    @property
    def check(self) -> str:
        """Return the type without `not-`."""
        return self.type.removeprefix("not-")

    @cached_property
    def leaves(self) -> list[Assertion]:
        """Return the assertions that are no groups, in order."""
        if self.type != "assert-set":
            return [self]
        return [leaf for member in self.members for leaf in member.leaves]

    def grade(self, found: bool | float | Grade | None) -> Grade:
        """Return the grade of what a check found, or of a member's score; None fails in any case.

        One of weight 0 always passes. A member that grades says itself whether the answer passes;
        a threshold can only take that back.
        """
        is_negated = self.type.startswith("not-")
        if found is None:
            score, passes = 0.0, False
        elif isinstance(found, bool):
            passes = found != is_negated
            score = float(passes)
        else:
            number, may_pass = found if isinstance(found, tuple) else (found, True)
            least = self.threshold
            if least is None:
                least = 0.0 if isinstance(found, tuple) else 0.5
            score = 1.0 - number if is_negated else number
            passes = (may_pass and number >= least) != is_negated
        return score, passes or self.weight == 0

    def combined(self, grades: Iterator[Grade]) -> Combined:
        """Return its grade, given those of its leaves in order, and the metrics within it.

        The score is the weighted mean; with a threshold it decides, else every assertion must pass
        (promptfoo 0.123.1, `AssertionsResult`).
        """
        if self.type != "assert-set":
            return Combined(*next(grades), {})
        if not self.members:
            return Combined(1.0, True, {})
        found = [member.combined(grades) for member in self.members]
        weights = [member.weight for member in self.members]
        score = fmean([one.score for one in found], weights) if any(weights) else 0.0
        passes = all(one.passes for one in found)
        if self.threshold is not None:
            passes = score >= self.threshold
        sums: dict[str, tuple[float, float]] = {}
        for member, one in zip(self.members, found, strict=True):
            own = {member.metric: (one.score, 1.0)} if member.metric else {}
            for name, (total, weight) in {**one.sums, **own}.items():
                before = sums.get(name, (0.0, 0.0))
                sums[name] = (before[0] + total * member.weight, before[1] + weight * member.weight)
        return Combined(score, passes or self.weight == 0, sums)


def metric_votes(whole: Combined) -> list[Vote]:
    """Return a vote for every metric, with the weighted mean of what bears its name."""
    sums = whole.sums.items()
    means = {name: total / weight if weight else 0.0 for name, (total, weight) in sums}
    return [Vote(name, min(1.0, max(0.0, mean)), f"{mean:.3g}") for name, mean in means.items()]
