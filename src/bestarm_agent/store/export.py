"""A run's scores as CSV, JSON, Parquet or NumPy files, for other programs.

A cell without a score (never asked, pending or void) stays empty, null or NaN; it is never 0. In
CSV, a text that a spreadsheet would take for a formula gets an apostrophe in front.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from io import TextIOWrapper
from itertools import islice, repeat
from math import isnan
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, TypeAlias, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.domain.outcome import Outcome, Scored
from bestarm_agent.domain.spend import usd
from bestarm_agent.errors import ConfigError, StoreError, nearest
from bestarm_agent.store.run_state import RunState, state_of


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Write a file that replaces ``path`` once complete; an error leaves nothing behind."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
            yield stream
        partial.replace(path)
    finally:
        with suppress(OSError):  # it took its place, or its folder is gone
            partial.unlink()


class Texts(NamedTuple):
    """Texts of an ask that are not fields of its outcome as they stand."""

    prompt: str | None = None  # as rendered
    target: str | None = None  # the acceptable answers, one per line
    reply: str | None = None  # raw
    verdicts: str | None = None  # of a judge, with their reasoning, one per line


@dataclass(frozen=True, slots=True)
class Record:
    """One ask and its outcome; while it is pending, ``cost`` and what follows are None."""

    candidate: str  # its label, made unique
    example: str  # its id
    score: float | None  # in [0, 1]; None while pending or if void
    state: str  # "done", "failed" (by the candidate), "void" or "pending"
    seq: int  # the ask's number
    propensity: float | None  # probability of having drawn this example
    reason: str  # the rule's word for why
    candidate_id: str  # digest of the candidate's content
    provider: str
    model: str
    cost: float | None = None  # dollars spent on the pair, retries and judge included
    tokens: int | None = None  # prompt plus generated, spent on the pair
    calls: int | None = None  # requests sent for the pair
    gpu_seconds: float | None = None
    seconds: float | None = None  # wall-clock, of the answered call
    cached: bool | None = None  # the reply came from the cache; None without a reply
    failure: str | None = None
    answer: str | None = None  # read out of the reply; only where texts are asked for
    message: str | None = None  # of the failure; only where texts are asked for
    prompt: str | None = None  # these four as in ``Texts``; only where texts are asked for
    target: str | None = None
    reply: str | None = None
    verdicts: str | None = None


def labels(state: RunState) -> list[str]:
    """Return the K candidates' labels, or ids; equal ones get the row's number."""
    names = [candidate.label or candidate.id for candidate in state.candidates]
    count = Counter(names)
    return [name if count[name] == 1 else f"{name} #{row}" for row, name in enumerate(names)]


def records(state: RunState, *, texts: Iterable[Texts] | None = None) -> Iterator[Record]:
    """Yield one record per ask, in ask order.

    ``texts``, one per ask, are added, and with them the answers and the failures' messages.
    """
    names = labels(state)
    each = repeat(None, len(state.asks)) if texts is None else texts
    for ask, more in zip(state.asks, each, strict=True):
        candidate = state.candidates[ask.candidate]
        told = state.told.get(ask.seq)
        yield Record(
            candidate=names[ask.candidate],
            example=state.example_ids[ask.example],
            score=told.score if told else None,
            state=state_of(told).name.lower(),
            seq=ask.seq,
            propensity=ask.propensity,
            reason=ask.reason,
            candidate_id=candidate.id,
            provider=candidate.provider,
            model=candidate.model,
            **(_outcome_fields(told.outcome, more is not None) if told else {}),
            **_text_fields(more),
        )


def matrix_rows(state: RunState) -> Iterator[NDArray[np.float64]]:
    """Yield the K rows of the grid, each (N,) in [0, 1] with NaN where there is no score."""
    score = state.told.score
    candidate, example = (of[: len(score)] for of in (state.asks.candidate, state.asks.example))
    order = np.argsort(candidate, kind="stable")
    ends = np.cumsum(np.bincount(candidate, minlength=len(state.candidates)))
    for seqs in np.split(order, ends[:-1]) if len(ends) else ():
        row = np.full(len(state.example_ids), np.nan)
        row[example[seqs]] = score[seqs]
        yield row


def matrix(state: RunState) -> NDArray[np.float64]:
    """Return the (K, N) scores in [0, 1]; NaN where there is none."""
    grid = np.empty((len(state.candidates), len(state.example_ids)))
    for row, scores in enumerate(matrix_rows(state)):
        grid[row] = scores
    return grid


def _outcome_fields(outcome: Outcome, texts: bool) -> dict[str, Any]:
    spend = outcome.spend
    result = {
        "cost": usd(spend.usd_nanos),
        "tokens": spend.tokens,
        "calls": spend.calls,
        "gpu_seconds": spend.gpu_seconds,
        "seconds": outcome.seconds,
    }
    if isinstance(outcome, Scored):
        answer = escaped(outcome.answer) if texts else None
        return {**result, "cached": outcome.cached, "answer": answer}
    message = escaped(outcome.message) if texts else None
    return {**result, "failure": outcome.kind.value, "message": message}


def _text_fields(texts: Texts | None) -> dict[str, Any]:
    return {} if texts is None else {key: escaped(text) for key, text in texts._asdict().items()}


def escaped(text: str | None) -> str | None:
    """Escape lone surrogates, which models do send and no file format takes."""
    return text and text.encode("utf-8", "backslashreplace").decode()


Form: TypeAlias = Literal["long", "matrix"]
_MaybeTexts: TypeAlias = Iterable[Texts] | None
_Lines: TypeAlias = tuple[list[str], Iterator[Sequence[Any]]]

# what a spreadsheet takes for the beginning of a formula, full-width signs as well
_FORMULA_STARTS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
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
    """Keep a spreadsheet from running a text as a formula; a number is none.

    Example:
        >>> harmless("-5"), harmless("-5+cmd")
        ('-5', "'-5+cmd")
    """
    if not isinstance(cell, str) or not cell.startswith(_FORMULA_STARTS):
        return cell
    return cell if _NUMBER.fullmatch(cell) else f"'{cell}"


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
