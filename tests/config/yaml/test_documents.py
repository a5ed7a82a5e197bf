from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from bestarm_agent.config.file_errors import parse_options
from bestarm_agent.config.files import read_text, read_yaml, shown_path
from bestarm_agent.errors import ConfigError


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")
    which: Literal["first", "last"] = "last"
    count: int = Field(default=1, ge=1)
    nested: dict[str, int] = {}


class Strict(Options):
    pattern: str


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "file.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_paths_below_the_working_directory_are_shown_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown_path(tmp_path / "a" / "b.yaml") == "a/b.yaml"
    assert shown_path(Path("/elsewhere/b.yaml")) == "/elsewhere/b.yaml"


def test_text_is_read_without_byte_order_mark_and_carriage_returns(tmp_path: Path) -> None:
    assert read_text(written(tmp_path, b"\xef\xbb\xbfa\r\nb\r\n")) == "a\nb\n"


def test_wrong_encoding_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"file\.yaml, line 2: not UTF-8; save it as UTF-8"):
        read_text(written(tmp_path, "a: 1\nb: é\n".encode("latin-1")))


def test_missing_and_huge_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.yaml: No such file"):
        read_text(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match=r"holds 4,000,001 bytes; the most is 4,000,000"):
        read_text(written(tmp_path, b"#" * 4_000_001))


def test_every_key_and_item_has_its_line(tmp_path: Path) -> None:
    data, lines = read_yaml(written(tmp_path, "a: 1\n# note\nb:\n  c: [x,\n    y]\n"))
    assert data == {"a": 1, "b": {"c": ["x", "y"]}}
    assert lines == {("a",): 1, ("b",): 3, ("b", "c"): 4, ("b", "c", 0): 4, ("b", "c", 1): 5}


def test_what_an_alias_repeats_stands_at_its_anchor(tmp_path: Path) -> None:
    data, lines = read_yaml(written(tmp_path, "a: &x\n  k: 1\nb: *x\n"))
    assert data["b"] == {"k": 1}
    assert lines[("b",)] == 3
    assert lines[("b", "k")] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1,\nb: 2\n", r"file\.yaml, line 3, column 1: malformed YAML: "),
        ("a: 1\na: 2\n", r"file\.yaml, line 2, column 1: malformed YAML: key `a` is written twice"),
        ("a:\n  b: 1\n  b: 2\n", r"line 3, column 3: malformed YAML: key `b` is written twice"),
        ("a:\tb: 1\n", r"line 1, column \d+: malformed YAML"),
        (
            "a: !!python/object:os.system {}\n",
            r"line 1, column 4: malformed YAML: the tag `.*` is not sup",
        ),
        ("a: \x07\n", r"file\.yaml, line 1: malformed YAML: U\+0007: special characters are not"),
        (
            "[" * 5000,
            r"file\.yaml, line 1, column 51: malformed YAML: is nested deeper than 50 levels",
        ),
        ("- a\n- b\n", r"file\.yaml, line 1: expected keys with values"),
        ("", r"file\.yaml, line 1: expected keys with values"),
        ("--- {a: 1}\n--- {b: 2}\n", r"line 2, column 1: malformed YAML: expected one document"),
    ],
)
def test_malformed_yaml_names_the_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_yaml(written(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"wich": "first"}, "judge `x`, line 3: unknown option `wich`; did you mean `which`?"),
        (
            {"which": "middle"},
            "judge `x`, line 7: `which` must be 'first' or 'last', got \"middle\"",
        ),
        ({"nested": {"a": "b"}}, "judge `x`, line 9: `nested.a` must be a whole number, got"),
        ({"count": 0}, "judge `x`: `count` must be at least 1, got 0"),
        (
            {"count": 0, "which": 1, "nested": 1, "wich": 1},
            "judge `x`, line 7: `which` must be 'first' or 'last', got 1; `count`",
        ),
    ],
)
def test_broken_rules_are_explained(data: dict[str, object], message: str) -> None:
    lines = {("wich",): 3, ("which",): 7, ("nested",): 9}
    with pytest.raises(ConfigError) as caught:
        parse_options(Options, data, subject="judge `x`", lines=lines)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)
    assert (len(data) > 3) == str(caught.value).endswith("; and 1 more")


def test_required_options_are_named() -> None:
    with pytest.raises(ConfigError, match=r"^judge `x`: `pattern` is missing$"):
        parse_options(Strict, {}, subject="judge `x`")
    assert parse_options(Strict, {"pattern": "a"}, subject="judge `x`").which == "last"
