"""Scores in ``.npz`` files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.stats.arrays import FloatArray


@contextmanager
def open_arrays(path: Path) -> Iterator[NpzFile]:
    """Open a file of plain arrays, else raise a ConfigError; nothing in it is unpickled."""
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r}; check the name")
    try:
        with path.open("rb") as stream:  # numpy leaves a file open that it cannot read
            arrays = np.load(stream, allow_pickle=False)
            if not isinstance(arrays, NpzFile):
                raise ConfigError(f"{path} holds a single array; write it with numpy.savez")
            with arrays:
                yield arrays
    except (ValueError, OSError, EOFError, BadZipFile) as error:
        raise ConfigError(
            f"{path} is no .npz file of plain arrays; write it with numpy.savez, numbers and texts "
            f"but no objects"
        ) from error


@dataclass(frozen=True, slots=True)
class Reading:
    """The conversion of stored numbers to scores in [0, 1], higher is better.

    A run time t becomes the score 1 - min(t, cutoff) / cutoff, so the best candidate has the lowest
    mean time, where times above the cutoff count as the cutoff (PAR1).

    Example:
        >>> Reading(cutoff=2.0).scores(np.array([[0.5, 3.0]]))
        array([[0.75, 0.  ]])
    """

    # > 0, in the unit of the run times; None where the numbers are scores already
    cutoff: float | None = None
    transposed: bool = False  # rows are examples and columns candidates

    def __post_init__(self) -> None:
        if self.cutoff is not None and not 0 < self.cutoff < np.inf:
            raise ConfigError(f"a cutoff must be > 0 and finite, got {self.cutoff:g}")

    def scores(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return (K, N) scores; NaN stays NaN. Raises ConfigError if a run time is below 0."""
        grid = values.T if self.transposed else values
        if self.cutoff is None:
            return grid
        times = grid.astype(np.float64)
        if (times < 0).any():
            raise ConfigError(f"run times must be >= 0, got {np.nanmin(times):g}")
        return np.asarray(1.0 - np.minimum(times, self.cutoff) / self.cutoff)


def read_npz_scores(
    path: Path, name: str, source: str, reading: Reading
) -> tuple[NDArray[np.generic], tuple[str, ...], FloatArray | None]:
    """Read the (K, N) scores of one matrix, the K names of its rows, and their costs if known."""
    with open_arrays(path) as arrays:
        scores = reading.scores(_find_scores(arrays, name, source))
        names = _row_labels(arrays, name, len(scores))
        return scores, names, _row_costs(arrays, name, len(scores))


def read_npz_levels(path: Path, axes: Sequence[str]) -> list[tuple[str, ...]]:
    """Read each row's level on every one of the arrays ``axes``; raises ConfigError."""
    with open_arrays(path) as arrays:
        for axis in axes:
            if axis not in arrays or arrays[axis].ndim != 1:
                raise ConfigError(
                    f"{path} holds no array {axis!r} of one level per candidate; "
                    f"{nearest(axis, [key for key in arrays if arrays[key].ndim == 1])}"
                )
        return list(zip(*(map(str, arrays[axis].tolist()) for axis in axes), strict=True))


def _find_scores(arrays: NpzFile, name: str, source: str) -> NDArray[np.generic]:
    """Return the matrix NAME, NAME_packed or true__NAME, with packed bits undone."""
    for key in (name, f"{name}_packed", f"true__{name}"):
        if key in arrays:
            return _unpacked(arrays, key)
    matrices = [k for k in arrays if arrays[k].ndim == 2 and arrays[k].dtype.kind in "fiub"]
    choices = [k.removeprefix("true__").removesuffix("_packed") for k in matrices]
    shown = ", ".join(c for c in choices if "__" not in c) or "none"
    raise ConfigError(
        f"{source!r} holds no matrix {name!r}; choose one as FILE.npz:NAME. Matrices: {shown}"
    )


def _unpacked(arrays: NpzFile, key: str) -> NDArray[np.generic]:
    """Undo ``np.packbits(..., axis=1)`` where the file gives a wider shape."""
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


def _row_labels(arrays: NpzFile, name: str, n_rows: int) -> tuple[str, ...]:
    task = name.rpartition("__")[2]
    for key in (f"{name}_methods", "methods", "candidates", f"prompts__{task}"):
        if key in arrays and len(arrays[key]) == n_rows:
            return tuple(str(label).strip() for label in arrays[key])
    return tuple(f"row {i}" for i in range(n_rows))


def _row_costs(arrays: NpzFile, name: str, n_rows: int) -> FloatArray | None:
    task = name.rpartition("__")[2]
    for key in ("cost", f"prompt_len__{task}"):
        if key in arrays and len(arrays[key]) == n_rows:
            return np.asarray(arrays[key], dtype=np.float64)
    return None
