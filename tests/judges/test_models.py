"""What all judges do that ask a model."""

from __future__ import annotations

import json

import pytest

from bestarm_agent.domain.values import Example, Finish, Reply, Request, Vote
from bestarm_agent.errors import Blame, ConfigError, FailureKind
from bestarm_agent.judges.registry import check_examples, create_judge
from tests.support.judge_answers import (
    CATALOG,
    EXAMPLE,
    MARK,
    REFUSED,
    Script,
    failure,
    make,
    score,
    verdict,
)


def test_a_rubric_grade_is_mapped_to_the_unit_interval() -> None:
    script = Script([verdict(7)])
    found = score(make("rubric"), script)
    assert found.value == pytest.approx(6 / 9)
    assert found.votes == (Vote("openai/judge", found.value, "7", "because"),)
    request = script.requests[0]
    assert request.params == {"temperature": 0.0, "max_tokens": 1024}
    assert request.response_schema == {
        "title": "verdict",
        "type": "object",
        "properties": {
            "mark": {"type": "string"},
            "explanation": {"type": "string"},
            "verdict": {"type": "integer", "enum": list(range(1, 11))},
        },
        "required": ["mark", "explanation", "verdict"],
        "additionalProperties": False,
    }
    assert [message.role for message in request.messages] == ["system", "user"]
    assert (request.model, request.example, request.attempt) == ("judge", "e1", 0)


def test_the_prompt_shows_task_reference_rubric_and_answer() -> None:
    script = Script([verdict(7)] * 2)
    score(make("rubric", rubric="Be brief!", fields=["question"]), script, "forty-six")
    score(make("rubric"), script, example=Example("e2", {"question": "Why?"}))
    full, bare = (request.messages[-1].text for request in script.requests)
    parts = ("What is 19 + 27?", "\n46\n", "Be brief!", "\nforty-six\n", "from 1 (worst)")
    assert all(part in full for part in parts)
    assert "It is 45." not in full
    assert "reference" not in bare


def test_votes_are_asked_apart_and_averaged() -> None:
    script = Script([verdict(2), verdict(4), verdict(9)])
    judge = make("rubric", votes=3, temperature=0.7, seed=5)
    assert score(judge, script).value == pytest.approx((1 + 3 + 8) / 27)
    assert [r.params["seed"] for r in script.requests] == [5, 6, 7]
    assert [r.attempt for r in script.requests] == [0, 3, 6], "no vote is another one's repetition"
    assert [r.example for r in script.requests] == ["e1/vote-1", "e1/vote-2", "e1/vote-3"]
    assert len(judge.longest_calls(EXAMPLE)) == 3


def test_votes_that_cannot_differ_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"`votes: 3`.*asks the same question 3 times"):
        make("rubric", votes=3)


def test_what_cannot_be_read_is_asked_again_under_another_number() -> None:
    script = Script(["I like it.", verdict(11), verdict(10)])
    assert score(make("rubric"), script).value == 1.0
    assert [r.attempt for r in script.requests] == [0, 1, 2]
    assert len({str(r.as_json()) for r in script.requests}) == 3


def test_a_judge_that_cannot_be_read_has_failed() -> None:
    script = Script(["I like it.", REFUSED, verdict(11)])
    error = failure(make("rubric"), script, Reply("46"))
    assert (error.kind, error.blame) == (FailureKind.JUDGE_FAILED, Blame.JUDGE)
    assert "no readable verdict in 3 attempts; the last time: 11 is not on the scale" in str(error)


SILENT = {
    FailureKind.REFUSED: Reply("I will not.", Finish.REFUSAL),
    FailureKind.CONTENT_FILTERED: Reply("It is", Finish.CONTENT_FILTER),
    FailureKind.UNPARSABLE: Reply(" \n"),
}


@pytest.mark.parametrize("kind", SILENT)
@pytest.mark.parametrize("name", ["rubric", "reference-graded", "criteria", "pairwise"])
def test_no_call_is_made_about_a_reply_that_says_nothing(name: str, kind: FailureKind) -> None:
    script = Script([])
    error = failure(make(name), script, SILENT[kind])
    assert (error.kind, error.blame, script.calls) == (kind, Blame.CANDIDATE, [])


def test_one_failed_vote_waits_for_the_others() -> None:
    script = Script(lambda r: "?" if r.example.endswith("1") else verdict(5))
    judge = make("rubric", votes=2, temperature=1.0, attempts=2)
    assert failure(judge, script, Reply("46")).blame is Blame.JUDGE
    assert len(script.calls) == 3


def test_what_stops_the_run_comes_before_a_verdict_that_could_not_be_read() -> None:
    class Stopped(Exception):
        """As a judge's model that can no longer be called."""

    def said(request: Request) -> str:
        if request.example.endswith("2"):
            raise Stopped
        return "?"

    judge = make("rubric", votes=2, temperature=1.0, attempts=1)
    with pytest.raises(Stopped):
        score(judge, Script(said))


def test_the_digest_says_what_decides_a_score() -> None:
    options: list[dict[str, object]] = [
        {},
        {"model": "openai/other"},
        {"template": "{{ answer }}"},
        {"rubric": "other"},
        {"scale": [1, 5]},
        {"temperature": 1},
        {"votes": 2, "temperature": 1},
        {"max_answer_chars": 100},
    ]
    digests = {make("rubric", **one).digest for one in options}
    assert len(digests | {make("reference-graded").digest}) == 9
    assert make("rubric").digest in digests


def test_a_reference_graded_judge_needs_a_reference() -> None:
    with pytest.raises(ConfigError, match="has no reference answer, which judge `reference-grad"):
        check_examples(make("reference-graded"), [Example("e1", {"question": "?"})])


@pytest.mark.parametrize(
    ("name", "said", "value"),
    [
        ("reference-graded", {"verdict": "correct"}, 1.0),
        ("reference-graded", {"verdict": "Partially correct"}, 0.5),
        ("reference-graded", {"verdict": "incorrect"}, 0.0),
        ("model-graded-qa", {"verdict": "C"}, 1.0),
        ("model-graded-qa", {"verdict": "i"}, 0.0),
        ("model-graded-fact", {"verdict": "C"}, 1.0),
        ("factuality", {"verdict": "B"}, 1.0),
        ("factuality", {"verdict": "D"}, 0.0),
        ("prometheus", {"verdict": 3}, 0.5),
        ("llm-rubric", {"pass": 1, "score": 0.5}, 0.75),
    ],
)
def test_judges_with_published_prompts(name: str, said: dict[str, object], value: float) -> None:
    script = Script([json.dumps({"mark": MARK, "explanation": "so", **said})])
    assert score(make(name), script).value == value
    prompt = script.requests[0].messages[-1].text
    for part in ("What is 19 + 27?", "<<<answer ", "<<<reference ", '"explanation": "<one to'):
        assert part in prompt


def test_the_prompt_ends_with_the_form_of_the_verdict() -> None:
    script = Script([verdict(1)] * 2)
    for explain in (True, False):
        score(make("rubric", explain=explain, template="{{ answer }}"), script)
    endings = [r.messages[-1].text.splitlines()[-1] for r in script.requests]
    scale = '"verdict": <a whole number from 1 (worst) to 10 (best)>}'
    assert endings[0].partition('", ')[2] == f'"explanation": "<one to three sentences>", {scale}'
    assert endings[1].partition('", ')[2] == scale


def test_several_references_are_listed() -> None:
    script = Script([verdict("correct")])
    score(make("reference-graded"), script, example=Example("e", {"q": "?"}, ("46", "forty-six")))
    assert "- 46\n- forty-six" in script.requests[0].messages[-1].text


def test_criteria_are_weighted() -> None:
    criteria = {"truth": {"about": "is true", "weight": 3}, "style": {"about": "reads well"}}
    said = {"mark": MARK, "explanation": "so", "truth": 5, "style": 1}
    script = Script([json.dumps(said)])
    found = score(make("criteria", criteria=criteria), script)
    assert found.value == pytest.approx(0.75)
    assert [(v.by, v.value, v.said, v.why) for v in found.votes] == [
        ("openai/judge (truth)", 1.0, "5", "so"),
        ("openai/judge (style)", 0.0, "1", ""),
    ]
    schema = script.requests[0].response_schema
    assert schema is not None
    assert schema["required"] == ["mark", "explanation", "truth", "style"]
    missing = Script([json.dumps({"mark": MARK, "truth": 5})] * 3)
    assert failure(make("criteria", criteria=criteria), missing, Reply("46")).blame is Blame.JUDGE


@pytest.mark.parametrize("name", ["explanation", "mark", "Big", "a b"])
def test_names_of_criteria_are_checked(name: str) -> None:
    with pytest.raises(ConfigError, match=f"criterion.*{name}"):
        make("criteria", criteria={name: {"about": "x"}})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "gpt"}, "must be `provider/model`, such as"),
        ({"scale": [3, 3]}, "ends of the scale must differ"),
        ({"scale": {"a": 1, "A": 2}}, "the same but for case"),
        ({"template": "{{ answer"}, "line 1 of the template"),
        ({"rubrik": "x"}, "did you mean `rubric`"),
        ({"verdict": "json"}, "unknown option `verdict`"),
        ({"fields": ["title"]}, "has no field `title`, which judge `rubric` shows"),
        ({"template": "{{ solution }}"}, "no field `solution`"),
        ({"model_options": {"api_key": "sk-1"}}, "holds a secret"),
    ],
)
def test_bad_options_say_the_way_out(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_examples(make("rubric", **options), [EXAMPLE])


def test_a_model_must_be_named() -> None:
    with pytest.raises(ConfigError, match="`model` is missing"):
        create_judge("rubric", {}, CATALOG)


def test_long_answers_are_cut_and_the_bound_covers_them() -> None:
    judge = make("rubric", max_answer_chars=100)
    script = Script([verdict(1)])
    score(judge, script, "a" * 300 + "z" * 300)
    prompt = script.requests[0].messages[-1].text
    assert "a" * 50 + "\n[... 500 characters left out ...]\n" + "z" * 50 in prompt
    longest = judge.longest_calls(EXAMPLE)[0].request.messages[-1].text
    assert len(prompt) <= len(longest) + 60
