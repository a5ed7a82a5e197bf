from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.gate.pairs import Challenger, Part
from bestarm_agent.gate.summary import gate_result, junit, markdown, word
from bestarm_agent.stats.non_inferiority import Conclusion, Question

HOSTILE = "a|b <img src=x> [x](http://e.vil) @all #1 `c`\n\x1b[31m*_"
QUESTION = Question(0.05, False, 0.05, 3, 2_000)


def challenger(n: int, score: float, *slices: tuple[str, float]) -> Challenger:
    """One that scores so beside a baseline of .5 on n examples, and on n of each slice."""
    parts = [Part("", range(2_000), QUESTION)]
    own = dict.fromkeys(range(n), score)
    for k, (name, mean) in enumerate(slices, 2):
        members = range(1_000 * k, 1_000 * k + 50)
        parts.append(Part(name, members, replace(QUESTION, n_examples=50, n_parts=2)))
        own |= dict.fromkeys(members, mean)
    found = Challenger(parts)
    found.take({j: (x, x) for j, x in own.items()}, dict.fromkeys(own, (0.5, 0.5)))
    return found


PASSED, FAILED, OPEN = challenger(400, 0.5), challenger(400, 0.0), challenger(60, 0.4)


@pytest.fixture
def found() -> ModeResult:
    return gate_result(HOSTILE, {"p": PASSED, "f": FAILED, HOSTILE: OPEN})


def test_names_do_nothing_in_markdown(found: ModeResult) -> None:
    text = markdown(found, "support & co")
    for harmful in ("<img", "](", "@all", " #1", "`", "\x1b", "|b", "*_", "http://"):
        assert not re.search(rf"(?<!\\){re.escape(harmful)}", text), harmful
    assert len([line for line in text.splitlines() if line.startswith("| ")]) == 5
    assert "it is worse than the baseline, perhaps by less than the margin" in text


def test_junit_is_well_formed_and_complete(found: ModeResult) -> None:
    suite = ElementTree.fromstring(junit(found, "support & co"))
    counts = {"tests": "3", "failures": "1", "errors": "1"}
    assert suite.attrib == {"name": "gate support & co", **counts}
    passed, failed, undecided = suite.findall("testcase")
    assert "p is not worse by more than 5 points" in (passed.findtext("system-out") or "")
    failure, error = failed.find("failure"), undecided.find("error")
    assert failure is not None
    assert "worse by more than 5 points" in (failure.get("message") or "")
    assert error is not None
    assert error.get("type") == "undecided"


@pytest.mark.parametrize(
    ("compared", "verdict"),
    [
        ((PASSED, FAILED, OPEN), Conclusion.FAILED),
        ((PASSED, OPEN), Conclusion.UNDECIDED),
        ((PASSED,), Conclusion.PASSED),
        ((challenger(400, 0.5, ("l=de", 0.0)),), Conclusion.FAILED),
        ((challenger(40, 0.5, ("l=de", 0.5)),), Conclusion.UNDECIDED),
    ],
)
def test_the_worst_verdict_is_that_of_the_gate(
    compared: tuple[Challenger, ...], verdict: Conclusion
) -> None:
    found = gate_result("b", {f"c{k}": one for k, one in enumerate(compared)})
    assert found.verdict is verdict
    assert found.as_json["verdict"] == verdict.value


def test_a_slice_is_a_test_of_its_own_in_junit() -> None:
    found = gate_result("b", {"p": challenger(400, 0.5, ("l=de", 0.0))})
    over_all, de = ElementTree.fromstring(junit(found, "s")).findall("testcase")
    assert (over_all.get("name"), de.get("name")) == ("p · all examples", "p · l=de")
    failure = de.find("failure")
    assert failure is not None
    assert "worse by more than 5 points on l=de" in (failure.get("message") or "")


@pytest.mark.parametrize(
    ("margin", "improve", "words"),
    [
        (0.05, False, ("not worse by more than 5 points", "worse by more than 5 points")),
        (0.0, False, ("not worse", "worse")),
        (0.0, True, ("better", "not better")),
        (0.01, True, ("better by more than 1 point", "not better by more than 1 point")),
    ],
)
def test_verdicts_in_words(margin: float, improve: bool, words: tuple[str, str]) -> None:
    question = Question(margin, improve, 0.05, 1, 10)
    assert (word(question, Conclusion.PASSED), word(question, Conclusion.FAILED)) == words


def test_a_comment_on_a_pull_request_mentions_nobody(found: ModeResult) -> None:
    """GitHub notifies whoever is named after an @, also one behind a backslash."""
    text = markdown(found, "for @octocat")
    assert text.count("@") >= 2
    assert not re.search(r"@\w", text)
