"""Completion of a sparsely seen score matrix by an ensemble of low-rank factorisations.

Zhou et al. 2024, "On Speeding Up Language Model Evaluation", section 3.2, equations 1 and 2: each
member is fitted by alternating least squares to the seen cells less a random few; the members'
mean predicts an unseen cell, and their standard deviation is its uncertainty. Predictions are a
model's opinion: unbounded, and biased where scores are not of low rank or where cells are chosen by
their value.

Arrays are laid out [row][rank][member]: one sparse product solves all members on all seen cells,
and what each member dropped is subtracted, so nothing of size members x rows x columns is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bestarm_agent.stats.arrays import FloatArray, IndexArray
from bestarm_agent.stats.models.normal_equations import pair_names, pairs, solutions
from bestarm_agent.stats.models.observed_cells import Cells, SeenCells, sums_at

_SMALL = 0.1
_CHUNK = 64  # rows whose spreads are held at a time


@dataclass(frozen=True, slots=True)
class _Dropped:
    of: IndexArray
    other: IndexArray
    scores: FloatArray
    member: IndexArray


class LowRankEnsemble:
    """Several low-rank models of one matrix, each fitted to a random part of its seen cells.

    Without a ridge, a row (or column) of which a member sees nothing gets that member's mean
    factors of the others, that is, the prediction for an average one; what too few cells leave
    undetermined is settled by the smallest factors. With a ridge such factors are 0.

    Args:
        rank: r >= 1; the paper uses 1.
        n_members: K_ens >= 2; the paper uses 64.
        drop: probability with which a member leaves a seen cell out, in [0, 1); the paper zeroes
            5 %.
        ridge: penalty on squared factors, >= 0; the paper has none, its program 0.1.

    Attributes:
        rows: (K, r, K_ens) factors.
        columns: (N, r, K_ens) factors.
    """

    def __init__(
        self,
        n_rows: int,
        n_columns: int,
        rng: np.random.Generator,
        *,
        rank: int = 1,
        n_members: int = 64,
        drop: float = 0.05,
        ridge: float = 0.0,
    ) -> None:
        _check(rank, n_members, drop, ridge)
        self.drop = drop
        self.ridge = ridge
        self.rows = self._first_rows((n_rows, rank, n_members), rng)
        self.columns: FloatArray = rng.standard_normal((n_columns, rank, n_members))

    def _first_rows(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Draw the rows to begin with: all alike, so that the first sweep finds column means."""
        rows: FloatArray = _SMALL * rng.standard_normal(shape)
        rows[:, 0] = 1.0  # further ranks begin with small normal numbers
        return rows

    @property
    def n_members(self) -> int:
        """Return K_ens."""
        return int(self.rows.shape[2])

    def grow(self, n_rows: int, n_columns: int) -> None:
        """Add rows and columns, which start as average ones."""
        self.rows = _extended(self.rows, n_rows)
        self.columns = _extended(self.columns, n_columns)

    def fit(self, cells: SeenCells, n_sweeps: int, rng: np.random.Generator) -> None:
        """Fit all members by ``n_sweeps`` rounds of alternating least squares (equation 1).

        Starts from the factors at hand: columns first, then rows. ``rng`` draws which cells each
        member leaves out.
        """
        by_row, by_column = self._drop_cells(cells.by_row, rng)
        for _ in range(n_sweeps):
            self.columns = self._solve(cells.by_column, by_column, self.rows)
            self.rows = self._solve(cells.by_row, by_row, self.columns)

    def means(self, cells: SeenCells) -> FloatArray:
        """Return the (K,) row means: seen scores, and predictions of unseen cells (line 2)."""
        means: FloatArray = self.member_means(cells).mean(axis=1)
        return means

    def member_means(self, cells: SeenCells) -> FloatArray:
        """Return the (K, K_ens) row means of each member."""
        unseen = self.columns.sum(axis=0) - cells.by_row.add_up(self.columns)
        predicted: FloatArray = (self.rows * unseen).sum(axis=1)
        return (cells.row_totals[:, None] + predicted) / cells.shape[1]

    def spreads(self, rows: slice | list[int] = slice(None)) -> FloatArray:
        """Return the (rows, N) standard deviations R of the members' predictions (equation 2).

        As printed, equation 2 takes deviations from predictions that are 0 where a cell is seen;
        the members' mean is meant.
        """
        left, right = self.rows[rows], self.columns
        mean = _gram(left, right) / self.n_members
        square = _gram(pairs(left), pairs(right, twice=True)) / self.n_members
        square -= mean**2
        np.maximum(square, 0.0, out=square)
        return np.sqrt(square, out=square)

    def cell_spreads(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the (n,) spreads of single cells."""
        predicted = (self.rows[rows] * self.columns[columns]).sum(axis=1)
        spreads: FloatArray = predicted.std(axis=1)
        return spreads

    def spread_totals(self) -> FloatArray:
        """Return the (K,) sums of each row's spreads."""
        totals = np.empty(len(self.rows))
        for rows in _chunks(len(self.rows)):
            totals[rows] = self.spreads(rows).sum(axis=1)
        return totals

    def _drop_cells(self, cells: Cells, rng: np.random.Generator) -> tuple[_Dropped, _Dropped]:
        places = _bernoulli_places(len(cells.scores) * self.n_members, self.drop, rng)
        cell, member = np.divmod(places, self.n_members)
        of, other, scores = cells.of[cell], cells.other[cell], cells.scores[cell]
        return _Dropped(of, other, scores, member), _Dropped(other, of, scores, member)

    def _solve(self, cells: Cells, dropped: _Dropped, fixed: FloatArray) -> FloatArray:
        right, gram = cells.weigh(fixed), cells.add_up(pairs(fixed))
        return self._solved(right, gram, dropped, fixed, dropped.member)

    def _solved(
        self,
        right: FloatArray,
        gram: FloatArray,
        dropped: _Dropped,
        fixed: FloatArray,
        source: IndexArray,
    ) -> FloatArray:
        """Solve the sums over all cells less the dropped ones, with factors of ``source``."""
        rank, n_members = fixed.shape[1:]
        at, n = dropped.of * n_members + dropped.member, right.shape[0] * n_members
        left_out = [fixed[:, a].ravel()[dropped.other * n_members + source] for a in range(rank)]
        for a in range(rank):
            right[:, a] -= sums_at(at, left_out[a] * dropped.scores, n).reshape(-1, n_members)
        for place, (a, b) in enumerate(pair_names(rank)):
            gram[:, place] -= sums_at(at, left_out[a] * left_out[b], n).reshape(-1, n_members)
        return solutions(gram, right, self.ridge)


def _check(rank: int, n_members: int, drop: float, ridge: float) -> None:
    if rank < 1:
        raise ValueError(f"rank must be >= 1, got {rank}")
    if n_members < 2:
        raise ValueError(f"n_members must be >= 2, got {n_members}")
    if not 0 <= drop < 1:
        raise ValueError(f"drop must be in [0, 1), got {drop}")
    if not ridge >= 0:
        raise ValueError(f"ridge must be >= 0, got {ridge}")


def _extended(factors: FloatArray, size: int) -> FloatArray:
    n_new = size - len(factors)
    if n_new <= 0:
        return factors
    average = factors.mean(axis=0) if len(factors) else np.ones(factors.shape[1:])
    return np.concatenate([factors, np.broadcast_to(average, (n_new, *average.shape))])


def _chunks(n: int) -> Iterator[slice]:
    return (slice(start, start + _CHUNK) for start in range(0, n, _CHUNK))


def _bernoulli_places(n: int, p: float, rng: np.random.Generator) -> IndexArray:
    if p == 0.0 or n == 0:
        return np.empty(0, dtype=np.intp)
    likely = int(n * p + 8 * (n * p) ** 0.5 + 16)  # eight standard deviations
    places = rng.geometric(p, likely).cumsum() - 1
    while places[-1] < n:
        more = rng.geometric(p, likely).cumsum() + places[-1]
        places = np.concatenate([places, more])
    return places[: np.searchsorted(places, n)]


def _gram(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return the (rows, columns) sums of products over rank and members."""
    gram: FloatArray = left.reshape(len(left), -1) @ right.reshape(len(right), -1).T
    return gram
