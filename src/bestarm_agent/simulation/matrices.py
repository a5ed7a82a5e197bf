"""Score matrices to replay: what they hold and where they come from."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.errors import ConfigError
from bestarm_agent.simulation.archives import open_arrays
from bestarm_agent.simulation.reading import Reading
from bestarm_agent.simulation.tabular import Cell, read_table

Scores: TypeAlias = NDArray[np.float32]
FloatArray: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ScoreMatrix:
    """All scores of K candidates on N examples.

    Attributes:
        scores: (K, N) in [0, 1], higher is better; NaN marks a cell that cannot be measured. Every
            row has a score.
        names: K names for people.
        costs: (K,) cost of one call, > 0, in any one unit; None where unknown.
        source: where it came from.

    Raises:
        ValueError: one of these rules is broken.
    """

    scores: Scores
    names: tuple[str, ...]
    costs: FloatArray | None = None
    source: str = "array"

    def __post_init__(self) -> None:
        """Check the rules given above."""
        if self.scores.ndim != 2 or 0 in self.scores.shape:
            raise ValueError(
                f"scores must be candidates x examples, both at least 1, got {self.scores.shape}"
            )
        self._check_values()
        self._check_rows()

    @property
    def means(self) -> FloatArray:
        """(K,) mean of each candidate's measurable scores, summed in double precision."""
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


RunLoader: TypeAlias = Callable[[str], ScoreMatrix]


def load_matrix(
    location: str, *, open_run: RunLoader | None = None, reading: Reading | None = None
) -> ScoreMatrix:
    """Read a score matrix.

    Args:
        location: ``FILE.npz``, ``FILE.npz:NAME`` (one of several matrices in a file), ``FILE.csv``,
            ``FILE.parquet``, or else the name of an earlier run, which ``open_run`` resolves.
        open_run: reads an earlier run from its store; None where no store is at hand.
        reading: what the numbers of a ``.npz`` file are; None where they are scores, a row per
            candidate. Tables and runs hold scores and name their candidates.

    Returns:
        The matrix.

    Raises:
        ConfigError: there is no such file, or what it holds is no score matrix.
    """
    path, _, name = location.partition(".npz:")
    if name or location.endswith(".npz"):
        file = Path(f"{path}.npz" if name else location)
        return _read_npz(file, name or "scores", location, reading or Reading())
    if reading not in (None, Reading()):
        raise ConfigError(f"{location!r} is no .npz file: it holds scores and names its candidates")
    if location.endswith((".csv", ".parquet")):
        return matrix_from_cells(read_table(_existing(Path(location))), location)
    if open_run is None or Path(location).is_file():
        raise ConfigError(f"{location!r} is no .npz, .csv or .parquet file, and no run of a store")
    return open_run(location)


def matrix_from_cells(cells: Iterable[Cell], source: str) -> ScoreMatrix:
    """Build a matrix from single results; candidates and examples keep their first-seen order.

    A candidate's cost is the mean over its cells; unknown for one means unknown for all. Cells
    without a result are NaN.

    Raises:
        ConfigError: a pair occurs twice, or the scores break a rule of ``ScoreMatrix``.
    """
    return _checked(source, *_from_cells(cells, source))


def _read_npz(path: Path, name: str, source: str, reading: Reading) -> ScoreMatrix:
    with open_arrays(path) as arrays:
        scores = reading.scores(_find_scores(arrays, name, source))
        names = _row_labels(arrays, name, len(scores))
        costs = _row_costs(arrays, name, len(scores))
    return _checked(source, scores, names, costs)


def _find_scores(arrays: np.lib.npyio.NpzFile, name: str, source: str) -> NDArray[np.generic]:
    """Look a matrix up as NAME, NAME_packed or true__NAME; undo packed bits."""
    for key in (name, f"{name}_packed", f"true__{name}"):
        if key in arrays:
            return _unpacked(arrays, key)
    matrices = [k for k in arrays if arrays[k].ndim == 2 and arrays[k].dtype.kind in "fiub"]
    choices = [k.removeprefix("true__").removesuffix("_packed") for k in matrices]
    shown = ", ".join(c for c in choices if "__" not in c) or "none"
    raise ConfigError(
        f"{source!r} holds no matrix {name!r}; choose one as FILE.npz:NAME. Matrices: {shown}"
    )


def _unpacked(arrays: np.lib.npyio.NpzFile, key: str) -> NDArray[np.generic]:
    """Rows of bits back from ``np.packbits(..., axis=1)`` where the file gives a wider shape."""
    matrix: NDArray[np.generic] = arrays[key]
    shape_key = f"shape__{key.partition('__')[2]}" if "__" in key else "shape"
    if matrix.dtype.kind not in "fiub":
        raise ConfigError(f"array {key!r} must hold numbers, got {matrix.dtype}")
    if matrix.dtype != np.uint8 or shape_key not in arrays:
        return matrix
    n_examples = int(arrays[shape_key][1])
    if matrix.shape[1] == n_examples:
        return matrix
    return np.unpackbits(matrix.astype(np.uint8), axis=1)[:, :n_examples]


def _row_labels(arrays: np.lib.npyio.NpzFile, name: str, n_rows: int) -> tuple[str, ...]:
    task = name.rpartition("__")[2]
    for key in (f"{name}_methods", "methods", "candidates", f"prompts__{task}"):
        if key in arrays and len(arrays[key]) == n_rows:
            return tuple(str(label).strip() for label in arrays[key])
    return tuple(f"row {i}" for i in range(n_rows))


def _row_costs(arrays: np.lib.npyio.NpzFile, name: str, n_rows: int) -> FloatArray | None:
    task = name.rpartition("__")[2]
    for key in ("cost", f"prompt_len__{task}"):
        if key in arrays and len(arrays[key]) == n_rows:
            return np.asarray(arrays[key], dtype=np.float64)
    return None


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
    """(K,) mean known cost of a call; None unless every candidate has one above 0."""
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
