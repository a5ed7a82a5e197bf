"""The answer of a gate, for people and programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bestarm_agent.engine.mode import ModeResult, ModeRow
from bestarm_agent.gate.pairs import worst
from bestarm_agent.report.text import safe
from bestarm_agent.stats.non_inferiority import Question, Verdict

TITLE_WIDTH = len("Baseline:  ")
_NAMED = 3  # slices that a sentence names
_MARKS = {Verdict.PASSED: "PASS", Verdict.FAILED: "FAIL", Verdict.UNDECIDED: "OPEN"}
_NOTE = (
    "Differences are challenger minus baseline, on common examples; each end of an interval "
    "holds at the confidence."
)
_COLUMNS = (
    *("Challenger", "Verdict", "Examples", "Difference", "Interval"),
    *("Better on", "Worse on"),
)


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
        return worst([self.alone, *(one.alone for one in self.slices)])

    @property
    def word(self) -> str:
        """The verdict on these examples, in words."""
        return word(self.question, self.alone)

    @property
    def interval(self) -> str:
        """The interval of the difference."""
        return f"[{self.lower:+.3f}, {self.upper:+.3f}]"

    def found(self, where: str = "") -> str:
        """Say what was found on these examples."""
        numbers = f": difference {self.difference:+.3f} {self.interval}" if self.n else ""
        seen = f"after {self.n:,} of {self.question.n_examples:,} examples"
        return f"{self.word}{where}{numbers}, {seen}"


def gate_result(
    baseline: str,
    question: Question,
    compared: Sequence[Compared],
    remarks: Sequence[str] = (),
    facts: Mapping[str, object] | None = None,
) -> ModeResult:
    """Return the verdicts on challengers.

    Args:
        baseline: its label.
        question: what is asked over all examples.
        compared: the challengers, one or more.
        remarks: lines to add, such as what was spent.
        facts: entries to add to the JSON object.
    """
    verdict = worst(one.verdict for one in compared)
    lines = [f"{_MARKS[one.verdict] + ':':<{TITLE_WIDTH}}{statement(one)}" for one in compared]
    return ModeResult(
        title="Gate",
        note=_NOTE,
        ranking="The ranking shows the mean scores.",
        columns=_COLUMNS,
        rows=tuple(row for one in compared for row in _rows(one)),
        lines=(
            *lines,
            f"Baseline:  {safe(baseline)}",
            f"How sure:  {_sure(question, compared)}",
            *remarks,
        ),
        verdict=verdict,
        marks=_MARKS,
        as_json={
            "verdict": verdict.value,
            "baseline": baseline,
            "margin": question.margin,
            "improve": question.improve,
            "confidence": 1.0 - question.alpha,
            "examples": question.n_examples,
            "challengers": [_challenger_json(one) for one in compared],
            **(facts or {}),
        },
    )


def statement(one: Compared) -> str:
    """Say in a sentence what was found of one challenger."""
    over_all = one.found(" over all examples" if one.slices else "")
    bad = [part for part in one.slices if part.alone is Verdict.FAILED]
    failed = [part.found(f" on {safe(part.label)}") for part in bad]
    open_ = [safe(part.label) for part in one.slices if part.alone is Verdict.UNDECIDED]
    texts = [over_all, *failed] if one.alone is Verdict.FAILED else [*failed, over_all]
    if open_:
        more = f" and {len(open_) - _NAMED} more" if len(open_) > _NAMED else ""
        texts.append(f"undecided on {', '.join(open_[:_NAMED])}{more}")
    elif one.slices and not failed:
        texts.append(f"{one.slices[0].word} on each of {len(one.slices)} slices")
    undecided = one.verdict is one.alone is Verdict.UNDECIDED
    if undecided and one.worse_after is not None:
        texts.append("it is worse than the baseline, perhaps by less than the margin")
    return f"{safe(one.label)} is {'; '.join(texts)}"


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


def _sure(question: Question, compared: Sequence[Compared]) -> str:
    """Give the grounds of the verdicts in one sentence."""
    several = len(compared) > 1 or any(one.slices for one in compared)
    whose = "all verdicts together are" if several else "the verdict is"
    return (
        f"{1.0 - question.alpha:.0%} sure that {whose} right, whenever one looked "
        f"(anytime-valid, on common examples)"
    )


def _rows(challenger: Compared) -> list[ModeRow]:
    """Return a table row for a challenger, and after it one for each slice."""
    label = safe(challenger.label)
    rows = [ModeRow(_cells(label, challenger), challenger.alone, statement(challenger))]
    for one in challenger.slices:
        said = f"{label} is {one.found(f' on {safe(one.label)}')}"
        rows.append(ModeRow(_cells(f"{label} · {safe(one.label)}", one), one.alone, said))
    return rows


def _cells(name: str, one: Compared) -> tuple[str, ...]:
    difference = f"{one.difference:+.3f}" if one.n else "-"
    counts = f"{one.better_on:,}", f"{one.worse_on:,}"
    return name, one.word, f"{one.n:,}", difference, one.interval, *counts


def _challenger_json(one: Compared) -> dict[str, object]:
    return {
        "label": one.label,
        "verdict": one.verdict.value,
        "verdict_over_all": one.alone.value,
        **_numbers(one),
        "slices": [
            {
                "slice": part.label,
                "verdict": part.alone.value,
                "margin": part.question.margin,
                "of_examples": part.question.n_examples,
                **_numbers(part),
            }
            for part in one.slices
        ],
    }


def _numbers(one: Compared) -> dict[str, object]:
    return {
        "examples": one.n,
        "void": one.void,
        "difference": None if math.isnan(one.difference) else one.difference,
        "interval": [one.lower, one.upper],
        "better_on": one.better_on,
        "worse_on": one.worse_on,
        "worse_after": one.worse_after,
    }
