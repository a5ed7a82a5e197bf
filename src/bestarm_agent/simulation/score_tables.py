"""Score tables in files of any format that datasets have, wide or long.

Long: columns ``candidate``, ``example`` and ``score``, one result per row; several rows of a pair
are several results. A column ``cost`` may give the cost of a call; those of our own exports and
recordings are known, and any other is refused: it may be what was meant.

Wide: the first column names the candidate, a column ``cost`` may give the cost of one call, every
other column is an example; or the other way round, where the first column is called ``example``,
``question`` or ``input``. An empty field means that there is no score.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bestarm_agent.errors import ConfigError, nearest

if TYPE_CHECKING:
    from bestarm_agent.config.datasets import FileRow

RESULT = ("candidate", "example", "score")
# of our own exports and recordings; what they hold besides the score does not matter here
_COLUMNS = """
cost usd tokens calls gpu_seconds seconds cached failure message error state seq reason candidate_id
provider model prompt inputs target reply reasoning text finish answer verdicts votes input_tokens
output_tokens attempt attempts retry_after judge_usd
"""
_TRUTH = {"true": 1.0, "false": 0.0}  # as pandas writes them
_VERDICTS = frozenset(("0", "1", "0.0", "1.0", *_TRUTH))
KNOWN = frozenset((*RESULT, *_COLUMNS.split()))


class Cell(NamedTuple):
    """One result: a score in [0, 1] or None, and the cost of the call or None."""

    candidate: str
    example: str
    score: float | None
    cost: float | None
    position: str = ""  # its row


def read_table(path: Path) -> Iterator[Cell]:
    """Read all results of a table; a ConfigError names file, row and column."""
    from bestarm_agent.config.datasets import load_rows  # what replays arrays needs none of it
    from bestarm_agent.config.files import shown_path

    return cells_of(load_rows(path, "score table"), shown_path(path))


def cells_of(rows: Iterable[FileRow], source: str) -> Iterator[Cell]:
    """Read the results in rows, wide or long as the first one says; raises ConfigError."""
    stream = iter(rows)
    # The first row is looked at for its columns, and put back: rows come as a stream.
    first = next(stream, None)
    if first is None:
        raise ConfigError(f"{source} holds no results; add one at least")
    columns, rows = list(first.values), chain((first,), stream)
    if len(columns) < 2:
        raise ConfigError(
            f"{source}: a score table has two columns at least, separated by commas, got {columns}"
        )
    is_long = set(RESULT) <= set(columns)
    # A table with one of these columns but not all of them was meant to be long, and would be read
    # as a wide one, with an example called "score".
    if not is_long and (odd := {name for name in columns[1:] if name.lower() in RESULT}):
        raise ConfigError(
            f"{source}: a row per result has the columns {', '.join(RESULT)}, and a row per "
            f"candidate has an example in every column but the first; it has {', '.join(columns)}; "
            f"rename {', '.join(sorted(odd))}, or what is meant by the others"
        )
    return _long(rows, source) if is_long else _wide(rows, source, columns[0])


def _long(rows: Iterable[FileRow], source: str) -> Iterator[Cell]:
    for row in rows:
        where = f"{source}, {row.position}"
        for column in row.values.keys() - KNOWN:
            raise ConfigError(
                f"{where}: a table of results has no column `{column}`; "
                f"{nearest(column, KNOWN)}; rename it, or leave it out"
            )
        cost = number_in(row.values, "cost" if "cost" in row.values else "usd", where)
        score = number_in(row.values, "score", where)
        pair = [str(row.values.get(column) or "").strip() for column in RESULT[:2]]
        if "" in pair:
            raise ConfigError(f"{where}: `{RESULT[pair.index('')]}` is empty; fill it in")
        yield Cell(pair[0], pair[1], score, cost, row.position)


def _wide(rows: Iterable[FileRow], source: str, label: str) -> Iterator[Cell]:
    # A first column of this name says that the rows are the examples, and the others candidates.
    step = -1 if label.lower() in ("example", "question", "input") else 1
    for row in rows:
        where, own = f"{source}, {row.position}", str(row.values[label])
        if own.lower() in _VERDICTS:  # names may stand in a column that has none itself
            raise ConfigError(
                f"{where}: the first column, `{label}`, holds a score ({own}); put one before it "
                "that names the candidate of each row, with a name of its own"
            )
        cost = number_in(row.values, "cost", where)
        for name in row.values:
            if name not in (label, "cost"):
                of, at = (own, name)[::step]
                yield Cell(of, at, number_in(row.values, name, where), cost, row.position)


def number_in(values: Mapping[str, object], column: str, where: str) -> float | None:
    """Return a number, of "True" and "False" 1 and 0; None where the field is empty, or NaN."""
    field = values.get(column)
    field = _TRUTH.get(field.strip().lower(), field) if isinstance(field, str) else field
    if field is None or field == "":
        return None
    try:
        number = float(field)  # type: ignore[arg-type] # its TypeError says what it is
    except (TypeError, ValueError):
        raise ConfigError(
            f"{where}: column `{column}` must be a number, got {field!r:.60}; write it as 0.5, "
            "verdicts as 1 and 0, and nothing where there is none"
        ) from None
    # NaN, which differs from itself, is no score. An infinite number is returned, to be refused as
    # a score outside [0, 1].
    return number if isfinite(number) or number == number else None
