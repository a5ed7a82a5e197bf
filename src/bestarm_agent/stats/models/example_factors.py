"""Factors of examples, learned from past candidates, and the position of a new candidate.

The log-odds that candidate i solves example j are ``offset_j + loadings_j . u_i`` with frozen
offsets and loadings; ``u ~ N(0, I)`` is the prior of a new candidate. ``logistic_low_rank`` learns
the factors.

References:
    Tolochinsky, Tenzer and Romano (2026), "Valid Best-Model Identification for LLM Evaluation via
    Low-Rank Factorization", step 1 and the refits of Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.arrays import FloatArray, IntArray, SingleArray

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
