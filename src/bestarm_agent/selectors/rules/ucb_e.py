"""UCB-E: pull the candidate whose optimistic mean is highest.

Zhou et al. 2024, "On Speeding Up Language Model Evaluation", Algorithm 1. Strong where two
finalists stand far above the rest. Several close, correlated candidates need too many pulls, since
the paper compares them on different examples; ``common_examples`` mends that.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.rules.batch import Batch, highest
from bestarm_agent.selectors.types import Ask, BoolArray, Choice, FloatArray, Pair, Problem, Tell


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
