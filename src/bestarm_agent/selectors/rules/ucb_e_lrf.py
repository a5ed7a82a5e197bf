"""UCB-E-LRF: optimistic means and the choice of examples from an ensemble of low-rank models.

Zhou et al. 2024, "On Speeding Up Language Model Evaluation", Algorithm 2, for n candidates and m
examples, with O marking the observed cells:

    1  sample T_0 pairs uniformly: the warm-up
    2  E^, R = M(E, O); B_i = 1/m sum_j (O_ij E_ij + (1 - O_ij) E^_ij + eta R_ij)
    3  for t = T_0, ...:
    4      select i = argmax B, and the b unseen examples of the largest R_ij
    6      evaluate them
    8      E^, R = M(E, O) again, and B as in line 2
    return argmax_i 1/m sum_j (O_ij E_ij + (1 - O_ij) E^_ij)

The oracle M is ``LowRankEnsemble``: each of K_ens members is fitted by alternating least squares to
the observed cells less a random few (equation 1); the members' mean predicts an unseen cell, and
their standard deviation is its uncertainty R (equation 2). Meant for many close candidates on
examples with much in common. The model decides which example is seen, so its means are biased
towards examples on which models disagree, and nothing is guaranteed. Line 2 looks at every cell, so
a batch costs O(n m K_ens): 10 ms a pull at 1,000 x 10,000 in batches of 32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.ucb_e import highest, left_of_batch
from bestarm_agent.selectors.types import (
    Belief,
    BoolArray,
    Bounds,
    Choice,
    FloatArray,
    Pair,
    Problem,
    State,
    Tell,
)
from bestarm_agent.stats.arrays import IndexArray, one_thread
from bestarm_agent.stats.keyed_random import KeyedRandom

_UNSEEN, _PENDING = int(State.UNSEEN), int(State.PENDING)
_DONE, _FAILED = int(State.DONE), int(State.FAILED)
SWEEPS = 10  # of least squares; from an even start three to five already agree to .001
SWEEPS_AGAIN = 3  # from the last fit
_SMALL = 0.1  # of first factors beyond the first rank
_CHUNK = 64  # rows whose spreads are held at a time
_NEGLIGIBLE = 1e-12


class UcbELrf(Rule):
    """UCB-E on the mean and the uncertainty of the low-rank ensemble.

    In flight: the model is fitted whenever ``batch`` more outcomes are told, or the batch is asked
    and nothing is pending; a fit ends the batch under way. Until a fit has seen the score of a pair
    that was asked, its R counts as 0; a candidate with void pulls only is taken to score 0. Random
    pairs are asked until as many are told as the warm-up wants. With one call in flight the rule is
    the paper's, step by step.

    Its estimates are a model's opinion; its intervals say what is certain: unseen scores are
    anything in [0, 1].

    Args:
        eta: uncertainty scaling, > 0; the paper uses 5.
        warm_up: share T_0 / (n m) of the grid to evaluate at random first, in [0, 1); the paper
            uses 5 %.
        batch: pulls b between fits, >= 1; the paper uses 32.
        rank: of the model, >= 1; the paper uses 1.
        members: number K_ens of models in the ensemble, >= 2; the paper uses 64.
        drop: probability with which a model leaves a seen pair out, in [0, 1); the paper has 5 %.
        ridge: penalty on squared factors, >= 0; the paper has none, its published program 0.1.
    """

    name: ClassVar[str] = "ucb-e-lrf"
    exogenous: ClassVar[bool] = False

    def __init__(
        self,
        problem: Problem,
        *,
        eta: float = 5.0,
        warm_up: float = 0.05,
        batch: int = 32,
        rank: int = 1,
        members: int = 64,
        drop: float = 0.05,
        ridge: float = 0.0,
    ) -> None:
        if not eta > 0:
            raise ValueError(f"eta must be > 0, got {eta}")
        if not 0 <= warm_up < 1:
            raise ValueError(f"warm_up must be in [0, 1), got {warm_up}")
        if batch < 1:
            raise ValueError(f"batch must be at least 1, got {batch}")
        super().__init__(problem)
        self.eta, self.warm_up, self.batch = eta, warm_up, batch
        self._rank, self._members, self._drop, self._ridge = rank, members, drop, ridge
        self._random = KeyedRandom(problem.seed, "low-rank")
        self._ensemble: LowRankEnsemble | None = None
        self._seen: SeenCells | None = None  # None: to be gathered again
        self._n_fits = 0
        self._n_told = 0
        self._fitted_at = 0  # asks before the last fit
        self._since_fit: list[int] = []  # asks told since
        self._totals: FloatArray = np.empty(0)  # (K,) sums of R_ij over all j
        self._row: tuple[int, FloatArray] = (-1, np.empty(0))  # R_i of one candidate
        self._new_ensemble(0)  # checks the parameters

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        """Line 1, or line 4 of a batch that goes on or begins."""
        if self._ensemble is None:
            return random_pair(self, allowed, rng)
        candidate = self.table.latest
        if not (self.left and allowed[candidate]):
            candidate = highest(np.where(allowed, self._index(), -np.inf), rng)
        return self._pull(candidate, rng)

    def told(self, tell: Tell) -> None:
        """Line 8, if it is time to."""
        self._seen = None
        self._n_told += 1
        self._since_fit.append(tell.seq)
        if self._is_time_to_fit():
            self._refit()

    def changed(self) -> None:
        """Let the model grow."""
        self._seen = None
        if self._ensemble is not None:
            self._ensemble.grow(self.table.n_candidates, self.table.n_examples)
            self._measure_spreads()

    def belief(self) -> Belief:
        """Return row means in which unseen scores are predicted, pending and void ones too."""
        means = self.table.mean()
        if self._ensemble is not None:
            means = np.where(self.table.n_scored > 0, self._predicted_means(), np.nan)
        return Belief(means, self._certain())

    @property
    def left(self) -> int:
        """Pulls of the batch under way that are still to be asked."""
        if self._ensemble is None or not self.table.n_unseen_of(self.table.latest):
            return 0
        return left_of_batch(self.table, self.batch, self._fitted_at)

    def _index(self) -> FloatArray:
        """(K,) B_i (line 2), pulls weighed by cost; infinite for candidates never pulled."""
        table = self.table
        never_worked = (table.n_scored == 0) & (table.count(State.VOID) > 0)
        means = np.where(never_worked, 0.0, self._predicted_means())
        bonus = self._bonus() / np.sqrt(self.weights)
        return np.where(table.n_trials > 0, means + bonus, np.inf)

    def _bonus(self) -> FloatArray:
        """(K,) eta / m sum_j R_ij (line 2), less pairs asked since the fit."""
        pending = np.flatnonzero(self.table.state == _PENDING)
        asked = np.concatenate([pending, np.array(self._since_fit, dtype=np.intp)])
        who = self.table.candidate[asked].astype(np.intp)
        spreads = self._fitted().cell_spreads(who, self.table.example[asked].astype(np.intp))
        totals = self._totals - np.bincount(who, spreads, self.table.n_candidates)
        return self.eta / self.table.n_examples * totals

    def _pull(self, candidate: int, rng: np.random.Generator) -> Choice:
        """Take the unseen example of the largest R_ij (line 4), ties at random."""
        if self._row[0] != candidate:
            [spreads] = self._fitted().spreads([candidate])
            self._row = (candidate, spreads)
        unseen = self.table.cells[candidate] == _UNSEEN
        example = highest(np.where(unseen, self._row[1], -1.0), rng)
        return Choice(Pair(candidate, example), None, "spread")

    def _is_time_to_fit(self) -> bool:
        table = self.table
        if self._ensemble is None:
            wanted = self.warm_up * table.n_candidates * table.n_examples
            return self._n_told >= wanted - 1e-9
        if len(self._since_fit) >= self.batch:
            return True
        return self.left == 0 and self._n_told == table.n_asked

    @one_thread
    def _refit(self) -> None:
        sweeps = SWEEPS_AGAIN if self._ensemble is not None else SWEEPS
        if self._ensemble is None:
            self._ensemble = self._new_ensemble(self._n_fits)
        self._ensemble.fit(self._seen_cells(), sweeps, self._random.at(2 * self._n_fits + 1))
        self._n_fits += 1
        self._since_fit.clear()
        self._fitted_at = self.table.n_asked
        self._measure_spreads()

    def _measure_spreads(self) -> None:
        self._row = (-1, np.empty(0))
        self._totals = self._fitted().spread_totals()

    def _predicted_means(self) -> FloatArray:
        """(K,) row means, by the model even where no score was seen."""
        return self._fitted().means(self._seen_cells())

    def _certain(self) -> Bounds:
        table = self.table
        least = table.total / table.n_examples
        return least, least + (table.n_examples - table.n_scored) / table.n_examples

    def _seen_cells(self) -> SeenCells:
        if self._seen is None:
            table = self.table
            told = np.flatnonzero((table.state == _DONE) | (table.state == _FAILED))
            self._seen = SeenCells(
                table.candidate[told],
                table.example[told],
                table.score[told],
                (table.n_candidates, table.n_examples),
            )
        return self._seen

    def _new_ensemble(self, number: int) -> LowRankEnsemble:
        return self._model()(
            self.table.n_candidates,
            self.table.n_examples,
            self._random.at(2 * number),
            rank=self._rank,
            n_members=self._members,
            drop=self._drop,
            ridge=self._ridge,
        )

    def _model(self) -> type[LowRankEnsemble]:
        return LowRankEnsemble

    def _fitted(self) -> LowRankEnsemble:
        if self._ensemble is None:
            raise RuntimeError("the model has not been fitted yet")
        return self._ensemble


def random_pair(selector: Rule, allowed: BoolArray, rng: np.random.Generator) -> Choice:
    """Draw one of the unseen pairs of the ``allowed`` (K,) candidates uniformly.

    With costs, candidate i's pairs come up 1 / weight_i times as often.
    """
    candidate = _random_row(selector, allowed, rng)
    example, propensity = selector.draw_unseen(candidate, rng)
    return Choice(Pair(candidate, example), propensity, "random")


def _random_row(selector: Rule, allowed: BoolArray, rng: np.random.Generator) -> int:
    n_unseen = np.where(allowed, selector.table.n_unseen, 0)
    if selector.problem.costs is None:
        cells = np.cumsum(n_unseen)
        return int(np.searchsorted(cells, rng.integers(cells[-1]), side="right"))
    shares = n_unseen / selector.weights
    return int(rng.choice(len(shares), p=shares / shares.sum()))


@dataclass(frozen=True, slots=True)
class _Dropped:
    of: IndexArray
    other: IndexArray
    scores: FloatArray
    member: IndexArray


class LowRankEnsemble:
    """Several low-rank models of one matrix, each fitted to a random part of its seen cells.

    Arrays are laid out [row][rank][member]: one sparse product solves all members on all seen
    cells, and what each member dropped is subtracted, so nothing of size members x rows x columns
    is made. Predictions are unbounded, and biased where scores are not of low rank.

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


# the observed cells, and sums over those of each row or column


class SeenCells:
    """The seen cells of a (K, N) matrix, given by (n,) rows, columns and scores; no cell twice."""

    def __init__(
        self,
        rows: NDArray[np.integer] | list[int],
        columns: NDArray[np.integer] | list[int],
        scores: FloatArray | list[float],
        shape: tuple[int, int],
    ) -> None:
        by_row = csr_array((np.asarray(scores, dtype=float), (rows, columns)), shape=shape)
        self.shape = shape
        self.by_row = Cells(by_row)
        self.by_column = Cells(by_row.T.tocsr())
        self.row_totals: FloatArray = sums_at(self.by_row.of, self.by_row.scores, shape[0])

    def __len__(self) -> int:
        return len(self.by_row.scores)


class Cells:
    """Seen cells sorted by one axis, in sparse form.

    There are ``size`` items along this axis. Arrays (n,) give each cell's item ``of`` (ascending),
    its place along the ``other`` axis, and its score.
    """

    def __init__(self, sparse: csr_array) -> None:
        self.size = sparse.shape[0]
        self.of: IndexArray = np.repeat(np.arange(self.size), np.diff(sparse.indptr))
        self.other: IndexArray = sparse.indices.astype(np.intp)
        self.scores: FloatArray = sparse.data
        ones = np.ones_like(sparse.data)
        self._values = sparse
        self._pattern = csr_array((ones, sparse.indices, sparse.indptr), shape=sparse.shape)

    def weigh(self, factors: FloatArray) -> FloatArray:
        """Return (size, ...) sums of scores times ``factors`` (other size, ...) over the cells."""
        return _product(self._values, factors)

    def add_up(self, factors: FloatArray) -> FloatArray:
        """Return (size, ...) sums of ``factors`` (other size, ...) over the cells."""
        return _product(self._pattern, factors)


def _product(sparse: csr_array, factors: FloatArray) -> FloatArray:
    flat: FloatArray = sparse @ factors.reshape(len(factors), -1)
    return flat.reshape(-1, *factors.shape[1:])


def sums_at(at: IndexArray, weights: FloatArray, size: int) -> FloatArray:
    """Return the (size,) sums of the weights at each place."""
    return np.bincount(at, weights=weights, minlength=size).astype(np.float64, copy=False)


# many small least-squares problems at once: [item][rank][member], entries a <= b of symmetric ones


def pair_names(rank: int) -> list[tuple[int, int]]:
    """Return the kept entries of a symmetric (rank, rank) matrix, in order.

    Example:
        >>> pair_names(2)
        [(0, 0), (0, 1), (1, 1)]
    """
    return [(a, b) for a in range(rank) for b in range(a, rank)]


def pairs(factors: FloatArray, *, twice: bool = False) -> FloatArray:
    """Return (n, r (r + 1) / 2, K_ens) products of factors a <= b, a < b doubled if ``twice``."""
    products = [
        factors[:, a] * factors[:, b] * (2.0 if twice and a != b else 1.0)
        for a, b in pair_names(factors.shape[1])
    ]
    return np.stack(products, axis=1)


def solutions(gram: FloatArray, right: FloatArray, ridge: float) -> FloatArray:
    """Solve all normal equations; return the (n, r, K_ens) factors.

    Args:
        gram: (n, r (r + 1) / 2, K_ens) matrices, as ``pairs`` lays them out, summed over cells.
        right: (n, r, K_ens) right-hand sides.
        ridge: added to their diagonals, >= 0. Without one, what the equations leave undetermined
            is settled by the smallest factors, and an item of which a member knows nothing gets
            that member's mean factors of the others.
    """
    rank = right.shape[1]
    if rank == 1:
        known = gram + ridge > _NEGLIGIBLE
        solved = np.divide(right, gram + ridge, out=np.zeros_like(right), where=known)
        known = known[:, 0]
    else:
        solved, known = _solved_jointly(gram, right, ridge)
    return solved if ridge > 0 else _averages_for_unknown(solved, known)


def _solved_jointly(
    gram: FloatArray, right: FloatArray, ridge: float
) -> tuple[FloatArray, NDArray[np.bool_]]:
    n, rank, n_members = right.shape
    matrix = np.empty((n, n_members, rank, rank))
    for place, (a, b) in enumerate(pair_names(rank)):
        matrix[:, :, a, b] = matrix[:, :, b, a] = gram[:, place]
    size = np.trace(matrix, axis1=2, axis2=3)
    known = size + ridge > _NEGLIGIBLE
    jitter = np.where(known, ridge + _NEGLIGIBLE * size, 1.0)  # smallest factors where undetermined
    matrix += jitter[:, :, None, None] * np.eye(rank)
    solved = np.linalg.solve(matrix, right.transpose(0, 2, 1)[..., None])[..., 0]
    factors: FloatArray = np.asarray(solved, dtype=np.float64).transpose(0, 2, 1)
    return factors, np.asarray(known, dtype=bool)


def _averages_for_unknown(solved: FloatArray, known: NDArray[np.bool_]) -> FloatArray:
    """Give items of which a member knows nothing the mean factors of those it knows."""
    if known.all():
        return solved
    masked = np.where(known[:, None], solved, 0.0)
    average = masked.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return np.where(known[:, None], solved, average)
