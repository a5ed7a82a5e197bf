from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.config.datasets import MAX_LINE_BYTES, read_examples
from bestarm_agent.config.input_specs import DatasetSpec
from bestarm_agent.domain.values import Example
from bestarm_agent.errors import ConfigError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(name: str, content: str | bytes) -> Path:
    path = Path(name)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def examples_of(path: Path, **spec: Any) -> tuple[Example, ...]:  # noqa: ANN401 - keys of a study
    return read_examples(DatasetSpec(path=str(path), **spec), Path())


ROWS = (
    Example("a", {"id": "a", "question": "12+34"}, "46"),
    Example("b", {"id": "b", "question": "1+1"}, "2"),
)
CONTENTS = {
    "d.jsonl": '{"id": "a", "question": "12+34", "answer": "46"}\n'
    '{"id": "b", "question": "1+1", "answer": 2}\n',
    "d.json": '[{"id": "a", "question": "12+34", "answer": 46},\n'
    '{"id": "b", "question": "1+1", "answer": 2.0}]',
    "d.csv": "id,question,answer\na,12+34,46\nb,1+1,2\n",
    "d.tsv": "id\tquestion\tanswer\na\t12+34\t46\nb\t1+1\t2\n",
}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", list(CONTENTS))
def test_every_text_format_gives_the_same_examples(name: str) -> None:
    assert examples_of(written(name, CONTENTS[name]), target="answer") == ROWS


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", list(CONTENTS))
def test_byte_order_marks_carriage_returns_and_missing_last_line_ends_are_fine(name: str) -> None:
    content = b"\xef\xbb\xbf" + CONTENTS[name].strip().replace("\n", "\r\n").encode()
    assert examples_of(written(name, content), target="answer") == ROWS


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", list(CONTENTS))
def test_files_may_be_compressed(name: str) -> None:
    path = written(f"{name}.gz", gzip.compress(CONTENTS[name].encode()))
    assert examples_of(path, target="answer") == ROWS
    with pytest.raises(ConfigError, match=r"parquet is compressed in itself"):
        examples_of(written("d.parquet.gz", b"x"))


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.csv", "q,a\r1,2\r3,4\r", "ends its lines by a carriage return alone, as old Macs did"),
        ("d.jsonl", '{"q": 1}\r{"q": 2}\r', "save it with line feeds"),
        ("d.jsonl", '{"q": 1},\n{"q": 2}\n', "a line is one object, and no comma behind it"),
        (
            "d.jsonl",
            '[\n{"q": 1}\n]\n',
            "a line is one object, and no comma behind it; a list is the",
        ),
        ("d.jsonl", '{\n  "q": 1\n}\n', "a line is one object"),
        ("d.jsonl", '{"q": 1} {"q": 2}\n', "a line is one object"),
        ("d.csv", 'q,a\n"a "b" c",2\n', "a value that holds quotes stands in quotes and doubles"),
        ("d.csv", "q,a\nx\n", "and a separator before each value that is empty"),
        ("d.csv", 'q,a\nx,"2\n', "unexpected end of data; a value that holds quotes stands in"),
    ],
)
def test_what_other_programs_write_is_told_with_the_way_out(
    name: str, content: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        examples_of(written(name, content))
    assert message in str(caught.value)
    assert "the format is jsonl" not in str(caught.value)


@pytest.mark.usefixtures("here")
def test_the_format_may_be_said() -> None:
    path = written("data.txt", CONTENTS["d.csv"])
    assert examples_of(path, target="answer", format="csv") == ROWS
    with pytest.raises(ConfigError, match=r"^data\.txt: the suffix '\.txt' is none of \.jsonl, "):
        examples_of(path)


@pytest.mark.usefixtures("here")
def test_ids_default_to_the_field_id_then_to_row_numbers() -> None:
    path = written("d.jsonl", '{"q": 1}\n\n{"q": 2}\n')
    assert [example.id for example in examples_of(path)] == ["000001", "000002"]
    path = written("d.jsonl", '{"id": 7, "q": 1}\n{"id": 8.0, "q": 2}\n')
    assert [example.id for example in examples_of(path)] == ["7", "8"]
    assert [example.id for example in examples_of(path, id="q")] == ["1", "2"]


@pytest.mark.usefixtures("here")
def test_a_point_names_a_part_of_a_field() -> None:
    """As SQuAD has its answers; a field of that very name comes first."""
    path = written("d.jsonl", '{"q": 1, "answers": {"text": ["x", "y"]}, "meta": {"id": "e7"}}\n')
    (row,) = examples_of(path, target="answers.text", id="meta.id")
    assert (row.id, row.reference) == ("e7", ("x", "y"))
    assert row.inputs.keys() == {"q", "meta"}, "the answer is not shown"
    with pytest.raises(ConfigError, match=r"no field `answers\.txt`; did you mean `text`"):
        examples_of(path, target="answers.txt")
    with pytest.raises(ConfigError, match=r"; `field\.part` names a part of an object$"):
        examples_of(path, target="answers")
    (row,) = examples_of(written("d.jsonl", '{"a.b": "x", "a": {"b": "y"}}\n'), target="a.b")
    assert (row.reference, dict(row.inputs)) == ("x", {"a": {"b": "y"}})


@pytest.mark.usefixtures("here")
def test_fields_are_selected() -> None:
    path = written("d.jsonl", '{"Problem text": "x", "n": 1, "ans": "y"}\n{"n": 2, "ans": "z"}\n')
    everything = examples_of(path, target="ans")
    assert [dict(e.inputs) for e in everything] == [{"Problem text": "x", "n": 1}, {"n": 2}]
    some = examples_of(path, target="ans", fields=("n",))
    assert [dict(e.inputs) for e in some] == [{"n": 1}, {"n": 2}]
    shown = examples_of(path, target="ans", fields=("ans", "n"))
    assert [dict(e.inputs) for e in shown] == [{"ans": "y", "n": 1}, {"ans": "z", "n": 2}]
    assert examples_of(path)[0].reference is None


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ('"46"', "46"),
        ('" 46 "', " 46 "),
        ("46", "46"),
        ("46.0", "46"),
        ("-0.0", "0"),
        ("0.1", "0.1"),
        ("0.30", "0.3"),
        ("1e3", "1000"),
        ("1e22", "1e+22"),
        ("12345678901234567890123", "12345678901234567890123"),
        ("true", "true"),
        ('["a", 2, 0.5]', ("a", "2", "0.5")),
        ('["a"]', ("a",)),
    ],
)
def test_targets_become_text(target: str, expected: str | tuple[str, ...]) -> None:
    path = written("d.jsonl", f'{{"q": 1, "a": {target}}}\n')
    assert examples_of(path, target="a")[0].reference == expected


@pytest.mark.usefixtures("here")
def test_only_the_first_rows_are_read() -> None:
    path = written("d.jsonl", '{"q": 1}\n{"q": 2}\nnot json\n')
    assert len(examples_of(path, limit=2)) == 2


@pytest.mark.parametrize("mark", [";", "\t", "|"])
@pytest.mark.usefixtures("here")
def test_a_table_may_have_another_separator_than_its_name_says(mark: str) -> None:
    """As Excel writes it where a comma is the decimal sign."""
    path = written("d.csv", f'\ufeffq{mark}a\r\n"x{mark} y"{mark}"4,5"\r\nz, w{mark}6\r\n')
    assert [dict(row.inputs) for row in examples_of(path)] == [
        {"q": f"x{mark} y", "a": "4,5"},
        {"q": "z, w", "a": "6"},
    ]


@pytest.mark.usefixtures("here")
def test_values_may_hold_separators_quotes_and_line_breaks() -> None:
    path = written("d.csv", 'q,a\r\n"x, ""y""\r\nz",46\r\n"\u2028",\x0b\r\n')
    first, second = examples_of(path)
    assert first.inputs == {"q": 'x, "y"\r\nz', "a": "46"}
    assert second.inputs == {"q": "\u2028", "a": "\x0b"}
    path = written("d.jsonl", '{"q": "a\u2028b"}\n')
    assert examples_of(path)[0].inputs == {"q": "a\u2028b"}


@pytest.mark.usefixtures("here")
def test_columns_without_a_name_are_skipped() -> None:
    path = written("d.csv", ",q, a\n0,x,y\n")
    assert examples_of(path, target="a") == (Example("000001", {"q": "x"}, "y"),)


@pytest.mark.usefixtures("here")
def test_long_values_fit_and_the_csv_modules_limit_is_put_back() -> None:
    import csv

    before = csv.field_size_limit()
    assert len(str(examples_of(written("d.csv", "q\n" + "x" * 500_000))[0].inputs["q"])) == 500_000
    assert csv.field_size_limit() == before


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("d.jsonl", '{"q": 1}\n{"q": 1, "a": 2, "q": 3}\n', 2),
        ("d.jsonl", '{"q": {"x": 1, "q": 2, "q": 2}}\n', 1),
        ("d.json", '[{"q": "[1, 2]"},\n {"a": 1}, {"q": 1,\n"q": 1}]', 2),
        ("d.yaml", "- q: 1\n  a: 2\n  q: 3\n", 3),
    ],
)
def test_a_key_given_twice_is_refused(name: str, content: str, line: int) -> None:
    """Whichever of the two were taken, the other would be lost unseen."""
    with pytest.raises(ConfigError, match=rf"^d\.\w+, line {line}\b.*: key `q` is written twice"):
        examples_of(written(name, content))


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("d.csv", "sep=;\r\nq;a\r\nx, y;2\r\n"),
        ("d.csv", 'sep=,\nq,a\n"x, y",2\n'),
        ("d.csv", '"sep=|"\nq|a\nx, y|2\n'),
        ("d.tsv", "sep=\t\nq\ta\nx, y\t2\n"),
        ("d.csv", 'q,a,,\n"x, y",2,,\n'),
        ("d.csv", 'q,a\n"x, y",2,, \n,\n   \n'),
        ("d.json", '{"data": [{"q": "x, y", "a": "2"}]}'),
        ("d.json", '{"v": 1, "tags": ["t"], "data": [{"q": "x, y", "a": "2"}], "more": []}'),
        ("d.yaml", "v: 1\nrows:\n- q: x, y\n  a: '2'\n"),
        ("d.json", '{"q": {"0": "x, y"}, "a": {"0": "2"}}'),  # as pandas writes a table
        ("d.json", '{"q": ["x, y"], "a": ["2"]}'),
        ("d.yaml", "q: {'7': 'x, y'}\na: {'7': '2'}\n"),
    ],
)
def test_what_spreadsheets_and_wrappers_add_is_no_data(name: str, content: str) -> None:
    assert [row.inputs for row in examples_of(written(name, content))] == [{"q": "x, y", "a": "2"}]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.jsonl", "", r"^d\.jsonl is empty; add at least one example$"),
        ("d.csv", "", r"^d\.csv is empty"),
        ("d.json", "", r"^d\.json is empty"),
        ("d.jsonl", "\n \n", r"^d\.jsonl holds no rows"),
        ("d.csv", "q,a\n", r"^d\.csv holds no rows"),
        ("d.json", "[]", r"^d\.json holds no rows"),
        ("d.jsonl", '{"a": 1}\n{"a": }\n', r"^d\.jsonl, line 2, column 7: malformed JSON: Expect"),
        ("d.jsonl", '{"a": 1,\n"b": 2}\n', r"^d\.jsonl, line 1, column 9: malformed JSON: Expect"),
        ("d.jsonl", '{"a": 1} {"a": 2}\n', r"line 1, column 10: malformed JSON: Extra data"),
        ("d.jsonl", '{"a": 1}\n5\n', r"^d\.jsonl, line 2: expected an object with fields, got a n"),
        ("d.jsonl", "null\n", "line 1: expected an object with fields, got null"),
        ("d.jsonl", '[{"a": 1}]\n', "got a list; if the file is one list, the format is json"),
        ("d.jsonl", '{"a": NaN}\n', r"^d\.jsonl, line 1: NaN is no JSON; leave the field out"),
        ("d.jsonl", '{"a": -Infinity}\n', "line 1: -Infinity is no JSON"),
        ("d.jsonl", '{"a": 1e999}\n', r"^d\.jsonl, line 1: field `a` is not a number \(NaN or inf"),
        ("d.jsonl", '{"a": "\\ud800"}\n', "line 1: field `a` holds half of a surrogate pair"),
        ("d.jsonl", '{"a": ' + "9" * 5000 + "}\n", "line 1: Exceeds the limit"),
        ("d.jsonl", "[" * 100_000 + "\n", "line 1: maximum recursion depth"),
        ("d.json", '{"a": 1}', r"^d\.json: expected a list of objects, got an object; if every li"),
        ("d.json", '{"a": 1}\n{"a": 2}', "line 2, column 1: malformed JSON: Extra data; if every"),
        ("d.json", '[{"a": 1}, 2]', r"^d\.json, row 2: expected an object with fields, got a num"),
        ("d.csv", "q,a\nx\n", r"^d\.csv, line 2: 1 values for the 2 columns of the header"),
        ("d.csv", 'q,a\n"x\ny",1\nz,1,2\n', r"^d\.csv, line 4: 3 values for the 2 columns"),
        ("d.csv", 'q,a\n"x,1\n', r"^d\.csv, line 2: unexpected end of data"),
        ("d.csv", 'q,a\n"x"y,1\n', r"^d\.csv, line 2: ',' expected after '\"'"),
        ("d.csv", "q,q\nx,y\n", r"^d\.csv: two columns are called `q`; rename one"),
        ("d.csv", "q;a\nx,y\n", r"^d\.csv, line 2: 1 values for the 2 columns of the header"),
        (
            "d.jsonl",
            '{"a": "é"}\n'.encode("latin-1"),
            r"line 1: byte 0xe9 at column 8 is no text in UTF-8",
        ),
        ("d.csv", "q\nx\né\n".encode("latin-1"), r"^d\.csv, line 3: byte 0xe9 at column 1 is no t"),
        ("d.csv", "q\nx\n".encode("utf-16"), r"^d\.csv is UTF-16; save it as UTF-8$"),
        (
            "d.csv",
            "q\nx\n".encode("utf-16-le"),
            "line 1: byte 0x00 at column 2 is no text in",
        ),
        ("d.jsonl", b'{"q": 1}\n\0\0', "line 2: byte 0x00 at column 1 is no text in UTF-8"),
        ("d.json", '[{"a": 1},\n{"a": NaN}]', r"^d\.json, line 2: NaN is no JSON"),
        (
            "d.json",
            '{"train": [{"q": 1}], "n": 2, "test": [{"q": 2}]}',
            "an object; if .*; else let the file hold one of `train`, `test` alone$",
        ),
        ("d.json", '{"q": ["a"], "a": ["b", "c"]}', "expected a list of objects, got an object"),
        ("d.json", '{"q": {"0": 1}, "a": {"1": 1}}', "expected a list of objects, got an object"),
        ("d.json", '{"e1": {"q": 1}, "e2": {"q": 1}}', "expected a list of objects"),
        ("d.jsonl", b"\x1f\x8b\x08", "compressed by gzip; let its name end in .gz"),
        ("d.csv", b"PK\x03\x04", "is a ZIP file or a spreadsheet; unpack it, or export it"),
        ("d.csv", "version https://git-lfs.github.com/spec/v1\noid x\n", "run `git lfs pull`"),
        ("d.json", "<!DOCTYPE html><html></html>", "is a web page; download it again"),
        ("d.jsonl", b"x" * (MAX_LINE_BYTES + 1), r"line 1: longer than 16,000,000 bytes; shorten"),
    ],
)
def test_broken_files_are_refused_with_the_place(
    name: str, content: str | bytes, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        examples_of(written(name, content))
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (
            '{"id": "x"}\n{"id": "y"}\n\n{"id": "x"}\n',
            {},
            r"^d\.jsonl: the id `x` stands on line 1 and on line 4; make ids unique, or name anot",
        ),
        ('{"id": 1}\n{"id": "1"}\n', {}, "the id `1` stands on line 1 and on line 2"),
        ('{"id": ""}\n', {}, r"^d\.jsonl, line 1: `id`: an id must be text or an integer, got ''"),
        ('{"id": " "}\n', {}, "an id must be text or an integer, got ' '"),
        ('{"id": null}\n', {}, "an id must be text or an integer, got None"),
        ('{"id": true}\n', {}, "an id must be text or an integer, got True"),
        ('{"id": 1.5}\n', {}, "an id must be text or an integer, got 1.5"),
        ('{"id": 1}\n{"q": 1}\n', {}, r"line 2: there is no field `id`; there are `q`"),
        ('{"uid": 1}\n', {"id": "udi"}, "no field `udi`; did you mean `uid`"),
        (
            '{"q": 1, "answer": 2}\n',
            {"target": "anser"},
            r"^d\.jsonl, line 1: there is no field `anser`; did you mean `answer`\?$",
        ),
        (
            '{"a": 1}\n{"a": ""}\n',
            {"target": "a"},
            r"^d\.jsonl, line 2: `a`: the target is empty; fill it in or remove the row$",
        ),
        ('{"a": "  "}\n', {"target": "a"}, "line 1: `a`: the target is empty"),
        ('{"a": null}\n', {"target": "a"}, "line 1: `a`: the target is empty"),
        ('{"a": []}\n', {"target": "a"}, "line 1: `a`: the target is empty"),
        ('{"a": ["x", ""]}\n', {"target": "a"}, "line 1: `a`: the target is empty"),
        ('{"a": {"x": 1}}\n', {"target": "a"}, "must be text, a number or a list of them"),
        ('{"a": [["x"]]}\n', {"target": "a"}, "must be text, a number or a list of them"),
        ('{"a": 1e999}\n', {"target": "a"}, "must be text, a number or a list.*got inf"),
        ('{"a": "\\ud800"}\n', {"target": "a"}, "field `the target` holds half of a surro"),
        (
            '{"question": 1}\n',
            {"fields": ["qestion"]},
            r"^d\.jsonl: no row has the field `qestion`; did you mean `question`\?$",
        ),
    ],
)
def test_broken_rows_are_refused_with_the_place(
    rows: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        examples_of(written("d.jsonl", rows), **options)


def test_missing_files_are_refused(here: Path) -> None:
    written("train.jsonl", "{}")
    with pytest.raises(ConfigError, match=r"^dataset tran\.jsonl does not exist; did you mean `tr"):
        examples_of(Path("tran.jsonl"))
    with pytest.raises(ConfigError, match=r"does not exist, and neither does its folder; a relat"):
        examples_of(here / "none" / "d.jsonl")
    with pytest.raises(ConfigError, match=r" is a folder; name a file in it"):
        examples_of(here)


def test_unreadable_files_are_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written("d.jsonl", "{}")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ConfigError, match=r"^cannot read d\.jsonl: Permission denied$"):
        examples_of(path)
    assert here.is_dir()


@pytest.mark.usefixtures("here")
def test_twelve_thousand_examples() -> None:
    rows = ({"id": i, "question": f"{i}+1", "answer": i + 1} for i in range(12_000))
    path = written("d.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    examples = examples_of(path, target="answer")
    assert len(examples) == 12_000
    assert examples[-1] == Example("11999", {"id": 11999, "question": "11999+1"}, "12000")
