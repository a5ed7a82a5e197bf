"""Low-rank logistic models of a score matrix, learned from past candidates.

The log-odds that candidate i solves example j are ``offset_j + loadings_j . u_i``. Offsets and
loadings are learned once from a history matrix with gaps and then frozen; a new candidate needs
only its r numbers u. Coordinates are turned so that past candidates are centred at 0 with unit
spread, the strongest direction first: ``u ~ N(0, I)`` is the prior of a new candidate, and the
ridge ``|u|^2 / 2`` its logarithm.

The fit alternates exact ridge solves for all examples and all candidates, in which a quadratic
bound replaces each logistic loss (Polya-Gamma weights tanh(x/2) / 2x). Each half-step lowers the
objective, so there is no step size to tune. For scores inside [0, 1], binary cross-entropy is a
quasi-likelihood.

Assumption: candidates resemble past ones; ``history_validation`` checks it.

References:
    Tolochinsky, Tenzer and Romano (2026), "Valid Best-Model Identification for LLM Evaluation via
    Low-Rank Factorization", step 1. Jaakkola and Jordan (2000), Statistics and Computing 10.
    Polson, Scott and Windle (2013), JASA 108 (Polya-Gamma weights).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.arrays import FloatArray, SingleArray
from bestarm_agent.stats.models.example_factors import Factors

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
