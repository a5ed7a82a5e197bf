"""A selection rule: mostly the best candidate so far, sometimes any."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors import BoolArray, Choice, Pair, Problem, Rule


class EpsilonGreedy(Rule):
    """Asks for the candidate with the best mean; with probability epsilon for any.

    Args:
        problem: numbers of candidates and examples, seed and budget.
        epsilon: in [0, 1].
    """

    name: ClassVar[str] = "epsilon-greedy"

    def __init__(self, problem: Problem, *, epsilon: float = 0.2) -> None:
        super().__init__(problem)
        if not 0 <= epsilon <= 1:
            raise ValueError(f"epsilon must be in [0, 1], got {epsilon}")
        self.epsilon = epsilon

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice:
        """Pick the best so far, or anyone with probability epsilon."""
        rows = np.flatnonzero(allowed)
        if rng.random() >= self.epsilon:
            # a candidate that was never asked counts as perfect
            means = np.where(self.table.n_scored > 0, self.table.mean(), 1.0)[rows]
            rows = rows[means == means.max()]
        candidate = int(rows[rng.integers(len(rows))])
        example = self.draw_unseen(candidate, rng)
        return Choice(Pair(candidate, example), "epsilon-greedy")
