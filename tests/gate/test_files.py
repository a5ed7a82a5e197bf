from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from bestarm_agent.gate.files import junit, markdown
from bestarm_agent.gate.summary import Compared, GateSummary, word
from bestarm_agent.stats.intervals.non_inferiority import Question, Verdict

HOSTILE = "a|b <img src=x> [x](http://e.vil) @all #1 `c`\n\x1b[31m*_"
QUESTION = Question(0.05, False, 0.05, 3, 2_000)
OPEN = Compared(HOSTILE, QUESTION, Verdict.UNDECIDED, 40, 0, -0.1, -0.3, 0.1, 1, 5, 33)


@pytest.fixture
def found() -> GateSummary:
    passed = Compared("p", QUESTION, Verdict.PASSED, 120, 2, 0.01, -0.05, 0.08, 9, 8, None)
    failed = replace(passed, label="f", alone=Verdict.FAILED, difference=-0.2)
    return GateSummary(HOSTILE, QUESTION, (passed, failed, OPEN), name="support & co")


def test_names_do_nothing_in_markdown(found: GateSummary) -> None:
    text = markdown(found)
    for harmful in ("<img", "](", "@all", " #1", "`", "\x1b", "|b", "*_", "http:"):
        assert harmful not in text, harmful
    assert len([line for line in text.splitlines() if line.startswith("| ")]) == 5
    assert "it is worse than the baseline, perhaps by less than the margin" in text


def test_junit_is_well_formed_and_complete(found: GateSummary) -> None:
    suite = ElementTree.fromstring(junit(found))
    assert suite.attrib == {
        "name": "gate support & co",
        "tests": "3",
        "failures": "1",
        "errors": "1",
    }
    passed, failed, undecided = suite.findall("testcase")
    assert "p is not worse by more than 0.05" in (passed.findtext("system-out") or "")
    failure, error = failed.find("failure"), undecided.find("error")
    assert failure is not None
    assert "worse by more than 0.05" in (failure.get("message") or "")
    assert error is not None
    assert error.get("type") == "undecided"


def test_the_worst_verdict_is_that_of_the_gate(found: GateSummary) -> None:
    passed, failed, undecided = found.compared
    assert found.verdict is Verdict.FAILED
    assert replace(found, compared=(passed, undecided)).verdict is Verdict.UNDECIDED
    assert replace(found, compared=(passed,)).verdict is Verdict.PASSED
    assert not found.is_answered
    assert replace(found, compared=(passed, failed)).is_answered


@pytest.mark.parametrize(
    ("margin", "improve", "words"),
    [
        (0.05, False, ("not worse by more than 0.05", "worse by more than 0.05")),
        (0.0, False, ("not worse", "worse")),
        (0.0, True, ("better", "not better")),
        (0.01, True, ("better by more than 0.01", "not better by more than 0.01")),
    ],
)
def test_verdicts_in_words(margin: float, improve: bool, words: tuple[str, str]) -> None:
    question = Question(margin, improve, 0.05, 1, 10)
    assert (word(question, Verdict.PASSED), word(question, Verdict.FAILED)) == words
