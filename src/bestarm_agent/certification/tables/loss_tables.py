"""Tables of losses in ``.npz`` files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.simulation.npz_scores import open_arrays
from bestarm_agent.stats.arrays import FloatArray

_NAMES = ("candidates", "methods", "names")


@dataclass(frozen=True, slots=True)
class LossTable:
    """Losses of K candidates on N examples: true ones where there is a label, and guessed ones."""

    losses: FloatArray  # (K, N) true losses in [0, 1]; NaN where an example has no label
    guesses: FloatArray  # (A, K, N) the autoevaluators' guesses of the losses, in [0, 1]
    names: tuple[str, ...]  # K names to show
    columns: Mapping[str, FloatArray]  # (K,) numbers to order the candidates by, such as "cost"
    source: str  # name of the file

    @property
    def labelled(self) -> NDArray[np.intp]:
        """Return the indices of the examples for which every candidate has a true loss."""
        return np.flatnonzero(~np.isnan(self.losses).any(axis=0))

    def order(self, by: str) -> list[int]:
        """Return candidates by falling value of a column; "given": as they come.

        Raises:
            ConfigError: there is no such column, or a number is missing in it.
        """
        if by == "given":
            return list(range(len(self.names)))
        if by not in self.columns:
            raise ConfigError(
                f"{self.source} holds no array {by!r} of one number per candidate to order them "
                f"by; {self._others(by)}--order given takes them as they come"
            )
        unknown = np.flatnonzero(np.isnan(self.columns[by]))
        if len(unknown):
            raise ConfigError(
                f"{self.source}: {by!r} of {self.names[unknown[0]]!r} is NaN, so candidates cannot "
                f"be ordered by it; fill it in, or take them as they come with --order given"
            )
        return [int(i) for i in np.argsort(-self.columns[by], kind="stable")]

    def _others(self, by: str) -> str:
        if not self.columns:
            return ""
        close = nearest(by, self.columns)
        return f"{close} " if close.endswith("?") else f"{close}; "


def load_losses(
    path: Path, *, losses: str = "losses", guesses: Sequence[str] | None = None
) -> LossTable:
    """Read a table of losses from an ``.npz`` file; raises ConfigError.

    ``losses`` names the (K, N) array of true losses, ``guesses`` (K, N) arrays of guessed ones;
    None: "guesses", if it is there, of shape (K, N) or (A, K, N).
    """
    with open_arrays(path) as file:
        arrays = {name: file[name] for name in file.files}
    table = _matrix(arrays, losses, path, labelled_only=True)
    if guesses is None:
        guesses = ["guesses"] if "guesses" in arrays else []
    found = [_guess(arrays, name, path, table.shape) for name in guesses]
    return LossTable(
        losses=table,
        guesses=np.concatenate(found) if found else np.zeros((0, *table.shape)),
        names=_row_names(arrays, len(table)),
        columns=_columns(arrays, table),
        source=path.name,
    )


def _matrix(
    arrays: Mapping[str, NDArray[np.generic]], name: str, path: Path, *, labelled_only: bool = False
) -> FloatArray:
    if name not in arrays:
        shaped = [key for key, array in arrays.items() if array.ndim in (2, 3)]
        raise ConfigError(f"{path} holds no array {name!r}; {nearest(name, shaped)}")
    if arrays[name].dtype.kind not in "fiub":
        raise ConfigError(f"{path}: {name!r} must hold numbers, got {arrays[name].dtype}")
    matrix: FloatArray = np.asarray(arrays[name], dtype=np.float64)
    wrong = (matrix < 0) | (matrix > 1) | (np.isnan(matrix) & (not labelled_only))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ConfigError(
            f"{path}: {name!r} must hold losses in [0, 1], 0 is best, got {matrix[at]:g} at {at}"
        )
    if labelled_only and (matrix.ndim != 2 or 0 in matrix.shape):
        raise ConfigError(
            f"{path}: {name!r} must be candidates x examples, both at least 1, got {matrix.shape}"
        )
    return matrix


def _guess(
    arrays: Mapping[str, NDArray[np.generic]], name: str, path: Path, shape: tuple[int, ...]
) -> FloatArray:
    matrix = _matrix(arrays, name, path)
    if matrix.shape[-2:] != shape or matrix.ndim not in (2, 3):
        raise ConfigError(
            f"{path}: {name!r} has shape {matrix.shape}, but the true losses have {shape}"
        )
    return matrix.reshape(-1, *shape)


def _row_names(arrays: Mapping[str, NDArray[np.generic]], n_rows: int) -> tuple[str, ...]:
    for key in _NAMES:
        if key in arrays and arrays[key].shape == (n_rows,):
            return tuple(str(name) for name in arrays[key])
    return tuple(f"row {i}" for i in range(n_rows))


def _columns(arrays: Mapping[str, NDArray[np.generic]], table: FloatArray) -> dict[str, FloatArray]:
    return {
        name: np.asarray(array, dtype=np.float64)
        for name, array in arrays.items()
        if array.shape == table.shape[:1] and array.dtype.kind in "fiu"
    }
