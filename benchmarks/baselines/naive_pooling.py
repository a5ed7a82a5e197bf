"""Naive-Pooling: UCB-E that takes predictions for scores.

Tolochinsky, Tenzer and Romano 2026, "Valid Best-Model Identification for LLM Evaluation via
Low-Rank Factorization", section 4, "Baselines". The bias of the predictions stays in the means for
as long as examples are unseen, and can decide for the wrong candidate for good.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors import Problem
from bestarm_agent.selectors.rules.pulse import Predictions
from bestarm_agent.selectors.rules.ucb_e import UcbE, left_of_batch
from bestarm_agent.selectors.types import Belief, State
from bestarm_agent.stats.history import HistoryModel


class NaivePooling(UcbE):
    """UCB-E whose means count seen scores, and predictions where nothing is seen.

    Args:
        history: what was learned from past candidates on the same examples; without it, or if it
            does not predict held-out candidates, the rule is UCB-E in batches.
        batch: pulls of the same candidate per step, >= 1.
        tau: steps after the warm-up between refits of all candidates with new scores, >= 1.
    """

    name: ClassVar[str] = "naive-pooling"

    def __init__(
        self,
        problem: Problem,
        *,
        history: HistoryModel | None = None,
        batch: int = 64,
        tau: int = 1000,
    ) -> None:
        super().__init__(problem, batch=batch)
        self._tau = tau
        self._predictions: Predictions | None = None
        if history is not None and history.validation.is_useful:
            self._predictions = Predictions(history.factors, self.table)
        self._n_steps = 0
        self._is_fitted = False

    def asked(self, seq: int) -> None:
        """Refit as a batch begins, every ``tau`` steps."""
        candidate = int(self.table.candidate[seq])
        begins = left_of_batch(self.table, self.batch) == self.batch - 1
        if not begins or self.table.n_unseen_of(candidate) + 1 == self.table.n_examples:
            return
        if self._predictions is not None and self._n_steps % self._tau == 0:
            self._is_fitted = True
            for one in range(self.table.n_candidates):
                self._predictions.refit(one)
        self._n_steps += 1

    def changed(self) -> None:
        """Make room for candidates and examples."""
        if self._predictions is not None:
            self._predictions.grow()

    def belief(self) -> Belief:
        """Fill every row up with predictions."""
        seen, table = self.table.mean(), self.table
        if self._predictions is None or not self._is_fitted:
            return Belief(seen)
        scored = np.isin(table.cells, (int(State.DONE), int(State.FAILED)))
        rows = [self._predictions.row(i) for i in range(table.n_candidates)]
        predicted = np.array(
            [row[~cells].sum(dtype=float) for row, cells in zip(rows, scored, strict=True)]
        )
        means = (table.total + predicted) / table.n_examples
        return Belief(np.where((table.n_scored == 0) | scored.all(axis=1), seen, means))
