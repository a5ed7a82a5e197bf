"""Naive-Pooling: UCB-E that takes predictions for scores.

Tolochinsky, Tenzer and Romano 2026, "Valid Best-Model Identification for LLM Evaluation via
Low-Rank Factorization", section 4, "Baselines". A baseline: the bias of the predictions stays in
the means for as long as examples are unseen, and can decide for the wrong candidate for good.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.rules.pulse_predictions import Predictions
from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.selectors.types import Ask, Belief, Problem, State, Tell
from bestarm_agent.stats.models.history_validation import HistoryModel

_DONE, _FAILED, _VOID = int(State.DONE), int(State.FAILED), int(State.VOID)


class NaivePooling(UcbE):
    """UCB-E whose means count seen scores, and predictions where nothing is seen.

    In flight: a pending pull counts with its prediction, and as seen in the width. The intervals
    are those of the raw scores and do not vouch for these means.

    Args:
        history: what was learned from past candidates on the same examples; without it, or if it
            does not predict held-out candidates, the rule is UCB-E in batches.
        a: exploration, > 0.
        batch: pulls of the same candidate per step, >= 1.
        tau: steps between refits of all candidates with new scores, >= 1.
    """

    name: ClassVar[str] = "naive-pooling"

    def __init__(
        self,
        problem: Problem,
        *,
        history: HistoryModel | None = None,
        a: float = 1.0,
        batch: int = 64,
        tau: int = 1000,
    ) -> None:
        if not a > 0:
            raise ValueError(f"a must be > 0, got {a}")
        if tau < 1:
            raise ValueError(f"tau must be at least 1 step, got {tau}")
        super().__init__(problem, eta=a, batch=batch)
        self._tau = tau
        self._plain = history is None or not history.validation.is_useful
        self._n_steps = 0  # batches begun after the warm-up
        self._predicted = np.full(problem.n_candidates, np.nan)  # summed over unscored examples
        if history is not None:
            self._predictions = Predictions(history.factors, self.table)

    def _asked(self, ask: Ask) -> None:
        candidate = ask.pair.candidate
        begins = not self.batch.goes_on(candidate)
        super()._asked(ask)
        if begins and self.table.n_unseen_of(candidate) + 1 < self.table.n_examples:
            if self._n_steps % self._tau == 0 and not self._plain:
                self._refit()
            self._n_steps += 1

    def _told(self, tell: Tell) -> None:
        if not self._plain and tell.state != _VOID:
            candidate = int(self.table.candidate[tell.seq])
            if not np.isnan(self._predicted[candidate]):
                row = self._predictions.row(candidate)
                self._predicted[candidate] -= row[self.table.example[tell.seq]]
        super()._told(tell)

    def _grown(self) -> None:
        if not self._plain:
            n_new = self.table.n_candidates - len(self._predicted)
            self._predicted = np.append(self._predicted, np.full(n_new, np.nan))
            self._predictions.grow()
            for candidate in np.flatnonzero(~np.isnan(self._predicted)):
                self._sum_up(int(candidate))
        super()._grown()

    def _refit(self) -> None:
        for candidate in range(self.table.n_candidates):
            if self._predictions.refit(candidate) or np.isnan(self._predicted[candidate]):
                self._sum_up(candidate)
                self._update(candidate)

    def _sum_up(self, candidate: int) -> None:
        cells = self.table.cells[candidate]
        scored = (cells == _DONE) | (cells == _FAILED)
        self._predicted[candidate] = self._predictions.row(candidate)[~scored].sum(dtype=float)

    def _mean_of(self, candidate: int, seen: float) -> float:
        if self._plain:
            return seen
        n_scored, total, _, _ = self.table.tally(candidate)
        predicted = self._predicted[candidate]
        if np.isnan(predicted) or n_scored in (0, self.table.n_examples):
            return seen
        return float((total + predicted) / self.table.n_examples)

    def _belief(self) -> Belief:
        means = [self._mean_of(i, mean) for i, mean in enumerate(self.table.mean().tolist())]
        return Belief(np.asarray(means, dtype=float))
