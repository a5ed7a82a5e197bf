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
less its standard error, is above 0 (``is_useful``) or above 0.15 (``is_strong``). Rank and ridge
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
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.arrays import FloatArray, IntArray, SingleArray
from bestarm_agent.stats.keyed_random import KeyedRandom

_Float = TypeVar("_Float", bound=np.floating)

_NEWTON_STEPS = 20
_HALVINGS = 12
_SETTLED = 1e-4


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

    def predict(self, position: FloatArray) -> SingleArray:
        """Return the (N,) expected scores in (0, 1) of the candidate at ``position`` (r,)."""
        logits = self.offset + self.loadings @ position
        return _sigmoid(logits.astype(np.float32))

    def locate(
        self, examples: IntArray, scores: FloatArray, start: FloatArray | None = None
    ) -> FloatArray:
        """Fit a candidate's position (r,) to its (n,) scores at ``examples``, by Newton's method.

        Minimises BCE + |u|^2 / 2; 0 without scores. ``start`` affects the time only.
        """
        offset, rows = self.offset[examples], self.loadings[examples]
        u = np.zeros(self.rank) if start is None else start
        for _ in range(_NEWTON_STEPS):
            chance = _sigmoid(offset + rows @ u)
            slope = u - rows.T @ (scores - chance)
            curvature = (rows * (chance * (1.0 - chance))[:, None]).T @ rows
            step = np.linalg.solve(curvature + np.eye(self.rank), slope)
            if np.abs(step).max(initial=0.0) < _SETTLED:
                break
            u = _descend(u, np.asarray(step), float(slope @ step), offset, rows, scores)
        return u


def _descend(
    u: FloatArray,
    step: FloatArray,
    descent: float,
    offset: FloatArray,
    rows: FloatArray,
    scores: FloatArray,
) -> FloatArray:
    """Take the Newton step, halved until the objective falls (Armijo)."""
    start, share = _objective(u, offset, rows, scores), 1.0
    for _ in range(_HALVINGS):
        moved = u - share * step
        if _objective(moved, offset, rows, scores) <= start - 1e-4 * share * descent:
            return moved
        share /= 2.0
    return u


def _objective(u: FloatArray, offset: FloatArray, rows: FloatArray, scores: FloatArray) -> float:
    logits = offset + rows @ u
    return float(np.logaddexp(0.0, logits).sum() - scores @ logits + u @ u / 2.0)


def _sigmoid(logits: NDArray[_Float]) -> NDArray[_Float]:
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * logits), dtype=logits.dtype)


_OFFSET_RIDGE = 0.1  # keeps examples that all solve finite
_POWER_STEPS = 3


def fit_factors(
    scores: NDArray[np.floating], rank: int, *, ridge: float = 4.0, sweeps: int = 12
) -> Factors:
    """Learn offsets and loadings from past candidates' ``scores`` (H, N), NaN where unknown.

    Minimises the summed binary cross-entropy of the known cells plus (|U|^2 + ``ridge`` |V|^2) / 2:
    equation 1 of the paper up to a factor and the scale shared by U and V. More than min(H, N) - 1
    directions are cut to that.
    """
    known = ~np.isnan(scores)
    _check(scores, known, rank, ridge, sweeps)
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
        share = (self._centred.sum(axis=0) + self._count / 2 + 1.0) / (self._count + 2.0)
        chance = share.astype(np.float32)
        residual = (self._filled - chance) / np.sqrt(chance * (1.0 - chance))
        if self._mask is not None:
            residual *= self._mask
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
        size = np.maximum(np.abs(positions @ loadings.T + offset), np.float32(1e-3))
        weights: SingleArray = np.tanh(size / 2) / (2 * size)
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
    center = positions.mean(axis=0, dtype=np.float64)
    triangle = np.asarray(np.linalg.qr(positions - center, mode="r"))
    scale = triangle.T / np.sqrt(len(positions))
    left, strength, _ = np.linalg.svd(loadings.astype(np.float64) @ scale, full_matrices=False)
    return Factors(offset + loadings @ center, left * strength)


def _check(
    scores: NDArray[np.floating], known: NDArray[np.bool_], rank: int, ridge: float, sweeps: int
) -> None:
    if scores.ndim != 2 or 0 in scores.shape:
        raise ValueError(f"scores must be (H, N), both at least 1, got {scores.shape}")
    inside = (scores >= 0) & (scores <= 1)
    if not inside[known].all():
        raise ValueError(f"scores must be in [0, 1] or NaN, got {scores[known & ~inside][0]}")
    if rank < 0 or not ridge > 0 or sweeps < 1:
        raise ValueError(
            f"rank must be >= 0, ridge > 0 and sweeps >= 1, got {rank}, {ridge}, {sweeps}"
        )


RANKS = (0, 1, 2, 4, 8, 16, 24)
RIDGES = (4.0, 16.0)
FOLDS = 5
STRONG = 0.15  # below this gain, choosing examples by predictions was harmful in trials
_FEWEST = 3  # held-out candidates needed to judge
_ROWS_PER_FOLD = 60  # held-out candidates tried per fold


@dataclass(frozen=True, slots=True)
class Validation:
    """The chosen model, and how well it predicts new candidates."""

    rank: int  # directions of the chosen model
    ridge: float  # its penalty on the loadings
    gain: float  # mean of (1) over held-out candidates; below 0 the predictions add noise
    gain_se: float  # standard error of ``gain``
    loss: float  # mean binary cross-entropy of the held-out scores, in nats
    baseline: float  # the same for the candidate's mean over its revealed scores
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

    def factors_of(self, n_examples: int) -> Factors:
        """Return the factors of all examples; later ones are taken to be average."""
        known = self.factors.n_examples
        if known > n_examples:
            raise ValueError(
                f"history has factors of {known} examples, the problem has only {n_examples};"
                " align the history with the problem's examples"
            )
        columns = np.arange(n_examples)
        return self.factors.at(np.where(columns < known, columns, -1))


class _Trial(NamedTuple):
    loss: float
    baseline: float
    gain: float


def learn(
    scores: NDArray[np.floating],
    *,
    ranks: Sequence[int] = RANKS,
    ridges: Sequence[float] = RIDGES,
    revealed: int | None = None,
    seed: int = 0,
) -> HistoryModel:
    """Choose rank and ridge by cross-validation, then learn from all past candidates.

    ``scores`` (H, N) are NaN where unknown; every row has at least 2. A held-out candidate shows
    ``revealed`` scores; by default a twentieth of its own, at least 16 and at most half.
    """
    if not (ranks and ridges):
        raise ValueError("ranks and ridges need at least one value each")
    trials = _cross_validate(scores, sorted(ranks), sorted(ridges), revealed, seed)
    rank, ridge = _one_standard_error(trials)
    factors = fit_factors(scores, rank, ridge=ridge)
    return HistoryModel(factors, _summary(rank, ridge, trials[rank, ridge]))


def _cross_validate(
    scores: NDArray[np.floating],
    ranks: Sequence[int],
    ridges: Sequence[float],
    revealed: int | None,
    seed: int,
) -> dict[tuple[int, float], list[_Trial]]:
    """Try every model on every held-out candidate.

    Each fold is fitted once per ridge at the highest rank; lower ranks use its leading directions.
    """
    found: dict[tuple[int, float], list[_Trial]] = {(k, w): [] for w in ridges for k in ranks}
    for held in _folds(len(scores), seed):
        rest = np.setdiff1d(np.arange(len(scores)), held)
        for ridge in ridges:
            full = fit_factors(scores[rest], ranks[-1], ridge=ridge)
            for rank in ranks:
                factors = full.cut(rank)
                found[rank, ridge] += [
                    _try_out(factors, scores[row], revealed, KeyedRandom(seed, f"reveal {row}"))
                    for row in held[:_ROWS_PER_FOLD]
                ]
    return found


def _folds(n_candidates: int, seed: int) -> Iterator[NDArray[np.int64]]:
    if n_candidates < 2:
        return
    order = KeyedRandom(seed, "folds").at(0).permutation(n_candidates)
    yield from np.array_split(order, min(FOLDS, n_candidates))


def _try_out(
    factors: Factors, row: NDArray[np.floating], revealed: int | None, random: KeyedRandom
) -> _Trial:
    known = random.at(0).permutation(np.flatnonzero(~np.isnan(row)))
    half = len(known) // 2
    n_shown = min(half, max(16, len(known) // 20) if revealed is None else revealed)
    shown, hidden = known[:n_shown], known[n_shown:]
    truth = row[hidden].astype(float)
    guess = factors.predict(factors.locate(shown, row[shown].astype(float)))[hidden]
    plain = np.full(len(hidden), (row[shown].sum() + 0.5) / (n_shown + 1.0))
    spread = truth.var()
    gain = 1.0 - float((truth - guess).var()) / spread if spread > 0 else 0.0  # (1)
    return _Trial(_cross_entropy(truth, guess), _cross_entropy(truth, plain), gain)


def _cross_entropy(truth: FloatArray, guess: NDArray[np.floating]) -> float:
    chance = np.clip(guess.astype(float), 1e-6, 1.0 - 1e-6)
    return float(-(truth * np.log(chance) + (1.0 - truth) * np.log1p(-chance)).mean())


def _one_standard_error(trials: dict[tuple[int, float], list[_Trial]]) -> tuple[int, float]:
    """Return the smallest rank, then largest ridge, within one standard error of the best."""
    losses = {model: np.array([trial.loss for trial in found]) for model, found in trials.items()}
    if not next(iter(losses.values())).size:
        return min(trials)
    best = min(losses, key=lambda model: float(losses[model].mean()))
    good = [
        m for m, loss in losses.items() if (excess := loss - losses[best]).mean() <= _se(excess)
    ]
    return min(good, key=lambda model: (model[0], -model[1]))


def _summary(rank: int, ridge: float, trials: Sequence[_Trial]) -> Validation:
    if not trials:
        return Validation(rank, ridge, 0.0, 0.0, float("nan"), float("nan"), 0)
    loss, baseline, gain = np.array(trials).T
    return Validation(
        rank=rank,
        ridge=ridge,
        gain=float(gain.mean()),
        gain_se=_se(gain),
        loss=float(loss.mean()),
        baseline=float(baseline.mean()),
        n_candidates=len(trials),
    )


def _se(values: FloatArray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
