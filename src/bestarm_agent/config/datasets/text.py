"""Read datasets in text files: JSON lines, JSON, CSV, TSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NoReturn

from bestarm_agent.config.datasets.rows import Row
from bestarm_agent.config.yaml.documents import shown_path
from bestarm_agent.errors import ConfigError

MAX_LINE_BYTES = 16_000_000

_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def read_jsonl(path: Path) -> Iterator[Row]:
    """Read one JSON object per line; blank lines are skipped."""
    for number, line in _lines(path):
        if line.strip():
            place = f"line {number}"
            yield Row(place, _object(_json(line, path, place), path, place))


def read_json(path: Path) -> Iterator[Row]:
    """Read a JSON list of objects."""
    text = "".join(line for _, line in _lines(path))
    rows = _json(text, path, None)
    if not isinstance(rows, list):
        raise ConfigError(
            f"{shown_path(path)}: expected a list of objects, got {_kind(rows)}; if every line is "
            "an object of its own, the format is jsonl"
        )
    for number, row in enumerate(rows, start=1):
        place = f"row {number}"
        yield Row(place, _object(row, path, place))


def read_separated(path: Path, delimiter: Literal[",", "\t"]) -> Iterator[Row]:
    """Read a table with a header; every value is text. Columns without a name are skipped."""
    limit = csv.field_size_limit(MAX_LINE_BYTES)  # the module's, for all its readers
    try:
        yield from _table(path, delimiter)
    finally:
        csv.field_size_limit(limit)


def _table(path: Path, delimiter: str) -> Iterator[Row]:
    records = _records(path, delimiter)
    _, header = next(records, (1, []))
    names = _header(header, path)
    for line, record in records:
        place = f"line {line}"
        if len(record) != len(names):
            raise ConfigError(
                f"{shown_path(path)}, {place}: {len(record)} values for the {len(names)} columns "
                "of the header; put quotes around values that hold separators or line breaks"
            )
        yield Row(place, {n: value for n, value in zip(names, record, strict=True) if n})


def _records(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield every record that is not blank, with its first line."""
    reader = csv.reader((line for _, line in _lines(path)), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            record = next(reader, None)
        except csv.Error as error:
            raise ConfigError(f"{shown_path(path)}, line {line}: {error}") from None
        if record is None:
            return
        if record:
            yield line, record


def _header(record: list[str], path: Path) -> list[str]:
    names = [name.strip() for name in record]
    for name in names:
        if name and names.count(name) > 1:
            raise ConfigError(f"{shown_path(path)}, line 1: two columns are called `{name}`")
    if len(names) == 1 and ";" in names[0]:
        raise ConfigError(
            f"{shown_path(path)}, line 1: the only column is `{names[0]}`; separate columns by "
            "commas, not semicolons"
        )
    return names


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a UTF-8 file, with line ends, without a byte-order mark."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise ConfigError(
                    f"{shown_path(path)}, line {number}: longer than {MAX_LINE_BYTES:,} bytes; "
                    "shorten it, or use parquet"
                )
            if number == 1 and line.startswith(_UTF16):
                raise ConfigError(f"{shown_path(path)} is UTF-16; save it as UTF-8")
            yield number, _decoded(line, number, path)
    if number == 0:
        raise ConfigError(f"{shown_path(path)} is empty; add at least one example")


def _decoded(line: bytes, number: int, path: Path) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{shown_path(path)}, line {number}: byte {line[error.start]:#04x} at column "
            f"{error.start + 1} is not UTF-8; save the file as UTF-8"
        ) from None


def _json(text: str, path: Path, place: str | None) -> object:
    """Parse JSON; ``place`` is None if the text is the whole file."""
    try:
        return _decode(text)
    except json.JSONDecodeError as error:
        at = f"column {error.colno}" if place else f"line {error.lineno}, column {error.colno}"
        hint = "; if every line is an object, the format is jsonl" if "Extra" in error.msg else ""
        reason = f", {at}: malformed JSON: {error.msg}{hint}"
    except (ValueError, RecursionError) as error:
        reason = f": {error}"
    where = shown_path(path) if place is None else f"{shown_path(path)}, {place}"
    raise ConfigError(f"{where}{reason}")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON; leave the field out, or write null")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode


def _object(value: object, path: Path, place: str) -> dict[str, object]:
    if isinstance(value, dict):
        return value
    hint = "; if the file is one list, the format is json" if isinstance(value, list) else ""
    raise ConfigError(
        f"{shown_path(path)}, {place}: expected an object with fields, got {_kind(value)}{hint}"
    )


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")
