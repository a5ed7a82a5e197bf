"""Effects that rows with axes share, and sums over the rows that have them.

Notation as in ``crossed_effects``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np
from scipy import sparse

from bestarm_agent.stats.arrays import FloatArray, IntArray

Family: TypeAlias = tuple[int, ...]  # the axes whose levels its effects belong to, one or two

_MOST_EFFECTS = 1_000  # modelled; families beyond it count as deviations of the rows
_MOST_BLOCKS, _MOST_RESIDUALS = 64, 512  # C and C R


@dataclass(frozen=True, slots=True, eq=False)
class Effects:
    """Effects of every row; the first is the constant."""

    families: tuple[Family, ...]
    of_row: IntArray  # (K, 1 + families) numbers of the row's effects
    family: IntArray  # (E,) position of an effect's family; -1 for the constant
    block: IntArray  # (K,) c: the row's level on the axis whose rows share residuals
    n_blocks: int
    reach: int  # places at which they do

    @classmethod
    def of(cls, axes: IntArray) -> Effects:
        """Number the effects of rows with the (K, A) levels ``axes``."""
        keys: list[Family] = []
        columns, family = [np.zeros(len(axes), dtype=np.int64)], [-1]
        for key, codes in sorted(_codes(axes), key=lambda found: int(found[1].max())):
            n_levels = int(codes.max()) + 1
            if len(family) + n_levels > _MOST_EFFECTS:
                break
            columns.append(codes + len(family))
            family += [len(keys)] * n_levels
            keys.append(key)
        block = _blocks(axes)
        n_blocks = int(block.max(initial=0)) + 1
        reach = _MOST_RESIDUALS // n_blocks if n_blocks > 1 else 0
        return cls(tuple(keys), np.column_stack(columns), np.array(family), block, n_blocks, reach)

    def __len__(self) -> int:
        return len(self.family)

    def design(self) -> sparse.csr_array:
        """Return the (K, E) rows x_i."""
        n_rows, width = self.of_row.shape
        ends = np.arange(0, n_rows * width + 1, width)
        ones = np.ones(n_rows * width)
        return sparse.csr_array((ones, self.of_row.ravel(), ends), shape=(n_rows, len(self)))

    def longer(self, place: IntArray, values: FloatArray, reach: int) -> FloatArray:
        """Return (C, J) sums of values (K,) over the rows of block c longer than j."""
        at = self.block * (reach + 1) + place
        ends = np.bincount(at, weights=values, minlength=self.n_blocks * (reach + 1))
        return _after(ends.reshape(self.n_blocks, reach + 1).astype(np.float64))

    def longer_by_effect(self, place: IntArray, values: FloatArray, reach: int) -> FloatArray:
        """Return (E, C, J) sums of values (K,) over the rows with effect l of block c."""
        at = self.block * (reach + 1) + place
        shape = (len(place), self.n_blocks * (reach + 1))
        ends = sparse.csr_array((values, (np.arange(len(place)), at)), shape=shape)
        by_effect = (self.design().T @ ends).toarray()
        return _after(by_effect.reshape(len(self), self.n_blocks, reach + 1))


def _after(ends: FloatArray) -> FloatArray:
    """Return the sums of all later entries along the last axis, without the last, which is 0."""
    return np.asarray(ends[..., ::-1].cumsum(axis=-1)[..., ::-1][..., 1:])


def _blocks(axes: IntArray) -> IntArray:
    """Return the (K,) levels on the first axis that has several rows for each of a few levels."""
    for key, codes in _codes(axes):
        if len(key) == 1 and int(codes.max()) < _MOST_BLOCKS:
            return codes
    return np.zeros(len(axes), dtype=np.int64)


def _codes(axes: IntArray) -> Iterator[tuple[Family, IntArray]]:
    """Yield the families whose effects rows share, with the (K,) number of each row's effect."""
    alone = -1 - np.arange(len(axes))[:, None]
    levels = np.where(axes < 0, alone, axes)
    n_levels = {(axis,): len(np.unique(column)) for axis, column in enumerate(levels.T)}
    pairs = combinations(range(axes.shape[1]), 2)
    for key in (*n_levels, *pairs):
        found, codes = np.unique(levels[:, key], axis=0, return_inverse=True)
        is_new = len(key) == 1 or len(found) > max(n_levels[axis,] for axis in key)
        if is_new and 1 < len(found) <= len(axes) / 2:
            yield key, codes.ravel().astype(np.int64)
