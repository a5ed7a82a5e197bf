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
from dataclasses import dataclass, field, fields
from io import TextIOWrapper
from itertools import islice, repeat
from math import isnan
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.domain.spend import usd
from bestarm_agent.domain.values import Json, Vote
from bestarm_agent.errors import ConfigError, StoreError, nearest
from bestarm_agent.selectors.types import State
from bestarm_agent.store.run_state import RunState


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


@dataclass(frozen=True, slots=True)
class PairOutcome:
    """One asked pair: its numbers, and where they are read, everything sent, received and judged.

    What a pair that is pending does not have yet is None.
    """

    candidate: str  # its label, made unique
    example: str  # its id
    score: float | None  # in [0, 1]; None while pending or if void
    state: str  # "done", "failed" (by the candidate), "void" or "pending"
    seq: int  # the ask's number
    reason: str  # the rule's word for why
    candidate_id: str  # digest of the candidate's content
    provider: str
    model: str
    usd: float | None = None  # dollars, retries and judging included; None if no price is known
    tokens: int | None = None  # prompt plus generated, retries and judging included
    calls: int | None = None  # requests sent for the pair
    gpu_seconds: float | None = None
    seconds: float | None = None  # wall-clock, of the answered call
    cached: bool | None = None  # the reply came from the cache; None without a score
    failure: str | None = None  # kind of the failure
    # the texts
    message: str | None = None  # of the failure
    prompt: str | None = None  # as rendered; chat messages follow each other under "[role]" lines
    inputs: Mapping[str, Json] = field(default_factory=dict)  # the example's; empty if it is gone
    target: str | None = None  # the acceptable answers, one per line
    reply: str | None = None  # raw text of the reply; None without one
    finish: str | None = None  # why the model stopped: "stop", "length", ...
    answer: str | None = None  # read out of the reply by the judge
    votes: tuple[Vote, ...] = ()  # verdicts of a judge with their reasoning; empty for a rule
    input_tokens: int | None = None  # of the answered call, if its reply was scored
    output_tokens: int | None = None
    attempts: int | None = None  # requests sent for the candidate's call; 0 from the cache
    judge_usd: float | None = None  # the part of ``usd`` for judging

    def flat(self) -> dict[str, Json]:
        """Return the fields with texts in place of lists and mappings, for tables."""
        values = {name: getattr(self, name) for name in _FIELDS if name != "votes"}
        values["inputs"] = json.dumps(self.inputs, ensure_ascii=False) if self.inputs else None
        return {**values, "verdicts": verdicts(self.votes)}


_FIELDS = [one.name for one in fields(PairOutcome)]
_NUMBERS = _FIELDS[: _FIELDS.index("message")]
_STATES = {int(state): state.name.lower() for state in State}


def verdicts(votes: Sequence[Vote]) -> str | None:
    """Write verdicts with their reasoning, one per line; None without any."""
    lines = [
        f"{vote.by}: {vote.said or vote.value} ({vote.value:g}){': ' if vote.why else ''}{vote.why}"
        for vote in votes
    ]
    return "\n".join(lines) or None


def labels(state: RunState) -> list[str]:
    """Return the K candidates' labels, or ids; equal ones get the row's number."""
    names = [candidate.label or candidate.id for candidate in state.candidates]
    count = Counter(names)
    return [name if count[name] == 1 else f"{name} #{row}" for row, name in enumerate(names)]


def pairs_of(
    state: RunState, seqs: Sequence[int], texts: Iterable[Mapping[str, Any]] = repeat({})
) -> Iterator[PairOutcome]:
    """Yield the pairs of some asks by their numbers; ``texts`` holds further fields of each."""
    names = labels(state)
    asks, outcomes = state.asks[seqs], state.told[seqs][[*_TOLD]].tolist()
    for seq, ask, told, more in zip(seqs, asks.tolist(), outcomes, texts, strict=False):
        row, column, reason = ask
        status, score, usd_nanos, tokens, calls, gpu_seconds, seconds, cached, number = told
        candidate = state.candidates[row]
        known: dict[str, Any] = {}
        if status != State.PENDING:
            priced = state.costs[row] is not None or usd_nanos > 0
            known = {
                "usd": usd(usd_nanos) if priced else None,
                "tokens": tokens,
                "calls": calls,
                "gpu_seconds": gpu_seconds,
                "seconds": seconds,
            }
            if number < 0:
                known["cached"] = cached
            else:
                failure = state.failures[number]
                known |= {"failure": failure.kind.value, "message": failure.message}
        yield PairOutcome(
            names[row],
            state.example_ids[column],
            None if isnan(score) else score,
            _STATES[status],
            seq,
            state.reasons[reason],
            candidate.id,
            candidate.provider,
            candidate.model,
            **known,
            **more,
        )


_TOLD = (
    "state",
    "score",
    "usd_nanos",
    "tokens",
    "calls",
    "gpu_seconds",
    "seconds",
    "cached",
    "failure",
)


def matrix_rows(state: RunState) -> Iterator[NDArray[np.float64]]:
    """Yield the K rows of the grid, each (N,) in [0, 1] with NaN where there is no score."""
    score, candidate, example = state.told["score"], state.asks["candidate"], state.asks["example"]
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


def escaped(cell: Json) -> Json:
    """Escape lone surrogates of a text, which datasets may hold and no file format takes."""
    return cell.encode("utf-8", "backslashreplace").decode() if isinstance(cell, str) else cell


Form: TypeAlias = Literal["long", "matrix"]

# what a spreadsheet takes for the beginning of a formula, full-width signs as well
_FORMULA_STARTS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_CELLS_AT_ONCE = 1_000_000
ROWS_WITH_TEXTS = 1_000
"""Rows that are written at a time if they hold texts, which may be long."""
_ARROW_TYPES = {str: "string", float: "float64", int: "int64", bool: "bool"}


@dataclass(frozen=True, slots=True)
class _Table:
    """Rows of cells under named columns, for export."""

    columns: Sequence[tuple[str, str]]  # name and Arrow type
    rows: Iterator[Sequence[Any]]
    at_once: int  # rows that are held at a time
    axes: Mapping[str, Sequence[str]] | None = None  # of a grid, whose first column is the label


def export_scores(
    state: RunState,
    target: Path | str | IO[bytes],
    *,
    format: str | None = None,
    form: Form = "long",
    pairs: Iterable[PairOutcome] | None = None,
) -> None:
    """Write a run's scores.

    Args:
        state: the run.
        target: path, or a binary stream. A file appears whole or not at all, with mode 0600.
        format: "csv", "json", "parquet" or "npz"; None takes the path's ending.
        form: "long" has one record per ask (see ``PairOutcome``), "matrix" the (K, N) grid. "npz"
            is always the grid: ``scores`` (NaN for none), ``candidates`` (labels), ``examples``
            (ids).
        pairs: the pairs with their texts, for long records that hold these, too.

    Raises:
        ConfigError: an unknown format or form, or Parquet without pyarrow.
        StoreError: the file cannot be written.
    """
    if format is None:
        if not isinstance(target, Path | str):
            raise ValueError("an export to a stream needs `format`")
        format = Path(target).suffix.removeprefix(".")
    if format not in (*_WRITERS, "npz"):
        hint = nearest(format, (*_WRITERS, "npz"))
        raise ConfigError(f"no export format is called {format!r}; {hint}")
    if form not in get_args(Form):
        raise ConfigError(f"the form of an export is `long` or `matrix`, got {form!r}")
    with export_stream(target) as stream:
        if format == "npz":
            candidates, examples = (np.array(axis, np.str_) for axis in _axes(state).values())
            scores = matrix(state)
            np.savez_compressed(stream, scores=scores, candidates=candidates, examples=examples)
        else:
            table = _grid(state) if form == "matrix" else _pairs(state, pairs)
            _WRITERS[format](table, stream)


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


def _axes(state: RunState) -> dict[str, list[str]]:
    return {"candidates": labels(state), "examples": state.example_ids}


def _pairs(state: RunState, pairs: Iterable[PairOutcome] | None) -> _Table:
    types = {name: "string" for name in _FIELDS if name != "votes"} | arrow_types(PairOutcome)
    if pairs is None:
        numbers = [(name, types[name]) for name in _NUMBERS]
        cells = map(attrgetter(*_NUMBERS), pairs_of(state, range(state.n_asked)))
        return _Table(numbers, cells, 50_000)
    rows = ([*map(escaped, pair.flat().values())] for pair in pairs)
    return _Table([*types.items(), ("verdicts", "string")], rows, ROWS_WITH_TEXTS)


def _grid(state: RunState) -> _Table:
    columns = [("candidate", "string"), *((name, "float64") for name in state.example_ids)]
    rows = (
        [label, *(None if isnan(score) else score for score in row.tolist())]
        for label, row in zip(labels(state), matrix_rows(state), strict=True)
    )
    return _Table(columns, rows, max(1, _CELLS_AT_ONCE // len(columns)), _axes(state))


def _write_csv(table: _Table, stream: IO[bytes]) -> None:
    wrapper = TextIOWrapper(stream, encoding="utf-8", errors="backslashreplace", newline="")
    lines = csv.writer(wrapper)
    lines.writerow(harmless(name) for name, _ in table.columns)
    lines.writerows(map(harmless, row) for row in table.rows)
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


def _write_json(table: _Table, stream: IO[bytes]) -> None:
    """Write one object; a list element per line, so that large grids are never held as text."""
    names = [name for name, _ in table.columns]
    head: dict[str, Any] = {"form": "long" if table.axes is None else "matrix"}
    key = "records"
    items: Iterator[Any] = (dict(zip(names, row, strict=True)) for row in table.rows)
    if table.axes is not None:
        head |= table.axes
        key, items = "scores", (list(row[1:]) for row in table.rows)
    stream.write(f'{json.dumps(head)[:-1]}, "{key}": ['.encode())
    for number, item in enumerate(items):
        stream.write(f"{',' if number else ''}\n{json.dumps(item)}".encode())
    stream.write(b"\n]}\n")


def _write_parquet(table: _Table, stream: IO[bytes]) -> None:
    with parquet_rows(stream, dict(table.columns)) as write:
        while some := list(islice(table.rows, table.at_once)):
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


def arrow_types(record: type) -> dict[str, str]:
    """Return name and Arrow type of a dataclass's plain fields; None stands for a missing value."""
    hints = get_type_hints(record)
    kinds = {name: (get_args(hint) or (hint,))[0] for name, hint in hints.items()}
    return {name: _ARROW_TYPES[kind] for name, kind in kinds.items() if kind in _ARROW_TYPES}


_WRITERS: dict[str, Callable[[_Table, IO[bytes]], None]] = {
    "csv": _write_csv,
    "json": _write_json,
    "parquet": _write_parquet,
}
