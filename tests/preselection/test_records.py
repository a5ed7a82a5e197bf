from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.errors import ConfigError
from bestarm_agent.preselection.records import (
    PromptRow,
    Record,
    RoutedCandidate,
    RouterSettings,
    parse_candidates,
    parse_line,
    parse_settings,
    read_history,
)


@pytest.mark.parametrize(
    "record",
    [
        Record(prompt="p", shown=("a", "b"), ranking=("b",)),
        Record(prompt="p", shown=("a", "b"), scores={"a": 0.5, "b": 0.0}, usd={"a": 0.1}),
        Record(prompt="", shown=("a", "b"), ranking=("b", "a"), features=(1.0, 2.0)),
    ],
)
def test_a_record_survives_json(record: Record) -> None:
    assert Record.model_validate(record.as_json()) == record


def test_the_forms_of_a_verdict() -> None:
    assert parse_line(Record, '{"prompt": "p", "scores": {"a": 1, "b": 0}}', "x").shown == (
        "a",
        "b",
    )
    listed = parse_line(Record, '{"prompt": "p", "candidates": ["a", "b"], "scores": [1, 0]}', "x")
    assert listed.scores == {"a": 1.0, "b": 0.0}
    assert parse_line(Record, '{"prompt": "p", "shown": ["a"], "winner": null}', "x").ranking == ()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nope", "line 3: not a line of JSON"),
        ("[]", "a JSON object is needed"),
        ('{"shwon": [], "scores": {"a": 1}}', "unknown field `shwon`; did you mean `shown`"),
        ('{"prompt": "p", "shown": ["a"]}', "exactly one of .*got none"),
        ('{"shown": ["a"], "winner": "a", "ranking": ["a"]}', "got winner, ranking"),
        ('{"prompt": 3, "shown": ["a"], "winner": "a"}', "`prompt` must be a text, got 3"),
        ('{"prompt": "p", "winner": "a"}', "`shown` must name"),
        ('{"prompt": "p", "shown": "a", "winner": "a"}', "`shown` must be a list"),
        ('{"prompt": "p", "shown": ["a", "a"], "winner": "a"}', "named twice: a, a"),
        ('{"prompt": "p", "shown": ["a"], "winner": "b"}', "'b' won, but is not among"),
        ('{"prompt": "p", "shown": ["a"], "winner": 3}', "`winner` must be a name, or null, got 3"),
        (
            '{"prompt": "p", "shown": ["a"], "scores": [1, 2]}',
            "needs as many candidates in `shown`",
        ),
        ('{"prompt": "p", "shown": ["a"], "scores": {"b": 2}}', "name different candidates"),
        ('{"prompt": "p", "scores": {"a": NaN}}', "`scores.a` must be finite"),
        ('{"prompt": "p", "scores": 3}', "`scores` must be a mapping"),
        ('{"prompt": "p", "scores": {"a": 50}}', r"scores must be in \[0, 1\].*got 50 for 'a'"),
        (
            '{"prompt": "p", "scores": {"a": 1}, "features": [1, Infinity]}',
            "write null for one that is missing",
        ),
        (
            '{"prompt": "p", "scores": {"a": 1}, "features": ["x"]}',
            r"`features\[0\]` must be a number",
        ),
    ],
)
def test_bad_records_say_where_and_why(line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse_line(Record, line, "file, line 3")
    assert str(caught.value).startswith("file, line 3")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x", "not a line of JSON"),
        ('{"text": "p"}', "`prompt` is required"),
        ('{"prompt": "p", "n": 2}', "unknown field `n`"),
        ('{"prompt": "p", "k": "2"}', "`k` must be a whole number"),
    ],
)
def test_bad_prompts_say_why(line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_line(PromptRow, line, "stdin, line 1")


def test_history_is_read_from_lines_of_json(tmp_path: Path) -> None:
    lines = tmp_path / "h.jsonl"
    lines.write_text(
        '{"prompt": "p", "scores": {"a": 1, "b": 0.5}}\n\n{"prompt": "q", "scores": {"b": 0}}\n'
    )
    assert list(read_history(lines)) == [
        Record(prompt="p", shown=("a", "b"), scores={"a": 1.0, "b": 0.5}),
        Record(prompt="q", shown=("b",), scores={"b": 0.0}),
    ]
    lines.write_text('{"prompt": 1}')
    with pytest.raises(ConfigError, match=r"h\.jsonl, line 1"):
        list(read_history(lines))
    with pytest.raises(ConfigError, match="does not exist"):
        list(read_history(tmp_path / "absent.jsonl"))


def test_settings_are_read_from_texts() -> None:
    made = parse_settings(["rule=cppl", "omega=3", "cost_weight=0.5", "collect=7", "arms=own"])
    assert made == RouterSettings(
        rule="cppl", params={"omega": 3}, cost_weight=0.5, collect=7, arms="own"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rule", "written key=value, got 'rule'"),
        ("rule=linucv", "`rule` must be 'linucb' or 'cppl'"),
        ("sorce=given", "setting 'sorce' cannot be 'given'; did you mean `source`"),
        ("source=texts", "`source` must be 'text' or 'given'"),
        ("collect=many", "`collect` must be a whole number"),
        ("collect=1", "`collect` must be at least 2"),
        ("cost_weight=-1", "`cost_weight` must be at least 0"),
        ("widht=1", "takes no such parameter"),
    ],
)
def test_bad_settings_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_settings([text])


def test_candidates_are_read_from_json() -> None:
    rows = ["a", {"name": "b", "usd": 0.1, "size": 7, "family": "f"}]
    assert parse_candidates(rows, "here") == (
        RoutedCandidate(name="a"),
        RoutedCandidate(name="b", usd=0.1, size=7, family="f"),
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({}, "a list of names, or of objects"),
        ([3], "here: a list of names"),
        ([{"name": "a", "prize": 1}], "unknown field `prize`"),
        ([{"name": "a", "usd": "1"}], "`usd` must be a number"),
        ([{"name": "a", "usd": -1}], "`usd` must be at least 0"),
        ([{"name": "a", "size": 0}], "`size` must be greater than 0"),
        ([""], "`name` must not be empty"),
    ],
)
def test_bad_candidates_are_refused(rows: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_candidates(rows, "here")


def test_candidates_share_what_the_settings_say() -> None:
    known = [
        RoutedCandidate(name="a", usd=0.01, size=7, family="x"),
        RoutedCandidate(name="b", usd=0.1, size=70, family="x"),
        RoutedCandidate(name="c"),
    ]
    own = RouterSettings(arms="own").arm_features(known)
    assert own.tolist() == np.eye(3).tolist()
    shared = RouterSettings(arms="shared").arm_features(known)
    assert shared == pytest.approx(np.array([[1, 0, 0, 1], [1, 1, 1, 1], [1, 0.5, 0.5, 0]]))
    assert RouterSettings().arm_features(known).shape == (3, 6)


def test_a_missing_feature_is_null_in_json_and_nan_in_a_record() -> None:
    line = '{"prompt": "p", "shown": ["a", "b"], "winner": "a", "features": [1, null, NaN]}'
    record = parse_line(Record, line, "line 1")
    assert np.isnan(record.features).tolist() == [False, True, True]
    assert record.as_json()["features"] == [1.0, None, None]
    again = Record.model_validate(record.as_json())
    assert np.array_equal(again.features, record.features, equal_nan=True)
