"""A run's scores as CSV, JSON, Parquet or NumPy files, for other programs.

A cell without a score (never asked, pending or void) stays empty, null or NaN; it is never 0. In
CSV, a text that a spreadsheet would take for a formula gets an apostrophe in front.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from io import TextIOWrapper
from itertools import islice
from math import isnan
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, get_args, get_type_hints

import numpy as np

from bestarm_agent.errors import ConfigError, StoreError, nearest
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.score_export_rows import (
    Record,
    Texts,
    labels,
    matrix,
    matrix_rows,
    records,
)
from bestarm_agent.store.whole_files import whole_file

Form: TypeAlias = Literal["long", "matrix"]
_MaybeTexts: TypeAlias = Iterable[Texts] | None
_Lines: TypeAlias = tuple[list[str], Iterator[Sequence[Any]]]

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_TEXTS = ("answer", "message", *Texts._fields)
_CELLS_AT_ONCE = 1_000_000
ROWS_WITH_TEXTS = 1_000
"""Rows that are written at a time if they hold texts, which may be long."""
_ARROW_TYPES = {str: "string", float: "float64", int: "int64", bool: "bool"}


def export_scores(
    state: RunState,
    target: Path | str | IO[bytes],
    *,
    format: str | None = None,
    form: Form = "long",
    texts: Iterable[Texts] | None = None,
) -> None:
    """Write a run's scores.

    Args:
        state: the run.
        target: path, or a binary stream. A file appears whole or not at all, with mode 0600.
        format: "csv", "json", "parquet" or "npz"; None takes the path's ending.
        form: "long" has one record per ask (see ``Record``), "matrix" the (K, N) grid. "npz" is
            always the grid: ``scores`` (NaN for none), ``candidates`` (labels), ``examples`` (ids).
        texts: one per ask, for long records; with them come answers and failure messages.

    Raises:
        ConfigError: an unknown format or form, or Parquet without pyarrow.
        StoreError: the file cannot be written.
    """
    write = _writer(format or _ending(target))
    if form not in get_args(Form):
        raise ConfigError(f"the form of an export is `long` or `matrix`, got {form!r}")
    with export_stream(target) as stream:
        write(state, stream, form, texts)


def _ending(target: Path | str | IO[bytes]) -> str:
    if isinstance(target, Path | str):
        return Path(target).suffix.removeprefix(".")
    raise ValueError("an export to a stream needs `format`")


def _writer(format: str) -> Callable[[RunState, IO[bytes], Form, _MaybeTexts], None]:
    try:
        return _WRITERS[format]
    except KeyError:
        raise ConfigError(
            f"no export format is called {format!r}; {nearest(format, _WRITERS)}"
        ) from None


@contextmanager
def export_stream(target: Path | str | IO[bytes]) -> Iterator[IO[bytes]]:
    """Open a file that appears whole or not at all; raise StoreError if it cannot be written.

    A stream stays as it is.
    """
    if not isinstance(target, Path | str):
        yield target
        return
    try:
        with whole_file(Path(target)) as stream:
            yield stream
    except OSError as error:
        raise StoreError(
            f"the export {target} cannot be written: {error.strerror}; make its folder writable "
            f"and see that the disk has room, or give another path"
        ) from error


def _write_csv(state: RunState, stream: IO[bytes], form: Form, texts: _MaybeTexts) -> None:
    columns, lines = _lines(state, form, texts)
    wrapper = TextIOWrapper(stream, encoding="utf-8", errors="backslashreplace", newline="")
    table = csv.writer(wrapper)
    table.writerow(map(harmless, columns))
    table.writerows(map(harmless, line) for line in lines)
    wrapper.detach()  # flushes, and leaves the caller's stream open


def harmless(cell: object) -> object:
    """Keep a spreadsheet from running a text as a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA_STARTS) else cell


def _write_json(state: RunState, stream: IO[bytes], form: Form, texts: _MaybeTexts) -> None:
    """Write one object; a list element per line, so that large grids are never held as text."""
    columns, lines = _lines(state, form, texts)
    head: dict[str, Any] = {"form": form}
    key = "records"
    items: Iterator[Any] = (dict(zip(columns, line, strict=True)) for line in lines)
    if form == "matrix":
        head |= {"candidates": labels(state), "examples": state.example_ids}
        key, items = "scores", (line[1:] for line in lines)
    stream.write(f'{json.dumps(head)[:-1]}, "{key}": ['.encode())
    for number, item in enumerate(items):
        stream.write(f"{',' if number else ''}\n{json.dumps(item)}".encode())
    stream.write(b"\n]}\n")


def _write_parquet(state: RunState, stream: IO[bytes], form: Form, texts: _MaybeTexts) -> None:
    columns, lines = _lines(state, form, texts)
    types = dict(zip(columns, _arrow_types(columns, form), strict=True))
    n_lines = ROWS_WITH_TEXTS if texts is not None else max(1, _CELLS_AT_ONCE // len(columns))
    with parquet_rows(stream, types) as write:
        while some := list(islice(lines, n_lines)):
            write(some)


@contextmanager
def parquet_rows(
    stream: IO[bytes], types: Mapping[str, str]
) -> Iterator[Callable[[Sequence[Sequence[Any]]], None]]:
    """Write a Parquet file through a function that takes some rows at a time.

    Args:
        stream: takes the file.
        types: name and Arrow type of each column.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    try:
        import pyarrow  # type: ignore[import-untyped]
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(
            "writing Parquet needs pyarrow: pip install 'bestarm-agent[data]'; the other formats "
            "need nothing more"
        ) from error
    schema = pyarrow.schema(list(types.items()))
    with parquet.ParquetWriter(stream, schema) as writer:

        def write(rows: Sequence[Sequence[Any]]) -> None:
            arrays = map(pyarrow.array, zip(*rows, strict=True), types.values())
            writer.write_table(pyarrow.table(list(arrays), schema=schema))

        yield write


def _arrow_types(columns: Sequence[str], form: Form) -> list[str]:
    if form == "matrix":
        return ["string"] + ["float64"] * (len(columns) - 1)
    types = arrow_types(Record)
    return [types[name] for name in columns]


def arrow_types(record: type) -> dict[str, str]:
    """Return name and Arrow type of a dataclass's plain fields; None stands for a missing value."""
    hints = get_type_hints(record)
    kinds = {name: (get_args(hint) or (hint,))[0] for name, hint in hints.items()}
    return {name: _ARROW_TYPES[kind] for name, kind in kinds.items() if kind in _ARROW_TYPES}


def _write_npz(state: RunState, stream: IO[bytes], _form: Form, _texts: _MaybeTexts) -> None:
    np.savez_compressed(
        stream,
        scores=matrix(state),
        candidates=np.array(labels(state), dtype=np.str_),
        examples=np.array(state.example_ids, dtype=np.str_),
    )


def _lines(state: RunState, form: Form, texts: _MaybeTexts) -> _Lines:
    if form == "matrix":
        return ["candidate", *state.example_ids], _matrix_lines(state)
    columns = [
        field.name for field in fields(Record) if texts is not None or field.name not in _TEXTS
    ]
    return columns, map(attrgetter(*columns), records(state, texts=texts))


def _matrix_lines(state: RunState) -> Iterator[Sequence[Any]]:
    for label, row in zip(labels(state), matrix_rows(state), strict=True):
        yield [label, *(None if isnan(score) else score for score in row.tolist())]


_WRITERS: dict[str, Callable[[RunState, IO[bytes], Form, _MaybeTexts], None]] = {
    "csv": _write_csv,
    "json": _write_json,
    "parquet": _write_parquet,
    "npz": _write_npz,
}
