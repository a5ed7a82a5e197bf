"""Score matrices to replay."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.errors import ConfigError
from bestarm_agent.simulation.npz_scores import Reading, read_npz_levels, read_npz_scores
from bestarm_agent.simulation.score_tables import Cell, read_levels, read_table

Scores: TypeAlias = NDArray[np.float32]
FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ScoreMatrix:
    """All scores of K candidates on N examples, higher is better; checked when made."""

    scores: Scores  # (K, N) in [0, 1], NaN where it cannot be measured; a score in every row
    names: tuple[str, ...]  # K names to show
    costs: FloatArray | None = None  # (K,) cost of one call, > 0, in any one unit; None: unknown
    source: str = "array"  # file or run of origin
    axes: IntArray | None = None  # (K, A) number of each candidate's level on every axis

    def __post_init__(self) -> None:
        if self.scores.ndim != 2 or 0 in self.scores.shape:
            raise ValueError(
                f"scores must be candidates x examples, both at least 1, got {self.scores.shape}"
            )
        self._check_values()
        self._check_rows()

    @property
    def means(self) -> FloatArray:
        """Return the (K,) means of the measurable scores, summed in double precision."""
        means: FloatArray = np.nanmean(self.scores, axis=1, dtype=np.float64)
        return means

    def _check_values(self) -> None:
        outside = (self.scores < 0) | (self.scores > 1)  # NaN is neither
        if outside.any():
            i, j = np.argwhere(outside)[0]
            raise ValueError(
                f"scores must be in [0, 1], got {self.scores[i, j]:g} in row {i}, column {j}"
                f" ({outside.sum()} such values); rescale them so that higher is better"
                " (run times: say the cutoff)"
            )

    def _check_rows(self) -> None:
        n_rows = len(self.scores)
        if len(self.names) != n_rows:
            raise ValueError(f"{n_rows} rows of scores need as many names, got {len(self.names)}")
        empty = np.flatnonzero(np.isnan(self.scores).all(axis=1))
        if len(empty):
            raise ValueError(
                f"candidate {self.names[empty[0]]!r} has no score at all; leave it out"
            )
        if self.costs is not None:
            if self.costs.shape != (n_rows,):
                raise ValueError(f"{n_rows} rows need as many costs, got shape {self.costs.shape}")
            if not (np.isfinite(self.costs).all() and (self.costs > 0).all()):
                raise ValueError("costs must be finite and > 0 for every candidate")
        if self.axes is not None and len(self.axes) != n_rows:
            raise ValueError(f"{n_rows} rows need as many levels per axis, got {len(self.axes)}")


RunLoader: TypeAlias = Callable[[str], ScoreMatrix]


def load_matrix(
    location: str,
    *,
    open_run: RunLoader | None = None,
    reading: Reading | None = None,
    axes: Sequence[str] = (),
) -> ScoreMatrix:
    """Read a score matrix.

    The location is ``FILE.npz``, ``FILE.npz:NAME`` (one of several matrices in a file),
    ``FILE.csv``, ``FILE.parquet``, or else the name of an earlier run, which ``open_run`` resolves.
    ``reading`` gives the meaning of the numbers in a ``.npz`` file; None: scores, a row per
    candidate. ``axes`` name columns of a table, or arrays of a ``.npz`` file, with each candidate's
    levels. Raises ConfigError.
    """
    path, _, name = location.partition(".npz:")
    if name or location.endswith(".npz"):
        file = Path(f"{path}.npz" if name else location)
        found = read_npz_scores(file, name or "scores", location, reading or Reading())
        matrix = _checked(location, *found)
        return with_levels(matrix, read_npz_levels(file, axes)) if axes else matrix
    if reading not in (None, Reading()):
        raise ConfigError(f"{location!r} is no .npz file: it holds scores and names its candidates")
    if location.endswith((".csv", ".parquet")):
        file = _existing(Path(location))
        matrix = matrix_from_cells(read_table(file, axes), location)
        levels = read_levels(file, axes) if axes else {}
        return with_levels(matrix, [levels[one] for one in matrix.names]) if axes else matrix
    if axes:
        raise ConfigError(f"axes are columns of a .csv, .parquet or .npz file, not of {location!r}")
    if open_run is None or Path(location).is_file():
        raise ConfigError(
            f"{location!r} is not a score file (.npz, .csv, .parquet), a log (.eval, .json, "
            ".jsonl) or a run of the store; check the name, or see `bestarm-agent list`"
        )
    return open_run(location)


def matrix_from_cells(cells: Iterable[Cell], source: str) -> ScoreMatrix:
    """Build a matrix from single results; candidates and examples keep their first-seen order.

    A candidate's cost is the mean over its cells; unknown for one means unknown for all. Cells
    without a result are NaN. Raises ConfigError if a pair occurs twice.
    """
    return _checked(source, *_from_cells(cells, source))


def with_levels(matrix: ScoreMatrix, levels: Sequence[Sequence[str]]) -> ScoreMatrix:
    """Return the matrix with axes, given the names of each candidate's levels on them."""
    columns = [np.unique(names, return_inverse=True)[1] for names in zip(*levels, strict=True)]
    try:
        return replace(matrix, axes=np.column_stack(columns).astype(np.int64))
    except ValueError as error:
        raise ConfigError(f"{matrix.source}: {error}") from None


def _from_cells(
    cells: Iterable[Cell], source: str
) -> tuple[Scores, tuple[str, ...], FloatArray | None]:
    rows: dict[str, int] = {}
    columns: dict[str, int] = {}
    at_row, at_column, values, costs = array("q"), array("q"), array("d"), array("d")
    for cell in cells:  # plain arrays: a table may have ten million cells
        at_row.append(rows.setdefault(cell.candidate, len(rows)))
        at_column.append(columns.setdefault(cell.example, len(columns)))
        values.append(nan if cell.score is None else cell.score)
        costs.append(nan if cell.cost is None else cell.cost)
    i, j = np.asarray(at_row), np.asarray(at_column)
    names = tuple(rows)
    _refuse_repeats(i, j, names, tuple(columns), source)
    scores = np.full((len(rows), len(columns)), np.nan, dtype=np.float32)
    scores[i, j] = np.asarray(values)
    return scores, names, _mean_costs(i, np.asarray(costs), len(rows))


def _refuse_repeats(
    i: NDArray[np.int64],
    j: NDArray[np.int64],
    names: Sequence[str],
    examples: Sequence[str],
    source: str,
) -> None:
    flat, counts = np.unique(i * len(examples) + j, return_counts=True)
    if len(flat) < len(i):
        row, column = divmod(int(flat[counts > 1][0]), len(examples))
        raise ConfigError(
            f"{source}: candidate {names[row]!r} has two results on example {examples[column]!r}"
        )


def _mean_costs(i: NDArray[np.int64], costs: FloatArray, n_rows: int) -> FloatArray | None:
    """Return the (K,) mean known costs of a call; None unless each candidate has one above 0."""
    known = ~np.isnan(costs)
    calls = np.bincount(i[known], minlength=n_rows)
    spent = np.bincount(i[known], weights=costs[known], minlength=n_rows)
    return spent / calls if (calls > 0).all() and (spent > 0).all() else None


def _checked(
    source: str, scores: NDArray[np.generic], names: tuple[str, ...], costs: FloatArray | None
) -> ScoreMatrix:
    try:
        return ScoreMatrix(np.asarray(scores, dtype=np.float32), names, costs, source)
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from None


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r}; check the name")
    return path
