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
from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.selectors.types import Belief, State, Tell
from bestarm_agent.stats.history import Factors, HistoryModel


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
        self._n_steps = 0
        self._n_followed = 0  # asks that steps were counted by
        self._n_in_a_row = 0  # latest asks of the batch under way
        self._factors: Factors | None = None  # None: no predictions
        if history is not None and history.validation.is_useful:
            self._factors = history.factors.of(problem.n_examples)
        self._predictions: list[Predictions] = []
        self.changed()

    def told(self, tell: Tell) -> None:
        """Keep a score for the next refit."""
        self._follow()
        if self._factors is not None and tell.state is not State.VOID:
            candidate = int(self.table.candidate[tell.seq])
            told = int(self.table.example[tell.seq]), tell.score
            self._predictions[candidate].scored.append(told)

    def changed(self) -> None:
        """Make room for candidates."""
        if self._factors is not None:
            average = self._factors.predict(np.zeros(self._factors.rank))
            n_new = self.table.n_candidates - len(self._predictions)
            self._predictions += [Predictions(self._factors, average) for _ in range(n_new)]

    def _follow(self) -> None:
        """Refit as a batch begins, every ``tau`` of them; the first of a candidate is warm-up."""
        table = self.table
        for seq in range(self._n_followed, table.n_asked):
            goes_on = seq > 0 and table.candidate[seq - 1] == table.candidate[seq]
            self._n_in_a_row = self._n_in_a_row % self.batch + 1 if goes_on else 1
            if self._n_in_a_row == 1 and table.position[seq]:
                if self._n_steps % self._tau == 0:
                    for predictions in self._predictions:
                        predictions.refit(self._n_steps)
                self._n_steps += 1
        self._n_followed = table.n_asked

    def belief(self) -> Belief:
        """Fill every row up with predictions."""
        self._follow()
        seen, table = self.table.mean(), self.table
        if not self._predictions or not self._n_steps:
            return Belief(seen)
        scored = np.isin(table.cells, (int(State.DONE), int(State.FAILED)))
        rows = [predictions.row for predictions in self._predictions]
        predicted = np.array(
            [row[~cells].sum(dtype=float) for row, cells in zip(rows, scored, strict=True)]
        )
        means = (table.total + predicted) / table.n_examples
        return Belief(np.where((table.n_scored == 0) | scored.all(axis=1), seen, means))
