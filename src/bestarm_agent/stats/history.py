"""Learn from past candidates about examples: factors, learned and validated.

Factors. The log-odds that candidate i solves example j are ``offset_j + loadings_j . u_i``. Offsets
and loadings are learned once from a history matrix with gaps and then frozen; a new candidate needs
only its r numbers u. Coordinates are turned so that past candidates are centred at 0 with unit
spread, the strongest direction first: ``u ~ N(0, I)`` is the prior of a new candidate, and the
ridge ``|u|^2 / 2`` its logarithm.

Fit. Exact ridge solves for all examples and all candidates in turn, in which a quadratic bound
replaces each logistic loss (Polya-Gamma weights tanh(x/2) / 2x). Each half-step lowers the
objective, so there is no step size to tune. For scores inside [0, 1], binary cross-entropy is a
quasi-likelihood.

Validation. In each of five folds factors are learned from four fifths of the past candidates; each
candidate of the rest reveals a few of its scores, and the others are predicted. Of held-out
candidate h, with hidden scores E_j and predictions f_j,

    gain_h = 1 - Var_j(E_j - f_j) / Var_j(E_j)                                                 (1)

is the share of variance that a control variate f removes. Predictions are used if the mean gain,
less its standard error, is above 0 (``is_useful``) or above 0.15 (``is_strong``): that judges the
past alone, so ``auto`` also looks at the scores of its own run. Rank and ridge
follow the one-standard-error rule: the smallest model whose mean excess loss over the best one is
within the standard error of that excess, taken over candidates (paired).

References:
    Tolochinsky, Tenzer and Romano (2026), "Valid Best-Model Identification for LLM Evaluation via
    Low-Rank Factorization", steps 1 and section 4. Jaakkola and Jordan (2000), Statistics and
    Computing 10. Polson, Scott and Windle (2013), JASA 108 (Polya-Gamma weights). Friedman, Hastie
    and Tibshirani (2010), Journal of Statistical Software 33 (the 1-SE rule).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.arrays import FloatArray, IntArray, SingleArray
from bestarm_agent.stats.keyed_random import KeyedRandom

_Float = TypeVar("_Float", bound=np.floating)

# Every step lowers the objective, so the number of steps is a limit on time alone.
_STEPS, _SETTLED = 200, 2e-5  # of a candidate's fit: most, and the move that ends it
_OFFSET_RIDGE = 0.1  # keeps examples that all solve finite
_POWER_STEPS = 3
RANKS = (0, 1, 2, 4, 8, 16, 24)
RIDGES = (4.0, 16.0)
FOLDS = 5
STRONG = 0.15  # below this gain, choosing examples by predictions was harmful in trials
_FEWEST = 3  # held-out candidates needed to judge
_ROWS_PER_FOLD = 60  # held-out candidates tried per fold


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """The factors of N examples.

    Attributes:
        offset: (N,) log-odds that the average past candidate solves each example.
        loadings: (N, r) change of the log-odds per standard deviation of each direction in which
            past candidates differ, the strongest first.
    """

    offset: FloatArray
    loadings: FloatArray

    def __post_init__(self) -> None:
        if self.loadings.ndim != 2 or self.offset.shape != self.loadings.shape[:1]:
            raise ValueError(
                f"offset must be (N,) and loadings (N, r), got {self.offset.shape}"
                f" and {self.loadings.shape}"
            )

    @property
    def n_examples(self) -> int:
        """Return N."""
        return len(self.offset)

    @property
    def rank(self) -> int:
        """Return r, the number of directions."""
        return int(self.loadings.shape[1])

    @property
    def digest(self) -> str:
        """Return 16 hexadecimal digits of a hash of all numbers."""
        content = self.offset.tobytes() + self.loadings.tobytes()
        return sha256(content).hexdigest()[:16]

    def cut(self, rank: int) -> Factors:
        """Keep the ``rank`` strongest directions."""
        return replace(self, loadings=self.loadings[:, :rank])

    def at(self, columns: IntArray) -> Factors:
        """Return the factors of these columns, in their order; -1 stands for an average example."""
        known = columns >= 0
        offset = np.full(len(columns), self.offset.mean())
        loadings = np.tile(self.loadings.mean(axis=0), (len(columns), 1))
        offset[known], loadings[known] = self.offset[columns[known]], self.loadings[columns[known]]
        return Factors(offset, loadings)

    def of(self, n_examples: int) -> Factors:
        """Return these factors; raise ValueError unless they are of so many examples."""
        if self.n_examples != n_examples:
            raise ValueError(
                f"history has factors of {self.n_examples} examples, the problem has {n_examples}; "
                f"align the history with the problem's examples"
            )
        return self

    def predict(self, position: FloatArray) -> SingleArray:
        """Return the (N,) expected scores in (0, 1) of the candidate at ``position`` (r,)."""
        logits = (self.offset + self.loadings @ position).astype(np.float32)
        return np.asarray(0.5 + 0.5 * np.tanh(0.5 * logits), dtype=np.float32)

    def expected(self) -> FloatArray:
        """Return the (N,) expected scores of a candidate better than the average past one.

        By one standard deviation, in the direction in which the mean score rises most.
        """
        from scipy.special import expit  # takes half a second to import

        chance = expit(self.offset)
        steepest = (chance * (1.0 - chance)) @ self.loadings
        length = float(np.linalg.norm(steepest))
        step = self.loadings @ (steepest / length) if length > 0 else 0.0
        return np.asarray(expit(self.offset + step), dtype=np.float64)

    def locate(
        self, examples: IntArray, scores: FloatArray, start: FloatArray | None = None
    ) -> FloatArray:
        """Fit a candidate's position (r,) to its (n,) scores at ``examples``.

        Minimises BCE + |u|^2 / 2 by the steps of the fit; 0 without scores. ``start`` affects the
        time only.
        """
        offset, rows = self.offset[examples], self.loadings[examples]
        u = np.zeros(self.rank) if start is None else start
        for _ in range(_STEPS):
            # The bound touches the loss at the present log-odds, so the step that minimises the
            # bound cannot raise the loss. The prior of u adds the identity: without scores it makes
            # u = 0.
            weights = _curvature(offset + rows @ u)
            target = rows.T @ (scores - 0.5 - weights * offset)
            gram = (rows * weights[:, None]).T @ rows + np.eye(self.rank)
            before, u = u, np.asarray(np.linalg.solve(gram, target), dtype=np.float64)
            if np.abs(u - before).max(initial=0.0) < _SETTLED:
                break
        return u


def _curvature(logits: NDArray[_Float]) -> NDArray[_Float]:
    """Return the curvatures of the quadratic bounds that touch the loss at the log-odds."""
    # tanh(x / 2) / 2x goes to 1/4 at x = 0, where it is 0 / 0; at 1e-3 it is 1/4 to seven digits.
    size = np.maximum(np.abs(logits), np.float32(1e-3))
    return np.asarray(np.tanh(size / 2) / (2 * size), dtype=logits.dtype)


def fit_factors(
    scores: NDArray[np.floating], rank: int, *, ridge: float = 4.0, sweeps: int = 12
) -> Factors:
    """Learn offsets and loadings from past candidates' ``scores`` (H, N), NaN where unknown.

    Minimises the summed binary cross-entropy of the known cells plus (|U|^2 + ``ridge`` |V|^2) / 2:
    equation 1 of the paper up to a factor and the scale shared by U and V. More than min(H, N) - 1
    directions are cut to that.
    """
    known = ~np.isnan(scores)
    if scores.ndim != 2 or 0 in scores.shape:
        raise ValueError(f"scores must be (H, N), both at least 1, got {scores.shape}")
    inside = (scores >= 0) & (scores <= 1)
    if not inside[known].all():
        raise ValueError(f"scores must be in [0, 1] or NaN, got {scores[known & ~inside][0]}")
    cells = _Cells(np.where(known, scores, 0.5).astype(np.float32), known)
    rank = min(rank, max(0, min(scores.shape) - 1))
    offset, loadings, positions = cells.start(rank)
    for _ in range(sweeps):
        offset, loadings = cells.examples_step(offset, loadings, positions, ridge)
        positions = cells.candidates_step(offset, loadings, positions)
    return _turned(offset, loadings, positions)


class _Cells:
    """A history matrix with gaps (1/2 where not ``known``), and the two half-steps on it."""

    def __init__(self, filled: SingleArray, known: NDArray[np.bool_]) -> None:
        self._filled = filled
        self._centred = filled - np.float32(0.5)  # 0 in gaps: they pull nowhere
        self._mask = None if known.all() else known.astype(np.float32)
        self._count = known.sum(axis=0)

    def start(self, rank: int) -> tuple[SingleArray, SingleArray, SingleArray]:
        """Return smoothed item means, and leading directions of the standardised residuals."""
        # One right and one wrong answer more for every example: none has infinite log-odds then.
        share = (self._centred.sum(axis=0) + self._count / 2 + 1.0) / (self._count + 2.0)
        chance = share.astype(np.float32)
        residual = (self._filled - chance) / np.sqrt(chance * (1.0 - chance))
        if self._mask is not None:
            residual *= self._mask
        # Power iteration from random directions; it only has to give a start from which the exact
        # steps settle soon, so few rounds do. The same seed for the same rank: a fit can be done
        # again.
        basis = np.random.default_rng(rank).standard_normal((residual.shape[1], rank))
        right = basis.astype(np.float32)
        for _ in range(_POWER_STEPS):
            left, _ = np.linalg.qr(residual @ right)
            right = residual.T @ left
        spread = np.float32(np.sqrt(len(residual)))
        return np.log(chance / (1.0 - chance)), right * 2 / spread, left * spread

    def examples_step(
        self, offset: SingleArray, loadings: SingleArray, positions: SingleArray, ridge: float
    ) -> tuple[SingleArray, SingleArray]:
        """Solve for every example's offset and loadings."""
        rank = positions.shape[1]
        weights = self._weights(offset, loadings, positions)
        design = np.column_stack([np.ones(len(positions), dtype=np.float32), positions])
        # The offset has a much smaller ridge than the loadings: it only has to keep those examples
        # finite that all candidates solve, or none.
        penalty = np.array([_OFFSET_RIDGE, *[ridge] * rank])
        solved = _ridge_solve(weights.T, design, self._centred.T @ design, penalty)
        return solved[:, 0].copy(), np.ascontiguousarray(solved[:, 1:])

    def candidates_step(
        self, offset: SingleArray, loadings: SingleArray, positions: SingleArray
    ) -> SingleArray:
        """Solve for every candidate's position."""
        weights = self._weights(offset, loadings, positions)
        target = self._centred @ loadings - (weights * offset) @ loadings
        ones = np.ones(loadings.shape[1])
        return _ridge_solve(weights, loadings, target.astype(np.float32), ones)

    def _weights(
        self, offset: SingleArray, loadings: SingleArray, positions: SingleArray
    ) -> SingleArray:
        """Return the (H, N) curvatures of the quadratic bounds at the log-odds; 0 in gaps."""
        weights = _curvature(positions @ loadings.T + offset)
        return weights if self._mask is None else weights * self._mask


def _ridge_solve(
    weights: SingleArray, design: SingleArray, target: SingleArray, penalty: FloatArray
) -> SingleArray:
    """Solve (sum_k w_ik x_k x_k' + diag(penalty)) b_i = target_i for every row i of ``weights``.

    All curvatures come out of one product with the distinct entries of x_k x_k'.
    """
    n_rows, rank = target.shape
    if rank == 0:
        return target
    i, j = np.triu_indices(rank)
    distinct = weights @ (design[:, i] * design[:, j])
    curvature = np.empty((n_rows, rank, rank), dtype=np.float32)
    curvature[:, i, j] = curvature[:, j, i] = distinct
    curvature[:, range(rank), range(rank)] += penalty.astype(np.float32)
    return np.asarray(np.linalg.solve(curvature, target[:, :, None])[:, :, 0])


def _turned(offset: SingleArray, loadings: SingleArray, positions: SingleArray) -> Factors:
    """Centre and scale past candidates to N(0, I); sort the directions by their strength."""
    # U V' does not change if U is turned and V is turned back. So past candidates can be given the
    # covariance I that the prior of a new one takes for granted: their triangle R (U = Q R) goes to
    # the loadings. The singular vectors of these then sort the directions by how much they change
    # scores, so that ``cut`` keeps those that matter.
    center = positions.mean(axis=0, dtype=np.float64)
    triangle = np.asarray(np.linalg.qr(positions - center, mode="r"))
    scale = triangle.T / np.sqrt(len(positions))
    left, strength, _ = np.linalg.svd(loadings.astype(np.float64) @ scale, full_matrices=False)
    return Factors(offset + loadings @ center, left * strength)


@dataclass(frozen=True, slots=True)
class Validation:
    """The chosen model, and how well it predicts new candidates."""

    rank: int  # directions of the chosen model
    ridge: float  # its penalty on the loadings
    gain: float  # mean of (1) over held-out candidates; below 0 the predictions add noise
    gain_se: float  # standard error of ``gain``
    n_candidates: int  # number of held-out candidates

    @property
    def is_useful(self) -> bool:
        """Return whether predictions remove variance, by more than a standard error."""
        return self._is_above(0.0)

    @property
    def is_strong(self) -> bool:
        """Return whether they remove enough variance to choose examples by."""
        return self._is_above(STRONG)

    def _is_above(self, gain: float) -> bool:
        return self.n_candidates >= _FEWEST and self.gain - self.gain_se > gain


@dataclass(frozen=True, slots=True)
class HistoryModel:
    """The factors learned from history, and their validation."""

    factors: Factors
    validation: Validation


def learn(scores: NDArray[np.floating], *, ranks: Sequence[int] = RANKS) -> HistoryModel:
    """Choose rank and ridge by cross-validation, then learn from all past candidates.

    ``scores`` (H, N) are NaN where unknown; every row has at least 2. A held-out candidate shows a
    twentieth of its scores, at least 16 and at most half. Each fold is fitted once per ridge at the
    highest rank; lower ranks use its leading directions.
    """
    trials: dict[tuple[int, float], list[tuple[float, float]]] = {
        (rank, ridge): [] for ridge in RIDGES for rank in sorted(ranks)
    }
    for held in _folds(len(scores)):
        rest = np.setdiff1d(np.arange(len(scores)), held)
        full = {ridge: fit_factors(scores[rest], max(ranks), ridge=ridge) for ridge in RIDGES}
        for rank, ridge in trials:
            factors = full[ridge].cut(rank)
            trials[rank, ridge] += [
                _loss_and_gain(factors, scores[row], KeyedRandom(0, f"reveal {row}"))
                for row in held[:_ROWS_PER_FOLD]
            ]
    results = {model: np.array(made).reshape(-1, 2).T for model, made in trials.items()}
    rank, ridge = _one_standard_error({model: losses for model, (losses, _) in results.items()})
    gain = results[rank, ridge][1]
    mean = float(gain.mean()) if len(gain) else 0.0
    validation = Validation(rank, ridge, mean, _se(gain), len(gain))
    return HistoryModel(fit_factors(scores, rank, ridge=ridge), validation)


def _folds(n_candidates: int) -> Iterator[IntArray]:
    if n_candidates > 1:
        order = KeyedRandom(0, "folds").at(0).permutation(n_candidates)
        yield from np.array_split(order, min(FOLDS, n_candidates))


def _loss_and_gain(
    factors: Factors, row: NDArray[np.floating], random: KeyedRandom
) -> tuple[float, float]:
    """Return the mean cross-entropy of a held-out candidate's hidden scores, and (1)."""
    # A new candidate shows its scores in a random order, too. Only the scores that it did not show
    # count for the loss: with the others, larger models would always look better.
    known = random.at(0).permutation(np.flatnonzero(~np.isnan(row)))
    n_revealed = min(len(known) // 2, max(16, len(known) // 20))
    revealed, hidden = known[:n_revealed], known[n_revealed:]
    truth = row[hidden].astype(float)
    guess = factors.predict(factors.locate(revealed, row[revealed].astype(float)))[hidden]
    # A chance of 0 or 1, rounded to single precision, would make one wrong guess cost infinitely
    # much.
    chance = np.clip(guess.astype(float), 1e-6, 1.0 - 1e-6)
    loss = -(truth * np.log(chance) + (1.0 - truth) * np.log1p(-chance)).mean()
    spread = truth.var()
    gain = 1.0 - float((truth - guess).var()) / spread if spread > 0 else 0.0  # (1)
    return float(loss), gain


def _one_standard_error(losses: dict[tuple[int, float], FloatArray]) -> tuple[int, float]:
    """Return the smallest rank, then largest ridge, within one standard error of the best."""
    if not next(iter(losses.values())).size:
        return min(losses)
    # The excess over the best model is taken candidate by candidate: candidates differ in how well
    # any model predicts them, and that cancels in the excess, so its standard error tells models
    # apart.
    best = min(losses, key=lambda model: float(losses[model].mean()))
    good = [
        m for m, loss in losses.items() if (excess := loss - losses[best]).mean() <= _se(excess)
    ]
    return min(good, key=lambda model: (model[0], -model[1]))


def _se(values: FloatArray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
