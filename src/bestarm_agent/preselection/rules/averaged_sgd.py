"""Rules on a Plackett-Luce parameter learned by averaged stochastic gradient ascent.

Max-Theta runs the arms of highest estimated utility; epsilon-greedy sometimes random ones. Both
are baselines of El Mesaoudi-Paul et al. 2020, section 6.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar

import numpy as np

from bestarm_agent.preselection.rules.base import Preselector
from bestarm_agent.preselection.rules.plackett_luce import gradient
from bestarm_agent.preselection.rules.types import Feedback, FloatArray, PreselectionProblem
from bestarm_agent.stats.keyed_random import KeyedRandom


class MaxTheta(Preselector):
    """Choose the arms of highest estimated utility; never explore.

    Args:
        problem: arms, features and seed.
        gamma: learning rate of the first step, > 0; the paper uses 2.
        alpha: how fast the rate falls, in (1/2, 1); the paper uses 0.6.
        spread: theta starts uniform on [0, spread]; 0 starts at zero, where every arm is equal.

    References:
        El Mesaoudi-Paul et al. 2020, algorithm 1; Polyak and Juditsky 1992.
    """

    name: ClassVar[str] = "max-theta"
    saved = MappingProxyType({"theta": "theta", "latest": "_latest"})

    def __init__(
        self,
        problem: PreselectionProblem,
        *,
        gamma: float = 2.0,
        alpha: float = 0.6,
        spread: float = 1.0,
    ) -> None:
        if not gamma > 0:
            raise ValueError(f"gamma must be > 0, got {gamma}")
        if not 0.5 < alpha < 1:
            raise ValueError(f"alpha must be in (1/2, 1), got {alpha}")
        if not 0 <= spread < np.inf:
            raise ValueError(f"spread must be >= 0, got {spread}")
        super().__init__(problem)
        self.gamma, self.alpha = gamma, alpha
        start = KeyedRandom(problem.seed, "preselection theta").at(0).random(problem.n_features)
        self._latest: FloatArray = spread * start  # (line 1)
        self.theta: FloatArray = self._latest.copy()  # (line 2)

    def _index(self, contexts: FloatArray, rng: np.random.Generator) -> FloatArray:
        return contexts @ self.theta  # log of (eq. 13)

    def _learn(self, feedback: Feedback) -> None:
        t = self.n_learnt
        step = gradient(self._latest, feedback.ordered, feedback.n_ranked)
        self._latest = self._latest + self.gamma * t**-self.alpha * step  # (line 8)
        self.theta = self.theta + (self._latest - self.theta) / t  # (eq. 10)


class EpsilonGreedy(MaxTheta):
    """Max-Theta that runs random arms with probability ``epsilon``; the paper uses 0.1."""

    name: ClassVar[str] = "epsilon-greedy"

    def __init__(
        self,
        problem: PreselectionProblem,
        *,
        epsilon: float = 0.1,
        gamma: float = 2.0,
        alpha: float = 0.6,
        spread: float = 1.0,
    ) -> None:
        if not 0 <= epsilon <= 1:
            raise ValueError(f"epsilon must be in [0, 1], got {epsilon}")
        super().__init__(problem, gamma=gamma, alpha=alpha, spread=spread)
        self.epsilon = epsilon

    def _index(self, contexts: FloatArray, rng: np.random.Generator) -> FloatArray:
        if rng.random() < self.epsilon:
            return np.zeros(len(contexts))  # all equal: ties are broken at random
        return super()._index(contexts, rng)
