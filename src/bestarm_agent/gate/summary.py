"""The answer of a gate, for people and programs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from bestarm_agent.report.text import safe
from bestarm_agent.stats.intervals.non_inferiority import Question, Verdict

_NAMED = 3  # slices that a sentence names

MARKS = {Verdict.PASSED: "PASS", Verdict.FAILED: "FAIL", Verdict.UNDECIDED: "OPEN"}


@dataclass(frozen=True, slots=True)
class Compared:
    """One challenger, on the examples that it and the baseline have both answered."""

    label: str  # of the challenger; of a slice its name
    question: Question
    alone: Verdict  # on these examples, whatever is shown on slices of them
    n: int  # common examples used
    void: int  # of these, pairs of which one side could not be measured
    difference: float  # mean score of the challenger minus the baseline's; NaN without an example
    lower: float  # ends of what the difference over all examples may be
    upper: float
    better_on: int  # examples with a higher score than the baseline's
    worse_on: int
    worse_after: int | None  # examples that showed it to be worse, if only by a little
    slices: tuple[Compared, ...] = ()  # the same on each slice of the examples

    @property
    def verdict(self) -> Verdict:
        """Failed if it is so here or on any slice; passed if it is so here and on all."""
        return _worst({self.alone, *(one.alone for one in self.slices)})

    @property
    def word(self) -> str:
        """The verdict on these examples, in words."""
        return word(self.question, self.alone)

    @property
    def word_in_all(self) -> str:
        """The verdict on these examples and all slices, in words."""
        return next(one.word for one in (self, *self.slices) if one.alone is self.verdict)

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
        "holds at the confidence."
    )
    ranking: ClassVar[str] = "The ranking shows the mean scores."
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
        return _worst({one.verdict for one in self.compared})

    @property
    def is_answered(self) -> bool:
        """Return whether every challenger has its verdict."""
        return all(one.verdict is not Verdict.UNDECIDED for one in self.compared)

    @property
    def word(self) -> str:
        """The verdict of all challengers together, in words."""
        return next(one.word_in_all for one in self.compared if one.verdict is self.verdict)

    @property
    def has_slices(self) -> bool:
        """Return whether there are verdicts on slices."""
        return any(one.slices for one in self.compared)

    @property
    def sure(self) -> str:
        """The grounds of the verdicts, in one sentence."""
        several = len(self.compared) > 1 or self.has_slices
        whose = "all verdicts together are" if several else "the verdict is"
        return (
            f"{1.0 - self.question.alpha:.0%} sure that {whose} right, whenever one looked "
            f"(anytime-valid, on common examples)"
        )

    def statement(self, one: Compared) -> str:
        """Say in a sentence what was found of one challenger."""
        over_all = _found(one, " over all examples" if one.slices else "")
        bad = [part for part in one.slices if _is_failed(part)]
        failed = [_found(part, f" on {safe(part.label)}") for part in bad]
        open_ = [safe(part.label) for part in one.slices if part.alone is Verdict.UNDECIDED]
        texts = [over_all, *failed] if _is_failed(one) else [*failed, over_all]
        if open_:
            more = f" and {len(open_) - _NAMED} more" if len(open_) > _NAMED else ""
            texts.append(f"undecided on {', '.join(open_[:_NAMED])}{more}")
        elif one.slices and not failed:
            texts.append(f"{one.slices[0].word} on each of {len(one.slices)} slices")
        return f"{safe(one.label)} is {'; '.join([*texts, *_outlook(one)])}"

    def outlooks(self) -> list[str]:
        """Say what is known of the challengers that are undecided, a sentence each."""
        return [
            f"{safe(one.label)}: {'; '.join(parts)}"
            for one in self.compared
            if (parts := _outlook(one))
        ]

    def lines(self) -> list[str]:
        """Describe the answer in a few lines."""
        lines = [f"{MARKS[one.verdict] + ':':<11}{self.statement(one)}" for one in self.compared]
        baseline = f"Baseline:  {safe(self.baseline)}"
        return [*lines, baseline, f"How sure:  {self.sure}", *self.remarks]

    def rows(self) -> list[tuple[str, ...]]:
        """Return a table row for each challenger, and after it one for each slice."""
        return [
            (
                safe(label),
                one.word,
                f"{one.n:,}",
                f"{one.difference:+.3f}" if one.n else "-",
                one.interval,
                f"{one.better_on:,}",
                f"{one.worse_on:,}",
            )
            for label, one in self.entries()
        ]

    def entries(self) -> Iterator[tuple[str, Compared]]:
        """Yield label and findings of every row of the table."""
        for one in self.compared:
            yield one.label, one
            yield from ((f"· {part.label}", part) for part in one.slices)

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
                    "verdict_over_all": one.alone.value,
                    **_json(one),
                    "slices": [
                        {
                            "slice": part.label,
                            "verdict": part.alone.value,
                            "margin": part.question.margin,
                            "of_examples": part.question.n_examples,
                            **_json(part),
                        }
                        for part in one.slices
                    ],
                }
                for one in self.compared
            ],
            **self.facts,
        }


def word(question: Question, verdict: Verdict) -> str:
    """Say a verdict in words."""
    margin = question.margin
    if verdict is Verdict.UNDECIDED:
        return "undecided"
    if question.improve:
        better = f"better by more than {margin:g}" if margin else "better"
        return better if verdict is Verdict.PASSED else f"not {better}"
    worse = f"worse by more than {margin:g}" if margin else "worse"
    return worse if verdict is Verdict.FAILED else f"not {worse}"


def _worst(found: set[Verdict]) -> Verdict:
    for verdict in (Verdict.FAILED, Verdict.UNDECIDED):
        if verdict in found:
            return verdict
    return Verdict.PASSED


def _is_failed(one: Compared) -> bool:
    return one.alone is Verdict.FAILED


def _found(one: Compared, where: str) -> str:
    """Say what was found on some examples."""
    numbers = f": difference {one.difference:+.3f} {one.interval}" if one.n else ""
    return f"{one.word}{where}{numbers}, after {one.n:,} of {one.question.n_examples:,} examples"


def _json(one: Compared) -> dict[str, object]:
    return {
        "examples": one.n,
        "void": one.void,
        "difference": None if math.isnan(one.difference) else one.difference,
        "interval": [one.lower, one.upper],
        "better_on": one.better_on,
        "worse_on": one.worse_on,
        "worse_after": one.worse_after,
    }


def _outlook(one: Compared) -> list[str]:
    """Say what is known of an undecided challenger."""
    undecided = one.verdict is Verdict.UNDECIDED and one.alone is Verdict.UNDECIDED
    if not undecided or one.worse_after is None:
        return []
    return ["it is worse than the baseline, perhaps by less than the margin"]
