"""LinUCB and Thompson sampling: choose by predicted scores instead of predicted wins.

Both regress scores on context vectors, so they use by how much the winner was better. A feedback
without scores counts 1 for the winner and 0 for the others. Rounds in which all scores are equal
are used with ``ties``: they teach how good the arms are on such prompts, and also how hard the
prompts are, which is noise to a choice between arms.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar

import numpy as np
from scipy.linalg import solve_triangular

from bestarm_agent.preselection.rules.base import Arrays, Preselector
from bestarm_agent.preselection.rules.types import Feedback, FloatArray, PreselectionProblem


class _LinearScores(Preselector):
    """Ridge regression of scores on context vectors; one parameter for all arms."""

    saved = MappingProxyType({"gram": "_gram", "moment": "_moment"})

    def __init__(self, problem: PreselectionProblem, *, ridge: float, ties: float) -> None:
        if not ridge > 0:
            raise ValueError(f"ridge must be > 0, got {ridge}")
        if ties not in (0, 1):
            raise ValueError(f"ties must be 0 or 1, got {ties}")
        super().__init__(problem)
        self.learns_ties = bool(ties)
        self._gram: FloatArray = ridge * np.eye(problem.n_features)
        self._moment: FloatArray = np.zeros(problem.n_features)
        self._solve()

    def _solve(self) -> None:
        self._factor = np.linalg.cholesky(self._gram)
        half = solve_triangular(self._factor, self._moment, lower=True, check_finite=False)
        self.theta: FloatArray = solve_triangular(
            self._factor, half, lower=True, trans=1, check_finite=False
        )

    def _learn(self, feedback: Feedback) -> None:
        scores = feedback.scores
        if scores is None:
            scores = (np.arange(len(feedback.order)) == 0).astype(np.float64)
        self._gram += feedback.ordered.T @ feedback.ordered
        self._moment += scores @ feedback.ordered
        self._solve()

    def _restore(self, arrays: Arrays) -> None:
        super()._restore(arrays)
        self._solve()


class LinUcb(_LinearScores):
    """Choose by the upper confidence bound of the predicted score.

    Args:
        problem: arms, features and seed.
        width: standard errors added to the prediction, >= 0.
        ridge: > 0.
        ties: 1 to learn from rounds in which all scores are equal too, else 0.

    References:
        Li et al. 2010, "A contextual-bandit approach to personalized news article
        recommendation", algorithm 1, with one parameter that the arms share.
    """

    name: ClassVar[str] = "linucb"

    def __init__(
        self,
        problem: PreselectionProblem,
        *,
        width: float = 0.3,
        ridge: float = 1.0,
        ties: float = 0.0,
    ) -> None:
        if not 0 <= width < np.inf:
            raise ValueError(f"width must be >= 0, got {width}")
        super().__init__(problem, ridge=ridge, ties=ties)
        self.width = width

    def _index(self, contexts: FloatArray, rng: np.random.Generator) -> FloatArray:
        half = solve_triangular(self._factor, contexts.T, lower=True, check_finite=False)
        errors = np.sqrt((half * half).sum(axis=0))  # sqrt(x' A^-1 x)
        bounds: FloatArray = contexts @ self.theta + self.width * errors
        return bounds


class ThompsonScores(_LinearScores):
    """Choose by the scores predicted by one draw of the parameter from its posterior.

    Args:
        problem: arms, features and seed.
        noise: standard deviation of a score around its prediction, > 0.
        ridge: > 0.
        ties: 1 to learn from rounds in which all scores are equal too, else 0.

    References:
        Agrawal and Goyal 2013, "Thompson sampling for contextual bandits with linear payoffs".
    """

    name: ClassVar[str] = "thompson"

    def __init__(
        self,
        problem: PreselectionProblem,
        *,
        noise: float = 0.3,
        ridge: float = 1.0,
        ties: float = 0.0,
    ) -> None:
        if not noise > 0:
            raise ValueError(f"noise must be > 0, got {noise}")
        super().__init__(problem, ridge=ridge, ties=ties)
        self.noise = noise

    def _index(self, contexts: FloatArray, rng: np.random.Generator) -> FloatArray:
        normal = rng.standard_normal(self.problem.n_features)
        drawn = solve_triangular(self._factor, normal, lower=True, trans=1, check_finite=False)
        return contexts @ (self.theta + self.noise * drawn)  # ~ N(theta, noise^2 A^-1)
