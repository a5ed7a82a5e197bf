"""The answer of a gate: in words, as JSON, as Markdown (for comments), and as JUnit XML."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from bestarm_agent.domain.text import about, percent, points, safe, signed, signed_range
from bestarm_agent.engine.mode import ModeResult, ModeRow
from bestarm_agent.engine.results.decision import listed
from bestarm_agent.errors import counted
from bestarm_agent.gate.pairs import Challenger, worst
from bestarm_agent.report.markdown import escaped
from bestarm_agent.stats.new_examples import Lead, examples_to_prove
from bestarm_agent.stats.non_inferiority import Comparison, Conclusion, Question

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SIGNS = {
    Conclusion.PASSED: "✅",
    Conclusion.FAILED: "❌",
    Conclusion.UNDECIDED: "⚠️",
}  # in Markdown
_MARKS = {Conclusion.PASSED: "PASS", Conclusion.FAILED: "FAIL", Conclusion.UNDECIDED: "UNDECIDED"}
_NOTE = (
    "Differences are challenger minus baseline, in points, on common examples; each end of an "
    "interval holds at the confidence."
)
_COLUMNS = ("Challenger", "Decision", "Examples", "Difference", "Interval", "Better, worse on")


def gate_result(
    baseline: str,
    challengers: Mapping[str, Challenger],
    remarks: Sequence[str] = (),
    facts: Mapping[str, object] | None = None,
    doubt: str = "",
) -> ModeResult:
    """Return the verdicts on challengers.

    Args:
        baseline: its label.
        challengers: one or more, by label.
        remarks: lines to add, such as what was spent.
        facts: entries to add to the JSON object.
        doubt: why the scores are not to be trusted; with one nobody passes.
    """
    if doubt:
        challengers = {label: test.doubted() for label, test in challengers.items()}
    question = next(iter(challengers.values())).parts[0].question
    verdict = worst(test.verdict for test in challengers.values())
    tests = [test for challenger in challengers.values() for test in challenger.comparisons]
    return ModeResult(
        title="Gate",
        note=_NOTE,
        ranking="The ranking shows the mean scores.",
        columns=_COLUMNS,
        rows=tuple(
            row._replace(said=". ".join(filter(None, [doubt, row.said])))
            for label, test in challengers.items()
            for row in _rows(safe(label), test)
        ),
        lines=(
            *filter(None, [doubt]),
            *(
                # an undecided one is called so once
                f"{_MARKS[test.verdict]}: {statement(label, test)}".replace(" is undecided", "", 1)
                for label, test in challengers.items()
            ),
            f"Baseline: {safe(baseline)}",
            f"How sure: {_sure(question, tests)}",
            *remarks,
        ),
        verdict=verdict,
        marks=_MARKS,
        as_json={
            "verdict": verdict.value,
            "baseline": baseline,
            "margin": question.margin,
            "improve": question.improve,
            "for": "new" if question.on_new else "seen",
            "confidence": 1.0 - question.alpha,
            "examples": question.n_examples,
            "challengers": [_challenger_json(label, test) for label, test in challengers.items()],
            **(facts or {}),
        },
    )


def statement(label: str, challenger: Challenger) -> str:
    """Say in a sentence what was found of one challenger."""
    over_all, *slices = challenger.comparisons
    names = [safe(part.name) for part in challenger.parts[1:]]
    by_name = list(zip(names, slices, strict=True))
    text = _found(over_all, " over all examples" if slices else "")
    failed = [
        _found(test, f" on {name}") for name, test in by_name if test.verdict is Conclusion.FAILED
    ]
    open_ = [name for name, test in by_name if not test.is_decided]
    texts = [text, *failed] if over_all.verdict is Conclusion.FAILED else [*failed, text]
    if open_:
        texts.append(f"undecided on {listed(open_, len(open_))}")
    elif slices and not failed:
        texts.append(
            f"{word(slices[0].question, slices[0].verdict)} on each of {len(slices)} slices"
        )
    if (needed := _needed(over_all)) is not None:
        texts.append(f"about {about(needed)} examples should decide it")
    undecided = challenger.verdict is over_all.verdict is Conclusion.UNDECIDED
    if undecided and over_all.worse_after < math.inf:
        texts.append("it is worse than the baseline, perhaps by less than the margin")
    return f"{safe(label)} is {'; '.join(texts)}"


def _needed(test: Comparison) -> int | None:
    """Return how many examples would decide, where all are used up and more of them may."""
    question, differing = test.question, float(np.square(test.gains).mean()) if test.n else 0.0
    if test.is_decided or not question.on_new or test.n < question.n_examples or not differing:
        return None
    lead = Lead(abs(_difference(test) - question.bar), test.n, differing)
    return examples_to_prove([lead], 1.0 / max(question.enough_to_pass, question.enough_to_fail))


def word(question: Question, verdict: Conclusion) -> str:
    """Say a verdict in words."""
    margin = question.margin
    if verdict is Conclusion.UNDECIDED:
        return "undecided"
    what = "better" if question.improve else "worse"
    what += f" by more than {points(margin)}" if margin else ""
    return what if question.improve == (verdict is Conclusion.PASSED) else f"not {what}"


def _sure(question: Question, tests: Sequence[Comparison]) -> str:
    """Give the grounds of the verdicts in one sentence."""
    whose = "all verdicts together are" if len(tests) > 1 else "the verdict is"
    n = counted(question.n_examples, "example")
    where = f"for new examples like your {n}" if question.on_new else f"on your {n}"
    other = "" if question.on_new else "; --for new asks about new ones like them"
    sure = percent(1.0 - question.alpha, exact=True)
    if not any(test.is_decided for test in tests):
        return f"nothing is proved at {sure} yet {where}{other}"
    return f"{sure} sure that {whose} right {where}, whenever one looked{other}"


def _rows(label: str, challenger: Challenger) -> list[ModeRow]:
    """Return a table row for a challenger, and after it one for each slice."""
    over_all, *slices = challenger.comparisons
    whole = f"{label} · all examples" if slices else label  # its slices may decide otherwise
    rows = [ModeRow(_cells(whole, over_all), over_all.verdict, statement(label, challenger))]
    for part, group in zip(challenger.parts[1:], slices, strict=True):
        name = safe(part.name)
        sentence = f"{label} is {_found(group, f' on {name}')}"
        rows.append(ModeRow(_cells(f"{label} · {name}", group), group.verdict, sentence))
    return rows


def _cells(name: str, test: Comparison) -> tuple[str, ...]:
    numbers = _numbers(test)
    difference = signed(_difference(test)) if test.n else "-"
    counts = f"{numbers['better_on']:,}, {numbers['worse_on']:,}"
    found = f"{test.n:,}", difference, signed_range(*test.interval()), counts
    return name, word(test.question, test.verdict), *found


def _found(test: Comparison, where: str) -> str:
    """Say what was found on the examples of a part."""
    ends = signed_range(*test.interval())
    numbers = f": {signed(_difference(test))} points ({ends})" if test.n else ""
    seen = f"after {test.n:,} of {counted(test.question.n_examples, 'example')}"
    return f"{word(test.question, test.verdict)}{where}{numbers}, {seen}"


def _challenger_json(label: str, challenger: Challenger) -> dict[str, object]:
    over_all, *slices = challenger.comparisons
    return {
        "label": label,
        "verdict": challenger.verdict.value,
        "verdict_over_all": over_all.verdict.value,
        **_numbers(over_all),
        "slices": [
            {
                "slice": part.name,
                "verdict": group.verdict.value,
                "margin": group.question.margin,
                "of_examples": group.question.n_examples,
                **_numbers(group),
            }
            for part, group in zip(challenger.parts[1:], slices, strict=True)
        ],
    }


def _numbers(test: Comparison) -> dict[str, object]:
    gains, losses = np.array(test.gains), np.array(test.losses)
    return {
        "examples": test.n,
        "void": int((gains != -losses).sum()),  # pairs of which one side could not be measured
        "difference": _difference(test) if test.n else None,
        "interval": list(test.interval()),
        "better_on": int((gains > 0).sum()),
        "worse_on": int((losses > 0).sum()),
        "worse_after": int(test.worse_after) if test.worse_after < math.inf else None,
    }


def _difference(test: Comparison) -> float:
    """Estimate the mean score of the challenger minus the baseline's, inside its interval.

    What the examples taken say may lie outside it: of a fixed set the interval is of all examples.
    """
    mean = float((np.array(test.gains) - np.array(test.losses)).mean() / 2)
    lower, upper = test.interval()
    return min(max(mean, lower), upper)


def markdown(result: ModeResult, name: str) -> str:
    """Return the answer as Markdown; names of candidates are shown as they are, and do nothing.

    ``name`` is that of the study.
    """
    verdict = next(row.cells[1] for row in result.rows if row.verdict is result.verdict)
    head = [
        f"### {_SIGNS[result.verdict]} {result.title} {escaped(name)}: {verdict}",
        "",
        f"| {' | '.join(result.columns)} |",
        f"| --- | --- |{' ---: |' * (len(result.columns) - 2)}",
    ]
    rows = [
        f"| {escaped(row.cells[0])} | {_SIGNS[row.verdict]} {' | '.join(row.cells[1:])} |"
        for row in result.rows
    ]
    lines = [f"- {escaped(' '.join(line.split()))}" for line in result.lines]
    return "\n".join([*head, *rows, "", *lines]) + "\n"


def junit(result: ModeResult, name: str) -> str:
    """Return the answer as JUnit XML: a test per challenger and slice, in error if undecided."""
    from xml.etree import ElementTree  # for those who ask for it

    verdicts = [row.verdict for row in result.rows]
    suite = ElementTree.Element(
        "testsuite",
        name=_xml(f"gate {name}"),
        tests=str(len(verdicts)),
        failures=str(verdicts.count(Conclusion.FAILED)),
        errors=str(verdicts.count(Conclusion.UNDECIDED)),
    )
    for row in result.rows:
        label, verdict, *_ = row.cells
        case = ElementTree.SubElement(
            suite, "testcase", classname=_xml(f"gate.{name}"), name=_xml(label)
        )
        if row.verdict is Conclusion.PASSED:
            ElementTree.SubElement(case, "system-out").text = _xml(row.said)
        else:
            kind = "failure" if row.verdict is Conclusion.FAILED else "error"
            ElementTree.SubElement(case, kind, message=_xml(row.said), type=verdict)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _xml(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
