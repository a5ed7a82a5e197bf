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
towards examples on which models disagree, and nothing is guaranteed. A fit costs O(n m K_ens) for
line 2, which looks at every cell, and 3 rounds over all seen cells and members. Of more than 16,000
cells a batch is less than 1 part in 500: then a fit waits until as many are new; until then they
count with their scores, and without R.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.ucb_e import highest, left_of_batch
from bestarm_agent.selectors.types import Belief, Choice, Pair, Problem, State, Tell
from bestarm_agent.stats.arrays import BoolArray, FloatArray, IndexArray, one_thread
from bestarm_agent.stats.keyed_random import KeyedRandom

_UNSEEN, _PENDING = int(State.UNSEEN), int(State.PENDING)
_DONE, _FAILED = int(State.DONE), int(State.FAILED)
SWEEPS = 10  # of least squares; from an even start three to five already agree to .001
SWEEPS_AGAIN = 3  # from the last fit
_SHARE_NEW = 0.002  # of the seen cells: with fewer new ones, a fit waits
_SMALL = 0.1  # of first factors beyond the first rank
_CHUNK = 64  # rows whose spreads are summed at a time
_NEGLIGIBLE = 1e-12


class LowRankEnsemble:
    """Several low-rank models of one matrix, each fitted to a random part of its seen cells.

    Arrays are laid out [row][member][rank]: one sparse product solves all members on all seen
    cells, and what each member dropped is subtracted, so nothing of size members x rows x columns
    is made. Predictions are unbounded, and biased where scores are not of low rank.

    A row (or column) of which a member sees nothing gets that member's mean
    factors of the others, that is, the prediction for an average one; what too few cells leave
    undetermined is settled by the smallest factors. Parameters are those of the rule.

    Attributes:
        rows: (K, K_ens, r) factors.
        columns: (N, K_ens, r) factors.
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
    ) -> None:
        if rank < 1:
            raise ValueError(f"rank must be >= 1, got {rank}")
        if n_members < 2:
            raise ValueError(f"members must be >= 2, got {n_members}")
        if not 0 <= drop < 1:
            raise ValueError(f"drop must be in [0, 1), got {drop}")
        self.n_members, self.drop = n_members, drop
        # rows begin alike, so that the first sweep finds column means; further ranks begin small
        self.rows: FloatArray = _SMALL * rng.standard_normal((n_rows, n_members, rank))
        self.rows[:, :, 0] = 1.0
        self.columns: FloatArray = rng.standard_normal((n_columns, n_members, rank))

    def fit(self, scores: csr_array, n_sweeps: int, rng: np.random.Generator) -> None:
        """Fit all members by ``n_sweeps`` rounds of alternating least squares (equation 1).

        Starts from the factors at hand: columns first, then rows. ``rng`` draws which cells each
        member leaves out. ``scores`` are those seen, of (K, N); a 0 is stored, too.
        """
        dropped = self._dropped(scores, rng)
        turned = scores.T.tocsr(), dropped.T.tocsr()
        for _ in range(n_sweeps):
            self.columns = self._solve(*turned, self.rows)
            self.rows = self._solve(scores, dropped, self.columns)
        self._seen = _sums(_ones(scores), self.columns)

    def means(self, totals: FloatArray, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the (K,) row means: seen scores, and predictions of unseen cells (line 2).

        ``totals`` (K,) are sums of the scores seen, also of the (n,) ``rows`` and ``columns`` of
        the cells that are no part of a fit yet.
        """
        unseen = self.columns.sum(axis=0) - self._seen
        np.subtract.at(unseen, rows, self.columns[columns])
        predicted = (self.rows * unseen).sum(axis=2).mean(axis=1)
        return np.asarray((totals + predicted) / len(self.columns))

    def spreads(self, rows: IndexArray | slice | list[int] = slice(None)) -> FloatArray:
        """Return the (rows, N) standard deviations R of the members' predictions (equation 2).

        As printed, equation 2 takes deviations from predictions that are 0 where a cell is seen;
        the members' mean is meant.
        """
        left, right = self.rows[rows], self.columns
        mean = _inner(left, right) / self.n_members
        square = _inner(_outer(left), _outer(right)) / self.n_members
        square -= mean**2
        np.maximum(square, 0.0, out=square)
        return np.sqrt(square, out=square)

    def cell_spreads(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """Return the (n,) spreads of single cells."""
        predicted = (self.rows[rows] * self.columns[columns]).sum(axis=2)
        spreads: FloatArray = predicted.std(axis=1)
        return spreads

    def spread_totals(self) -> FloatArray:
        """Return the (K,) sums of each row's spreads."""
        # A few rows at a time, as all (K, N) spreads would take much memory.
        parts = [slice(start, start + _CHUNK) for start in range(0, len(self.rows), _CHUNK)]
        return np.concatenate([self.spreads(part).sum(axis=1) for part in parts])

    def _dropped(self, scores: csr_array, rng: np.random.Generator) -> csr_array:
        """Draw which members leave which cells out.

        The (K K_ens, N K_ens) scores are those of a row and a member, a column and that member.
        """
        # Members drop 5 % of the cells each. Listing what is dropped, instead of what is kept,
        # makes one matrix of all cells serve all members, with small corrections.
        n_members, cells = self.n_members, scores.tocoo()
        drawn = bernoulli_places(cells.nnz * n_members, self.drop, rng)
        cell, member = np.divmod(drawn, n_members)
        places = cells.row[cell] * n_members + member, cells.col[cell] * n_members + member
        shape = (scores.shape[0] * n_members, scores.shape[1] * n_members)
        return csr_array((cells.data[cell], places), shape=shape)

    def _solve(self, scores: csr_array, dropped: csr_array, fixed: FloatArray) -> FloatArray:
        """Solve the normal equations of all rows of the cells, given the factors of the columns.

        A row of which a member sees nothing is the mean of the others.
        """
        n, rank, squares = scores.shape[0], fixed.shape[2], _outer(fixed)
        right, gram = _sums(scores, fixed), _sums(_ones(scores), squares)
        left_out = fixed.reshape(-1, rank), squares.reshape(-1, rank**2)
        right -= _sums(dropped, left_out[0]).reshape(right.shape)
        gram -= _sums(_ones(dropped), left_out[1]).reshape(gram.shape)
        gram = gram.reshape(n, self.n_members, rank, rank)
        # A row of which a member sees no cell has a Gram matrix of 0, up to rounding.
        size = np.trace(gram, axis1=2, axis2=3)
        known = size > _NEGLIGIBLE
        if rank == 1:
            solved = right / np.where(known, size, np.inf)[:, :, None]
        else:  # of what is undetermined, the smallest factors
            ridge = np.where(known, _NEGLIGIBLE * size, 1.0)
            gram += ridge[:, :, None, None] * np.eye(rank)
            solved = np.asarray(np.linalg.solve(gram, right[..., None])[..., 0], dtype=np.float64)
        if known.all():
            return solved
        masked = np.where(known[:, :, None], solved, 0.0)
        mean = masked.sum(axis=0) / np.maximum(known.sum(axis=0), 1)[:, None]
        return np.where(known[:, :, None], solved, mean)


def _ones(cells: csr_array) -> csr_array:
    """Return a matrix with 1 at every cell that is stored."""
    return csr_array((np.ones_like(cells.data), cells.indices, cells.indptr), shape=cells.shape)


def _sums(cells: csr_array, factors: FloatArray) -> FloatArray:
    """Return the (n, ...) sums over cells of their values times ``factors`` (other, ...)."""
    width = int(np.prod(factors.shape[1:]))
    flat: FloatArray = cells @ factors.reshape(len(factors), width)
    return flat.reshape(cells.shape[0], *factors.shape[1:])


def _outer(factors: FloatArray) -> FloatArray:
    """Return the (..., r r) products of every two factors (..., r)."""
    products = factors[..., :, None] * factors[..., None, :]
    return np.asarray(products.reshape(*factors.shape[:-1], factors.shape[-1] ** 2))


def _inner(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return the (rows, columns) sums of products over members and rank."""
    inner: FloatArray = left.reshape(len(left), -1) @ right.reshape(len(right), -1).T
    return inner


def bernoulli_places(n: int, p: float, rng: np.random.Generator) -> IndexArray:
    """Draw which of n trials succeed, each with chance p in [0, 1), by the gaps between them."""
    if p == 0.0 or n == 0:
        return np.empty(0, dtype=np.intp)
    # Gaps take n p random numbers instead of n: a twentieth at the default of p = .05.
    # Eight standard deviations more than are expected, so that they practically never run out.
    places = rng.geometric(p, int(n * p + 8 * (n * p) ** 0.5 + 16)).cumsum() - 1
    return places[: np.searchsorted(places, n)]


class UcbELrf(Rule):
    """UCB-E on the mean and the uncertainty of the low-rank ensemble.

    In flight: the model is fitted whenever ``batch`` more outcomes are told, or the batch is asked
    and nothing is pending, if these are 1 in 500 of the scores; a fit ends the batch under way.
    Until a fit has seen the score of a pair that was asked, its R counts as 0; a candidate with
    void pulls only is taken to score 0. Random pairs are asked until as many are told as the
    warm-up wants. With one call in flight pairs are asked in the order of Algorithm 2. Where the
    paper fits the oracle anew in line 8, here every fit after the first goes on from the last
    factors for ``SWEEPS_AGAIN`` rounds, with cells that are left out drawn anew: members agree less
    exactly with what a fit from the start finds. Of more than 16,000 scores a fit comes after
    several batches.

    The paper's gain over UCB-E is not reproduced (``docs/reproduction``): where scores are not of
    rank 1, fits to the few cells of a row predict far outside [0, 1], and its row means are worse
    than plain ones.

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

    Example:
        >>> from bestarm_agent.selectors import Problem, State, Tell, make_selector
        >>> pairs = make_selector("ucb-e-lrf", Problem(n_candidates=3, n_examples=20), members=4)
        >>> while asks := pairs.ask():  # candidate 2 is right everywhere, the others nowhere
        ...     right = float(asks[0].pair.candidate == 2)
        ...     pairs.tell([Tell(asks[0].seq, State.DONE, right)])
        >>> pairs.answer.best().best
        2
    """

    name: ClassVar[str] = "ucb-e-lrf"
    heeds_costs: bool = False
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
    ) -> None:
        if not eta > 0:
            raise ValueError(f"eta must be > 0, got {eta}")
        if not 0 <= warm_up < 1:
            raise ValueError(f"warm_up must be in [0, 1), got {warm_up}")
        if batch < 1:
            raise ValueError(f"batch must be at least 1, got {batch}")
        super().__init__(problem)
        self.eta, self.warm_up, self.batch = eta, warm_up, batch
        self._options: Any = {"rank": rank, "n_members": members, "drop": drop}
        self._random = KeyedRandom(problem.seed, "low-rank")
        self._n_fits = 0
        self._is_fitted = False
        self._ensemble = self._new_ensemble()
        self._fitted_at = 0  # asks before the last fit
        self._since_fit: list[int] = []  # asks told since
        self._totals: FloatArray = np.empty(0)  # (K,) sums of R_ij over all j
        self._row: tuple[int, FloatArray] = (-1, np.empty(0))  # R_i of one candidate

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        """Line 1, or line 4 of a batch that goes on or begins."""
        if not self._is_fitted:
            return random_pair(self, allowed, rng)
        candidate = self.table.latest
        if not (self.n_due and allowed[candidate]):
            candidate = highest(np.where(allowed, self._index(), -np.inf), rng)
        return self._pull(candidate, rng)

    def told(self, tell: Tell) -> None:
        """Line 8, if a fit is due."""
        table = self.table
        self._since_fit.append(tell.seq)
        if not self._is_fitted:
            wanted = self.warm_up * table.n_candidates * table.n_examples
            is_due = table.n_told >= wanted - 1e-9
        else:
            is_over = self.n_due == 0 and table.n_told == table.n_asked
            is_due = is_over or len(self._since_fit) >= self.batch
            is_due &= len(self._since_fit) >= _SHARE_NEW * table.n_scores
        if is_due:
            self._refit()

    def changed(self) -> None:
        """Fit a larger model anew."""
        self._ensemble = self._new_ensemble()
        if self._is_fitted:
            self._is_fitted = False
            self._refit()

    def belief(self) -> Belief:
        """Return row means in which unseen scores are predicted, pending and void ones too."""
        means = self.table.mean()
        if self._is_fitted:
            means = np.where(self.table.n_scored > 0, self._predicted(), np.nan)
        return Belief(means)

    @property
    def n_due(self) -> int:
        """Pulls of the batch under way that are still to be asked."""
        is_full = not self.table.n_unseen[self.table.latest]
        return 0 if is_full else left_of_batch(self.table, self.batch, self._fitted_at)

    @one_thread
    def _index(self) -> FloatArray:
        """(K,) B_i (line 2); infinite for candidates never pulled."""
        table = self.table
        never_worked = (table.n_scored == 0) & (table.count(State.VOID) > 0)
        means = np.where(never_worked, 0.0, self._predicted())
        return np.where(table.n_trials > 0, means + self._bonus(), np.inf)

    def _bonus(self) -> FloatArray:
        """(K,) eta / m sum_j R_ij (line 2), without the pairs asked since the fit."""
        pending = np.flatnonzero(self.table.state == _PENDING)
        rows, columns = self._places([*pending.tolist(), *self._since_fit])
        spreads = self._ensemble.cell_spreads(rows, columns)
        totals = self._totals - np.bincount(rows, spreads, self.table.n_candidates)
        return self.eta / self.table.n_examples * totals

    def _pull(self, candidate: int, rng: np.random.Generator) -> Choice:
        """Take the unseen example of the largest R_ij (line 4), ties at random."""
        if self._row[0] != candidate:
            [spreads] = self._ensemble.spreads([candidate])
            self._row = (candidate, spreads)
        unseen = self.table.cells[candidate] == _UNSEEN
        example = highest(np.where(unseen, self._row[1], -1.0), rng)
        return Choice(Pair(candidate, example), "spread")

    @one_thread
    def _refit(self) -> None:
        sweeps = SWEEPS_AGAIN if self._is_fitted else SWEEPS
        rng = self._random.at(2 * self._n_fits + 1)
        self._ensemble.fit(self._seen(), sweeps, rng)
        self._is_fitted = True
        self._n_fits += 1
        self._since_fit.clear()
        self._fitted_at = self.table.n_asked
        self._row = (-1, np.empty(0))
        self._totals = self._ensemble.spread_totals()

    def _predicted(self) -> FloatArray:
        """(K,) row means by the model, and the scores seen since the fit."""
        scored = self._scored(self._since_fit)
        return self._ensemble.means(self.table.total, *self._places(scored))

    def _scored(self, asks: list[int] | None = None) -> IndexArray:
        """Return those of some asks, by default of all, that have a score."""
        seqs = np.arange(self.table.n_asked) if asks is None else np.array(asks, dtype=np.intp)
        state = self.table.state[seqs]
        return np.asarray(seqs[(state == _DONE) | (state == _FAILED)])

    def _places(self, asks: IndexArray | list[int]) -> tuple[IndexArray, IndexArray]:
        """Return the (n,) candidates and examples of some asks."""
        rows, columns = self.table.candidate[asks], self.table.example[asks]
        return rows.astype(np.intp), columns.astype(np.intp)

    def _seen(self) -> csr_array:
        """Return the (K, N) scores of the cells that have one."""
        asks, shape = self._scored(), (self.table.n_candidates, self.table.n_examples)
        return csr_array((self.table.score[asks], self._places(asks)), shape=shape)

    def _new_ensemble(self) -> LowRankEnsemble:
        table, random = self.table, self._random.at(2 * self._n_fits)
        return LowRankEnsemble(table.n_candidates, table.n_examples, random, **self._options)


def random_pair(rule: Rule, allowed: BoolArray, rng: np.random.Generator) -> Choice:
    """Draw one of the unseen pairs of the ``allowed`` (K,) candidates uniformly."""
    # Uniform over pairs and not over candidates: one with more unseen examples is drawn more often.
    cells = np.cumsum(np.where(allowed, rule.table.n_unseen, 0))
    candidate = int(np.searchsorted(cells, rng.integers(cells[-1]), side="right"))
    example = rule.draw_unseen(candidate, rng)
    return Choice(Pair(candidate, example), "random")
