from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.gate.files import junit, markdown
from bestarm_agent.gate.summary import Compared, gate_result, word
from bestarm_agent.stats.non_inferiority import Question, Verdict

HOSTILE = "a|b <img src=x> [x](http://e.vil) @all #1 `c`\n\x1b[31m*_"
QUESTION = Question(0.05, False, 0.05, 3, 2_000)
OPEN = Compared(HOSTILE, QUESTION, Verdict.UNDECIDED, 40, 0, -0.1, -0.3, 0.1, 1, 5, 33)


PASSED = Compared("p", QUESTION, Verdict.PASSED, 120, 2, 0.01, -0.05, 0.08, 9, 8, None)
FAILED = replace(PASSED, label="f", alone=Verdict.FAILED, difference=-0.2)


@pytest.fixture
def found() -> ModeResult:
    return gate_result(HOSTILE, QUESTION, (PASSED, FAILED, OPEN))


def test_names_do_nothing_in_markdown(found: ModeResult) -> None:
    text = markdown(found, "support & co")
    for harmful in ("<img", "](", "@all", " #1", "`", "\x1b", "|b", "*_", "http:"):
        assert harmful not in text, harmful
    assert len([line for line in text.splitlines() if line.startswith("| ")]) == 5
    assert "it is worse than the baseline, perhaps by less than the margin" in text


def test_junit_is_well_formed_and_complete(found: ModeResult) -> None:
    suite = ElementTree.fromstring(junit(found, "support & co"))
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


@pytest.mark.parametrize(
    ("compared", "verdict"),
    [
        ((PASSED, FAILED, OPEN), Verdict.FAILED),
        ((PASSED, OPEN), Verdict.UNDECIDED),
        ((PASSED,), Verdict.PASSED),
        ((replace(PASSED, slices=(FAILED,)),), Verdict.FAILED),
        ((replace(PASSED, slices=(PASSED, OPEN)),), Verdict.UNDECIDED),
    ],
)
def test_the_worst_verdict_is_that_of_the_gate(
    compared: tuple[Compared, ...], verdict: Verdict
) -> None:
    found = gate_result("b", QUESTION, compared)
    assert found.verdict is verdict
    assert found.as_json["verdict"] == verdict.value


def test_a_slice_is_a_test_of_its_own_in_junit() -> None:
    found = gate_result("b", QUESTION, [replace(PASSED, slices=(replace(FAILED, label="l=de"),))])
    over_all, de = ElementTree.fromstring(junit(found, "s")).findall("testcase")
    assert (over_all.get("name"), de.get("name")) == ("p", "p · l=de")
    failure = de.find("failure")
    assert failure is not None
    assert "worse by more than 0.05 on l=de" in (failure.get("message") or "")


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
