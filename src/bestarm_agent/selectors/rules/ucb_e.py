"""UCB-E: pull the candidate whose optimistic mean is highest.

Zhou et al. 2024, "On Speeding Up Language Model Evaluation", Algorithm 1. Strong where two
finalists stand far above the rest. Several close, correlated candidates need too many pulls, since
the paper compares them on different examples; ``common_examples`` mends that.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import Ask, BoolArray, Choice, FloatArray, Pair, Problem, Tell


class Batch:
    """The pulls of one candidate in a row, before a rule looks at its index again."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"batch must be at least 1, got {size}")
        self.size = size
        self.candidate = 0
        self.left = 0  # pulls that are still to be asked

    def goes_on(self, candidate: int) -> bool:
        """Return whether a pull of this candidate belongs to the batch under way."""
        return self.left > 0 and candidate == self.candidate

    def count(self, candidate: int) -> None:
        """Count a pull in: of the batch under way, or the first of a new one."""
        self.left = (self.left if self.goes_on(candidate) else self.size) - 1
        self.candidate = candidate


def highest(values: FloatArray, rng: np.random.Generator) -> int:
    """Return the place of the largest value; ties are broken at random."""
    ties = np.flatnonzero(values == values.max())
    return int(ties[rng.integers(len(ties))])


class UcbE(Selector):
    """Upper confidence bound exploration.

    In flight: a pending pull counts in the width, so concurrent asks spread out. A candidate with
    pending pulls but no score yet is taken to score 1, one with void pulls only to score 0 (else a
    candidate whose provider is down would draw every pull). With one call in flight the rule is the
    paper's, step by step.

    Args:
        eta: uncertainty scaling, > 0; the paper uses 1, and small values multiply the error.
        batch: pulls of the same candidate per decision, >= 1; the paper uses 1, its published
            program 32. Larger ones forgive an unlucky first score.
        common_examples: whether all candidates take their examples from one shared random order.
    """

    name: ClassVar[str] = "ucb-e"

    def __init__(
        self,
        problem: Problem,
        *,
        eta: float = 1.0,
        batch: int = 1,
        common_examples: bool = False,
    ) -> None:
        if not eta > 0:
            raise ValueError(f"eta must be > 0, got {eta}")
        self.common_examples = common_examples
        self.heeds_costs = not common_examples
        super().__init__(problem)
        self.eta = eta
        self.batch = Batch(batch)
        self._estimate = np.ones(problem.n_candidates)

    def _choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        candidate = self.batch.candidate
        if not (self.batch.left and allowed[candidate]):  # line 3: argmax B_i, ties uniformly
            candidate = highest(np.where(allowed, self._index(), -np.inf), rng)
        example, propensity = self.draw_unseen(candidate, rng)  # line 3: j in [m] \ S_i
        return Choice(Pair(candidate, example), propensity, "ucb")

    def _index(self) -> FloatArray:
        """(K,) upper confidence bounds; infinite for candidates that were never pulled (line 1)."""
        with np.errstate(divide="ignore"):
            width = np.sqrt(self.eta / self.table.n_trials)
        # line 5: B_i = mean_i + sqrt(eta / |S_i|), with pulls weighed by cost
        index: FloatArray = self._estimate + width / np.sqrt(self.weights)
        return index

    def _asked(self, ask: Ask) -> None:
        self.batch.count(ask.pair.candidate)

    def _told(self, tell: Tell) -> None:
        self._update(int(self.table.candidate[tell.seq]))

    def _grown(self) -> None:
        self._estimate = np.ones(self.table.n_candidates)
        for candidate in range(self.table.n_candidates):
            self._update(candidate)

    def _update(self, candidate: int) -> None:
        scored, total, _, void = self.table.tally(candidate)
        mean = self._mean_of(candidate, total / scored) if scored else float(void == 0)
        self._estimate[candidate] = mean

    def _mean_of(self, candidate: int, seen: float) -> float:
        """Return the estimate behind the index, given the mean of the candidate's scores so far."""
        return seen
