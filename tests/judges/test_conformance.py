"""Every registered judge against the conformance suite."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import Example, Finish, Json, Reply, tool_call
from bestarm_agent.judges.base import JudgeCall
from bestarm_agent.judges.registry import JUDGES, create_judge
from bestarm_agent.testing.judge_suite import JudgeCase, JudgeSuite
from tests.support.judge_answers import mark_in

EXAMPLE = Example("e1", {"question": "What is 19 + 27?", "baseline_output": "It is 45."}, "46")
PARIS = Example("e1", {}, "Paris, the capital")
REFUSED = Reply("no", Finish.REFUSAL)
BLANK = Reply("   ")
FUNCTION = """
def value(answer, example):
    return float(answer == example.reference) if answer else None
"""


def replies(*scored: tuple[str, float]) -> list[tuple[Reply, float]]:
    return [(Reply(text), score) for text, score in scored]


def judge_case(
    name: str,
    scored: Sequence[tuple[Reply, float]],
    *,
    example: Example = EXAMPLE,
    failing: Sequence[Reply] = (REFUSED, BLANK),
    unusable: Sequence[Example] = (),
    **options: Json,
) -> JudgeCase:
    return JudgeCase(
        lambda: create_judge(name, options, Catalog(Path())),
        example,
        scored,
        failing,
        unusable,
        grade,
    )


def grade(call: JudgeCall) -> Reply:
    """Answer as a model would that likes the answer 46 only."""
    prompt = call.request.messages[-1].text
    is_good = "the answer is 46" in prompt
    schema: Any = call.request.response_schema
    if schema is None:
        return Reply("5" if is_good else "1")
    verdict: dict[str, Any] = {"mark": mark_in(prompt)}
    for name, wanted in schema["properties"].items():
        if name == "winner":
            is_first = prompt.find("the answer is") < prompt.find("It is 45.")
            verdict[name] = "first" if is_first == is_good else "second"
        elif "enum" in wanted:
            worst, best = ("incorrect", "correct") if "correct" in wanted["enum"] else (1, 10)
            verdict[name] = best if is_good else worst
    return Reply(json.dumps(verdict))


GOOD_OR_NOT = replies(("the answer is 46", 1.0), ("the answer is 47", 0.0))
NUMBERS = replies(("It is 46.", 1.0), ("47", 0.0))
WORDS = replies(("Paris, the capital", 1.0), ("Zug", 0.0))
NO_REFERENCE = (Example("e9", {"question": "?"}),)
MODEL = "openai/judge"

CASES = {
    "bleu": judge_case("bleu", WORDS, example=PARIS),
    "checks": judge_case(
        "checks",
        replies(("the answer is 46", 1.0), ("the answer is 47", 0.0), ("46", 0.5)),
        checks=["numeric", {"rubric": "Is it right?", "model": MODEL}],
        unusable=NO_REFERENCE,
    ),
    "chrf": judge_case("chrf", WORDS, example=PARIS),
    "contains": judge_case("contains", NUMBERS, unusable=NO_REFERENCE),
    "criteria": judge_case("criteria", GOOD_OR_NOT, model=MODEL, scale=[1, 10]),
    "ensemble": judge_case(
        "ensemble",
        NUMBERS,
        members=[{"name": "contains"}, {"name": "numeric"}],
        unusable=NO_REFERENCE,
    ),
    "exact": judge_case("exact", replies(("46", 1.0), ("47", 0.0)), unusable=NO_REFERENCE),
    "g-eval": judge_case("g-eval", GOOD_OR_NOT, model=MODEL),
    "json-schema": judge_case(
        "json-schema", replies(('{"a": 1}', 1.0), ("[]", 0.0)), json_schema={"type": "object"}
    ),
    "math": judge_case(
        "math",
        replies((r"It is \boxed{46}.", 1.0), ("The answer is 92/2.", 1.0), ("47", 0.0)),
        failing=(REFUSED, BLANK, Reply("I cannot say.")),
        unusable=(Example("e9", {}, " "), *NO_REFERENCE),
    ),
    "multiple-choice": judge_case(
        "multiple-choice",
        replies(("The answer is B", 1.0), ("The answer is A", 0.0)),
        example=Example("e1", {"choices": ["45", "46"]}, "B"),
        failing=(REFUSED,),
    ),
    "numeric": judge_case("numeric", NUMBERS, unusable=(Example("e9", {}, "forty"), *NO_REFERENCE)),
    "pairwise": judge_case("pairwise", GOOD_OR_NOT, unusable=NO_REFERENCE, model=MODEL),
    "recorded": judge_case(
        "recorded", [(Reply("", score=0.25), 0.25), (Reply("", score=1.0), 1.0)], failing=()
    ),
    "reference-graded": judge_case(
        "reference-graded", GOOD_OR_NOT, unusable=NO_REFERENCE, model=MODEL
    ),
    "regex": judge_case("regex", replies(("46!", 1.0), ("47", 0.0)), pattern="46", failing=()),
    "rouge": judge_case("rouge", WORDS, example=PARIS),
    "rubric": judge_case("rubric", GOOD_OR_NOT, model=MODEL),
    "squad-exact": judge_case("squad-exact", WORDS, example=PARIS),
    "tool-call": judge_case(
        "tool-call",
        [(Reply("", tool_calls=(tool_call("f", {}),)), 1.0), (Reply("f()"), 0.0)],
        example=Example("e1", {}, '{"name": "f"}'),
        failing=(REFUSED,),
        unusable=(Example("e9", {}, "f()"), *NO_REFERENCE),
    ),
    "token-f1": judge_case("token-f1", WORDS, example=PARIS),
}
ALL = sorted([*CASES, "python"])  # whose function lies in a file


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name == "math" else name for name in ALL],
)
class TestJudges(JudgeSuite):
    @pytest.fixture
    def case(self, name: str, tmp_path: Path) -> JudgeCase:
        if name in CASES:
            return CASES[name]
        (tmp_path / "own.py").write_text(FUNCTION)
        options: dict[str, Json] = {"function": "own:value", "needs_reference": True}
        return JudgeCase(
            lambda: create_judge("python", options, Catalog(tmp_path)),
            EXAMPLE,
            replies(("46", 1.0), ("47", 0.0)),
            (Reply(""), REFUSED),
        )


def test_every_registered_judge_is_in_the_suite() -> None:
    assert {*ALL, "people"} == set(JUDGES.built_in)  # people score later, and not by it


def test_a_judge_is_registered_under_its_own_name() -> None:
    assert [JUDGES.load(name).adapter for name in ALL] == ALL
