"""The answer of a gate, for people and programs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from bestarm_agent.gate.evidence import Question, Verdict
from bestarm_agent.report.text import safe


@dataclass(frozen=True, slots=True)
class Compared:
    """One challenger, on the examples that it and the baseline have both answered."""

    label: str
    verdict: Verdict
    n: int  # common examples used
    void: int  # of these, pairs of which one side could not be measured
    difference: float  # mean score of the challenger minus the baseline's; NaN without an example
    lower: float  # ends of what the difference over all examples may be
    upper: float
    better_on: int  # examples with a higher score than the baseline's
    worse_on: int
    worse_after: int | None  # examples that showed it to be worse, if only by a little
    given_up: bool = False  # whether the budget left next to no chance of an answer
    # number of examples that would probably give an answer; None: decided, or no number would
    forecast: int | None = None

    @property
    def interval(self) -> str:
        """The interval of the difference."""
        return f"[{self.lower:+.3f}, {self.upper:+.3f}]"


@dataclass(frozen=True, slots=True)
class GateSummary:
    """The answer to the question of a gate, so far."""

    baseline: str
    question: Question
    compared: tuple[Compared, ...]
    name: str  # of the study
    remarks: tuple[str, ...] = ()  # lines to add, such as what was spent
    facts: Mapping[str, object] = field(default_factory=dict)  # entries to add to the JSON object

    title: ClassVar[str] = "Gate"
    note: ClassVar[str] = (
        "Differences are challenger minus baseline, on common examples; each end of an interval "
        "holds at the confidence. The ranking above shows the mean scores."
    )
    columns: ClassVar[tuple[str, ...]] = (
        "Challenger",
        "Verdict",
        "Examples",
        "Difference",
        "Interval",
        "Better on",
        "Worse on",
    )

    @property
    def verdict(self) -> Verdict:
        """Failed if any challenger is; passed if all are."""
        found = {one.verdict for one in self.compared}
        for verdict in (Verdict.FAILED, Verdict.UNDECIDED):
            if verdict in found:
                return verdict
        return Verdict.PASSED

    @property
    def is_answered(self) -> bool:
        """Return whether every challenger has its verdict."""
        return all(one.verdict is not Verdict.UNDECIDED for one in self.compared)

    def word(self, verdict: Verdict) -> str:
        """Say a verdict in words."""
        margin = self.question.margin
        if verdict is Verdict.UNDECIDED:
            return "undecided"
        if self.question.improve:
            better = f"better by more than {margin:g}" if margin else "better"
            return better if verdict is Verdict.PASSED else f"not {better}"
        worse = f"worse by more than {margin:g}" if margin else "worse"
        return worse if verdict is Verdict.FAILED else f"not {worse}"

    @property
    def sure(self) -> str:
        """The grounds of the verdicts, in one sentence."""
        several = len(self.compared) > 1
        whose = "all verdicts together are" if several else "the verdict is"
        return (
            f"{1.0 - self.question.alpha:.0%} sure that {whose} right, whenever one looked "
            f"(anytime-valid, on common examples)"
        )

    def statement(self, one: Compared) -> str:
        """Say in a sentence what was found of one challenger."""
        n_all = self.question.n_examples
        text = f"{safe(one.label)} is {self.word(one.verdict)}"
        if one.n:
            text += f": difference {one.difference:+.3f} {one.interval}"
        text += f", after {one.n:,} of {n_all:,} examples"
        return "; ".join([text, *_outlook(one)])

    def outlooks(self) -> list[str]:
        """Say what is known of the challengers that are undecided, a sentence each."""
        return [
            f"{safe(one.label)}: {'; '.join(parts)}"
            for one in self.compared
            if (parts := _outlook(one))
        ]

    def lines(self) -> list[str]:
        """Describe the answer in a few lines."""
        marks = {Verdict.PASSED: "PASS", Verdict.FAILED: "FAIL", Verdict.UNDECIDED: "OPEN"}
        lines = [f"{marks[one.verdict] + ':':<11}{self.statement(one)}" for one in self.compared]
        baseline = f"Baseline:  {safe(self.baseline)}"
        return [*lines, baseline, f"How sure:  {self.sure}", *self.remarks]

    def rows(self) -> list[tuple[str, ...]]:
        """Return a table row for each challenger."""
        return [
            (
                safe(one.label),
                self.word(one.verdict),
                f"{one.n:,}",
                f"{one.difference:+.3f}" if one.n else "-",
                one.interval,
                f"{one.better_on:,}",
                f"{one.worse_on:,}",
            )
            for one in self.compared
        ]

    def as_json(self) -> dict[str, object]:
        """Return the answer as a JSON object."""
        question = self.question
        return {
            "verdict": self.verdict.value,
            "baseline": self.baseline,
            "margin": question.margin,
            "improve": question.improve,
            "confidence": 1.0 - question.alpha,
            "examples": question.n_examples,
            "challengers": [
                {
                    "label": one.label,
                    "verdict": one.verdict.value,
                    "examples": one.n,
                    "void": one.void,
                    "difference": None if math.isnan(one.difference) else one.difference,
                    "interval": [one.lower, one.upper],
                    "better_on": one.better_on,
                    "worse_on": one.worse_on,
                    "worse_after": one.worse_after,
                    "given_up": one.given_up,
                    "forecast_examples": one.forecast,
                }
                for one in self.compared
            ],
            **self.facts,
        }


def _outlook(one: Compared) -> list[str]:
    """Say what is known of an undecided challenger; what would decide is a forecast."""
    if one.verdict is not Verdict.UNDECIDED or not one.n:
        return []
    parts = []
    if one.worse_after is not None:
        parts.append("it is worse than the baseline, perhaps by less than the margin")
    if one.given_up:
        parts.append("given up early, as the budget would probably end without an answer")
    if one.forecast is None:
        return [*parts, "forecast: not even all examples would decide"]
    return [*parts, f"forecast: about {one.forecast:,} examples would decide"]
