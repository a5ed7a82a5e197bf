"""Score tables in CSV and Parquet files, wide or long.

Long: columns ``candidate``, ``example``, ``score`` and optionally ``cost``, one result per row.
Wide: the first column names the candidate, a column ``cost`` may give the cost of one call, every
other column is an example. An empty field means that there is no score.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from bestarm_agent.errors import ConfigError

_Rows: TypeAlias = Iterator[Mapping[str, Any]]


class Cell(NamedTuple):
    """One result: a score in [0, 1] or None, and the cost of the call or None."""

    candidate: str
    example: str
    score: float | None
    cost: float | None


def read_table(path: Path) -> Iterator[Cell]:
    """Read all results of a CSV or Parquet file; a ConfigError names file, row and column."""
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r}; check the name")
    columns, rows = _read_csv(path) if path.suffix == ".csv" else _read_parquet(path)
    if len(columns) < 2:
        raise ConfigError(
            f"{path}: a score table has two columns at least, separated by commas, got {columns}"
        )
    is_long = {"candidate", "example", "score"} <= set(columns)
    return _long(path, rows) if is_long else _wide(path, columns, rows)


def _read_csv(path: Path) -> tuple[Sequence[str], _Rows]:
    lines = _csv_lines(path)
    header = next(lines, None)
    if header is None:
        raise ConfigError(f"{path}: the file is empty")
    return header, (dict(zip(header, line, strict=True)) for line in lines)


def _csv_lines(path: Path) -> Iterator[list[str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            width = None
            for number, line in enumerate(csv.reader(file), start=1):
                width = width or len(line)
                if len(line) != width:
                    raise ConfigError(
                        f"{path}: line {number} has {len(line)} fields, the header {width}"
                    )
                yield line
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ConfigError(
            f"{path}: byte 0x{byte:02x} is not UTF-8; save the file as UTF-8"
        ) from error
    except csv.Error as error:
        raise ConfigError(f"{path}: no CSV that can be read: {error}") from error


def _read_parquet(path: Path) -> tuple[Sequence[str], _Rows]:
    try:
        from pyarrow import parquet  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError(
            f"{path}: reading Parquet needs pyarrow; pip install 'bestarm-agent[data]'"
        ) from None
    table = parquet.read_table(path)
    return list(table.column_names), iter(table.to_pylist())


def _long(path: Path, rows: _Rows) -> Iterator[Cell]:
    for number, row in enumerate(rows, start=1):
        yield Cell(
            str(row["candidate"]),
            str(row["example"]),
            _number(row["score"], path, number, "score"),
            _number(row.get("cost"), path, number, "cost"),
        )


def _wide(path: Path, columns: Sequence[str], rows: _Rows) -> Iterator[Cell]:
    label, *others = columns
    examples = [name for name in others if name != "cost"]
    for number, row in enumerate(rows, start=1):
        cost = _number(row.get("cost"), path, number, "cost")
        for example in examples:
            score = _number(row[example], path, number, example)
            yield Cell(str(row[label]), example, score, cost)


def _number(field: Any, path: Path, row: int, column: str) -> float | None:  # noqa: ANN401 - a field is anything
    if field is None or field == "":
        return None
    try:
        return float(field)
    except (TypeError, ValueError):
        raise ConfigError(
            f"{path}: data row {row}, column {column!r} must be a number, got {field!r}"
        ) from None
