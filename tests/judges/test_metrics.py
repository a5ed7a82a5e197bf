"""Reference metrics, against values worked out by hand and by their papers' examples."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import Json
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.metrics import squad_f1, squad_form
from bestarm_agent.judges.registry import create_judge

Judged = Callable[..., float | str]


@pytest.mark.parametrize(
    ("answer", "targets", "f1", "exact"),
    [
        ("the Denver Broncos", "Denver Broncos", 1.0, 1.0),
        ("Denver", "Denver Broncos", 2 / 3, 0.0),
        ("the the cat", "cat cat", 2 / 3, 0.0),  # one of "cat", two of "cat cat"
        ("In 1999.", ("1998", "1999"), 2 / 3, 0.0),
        ("1999!", ("1998", "1999"), 1.0, 1.0),
        ("dog", "cat", 0.0, 0.0),
        ("a", "the", 0.0, 1.0),  # nothing is left of either
        ("a", "cat", 0.0, 0.0),
    ],
)
def test_squad(
    judged: Judged, answer: str, targets: str | tuple[str, ...], f1: float, exact: float
) -> None:
    assert judged("token-f1", answer, targets) == pytest.approx(f1)
    assert judged("squad-exact", answer, targets) == exact


@given(st.text(max_size=30), st.text(max_size=30))
def test_squad_f1_is_symmetric_and_bounded(one: str, other: str) -> None:
    assert squad_f1(one, other) == squad_f1(other, one)
    assert 0 <= squad_f1(one, other) <= 1
    assert squad_f1(one, one) == (squad_form(one) != "")
    assert squad_form(squad_form(one)) == squad_form(one)


def test_bleu_by_hand(judged: Judged) -> None:
    target = "the cat is on the mat"
    assert judged("bleu", target, target) == pytest.approx(1.0)
    # precisions 5/6, 3/5, 1/4, and 0/3 smoothed to 1/2/3 (exponential: half a match); no brevity
    expected = (5 / 6 * 3 / 5 * 1 / 4 * (1 / 2) / 3) ** 0.25
    assert judged("bleu", "the cat sat on the mat", target) == pytest.approx(expected)
    assert judged("bleu", "THE CAT IS ON THE MAT", target, lowercase=True) == pytest.approx(1.0)
    both = (target, "the cat sat on the mat")
    assert judged("bleu", "the cat sat on the mat", both) == pytest.approx(1.0)


def test_chrf_by_hand(judged: Judged) -> None:
    """Character n-grams up to 6 of "abcd" against "abce", F with beta 2.

    1-grams 3/4, 2-grams 2/3, 3-grams 1/2, 4-grams 0, none beyond: precision = recall in each, so
    their mean over the four orders is the score.
    """
    assert judged("chrf", "abcd", "abce") == pytest.approx((3 / 4 + 2 / 3 + 1 / 2 + 0) / 4)
    assert judged("chrf", "abcd", ("xyz", "abcd")) == pytest.approx(1.0)
    assert judged("chrf", "ab cd", "ab ce", word_order=2) != judged("chrf", "ab cd", "ab ce")


@pytest.mark.slow
def test_rouge_by_its_papers_example(judged: Judged) -> None:
    """Lin 2004, section 3.1: reference "police killed the gunman"."""
    target = "police killed the gunman"
    options = {"variant": "rougeL", "stemmer": False}
    assert judged("rouge", "police kill the gunman", target, **options) == pytest.approx(3 / 4)
    assert judged("rouge", "the gunman kill police", target, **options) == pytest.approx(2 / 4)
    options["variant"] = "rouge2"
    assert judged("rouge", "police kill the gunman", target, **options) == pytest.approx(1 / 3)
    assert judged("rouge", "the gunman kill police", target, **options) == pytest.approx(1 / 3)
    assert judged("rouge", "police kills the gunman", target, stemmer=True) == pytest.approx(1.0)
    assert judged("rouge", "nothing", ("x", "nothing")) == 1.0


@pytest.mark.slow
@given(
    st.text(st.characters(max_codepoint=127), max_size=80),
    st.text("abIing sed. -'_1\n", max_size=80),
    st.sampled_from(["rouge1", "rouge2", "rougeL", "rougeLsum"]),
    st.booleans(),
)
def test_rouge_is_rouge_scores_on_ascii(
    answer: str, target: str, variant: str, stemmer: bool
) -> None:
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer([variant], stemmer)
    judge: Any = create_judge("rouge", {"variant": variant, "stemmer": stemmer}, Catalog())
    for one, other in ((answer, target), (target, answer), (target, target)):
        expected = scorer.score(other, one)[variant].fmeasure
        assert judge._similarity(one, [other]) == expected


def test_rouge_counts_words_of_any_script(judged: Judged) -> None:
    for text in ("机器学习很有趣", "Привет, мир", "สวัสดีครับ", "नमस्ते दुनिया", "café"):
        assert judged("rouge", text, text) == 1.0
    assert judged("rouge", "机器学习", "机器翻译") == pytest.approx(1 / 2)
    assert judged("rouge", "Привет, Анна", "Привет, мир") == pytest.approx(1 / 2)


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"name": "Ada", "age": 36}', 1.0),
        ('{"name": "Ada", "age": -1}', 0.0),
        ('{"age": 36}', 0.0),
        ("[]", 0.0),
        ('Sure:\n```json\n{"name": "Ada"}\n```', 1.0),
        ('\ufeff{"name": "Ada"}', 1.0),
        ('```json\n{"name": "```py\\nx\\n```"}\n```', 1.0),
        ('```\n{"age": 1}\n```\nor rather\n```json\n{"name": "Ada"}\n```', 1.0),
        ('``` json title="a"\n{"name": "Ada"}\n```', 1.0),
        ('````json\n{"name": "Ada"}\n````', 1.0),
        ('```json\n{"name": "Ada"}', 1.0),  # the model forgot the last fence
        ('```{"name":\n"Ada"}```', 1.0),
        ('{"name": "Ada", "more": NaN}', "unparsable"),
        ("Ada is 36.", "unparsable"),
        ("", "unparsable"),
        ("[" * 100_000, "unparsable"),
    ],
)
def test_json_schema(judged: Judged, text: str, expected: float | str) -> None:
    assert judged("json-schema", text, None, json_schema=SCHEMA) == expected


def test_every_example_may_have_its_own_schema(judged: Judged) -> None:
    for schema in ({"type": "integer"}, '{"type": "integer"}'):
        inputs = {"shape": schema}
        assert judged("json-schema", "7", None, inputs=inputs, schema_field="shape") == 1.0
        assert judged("json-schema", '"7"', None, inputs=inputs, schema_field="shape") == 0.0


def test_a_schema_that_refers_elsewhere_is_not_fetched(judged: Judged) -> None:
    schema = {"$ref": "http://localhost:9/schema"}
    assert judged("json-schema", "7", None, json_schema=schema) == "judge-failed"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give either `json_schema` or `schema_field`"),
        ({"json_schema": {"type": "objekt"}}, "not a JSON schema: 'objekt'"),
    ],
)
def test_bad_schemas_are_found_at_once(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create_judge("json-schema", options, Catalog())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("bleu", "sacrebleu.metrics"),
        ("chrf", "sacrebleu.metrics"),
        ("rouge", "rouge_score.rouge_scorer"),
        ("json-schema", "jsonschema"),
    ],
)
def test_a_missing_extra_is_named(name: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    options: dict[str, Json] = {"json_schema": {}} if name == "json-schema" else {}
    with pytest.raises(ConfigError, match=r"pip install 'bestarm-agent\[metrics\]'"):
        create_judge(name, options, Catalog())
