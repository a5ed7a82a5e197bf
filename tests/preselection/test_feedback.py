from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.errors import ConfigError
from bestarm_agent.preselection.feedback import Record, parse_line, parse_prompt, parse_record
from bestarm_agent.preselection.feedback_files import read_history
from bestarm_agent.preselection.settings import (
    RoutedCandidate,
    RouterSettings,
    candidate_features,
    parse_candidates,
    parse_settings,
)


@pytest.mark.parametrize(
    "record",
    [
        Record("p", ("a", "b"), ranking=("b",)),
        Record("p", ("a", "b"), scores={"a": 0.5, "b": 0.0}, usd={"a": 0.1}),
        Record("", ("a", "b"), ranking=("b", "a"), features=(1.0, 2.0)),
    ],
)
def test_a_record_survives_json(record: Record) -> None:
    assert parse_record(record.as_json(), "here") == record


def test_the_forms_of_a_verdict() -> None:
    assert parse_line('{"prompt": "p", "scores": {"a": 1, "b": 0}}', "x").shown == ("a", "b")
    listed = parse_line('{"prompt": "p", "candidates": ["a", "b"], "scores": [1, 0]}', "x")
    assert listed.scores == {"a": 1.0, "b": 0.0}
    assert parse_line('{"prompt": "p", "shown": ["a"], "winner": null}', "x").ranking == ()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nope", "line 3: not a line of JSON"),
        ("[]", "a record is a JSON object"),
        ('{"prompt": "p", "shwon": []}', "unknown key 'shwon'; did you mean `shown`"),
        ('{"prompt": "p", "shown": ["a"]}', "exactly one of .*got none"),
        ('{"shown": ["a"], "winner": "a", "ranking": ["a"]}', "got winner, ranking"),
        ('{"prompt": 3, "shown": ["a"], "winner": "a"}', "`prompt` must be text"),
        ('{"prompt": "p", "winner": "a"}', "`shown` must name"),
        ('{"prompt": "p", "shown": "a", "winner": "a"}', "`shown` must be names"),
        ('{"prompt": "p", "shown": ["a", "a"], "winner": "a"}', "names a candidate twice"),
        ('{"prompt": "p", "shown": ["a"], "winner": "b"}', "'b' won, but is not among"),
        ('{"prompt": "p", "shown": ["a"], "winner": 3}', "`winner` must be names"),
        ('{"prompt": "p", "shown": ["a"], "scores": [1, 2]}', "1 candidates shown need as many"),
        ('{"prompt": "p", "shown": ["a"], "scores": {"b": 2}}', "name different candidates"),
        ('{"prompt": "p", "scores": {"a": NaN}}', "finite numbers"),
        ('{"prompt": "p", "scores": 3}', "object of numbers by name"),
        ('{"prompt": "p", "scores": {"a": 50}}', r"scores must be in \[0, 1\].*got 50 for 'a'"),
        ('{"prompt": "p", "scores": {"a": 1}, "features": [1, Infinity]}', "inf as number 2"),
        ('{"prompt": "p", "scores": {"a": 1}, "features": ["x"]}', "write null for one that is"),
    ],
)
def test_bad_records_say_where_and_why(line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse_line(line, "file, line 3")
    assert str(caught.value).startswith("file, line 3")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x", "not a line of JSON"),
        ('{"text": "p"}', "text `prompt` is needed"),
        ('{"prompt": "p", "n": 2}', "unknown key 'n'"),
        ('{"prompt": "p", "k": "2"}', "`k` must be a whole number"),
    ],
)
def test_bad_prompts_say_why(line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_prompt(line, "stdin, line 1")


def test_history_is_read_from_json_lines_csv_and_npz(tmp_path: Path) -> None:
    expected = [
        Record("p", ("a", "b"), scores={"a": 1.0, "b": 0.5}),
        Record("q", ("b",), scores={"b": 0.0}),
    ]
    lines = tmp_path / "h.jsonl"
    lines.write_text(
        '{"prompt": "p", "scores": {"a": 1, "b": 0.5}}\n\n{"prompt": "q", "scores": {"b": 0}}\n'
    )
    table = tmp_path / "h.csv"
    table.write_text("prompt,a,b\np,1,0.5\nq,,0\n")
    matrix = tmp_path / "h.npz"
    np.savez(
        matrix,
        scores=np.array([[1.0, np.nan], [0.5, 0.0]]),
        methods=np.array(["a", "b"]),
        prompt_text=np.array(["p", "q"]),
    )
    for path in (lines, table, matrix):
        assert list(read_history(path)) == expected


def test_a_csv_may_name_winners_and_a_matrix_features_and_prices(tmp_path: Path) -> None:
    table = tmp_path / "h.csv"
    table.write_text("prompt,shown,winner\np,a|b,b\nq,a | b,\n")
    assert [r.ranking for r in read_history(table)] == [("b",), ()]
    table.write_text("prompt,shown,ranking\np,a|b,b|a\n")
    assert [r.ranking for r in read_history(table)] == [("b", "a")]
    matrix = tmp_path / "h.npz"
    np.savez(matrix, scores=np.eye(2), methods=["a", "b"], features=np.eye(2), cost=[1.0, 2.0])
    first = next(read_history(matrix))
    assert (first.features, first.usd) == ((1.0, 0.0), {"a": 1.0, "b": 2.0})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("h.txt", "", "history is read from .jsonl, .csv, .npz"),
        ("h.csv", "text,a\nx,1\n", "no column `prompt`; there are text, a"),
        ("h.csv", "prompt,a\nx,good\n", "line 2: scores must be numbers"),
        ("h.csv", "prompt,a\nx\n", "not as wide as the header"),
        ("h.npz", "not an archive", "h.npz"),
        ("h.jsonl", '{"prompt": 1}', "h.jsonl, line 1"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        list(read_history(path))
    with pytest.raises(ConfigError, match="does not exist"):
        list(read_history(tmp_path / "absent.csv"))


def test_settings_are_read_from_texts() -> None:
    made = parse_settings(["rule=mm", "steps=3", "cost_weight=0.5", "collect=7", "analyzer=char"])
    assert made == RouterSettings(
        rule="mm", params={"steps": 3}, cost_weight=0.5, collect=7, analyzer="char"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rule", "written key=value, got 'rule'"),
        ("rule=linucv", "no preselection rule 'linucv'; did you mean `linucb`"),
        ("analyser=char", "setting 'analyser' cannot be 'char'; did you mean `analyzer`"),
        ("analyzer=chars", "there is no 'chars'; did you mean `char`"),
        ("collect=many", "setting 'collect' cannot be 'many'; it needs a number"),
        ("collect=1", "collect at least 2"),
        ("cost_weight=-1", "cost_weight must be >= 0"),
        ("widht=1", "takes no such parameter"),
    ],
)
def test_bad_settings_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_settings([text])


def test_candidates_are_read_from_json() -> None:
    rows = ["a", {"name": "b", "usd": 0.1, "size": 7, "family": "f"}]
    assert parse_candidates(rows) == (RoutedCandidate("a"), RoutedCandidate("b", 0.1, 7, "f"))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({}, "must be a list"),
        ([3], "a name or an object with a `name`"),
        ([{"name": "a", "prize": 1}], "unknown key 'prize'"),
        ([{"name": "a", "usd": "1"}], "usd must be a number"),
        ([{"name": "a", "usd": -1}], "usd must be >= 0"),
        ([{"name": "a", "size": 0}], "size must be > 0"),
        ([""], "not empty"),
    ],
)
def test_bad_candidates_are_refused(rows: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_candidates(rows)


def test_candidates_share_what_the_settings_say() -> None:
    known = [
        RoutedCandidate("a", 0.01, 7, "x"),
        RoutedCandidate("b", 0.1, 70, "x"),
        RoutedCandidate("c"),
    ]
    own = candidate_features(known, RouterSettings(arms="own"))
    assert own.tolist() == np.eye(3).tolist()
    shared = candidate_features(known, RouterSettings(arms="shared"))
    assert shared == pytest.approx(np.array([[1, 0, 0, 1], [1, 1, 1, 1], [1, 0.5, 0.5, 0]]))
    assert candidate_features(known, RouterSettings()).shape == (3, 6)


def test_a_missing_feature_is_null_in_json_and_nan_in_a_record() -> None:
    line = '{"prompt": "p", "shown": ["a", "b"], "winner": "a", "features": [1, null, NaN]}'
    record = parse_line(line, "line 1")
    assert np.isnan(record.features).tolist() == [False, True, True]
    assert record.as_json()["features"] == [1.0, None, None]
    again = parse_record(record.as_json(), "line 1")
    assert np.array_equal(again.features, record.features, equal_nan=True)
