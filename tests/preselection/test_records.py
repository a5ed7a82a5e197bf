from __future__ import annotations

from pathlib import Path

import pytest

from bestarm_agent.errors import ConfigError
from bestarm_agent.preselection.records import (
    PromptRow,
    Record,
    RoutedCandidate,
    RouterSettings,
    parse_settings,
    read_candidates,
    read_history,
    read_rows,
)


def test_the_forms_of_a_verdict() -> None:
    lines = [
        '{"prompt": "p", "scores": {"a": 1, "b": 0}}',
        '{"prompt": "p", "shown": ["a"], "winner": null}',
        '{"prompt": "p", "shown": ["a", "b"], "winner": "b"}',
    ]
    scored, lost, won = read_rows(Record, lines, "x")
    assert (scored.shown, scored.scores) == (("a", "b"), {"a": 1.0, "b": 0.0})
    assert lost.ranking == ()
    assert won == Record(prompt="p", shown=("a", "b"), ranking=("b",))


BAD_RECORDS = [
    ("nope", "line 3: not a line of JSON"),
    ("[]", "a JSON object is needed"),
    ('{"prompt": "p", "scores": {"a": 0, "a": 1}}', "key `a` is written twice"),
    ('{"shwon": [], "scores": {"a": 1}}', "unknown field `shwon`; did you mean `shown`"),
    ('{"prompt": "p", "shown": ["a"]}', "exactly one of .*got none"),
    ('{"shown": ["a"], "winner": "a", "ranking": ["a"]}', "got winner, ranking"),
    ('{"prompt": 3, "shown": ["a"], "winner": "a"}', "`prompt` must be a text, got 3"),
    ('{"prompt": "p", "winner": "a"}', "`shown` must name"),
    ('{"prompt": "p", "shown": "a", "winner": "a"}', "`shown` must be a list"),
    ('{"prompt": "p", "shown": ["a", "a"], "winner": "a"}', "named twice: a, a"),
    ('{"prompt": "p", "shown": ["a"], "winner": "b"}', "'b' won, but is not among"),
    ('{"prompt": "p", "shown": ["a"], "winner": 3}', "`winner` must be a name, or null, got 3"),
    ('{"prompt": "p", "shown": ["a"], "scores": [1]}', "`scores` must be a mapping"),
    ('{"prompt": "", "scores": {"a": 1}}', "`prompt` must not be empty"),
    ('{"prompt": "p", "shown": ["a"], "scores": {"b": 2}}', "name different candidates"),
    ('{"prompt": "p", "scores": {"a": NaN}}', "`scores.a` must be finite"),
    ('{"prompt": "p", "scores": 3}', "`scores` must be a mapping"),
    ('{"prompt": "p", "scores": {"a": 50}}', r"scores must be in \[0, 1\].*got 50 for 'a'"),
]
BAD_PROMPTS = [
    ("x", "not a line of JSON"),
    ('{"text": "p"}', "`prompt` is missing"),
    ('{"prompt": "p", "n": 2}', "unknown field `n`"),
]


@pytest.mark.parametrize(
    ("kind", "line", "message"),
    [*((Record, *bad) for bad in BAD_RECORDS), *((PromptRow, *bad) for bad in BAD_PROMPTS)],
)
def test_bad_lines_say_where_and_why(
    kind: type[Record | PromptRow], line: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        list(read_rows(kind, ["", " ", line], "file"))
    assert str(caught.value).startswith("file, line 3")


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
    made = parse_settings(["rule=cppl", "cost_weight=0.5", "collect=7"])
    assert made == RouterSettings(rule="cppl", cost_weight=0.5, collect=7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rule", "written key=value, got 'rule'"),
        ("rule=linucv", "`rule` must be 'linucb' or 'cppl'"),
        ("rul=cppl", "unknown field `rul`; did you mean `rule`"),
        ("collect=many", "`collect` must be a whole number"),
        ("collect=1", "`collect` must be at least 2"),
        ("cost_weight=-1", "`cost_weight` must be at least 0"),
    ],
)
def test_bad_settings_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_settings([text])


def test_candidates_are_read_from_json(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('["a", {"name": "b", "usd": 0.1}]')
    assert read_candidates(path) == (RoutedCandidate(name="a"), RoutedCandidate(name="b", usd=0.1))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("nope", "cannot be read"),
        ("{}", "a list of names, or of objects"),
        ("[3]", "c.json: a list of names"),
        ('[{"name": "a", "prize": 1}]', "unknown field `prize`"),
        ('[{"name": "a", "usd": "1"}]', "`usd` must be a number"),
        ('[{"name": "a", "usd": -1}]', "`usd` must be at least 0"),
        ('[""]', "`name` must not be empty"),
    ],
)
def test_bad_candidates_are_refused(tmp_path: Path, rows: str, message: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(rows)
    with pytest.raises(ConfigError, match=message):
        read_candidates(path)
