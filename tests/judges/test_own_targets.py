"""A scorer must recognise its own targets: that is tried, free, before any call is paid for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import Example, Json
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.registry import check_targets, create_judge
from bestarm_agent.judges.rule import STANDARD, normaliser
from tests.support.commands import invoke
from tests.support.studies import ANSWERED, RECORDED, study_file

Capsys = pytest.CaptureFixture[str]


def unrecognised(name: str, target: str | tuple[str, ...], **options: Json) -> str:
    return create_judge(name, options, Catalog()).unrecognised(Example("1", {}, target))


@pytest.mark.parametrize(
    ("name", "target", "options"),
    [
        ("exact", "Paris.", {}),
        ("exact", "...", {"normalise": []}),
        ("exact", "46", {"after": "Answer:"}),
        ("contains", ("New York", "ニューヨーク", "서울"), {}),
        ("contains", ("b", "a"), {"require": "all"}),
        ("numeric", ("1,234.50", "-5", "2 1/2"), {}),
        ("multiple-choice", ("(A)", "B"), {}),
        ("token-f1", "機械学習", {}),
        ("squad-exact", "the", {}),
        ("bleu", ("a b c", "d"), {}),
        ("chrf", "Привет", {}),
        ("rouge", "机器学习很有趣", {}),
        ("ensemble", "Paris", {"members": [{"name": "exact"}, {"name": "contains"}]}),
    ],
)
def test_usual_targets_are_recognised(
    name: str, target: str | tuple[str, ...], options: dict[str, Json]
) -> None:
    assert unrecognised(name, target, **options) == ""


@pytest.mark.parametrize(
    ("name", "target", "options", "why"),
    [
        ("token-f1", "the", {}, "by `token-f1`, the target 'the' itself scores 0"),
        ("rouge", "!!!", {}, "by `rouge`, the target '!!!' itself scores 0"),
        ("exact", ("a", " "), {}, "by `exact`, no answer in an empty reply"),
        (
            "ensemble",
            "!!!",
            {"members": [{"name": "exact"}, {"name": "rouge"}]},
            "by `rouge`, the target '!!!' itself scores 0",
        ),
    ],
)
def test_others_say_why(
    name: str, target: str | tuple[str, ...], options: dict[str, Json], why: str
) -> None:
    assert unrecognised(name, target, **options) == why


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rouge", {"variant": "rouge2"}),
        ("regex", {"pattern": "Answer: (.*)", "group": 1}),
        ("json-schema", {"json_schema": {"type": "object"}}),
        ("tool-call", {}),
        ("rubric", {"model": "x/y", "rubric": "r"}),
    ],
)
def test_what_need_not_give_1_is_not_tried(name: str, options: dict[str, Json]) -> None:
    assert unrecognised(name, "!!!", **options) == ""


@given(st.text(min_size=1).filter(normaliser(STANDARD)))
def test_exact_recognises_any_target(target: str) -> None:
    assert unrecognised("exact", target) == ""


def test_a_few_are_named_and_more_are_an_error_with_the_way_out() -> None:
    judge = create_judge("rouge", {}, Catalog())
    good = [Example(f"e{i}", {}, "a cat") for i in range(19)]
    assert check_targets(judge, good) == []
    [said] = check_targets(judge, [*good, Example("odd", {}, "!!!")])
    assert said == (
        "the right answer itself would not score 1 for 1 of 20 examples (example `odd`: by "
        "`rouge`, the target '!!!' itself scores 0); no answer to it can be right"
    )
    with pytest.raises(ConfigError, match=r"2 of 21 .*`exact` and `contains` compare any text"):
        check_targets(judge, [*good, Example("odd", {}, "!!!"), Example("e", {}, "?")])


@pytest.mark.parametrize("command", ["plan", "select"])
def test_it_is_said_before_the_first_call(tmp_path: Path, capsys: Capsys, command: str) -> None:
    """Of 40 examples one has a target without a word, then five."""
    for n_odd in (1, 5):
        rows = [{"id": f"e{i}", "q": i, "answer": "cat" if i >= n_odd else "!"} for i in range(40)]
        calls = [
            {"candidate": c, "example": f"e{i}", "text": "cat"} for c in "ab" for i in range(40)
        ]
        path = study_file(
            tmp_path / str(n_odd),
            {"rows": rows, "calls": calls},
            dataset=ANSWERED,
            providers=RECORDED,
            models=["replay/a", "replay/b"],
            scorer="rouge",
        )
        done = invoke(capsys, command, path)
        said = " ".join((done.out + done.err).split())
        assert f"would not score 1 for {n_odd} of 40 examples" in said, said
        assert "example `e0`: by `rouge`, the target '!' itself scores 0" in said
        assert (done.code == 2) == (n_odd == 5)
        assert list(path.parent.rglob("*.sqlite")) == [] or n_odd == 1, "nothing was begun"


def test_plan_tells_of_a_judge_that_is_a_candidate(tmp_path: Path, capsys: Capsys) -> None:
    price = {"price": {"input": 1.0, "output": 2.0}}
    openai = {"base_url": "http://127.0.0.1:9", "key": "K", **price}
    for judge, is_told in (("a", True), ("c", False)):
        path = study_file(
            tmp_path / judge,
            {"rows": [{"id": "e0", "q": "?"}]},
            models=["openai/a", "openai/b"],
            providers={"openai": openai},
            scorer={"name": "rubric", "model": f"openai/{judge}"},
        )
        done = invoke(capsys, "plan", path)
        said = " ".join((done.out + done.err).split())
        assert ("judge model openai/a is also a candidate" in said) == is_told, said
