"""Score tables in CSV and Parquet files, wide or long.

Long: columns ``candidate``, ``example``, ``score`` and optionally ``cost``, one result per row.
Wide: the first column names the candidate, a column ``cost`` may give the cost of one call, every
other column is an example. An empty field means that there is no score. Either may have columns of
axes, whose values are the same in all rows of a candidate.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from bestarm_agent.errors import ConfigError, nearest


class Cell(NamedTuple):
    """One result: a score in [0, 1] or None, and the cost of the call or None."""

    candidate: str
    example: str
    score: float | None
    cost: float | None


def read_table(path: Path, axes: Sequence[str] = ()) -> Iterator[Cell]:
    """Read all results of a CSV or Parquet file; a ConfigError names file, row and column.

    ``axes`` are columns that hold no scores.
    """
    columns, rows = _read(path)
    columns = [column for column in columns if column not in axes]
    if len(columns) < 2:
        raise ConfigError(
            f"{path}: a score table has two columns at least, separated by commas, got {columns}"
        )
    return _long(path, rows) if _is_long(columns) else _wide(path, columns, rows)


def read_levels(path: Path, axes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Read every candidate's level on the columns ``axes``.

    Raises ConfigError if there is no such column, or a candidate has two levels.
    """
    columns, rows = _read(path)
    for axis in axes:
        if axis not in columns:
            raise ConfigError(f"{path} has no column {axis!r}; {nearest(axis, columns)}")
    name = "candidate" if _is_long(columns) else columns[0]
    found: dict[str, tuple[str, ...]] = {}
    for row in rows:
        levels = tuple(str(row[axis]) for axis in axes)
        first = found.setdefault(str(row[name]), levels)
        if first != levels:
            raise ConfigError(
                f"{path}: candidate {row[name]!r} is at {first} in one row and at {levels} in "
                f"another; on the axes {', '.join(axes)} a candidate has one level each"
            )
    return found


def _read(path: Path) -> tuple[list[str], Iterator[Mapping[str, Any]]]:
    return _read_csv(path) if path.suffix == ".csv" else _read_parquet(path)


def _is_long(columns: Sequence[str]) -> bool:
    return {"candidate", "example", "score"} <= set(columns)


@contextmanager
def open_csv(path: Path) -> Iterator[TextIO]:
    """Open a CSV file; a byte-order mark is skipped. Raises ConfigError if it is not UTF-8."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            yield file
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ConfigError(
            f"{path}: byte 0x{byte:02x} is not UTF-8; save the file as UTF-8"
        ) from error
    except csv.Error as error:
        raise ConfigError(f"{path}: no CSV that can be read: {error}") from error


def _read_csv(path: Path) -> tuple[list[str], Iterator[Mapping[str, Any]]]:
    lines = _csv_lines(path)
    header = next(lines, None)
    if header is None:
        raise ConfigError(f"{path}: the file is empty")
    return header, (dict(zip(header, line, strict=True)) for line in lines)


def _csv_lines(path: Path) -> Iterator[list[str]]:
    with open_csv(path) as file:
        width = None
        for number, line in enumerate(csv.reader(file), start=1):
            width = width or len(line)
            if len(line) != width:
                raise ConfigError(
                    f"{path}: line {number} has {len(line)} fields, the header {width}"
                )
            yield line


def _read_parquet(path: Path) -> tuple[list[str], Iterator[Mapping[str, Any]]]:
    try:
        from pyarrow import parquet  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError(
            f"{path}: reading Parquet needs pyarrow; pip install 'bestarm-agent[data]'"
        ) from None
    table = parquet.read_table(path)
    return list(table.column_names), iter(table.to_pylist())


def _long(path: Path, rows: Iterator[Mapping[str, Any]]) -> Iterator[Cell]:
    for number, row in enumerate(rows, start=1):
        yield Cell(
            str(row["candidate"]),
            str(row["example"]),
            _number(row["score"], path, number, "score"),
            _number(row.get("cost"), path, number, "cost"),
        )


def _wide(path: Path, columns: Sequence[str], rows: Iterator[Mapping[str, Any]]) -> Iterator[Cell]:
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
