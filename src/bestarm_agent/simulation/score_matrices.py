"""Score matrices: every candidate's score on every example, as far as it is known."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import BadZipFile

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from bestarm_agent.domain.values import clip_rounding
from bestarm_agent.errors import ConfigError
from bestarm_agent.simulation.score_tables import Cell, read_table
from bestarm_agent.stats.arrays import FloatArray, SingleArray

_TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
_Values: TypeAlias = NDArray[Any]  # numbers of any type


@dataclass(frozen=True, slots=True)
class ScoreMatrix:
    """All scores of K candidates on N examples, higher is better; checked when made."""

    scores: SingleArray  # (K, N) in [0, 1], NaN where it cannot be measured; a score in every row
    names: tuple[str, ...]  # K names to show
    source: str = "array"  # file or run of origin
    examples: tuple[str, ...] = ()  # N ids; empty if they are not known

    def __post_init__(self) -> None:
        if self.scores.ndim != 2 or 0 in self.scores.shape:
            raise ValueError(
                f"scores must be candidates x examples, both at least 1, got {self.scores.shape}"
            )
        if len(self.names) != len(self.scores):
            raise ValueError(
                f"{len(self.scores)} rows of scores need as many names, got {len(self.names)}"
            )
        outside = (self.scores < 0) | (self.scores > 1)  # NaN is neither
        if outside.any():
            i, j = np.argwhere(outside)[0]
            raise ValueError(
                f"scores must be in [0, 1], got {self.scores[i, j]:g} in row {i}, column {j}"
                f" ({outside.sum()} such values); rescale them so that higher is better"
            )
        empty = np.flatnonzero(np.isnan(self.scores).all(axis=1))
        if len(empty):
            raise ValueError(
                f"candidate {self.names[empty[0]]!r} has no score at all; leave it out"
            )

    @property
    def means(self) -> FloatArray:
        """Return the (K,) means of the measurable scores, summed in double precision."""
        means: FloatArray = np.nanmean(self.scores, axis=1, dtype=np.float64)
        return means


def is_score_file(location: str) -> bool:
    """Return whether ``load_matrix`` reads a file of such a name."""
    return location.endswith((".npz", *_TABLES)) or ".npz:" in location


def load_matrix(location: str) -> ScoreMatrix:
    """Read a score matrix from ``FILE.npz``, ``FILE.npz:NAME``, or a table (.csv, .tsv, .parquet).

    NAME is one of several matrices in a file, ``scores`` by default. Raises ConfigError.
    """
    if not is_score_file(location):
        raise ConfigError(
            f"{location!r} is not a score file (.npz, .csv, .parquet), a log (.eval, .json, "
            ".jsonl) or a run of the store; check the name, or see `bestarm-agent list`"
        )
    if location.endswith(_TABLES):
        return matrix_from_cells(read_table(Path(location)), location)
    # From the right: folders of the path may hold ".npz", too.
    head, _, name = location.rpartition(".npz")
    return _read_npz(location, Path(f"{head}.npz"), name.lstrip(":") or "scores")


def matrix_from_cells(cells: Iterable[Cell], source: str) -> ScoreMatrix:
    """Build a matrix from single results; candidates and examples keep their first-seen order.

    A pair without a score is NaN, one with several has their mean. Raises ConfigError.
    """
    rows: dict[str, int] = {}
    columns: dict[str, int] = {}
    at_row, at_column, values = array("q"), array("q"), array("d")
    for cell in cells:  # plain arrays: a table may have ten million cells
        at_row.append(rows.setdefault(cell.candidate, len(rows)))
        at_column.append(columns.setdefault(cell.example, len(columns)))
        values.append(nan if cell.score is None else clip_rounding(cell.score))
    i, j = np.asarray(at_row), np.asarray(at_column)
    # ``flat`` numbers the cells of the matrix row by row, so that ``bincount`` sums all results of
    # a cell without a loop over the cells.
    given, flat, size = np.asarray(values), i * len(columns) + j, len(rows) * len(columns)
    known = ~np.isnan(given)
    wrong = np.flatnonzero(known & ((given < 0) | (given > 1)))  # a mean would hide it
    if len(wrong):
        k = wrong[0]
        raise ConfigError(
            f"{source}: scores must be in [0, 1], got {given[k]:g} of candidate "
            f"{list(rows)[i[k]]!r} on example {list(columns)[j[k]]!r} ({len(wrong)} such values);"
            f" rescale them so that higher is better"
        )
    count = np.bincount(flat[known], minlength=size)
    total = np.bincount(flat[known], given[known], minlength=size)
    # The maximum keeps 0 / 0 away where a cell has no score; ``where`` writes NaN there.
    scores = np.where(count, total / np.maximum(count, 1), nan).reshape(len(rows), len(columns))
    return _checked(source, scores, tuple(rows), tuple(columns))


def _checked(
    source: str, scores: _Values, names: tuple[str, ...], examples: tuple[str, ...]
) -> ScoreMatrix:
    try:
        return ScoreMatrix(np.asarray(scores, dtype=np.float32), names, source, examples)
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from None


def _read_npz(source: str, path: Path, name: str) -> ScoreMatrix:
    """Read one matrix with the names of its rows, and of its columns if there; unpickle nothing."""
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r}; check the name")
    try:
        with path.open("rb") as stream:  # numpy leaves a file open that it cannot read
            arrays = np.load(stream, allow_pickle=False)
            if not isinstance(arrays, NpzFile):
                raise ConfigError(f"{path} holds a single array; write it with numpy.savez")
            with arrays:
                scores = _scores(arrays, name, path)
                ids = tuple(map(str, arrays["examples"])) if "examples" in arrays else ()
                return _checked(source, scores, _row_names(arrays, name, len(scores)), ids)
    except (ValueError, OSError, EOFError, BadZipFile) as error:
        raise ConfigError(
            f"{path} is no .npz file of plain arrays; write it with numpy.savez, numbers and texts "
            f"but no objects"
        ) from error


def _scores(arrays: NpzFile, name: str, path: Path) -> _Values:
    """Return the matrix NAME, NAME_packed or true__NAME, with packed bits undone."""
    key = next((k for k in (name, f"{name}_packed", f"true__{name}") if k in arrays), None)
    if key is None:
        matrices = [k for k in arrays if arrays[k].ndim == 2 and arrays[k].dtype.kind in "fiub"]
        choices = [k.removeprefix("true__").removesuffix("_packed") for k in matrices]
        names = ", ".join(c for c in choices if "__" not in c) or "none"
        raise ConfigError(
            f"{str(path)!r} holds no matrix {name!r}; choose one as FILE.npz:NAME. "
            f"Matrices: {names}"
        )
    matrix: _Values = arrays[key]
    if matrix.dtype.kind not in "fiub":
        raise ConfigError(f"array {key!r} must hold numbers, got {matrix.dtype}")
    # Packed bits end in up to seven bits that are no examples: the shape, stored beside them, says
    # so. It is "shape", or "shape__TASK" for a matrix "true__TASK".
    shape_key = f"shape__{key.partition('__')[2]}" if "__" in key else "shape"
    if matrix.dtype == np.uint8 and shape_key in arrays:
        n_examples = int(arrays[shape_key][1])
        if matrix.shape[1] != n_examples:  # np.packbits(..., axis=1) made it
            return np.unpackbits(matrix, axis=1)[:, :n_examples]
    return matrix


def _row_names(arrays: NpzFile, name: str, n_rows: int) -> tuple[str, ...]:
    # From the most specific to the most general; an array of another length names something else.
    task = name.rpartition("__")[2]
    for key in (f"{name}_methods", "methods", "candidates", f"prompts__{task}"):
        if key in arrays and len(arrays[key]) == n_rows:
            return tuple(str(label).strip() for label in arrays[key])
    return tuple(f"row {i}" for i in range(n_rows))
