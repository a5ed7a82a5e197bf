"""Low-rank logistic models of a score matrix: who does well on what, learned from past candidates.

The log-odds that candidate i solves example j are ``offset_j + loadings_j . u_i``. Offsets and
loadings are learned once from a history matrix with gaps and then frozen; a new candidate needs
only its r numbers u, fitted to the few scores it has. Coordinates are turned so that past
candidates are centred at 0 with unit spread, the strongest direction first: ``u ~ N(0, I)`` is then
what history says of a candidate before its first score, and the ridge ``|u|^2 / 2`` its logarithm.

The history fit alternates exact ridge solves for all examples and all candidates at once, in which
a quadratic bound replaces each logistic loss (Polya-Gamma weights tanh(x/2) / 2x). Each half-step
lowers the objective: there is no step size, no epoch count and no random start to tune, unlike
AdamW. Scores anywhere in [0, 1] are handled; binary cross-entropy is then a quasi-likelihood.

Assumption: candidates resemble past ones. Nothing here says whether they do: see ``foresight``.

References:
    Tolochinsky, Tenzer and Romano (2026), "Valid Best-Model Identification for LLM Evaluation via
    Low-Rank Factorization", step 1. Jaakkola and Jordan (2000), Statistics and Computing 10.
    Polson, Scott and Windle (2013), JASA 108 (Polya-Gamma weights).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
SingleArray: TypeAlias = NDArray[np.float32]
IntArray: TypeAlias = NDArray[np.int64]
_Float = TypeVar("_Float", bound=np.floating)

_OFFSET_RIDGE = 0.1  # keeps examples that everybody solves finite
_POWER_STEPS = 3
_NEWTON_STEPS = 20
_HALVINGS = 12
_SETTLED = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """What history says about N examples.

    Attributes:
        offset: (N,) log-odds that the average past candidate solves each example.
        loadings: (N, r) change of the log-odds per standard deviation of each direction in which
            past candidates differ, the strongest first.

    Example:
        >>> factors = Factors(np.zeros(3), np.array([[1.0], [1.0], [0.0]]))
        >>> u = factors.locate(np.array([0, 1]), np.array([1.0, 1.0]))
        >>> factors.predict(u).round(2)
        array([0.66, 0.66, 0.5 ], dtype=float32)
    """

    offset: FloatArray
    loadings: FloatArray

    def __post_init__(self) -> None:
        """Check the shapes; raises ValueError."""
        if self.loadings.ndim != 2 or self.offset.shape != self.loadings.shape[:1]:
            raise ValueError(
                f"offset must be (N,) and loadings (N, r), got {self.offset.shape}"
                f" and {self.loadings.shape}"
            )

    @property
    def n_examples(self) -> int:
        """N."""
        return len(self.offset)

    @property
    def rank(self) -> int:
        """Number of directions, r."""
        return int(self.loadings.shape[1])

    def cut(self, rank: int) -> Factors:
        """Keep the ``rank`` strongest directions."""
        return replace(self, loadings=self.loadings[:, :rank])

    def at(self, columns: IntArray) -> Factors:
        """The examples with these column numbers, in their order; -1 is one never seen before.

        Such an example is taken to be like the average one.
        """
        known = columns >= 0
        offset = np.full(len(columns), self.offset.mean())
        loadings = np.tile(self.loadings.mean(axis=0), (len(columns), 1))
        offset[known], loadings[known] = self.offset[columns[known]], self.loadings[columns[known]]
        return Factors(offset, loadings)

    def predict(self, position: FloatArray) -> SingleArray:
        """(N,) expected scores in (0, 1) of the candidate at ``position`` (r,)."""
        logits = self.offset + self.loadings @ position
        return _sigmoid(logits.astype(np.float32))

    def locate(
        self, examples: IntArray, scores: FloatArray, start: FloatArray | None = None
    ) -> FloatArray:
        """Fit a candidate's position to the scores it has, by Newton's method.

        Args:
            examples: (n,) column numbers.
            scores: (n,) in [0, 1].
            start: (r,) where to begin; the fit does not depend on it, its time does.

        Returns:
            (r,) the minimiser of BCE + |u|^2 / 2; 0 without scores.
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


def fit_factors(
    scores: NDArray[np.floating], rank: int, *, ridge: float = 4.0, sweeps: int = 12
) -> Factors:
    """Learn offsets and loadings from past candidates.

    Minimises the summed binary cross-entropy of the known cells plus |U|^2 / 2 plus
    ``ridge`` |V|^2 / 2: equation 1 of the paper up to a factor and the scale shared by U and V.

    Args:
        scores: (H, N) in [0, 1], NaN where unknown.
        rank: r >= 0, number of directions; more than min(H, N) - 1 are cut to that.
        ridge: penalty on the loadings, > 0.
        sweeps: alternations, >= 1.

    Raises:
        ValueError: a score outside [0, 1], no candidate, or a senseless rank, ridge or sweeps.
    """
    known = ~np.isnan(scores)
    _check(scores, known, rank, ridge, sweeps)
    cells = _Cells(np.where(known, scores, 0.5).astype(np.float32), known)
    rank = min(rank, max(0, min(scores.shape) - 1))
    offset, loadings, people = cells.start(rank)
    for _ in range(sweeps):
        offset, loadings = cells.examples_step(offset, loadings, people, ridge)
        people = cells.candidates_step(offset, loadings, people)
    return _turned(offset, loadings, people)


class _Cells:
    """A history matrix with gaps, and the two half-steps on it.

    Args:
        filled: (H, N) scores, 1/2 where unknown.
        known: (H, N) mask.
    """

    def __init__(self, filled: SingleArray, known: NDArray[np.bool_]) -> None:
        self._filled = filled
        self._centred = filled - np.float32(0.5)  # 0 in gaps: they pull nowhere
        self._mask = None if known.all() else known.astype(np.float32)
        self._count = known.sum(axis=0)

    def start(self, rank: int) -> tuple[SingleArray, SingleArray, SingleArray]:
        """Smoothed item means, and leading directions of the standardised residuals."""
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
        self, offset: SingleArray, loadings: SingleArray, people: SingleArray, ridge: float
    ) -> tuple[SingleArray, SingleArray]:
        """Solve for every example's offset and loadings."""
        rank = people.shape[1]
        weights = self._weights(offset, loadings, people)
        design = np.column_stack([np.ones(len(people), dtype=np.float32), people])
        penalty = np.array([_OFFSET_RIDGE, *[ridge] * rank])
        solved = _ridge_solve(weights.T, design, self._centred.T @ design, penalty)
        return solved[:, 0].copy(), np.ascontiguousarray(solved[:, 1:])

    def candidates_step(
        self, offset: SingleArray, loadings: SingleArray, people: SingleArray
    ) -> SingleArray:
        """Solve for every candidate's position."""
        weights = self._weights(offset, loadings, people)
        target = self._centred @ loadings - (weights * offset) @ loadings
        ones = np.ones(loadings.shape[1])
        return _ridge_solve(weights, loadings, target.astype(np.float32), ones)

    def _weights(
        self, offset: SingleArray, loadings: SingleArray, people: SingleArray
    ) -> SingleArray:
        """(H, N) curvatures of the quadratic bounds at the present log-odds; 0 in gaps."""
        size = np.maximum(np.abs(people @ loadings.T + offset), np.float32(1e-3))
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


def _turned(offset: SingleArray, loadings: SingleArray, people: SingleArray) -> Factors:
    """Centre and scale past candidates to N(0, I); sort the directions by their strength."""
    center = people.mean(axis=0, dtype=np.float64)
    triangle = np.asarray(np.linalg.qr(people - center, mode="r"))
    scale = triangle.T / np.sqrt(len(people))
    left, strength, _ = np.linalg.svd(loadings.astype(np.float64) @ scale, full_matrices=False)
    return Factors(offset + loadings @ center, left * strength)


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
