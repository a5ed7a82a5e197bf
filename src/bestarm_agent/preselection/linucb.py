"""LinUCB: run the arms whose predicted score could be highest.

Scores are regressed on context vectors, so it is used by how much the winner was better. A feedback
without scores counts 1 for the winner and 0 for the others.

References:
    Li et al. 2010, "A contextual-bandit approach to personalized news article recommendation",
    algorithm 1, with one parameter that the arms share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from bestarm_agent.preselection.rule import FloatArray, Preselector, RankedArms


class LinUcb(Preselector):
    """Choose by the upper confidence bound of the predicted score."""

    name: ClassVar[str] = "linucb"
    saved: ClassVar[Sequence[str]] = ("gram", "moment")
    width, ridge = 0.3, 1.0  # standard errors added to the prediction; of the regression

    def __init__(self, n_arms: int, n_features: int, seed: int = 0) -> None:
        super().__init__(n_arms, n_features, seed)
        self.gram: FloatArray = self.ridge * np.eye(n_features)
        self.moment: FloatArray = np.zeros(n_features)
        self.renew()

    def index(self, contexts: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return each arm's predicted score plus ``width`` standard errors."""
        # With gram = L L', the error sqrt(x' gram^-1 x) is the norm of L^-1 x: one triangular solve
        # for all arms.
        half = solve_triangular(self._factor, contexts.T, lower=True, check_finite=False)
        errors = np.sqrt((half**2).sum(axis=0))
        index: FloatArray = contexts @ self.theta + self.width * errors
        return index

    def update(self, feedback: RankedArms) -> None:
        """Add the arms that were run to the ridge regression."""
        scores = feedback.scores
        if scores is None:
            scores = (np.arange(len(feedback.order)) == 0).astype(np.float64)
        self.gram += feedback.ordered.T @ feedback.ordered
        self.moment += scores @ feedback.ordered

    def renew(self) -> None:
        """Solve the ridge regression."""
        self._factor = np.linalg.cholesky(self.gram)
        factor = (self._factor, True)
        self.theta: FloatArray = cho_solve(factor, self.moment, check_finite=False)
