"""The baselines of the preselection paper (section 6.1), and random arms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.preselection.cppl import Cppl
from bestarm_agent.preselection.linucb import LinUcb
from bestarm_agent.preselection.rule import FloatArray, Preselector, RankedArms


class MaxTheta(Cppl):
    """CPPL without c in line 6: the arms of highest estimated utility, never exploring."""

    name: ClassVar[str] = "max-theta"

    def index(self, contexts: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return log v^ of each arm."""
        return contexts @ self.theta


class EpsilonGreedy(MaxTheta):
    """Max-Theta that runs random arms with probability .1."""

    name: ClassVar[str] = "epsilon-greedy"
    epsilon = 0.1

    def index(self, contexts: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return equal indices now and then: ties are broken at random."""
        if rng.random() < self.epsilon:
            return np.zeros(len(contexts))
        return super().index(contexts, rng)


class Mm(Preselector):
    """Context-free Plackett-Luce utilities by the MM algorithm, ``steps`` steps per feedback.

    Each arm also has one win and one loss against an imaginary arm of utility 1, which keeps
    estimates finite. Equal sets of arms are counted, so a step costs at most the number of
    different sets met. Each step begins where the last ended.

    References:
        Hunter 2004, "MM algorithms for generalized Bradley-Terry models", section 5 (eq. 30).
    """

    name: ClassVar[str] = "mm"

    def __init__(self, n_arms: int, n_features: int, seed: int = 0, *, steps: int = 2) -> None:
        super().__init__(n_arms, n_features, seed)
        self.steps = steps
        self.utilities: FloatArray = np.ones(n_arms)
        self._wins: FloatArray = np.ones(n_arms)
        self._sets: dict[bytes, tuple[NDArray[np.float64], int]] = {}  # stages met, how often

    def index(self, contexts: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return the estimated utilities, whatever the context."""
        return self.utilities

    def update(self, feedback: RankedArms) -> None:
        """Count the stages of the ranking, and take some steps of the algorithm."""
        for stage in range(min(feedback.n_ranked, len(feedback.order) - 1)):
            self._wins[feedback.order[stage]] += 1
            row = np.zeros(self.n_arms)
            row[feedback.order[stage:]] = 1.0
            _, count = self._sets.get(row.tobytes(), (row, 0))
            self._sets[row.tobytes()] = (row, count + 1)
        sets = np.array([row for row, _ in self._sets.values()])
        counts = np.array([count for _, count in self._sets.values()])
        for _ in range(self.steps):
            met = sets.T @ (counts / (sets @ self.utilities))
            self.utilities = self._wins / (met + 2 / (self.utilities + 1))  # (Hunter eq. 30)


class RandomArms(Preselector):
    """Choose at random and learn nothing: what every rule must beat."""

    name: ClassVar[str] = "random"

    def index(self, contexts: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return equal indices: ties are broken at random."""
        return np.zeros(len(contexts))

    def update(self, feedback: RankedArms) -> None:
        """Learn nothing."""


RULES: Mapping[str, type[Preselector]] = {
    rule.name: rule for rule in (Cppl, MaxTheta, EpsilonGreedy, Mm, LinUcb, RandomArms)
}
