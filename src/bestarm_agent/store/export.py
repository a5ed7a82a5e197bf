"""A run's scores as CSV, JSON Lines or Parquet files, for other programs.

A pair without a score (pending or void) stays empty, null or NaN; it is never 0. In CSV, a text
that a spreadsheet would take for a formula gets an apostrophe in front.
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
from fcntl import LOCK_EX, flock
from io import TextIOWrapper
from itertools import islice, repeat
from math import isnan
from operator import attrgetter
from pathlib import Path
from secrets import token_hex
from typing import IO, Any, TypeAlias, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.domain.spend import usd
from bestarm_agent.domain.values import Json, Vote
from bestarm_agent.errors import ConfigError, FailureKind, StoreError, nearest
from bestarm_agent.plugins import optional
from bestarm_agent.selectors.types import State
from bestarm_agent.store.run_state import RunState

_Columns: TypeAlias = Mapping[str, str]  # their Arrow types, by name
_Rows: TypeAlias = Iterator[Sequence[Any]]


@contextmanager
def whole_file(target: Path | str | IO[bytes], what: str) -> Iterator[IO[bytes]]:
    """Open a file that takes its place, with mode 0600, once complete; a stream stays as it is.

    An error leaves nothing behind; that ``what`` cannot be written is a StoreError.
    """
    if not isinstance(target, Path | str):
        yield target
        return
    path = Path(target)
    if path.exists() and not path.is_file() and not path.is_dir():  # such as /dev/stdout: written
        with _written(target, what), path.open("wb") as stream:  # into, and never replaced
            yield stream
        return
    # its name is a writer's own: two threads or processes may be writing the same file
    partial = path.with_name(f".{path.name}.{token_hex(4)}.partial")
    try:
        with _written(target, what):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as stream:
                yield stream
            # Within a folder a rename replaces at once: readers see the old file or the new one.
            partial.replace(path)
    finally:
        with suppress(OSError):  # it took its place, or its folder is gone
            partial.unlink()


@contextmanager
def _written(target: Path | str, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"the {what} {target} cannot be written: {error.strerror}; make its folder writable "
            f"and see that the disk has room, or give another path"
        ) from error


@contextmanager
def sole_writer(path: Path, what: str) -> Iterator[None]:
    """Keep all others who change a file out, threads and processes, until the change is made.

    Readers need no lock: ``whole_file`` puts a file in its place at once. The lock is on a hidden
    file beside it, since that one is replaced; it ends with its process, however that ends, and the
    hidden file stays, since whoever waits for it has it open.

    Raises:
        StoreError: ``what`` cannot be written there.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(
            f"the {what} {path} cannot be changed ({error.strerror}); make its folder writable"
        ) from error
    try:
        flock(descriptor, LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class PairOutcome:
    """One asked pair: its numbers, and where they are read, everything sent, received and judged.

    What a pair that is pending does not have yet is None.
    """

    candidate: str  # its label, made unique
    example: str  # its id
    score: float | None  # in [0, 1]; None while pending or if void
    # "done", "failed" (by the candidate) or "void"; without an outcome "pending", and "unfinished"
    # once the run has ended
    state: str
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
    reasoning: str | None = None  # what the model thought before it answered, as it came
    reply: str | None = None  # the answer that every scorer reads; None without one
    finish: str | None = None  # why the model stopped: "stop", "length", ...
    answer: str | None = None  # read out of the reply by the judge
    votes: tuple[Vote, ...] = ()  # verdicts of a judge with their reasoning; empty for a rule
    input_tokens: int | None = None  # of the answered call, if its reply was scored
    output_tokens: int | None = None
    attempts: int | None = None  # requests sent for the candidate's call; 0 from the cache
    judge_usd: float | None = None  # the part of ``usd`` for judging

    @property
    def failed_as(self) -> str | None:
        """The kind of its failure in words; None without one."""
        return None if self.failure is None else FailureKind(self.failure).said

    def flat(self) -> dict[str, Json]:
        """Return the fields with texts in place of lists and mappings, for tables."""
        values = {name: getattr(self, name) for name in _FIELDS if name != "votes"}
        values["inputs"] = json.dumps(self.inputs, ensure_ascii=False) if self.inputs else None
        return {**values, "verdicts": verdicts(self.votes)}


_FIELDS = [column.name for column in fields(PairOutcome)]
_NUMBERS = _FIELDS[: _FIELDS.index("message")]
_STATES = {int(state): state.name.lower() for state in State}
AWAITED = ("pending", "unfinished")  # states without an outcome


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
    names, awaited = labels(state), AWAITED[state.end is not None]
    columns = zip(*(state.told[name][seqs].tolist() for name in _TOLD), strict=True)
    asks = zip(seqs, state.asks[seqs].tolist(), texts, columns, strict=False)
    for seq, (row, column, reason), text_fields, outcome in asks:
        status, score, nanos, number, *numbers = outcome
        candidate, known = state.candidates[row], dict[str, Any]()
        if status != State.PENDING:
            # 0 dollars of a candidate without a known price are not free, but unknown
            priced = state.costs[row] is not None or nanos > 0
            known = {"usd": usd(nanos) if priced else None}
            known |= zip(_NAMED, numbers, strict=True)
        if number >= 0:
            failure = state.failures[number]
            known |= {"failure": failure.kind.value, "message": failure.message, "cached": None}
        yield PairOutcome(
            names[row],
            state.example_ids[column],
            None if isnan(score) else score,
            awaited if status == State.PENDING else _STATES[status],
            seq,
            state.reasons[reason],
            candidate.id,
            candidate.provider,
            candidate.model,
            **known,
            **text_fields,
        )


_NAMED = ("tokens", "calls", "gpu_seconds", "seconds", "cached")  # alike in both
_TOLD = ("state", "score", "usd_nanos", "failure", *_NAMED)


def matrix(state: RunState) -> NDArray[np.float64]:
    """Return the (K, N) scores in [0, 1]; NaN where there is none."""
    grid = np.full((len(state.candidates), len(state.example_ids)), np.nan)
    grid[state.asks["candidate"], state.asks["example"]] = state.told["score"]
    return grid


def escaped(cell: Json) -> Json:
    """Escape lone surrogates of a text, which datasets may hold and no file format takes."""
    return cell.encode("utf-8", "backslashreplace").decode() if isinstance(cell, str) else cell


# What a spreadsheet takes for the beginning of a formula, full-width signs as well. A tab or a line
# break counts, since programs drop it and run what follows: "\t=cmd()". "-5" and "+1.5e3" are
# numbers, and stay numbers in the spreadsheet.
_FORMULA_STARTS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_ROWS_AT_ONCE = 1_000  # in Parquet; texts may be long
_ARROW_TYPES = {str: "string", float: "float64", int: "int64", bool: "bool"}


def export_scores(
    state: RunState,
    target: Path | str | IO[bytes],
    *,
    format: str | None = None,
    pairs: Iterable[PairOutcome] | None = None,
) -> None:
    """Write a run's scores.

    Args:
        state: the run.
        target: path, or a binary stream. A file appears whole or not at all, with mode 0600.
        format: "csv", "jsonl" or "parquet"; None takes the path's ending. There is a row for each
            ask (see ``PairOutcome``).
        pairs: the pairs with their texts, for rows that hold these, too.

    Raises:
        ConfigError: an unknown format, or Parquet without pyarrow.
        StoreError: the file cannot be written.
    """
    if format is None:
        if not isinstance(target, Path | str):
            raise ValueError("an export to a stream needs `format`")
        format = Path(target).suffix.removeprefix(".")
    if format not in _WRITERS:
        raise ConfigError(f"no export format is called {format!r}; {nearest(format, _WRITERS)}")
    with whole_file(target, "export") as stream:
        if pairs is None:
            every = map(attrgetter(*_NUMBERS), pairs_of(state, range(state.n_asked)))
            _WRITERS[format]({name: _TYPES[name] for name in _NUMBERS}, every, stream)
        else:
            rows = ([*map(escaped, pair.flat().values())] for pair in pairs)
            _WRITERS[format](_TYPES, rows, stream)


def _write_csv(columns: _Columns, rows: _Rows, stream: IO[bytes]) -> None:
    wrapper = TextIOWrapper(stream, encoding="utf-8", errors="backslashreplace", newline="")
    lines = csv.writer(wrapper)
    lines.writerow(columns)
    lines.writerows(map(harmless, row) for row in rows)
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


def _write_jsonl(columns: _Columns, rows: _Rows, stream: IO[bytes]) -> None:
    for row in rows:
        stream.write(f"{json.dumps(dict(zip(columns, row, strict=True)))}\n".encode())


def _write_parquet(columns: _Columns, rows: _Rows, stream: IO[bytes]) -> None:
    pyarrow = optional("pyarrow", "data", "the format parquet")
    parquet = optional("pyarrow.parquet", "data", "the format parquet")
    schema = pyarrow.schema(list(columns.items()))
    with parquet.ParquetWriter(stream, schema) as writer:
        while some := list(islice(rows, _ROWS_AT_ONCE)):
            arrays = map(pyarrow.array, zip(*some, strict=True), columns.values())
            writer.write_table(pyarrow.table(list(arrays), schema=schema))


def _arrow_types() -> dict[str, str]:
    """Return name and Arrow type of each field of ``PairOutcome.flat``; any may be missing."""
    hints = {name: get_args(hint) or (hint,) for name, hint in get_type_hints(PairOutcome).items()}
    types = {name: _ARROW_TYPES.get(kinds[0], "string") for name, kinds in hints.items()}
    del types["votes"]
    return types | {"verdicts": "string"}


_TYPES = _arrow_types()
_WRITERS: dict[str, Callable[[_Columns, _Rows, IO[bytes]], None]] = {
    "csv": _write_csv,
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
}
