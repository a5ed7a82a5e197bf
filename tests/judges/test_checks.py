"""Checks of the study and of each example: reading, scores, errors, costs, and a whole run."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import Example, Finish, Json, Reply, Score, tool_call
from bestarm_agent.errors import Blame, ConfigError, JudgeError
from bestarm_agent.judges.base import Judge
from bestarm_agent.judges.registry import check_examples, check_targets, create_judge
from bestarm_agent.report.words import facts
from tests.support.commands import Command
from tests.support.judge_answers import NoCalls, Script, score, verdict
from tests.support.studies import run_all, study_file

ROW: dict[str, Json] = {"q": "capital of France?"}
PARIS = Example("e1", ROW, "Paris")


def checks(*written: Json, **options: Json) -> Judge:
    return create_judge("checks", {"checks": list(written), **options}, Catalog())


def scored(judge: Judge, text: str | Reply, example: Example = PARIS) -> Score:
    judge.check(example)
    reply = text if isinstance(text, Reply) else Reply(text)
    return asyncio.run(judge.score(example, reply, NoCalls()))


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        ({"contains": "Paris"}, "It is Paris.", "Rome"),
        ({"contains": ["Paris", "Lutetia"]}, "Lutetia", "Rome"),
        ({"contains": ["a", "b"], "require": "all"}, "a b", "a"),
        ("contains", "It is Paris.", "Rome"),
        ({"exact": None}, "Paris", "It is Paris."),
        ({"numeric": 42}, "about 42", "43"),
        ({"numeric": 42}, "42", "no number"),
        ({"regex": "^P.*s$"}, "Paris", "Rome"),
        ({"regex": "(\\w+)$", "group": 1}, "It is Paris", "It is Rome"),
        ({"json-schema": {"required": ["a"]}}, '{"a": 1}', "{}"),
        ({"json-schema": {}}, "[]", "prose"),
        ({"contains": "Rome", "not": True}, "Paris", "Rome"),
        ({"numeric": 42, "not": True}, "no number", "42"),
        ({"rouge": "the cat sat", "at_least": 0.75}, "the cat sat", "the dog"),
        ({"checks": ["exact", "contains"], "all": True}, "Paris", "It is Paris"),
        ({"ensemble": [{"name": "exact"}, {"name": "contains"}]}, "Paris", "Rome"),
        ({"tool-call": {"name": "f"}}, Reply("", tool_calls=(tool_call("f", {}),)), "f()"),
        ({"contains": "Paris", "exact": None}, "It is Paris.", "Rome"),  # a row of a table
    ],
)
def test_any_scorer_is_a_check(check: Json, right: str | Reply, wrong: str) -> None:
    judge = checks(check)
    assert scored(judge, right).value == 1.0
    assert scored(judge, wrong).value == 0.0


def test_the_score_is_the_weighted_mean_or_the_lowest() -> None:
    written: tuple[Json, ...] = (
        {"contains": "Paris", "weight": 3},
        {"regex": "^.{,20}$", "name": "short"},
        {"regex": "!", "weight": 0, "name": "loud"},
    )
    found = scored(checks(*written), "Paris, since it is where the king lived!")
    assert found.value == 0.75
    assert found.measures == (1.0, 0.0, 1.0)
    assert [(vote.by, vote.value) for vote in found.votes] == [
        ("contains", 1.0),
        ("short", 0.0),
        ("loud", 1.0),
    ]
    assert found.votes[1].said == 'failed "^.{,20}$"'
    assert scored(checks(*written, all=True), "Paris").value == 1.0
    assert scored(checks(*written, all=True), "Paris, since it is where it is").value == 0.0


def test_rows_have_checks_of_their_own_as_lists_or_as_text() -> None:
    judge = checks({"contains": "P", "words": False}, field="tests")
    rows: list[Json] = [
        [{"exact": "Paris"}],
        [],
        None,
        "{exact: Paris, name: whole}",
        '["exact"]',
        {"exact": "Paris"},
    ]
    examples = [Example(f"e{i}", {**ROW, "tests": row}, "Paris") for i, row in enumerate(rows)]
    for example in examples:
        judge.check(example)
    assert judge.measures == ("contains", "exact", "whole")
    values = [scored(judge, "Paris!", example) for example in examples]
    assert [one.value for one in values] == [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert values[1].measures == (1.0, None, None)
    values = [scored(judge, "P.", example) for example in examples]
    assert [one.value for one in values] == [0.5, 1.0, 1.0, 0.5, 0.5, 0.5]


def test_checks_that_ask_the_same_thing_in_other_words_are_told_apart() -> None:
    judge = checks({"contains": "a"}, {"contains": "b"}, {"contains": "c", "name": "sea"}, "exact")
    assert judge.measures == ('contains "a"', 'contains "b"', "sea", "exact")
    own = checks(field="own")
    own.check(Example("e", {"own": [{"contains": "a"}, {"contains": "b"}]}))
    assert own.measures == ("contains",), "what rows ask is counted by its scorer"
    found = scored(own, "a", Example("e", {"own": [{"contains": "a"}, {"contains": "b"}]}))
    assert found.measures == (0.5,)


@pytest.mark.parametrize("reply", [Reply("Paris", Finish.REFUSAL), Reply("  ")])
def test_a_refused_or_empty_reply_is_the_candidates_failure(reply: Reply) -> None:
    with pytest.raises(JudgeError) as caught:
        scored(checks({"contains": "Paris", "not": True}), reply)
    assert caught.value.blame is Blame.CANDIDATE


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ({"contians": "Paris"}, "did you mean `contains`"),
        ({"contains": "Paris", "wrds": True}, "wrds"),
        ({"contains": "Paris", "numeric": 3}, "names `contains` and `numeric`; a check has one"),
        ({"contains": "Paris", "weight": -1}, "weight"),
        ({"weight": 1}, "names no scorer"),
        (7, "names no scorer.*got 7"),
        ({"regex": "("}, "malformed"),
        ({"json-schema": {"type": 3}}, "not a JSON schema"),
        ({"contains": ""}, "target is empty"),
        ({"rubric": "Is it polite?"}, "model"),
        ({"rubric": "Is it polite?", "model": "gpt"}, "provider/model"),
    ],
)
def test_a_wrong_check_is_named_in_the_study_and_in_a_row(check: Json, message: str) -> None:
    with pytest.raises(ConfigError, match=f"check 2: .*{message}"):
        checks({"contains": "a"}, check)
    row = Example("e7", {"own": [{"contains": "a"}, check]}, position="rows.jsonl, line 7")
    with pytest.raises(ConfigError, match=f"rows.jsonl, line 7: example `e7`.*2: .*{message}"):
        check_examples(checks(field="own"), [row])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"chekcs": []}, "no field `checks`.*did you mean `chekcs`.*write `\\[\\]`"),
        ({"checks": []}, "no check that counts; give it one in its field `checks`"),
        ({"checks": [{"contains": "a", "weight": 0}]}, "no check that counts"),
        ({"checks": [{"numeric": "forty"}]}, "cannot compare with reference 'forty'"),
        ({"checks": ["exact"]}, "no reference answer"),
        ({"checks": "[{"}, "malformed YAML"),
    ],
)
def test_an_example_without_a_usable_check_is_named(inputs: dict[str, Json], message: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s)rows.csv, line 2: .*`e1`.*{message}"):
        check_examples(checks(field="checks"), [Example("e1", inputs, position="rows.csv, line 2")])


def test_too_many_names_and_no_checks_at_all_are_refused() -> None:
    with pytest.raises(ConfigError, match="more than 50 names"):
        checks(*({"contains": "a", "name": f"n{i}"} for i in range(51)))
    with pytest.raises(ConfigError, match="give `checks`"):
        checks()


def test_values_are_tried_as_targets_are() -> None:
    with pytest.raises(ConfigError, match="by `rouge`, the target '!!!' itself scores 0"):
        check_targets(checks({"rouge": "!!!"}), [PARIS])
    assert check_targets(checks({"contains": "!!!", "normalise": []}), [PARIS]) == []


def test_checks_that_ask_a_model_are_foreseen_and_see_no_checks() -> None:
    judge = checks({"contains": "Paris"}, field="own", model="openai/judge")
    plain = Example("e1", {**ROW, "own": []})
    asked = Example("e2", {**ROW, "own": [{"rubric": "Is it polite?", "not": True}]})
    judge.check(plain)
    assert (judge.models, judge.longest_calls(plain)) == ((), [])
    before = judge.digest
    judge.check(asked)
    [call] = judge.longest_calls(asked)
    assert (str(call.model), call.request.example) == ("openai/judge", "e2/judge-2")
    assert [str(model) for model in judge.models] == ["openai/judge"]
    assert judge.digest != before
    prompt = call.request.messages[-1].text
    assert "Is it polite?" in prompt
    assert "capital of France?" in prompt
    assert "own" not in prompt
    found = score(judge, Script([verdict(10)]), "Paris, you fool", asked)
    assert (found.value, found.measures) == (0.5, (1.0, 0.0))


def folder_of(tmp_path: Path, **study: Any) -> Path:  # noqa: ANN401
    """Write a study with two models that answer two questions, and a judge, all recorded."""
    said = {"good": ["Paris, please", "42"], "bad": ["Rome, please", "no idea"]}
    calls = [
        {"candidate": name, "example": str(i), "text": text, "usd": 0.001}
        for name, texts in said.items()
        for i, text in enumerate(texts, 1)
    ]
    graded = [
        {"candidate": "judge", "example": f"{name}/1/judge-3", "text": text, "usd": 0.01}
        for name, text in (("good", '{"verdict": 10}'), ("bad", '{"verdict": 1}'))
    ]
    rows = [
        {"id": 1, "q": "capital?", "own": [{"contains": "Paris"}, {"rubric": "Is it polite?"}]},
        {"id": 2, "q": "6 * 7?", "own": [{"numeric": 42}]},
    ]
    usual: dict[str, Any] = {
        "models": ["replay/good", "replay/bad"],
        "scorer": {
            "name": "checks",
            "field": "own",
            "checks": [{"regex": "please", "name": "please", "weight": 0}],
            "model": "replay/judge",
        },
        "providers": {"replay": {"path": "calls.jsonl"}},
    }
    return study_file(tmp_path, {"calls": [*calls, *graded], "rows": rows}, **{**usual, **study})


def test_a_study_with_checks_runs_and_says_which_failed(tmp_path: Path, command: Command) -> None:
    study = folder_of(tmp_path)
    done = command("select", study)
    assert "Measures: please 50 % of 2, contains 100 % of 1" in done.out, done.err
    rows = command("show", "--json").json["rows"]
    means = {row["candidate"]["label"].split("/")[0]: row["measures"] for row in rows}
    assert {one["name"]: one["mean"] for one in means["bad"]} == {
        "please": 0.5,
        "contains": 0.0,
        "rubric": 0.0,
        "numeric": 0.0,
    }
    lines = command("answers", "--json").out.splitlines()
    [rome] = [one for one in map(json.loads, lines) if one["reply"] == "Rome, please"]
    votes = {vote["by"]: vote["said"] for vote in rome["votes"]}
    assert votes["contains"] == 'failed "Paris"'
    assert "contains: failed" in command("answers", "--example", "1").out
    command("report", "--out", "page.html")
    assert "measure: contains" in (tmp_path / "page.html").read_text()


def test_a_model_that_checks_is_paid_and_capped(tmp_path: Path) -> None:
    standing = run_all(folder_of(tmp_path))
    assert standing.spent.usd_nanos == 24_000_000
    assert dict(facts(standing))["Measures"] == (
        "please 50 % of 2, contains 100 % of 1, rubric 100 % of 1, numeric 100 % of 1"
    )
    capped = run_all(folder_of(tmp_path / "capped", budget={"usd": 0.01}))
    assert capped.spent.usd_nanos <= 10_000_000
    assert capped.asked < standing.asked


def test_a_check_may_be_a_limit(tmp_path: Path) -> None:
    limited = {"objective": {"name": "best", "subject_to": {"please": "<= 0.6"}}}
    standing = run_all(folder_of(tmp_path, **limited))
    assert [one.constraint.name for row in standing.rows for one in row.limits] == [
        "please",
        "please",
    ]
    wrong = {"objective": {"name": "best", "subject_to": {"pleas": "<= 0.6"}}}
    with pytest.raises(ConfigError, match=r"`pleas` is not one of `measures`.*`please`"):
        run_all(folder_of(tmp_path / "wrong", **wrong))
    twice = {"measures": {"please": {"name": "regex", "pattern": "p"}}}
    with pytest.raises(ConfigError, match="a check is called `please`"):
        run_all(folder_of(tmp_path / "twice", **twice))


def test_a_wrong_row_is_named_with_its_file_and_line_at_plan(
    tmp_path: Path, command: Command
) -> None:
    study = folder_of(tmp_path)
    rows = (tmp_path / "rows.jsonl").read_text().splitlines()
    rows[1] = json.dumps({"id": 2, "q": "?", "own": [{"regex": "("}]})
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    done = command("plan", study)
    assert done.code == 2
    assert "rows.jsonl, line 2: example `2`, `own`: check 1:" in done.told
    assert "`pattern` is malformed" in done.told
