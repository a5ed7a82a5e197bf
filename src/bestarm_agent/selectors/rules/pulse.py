"""PULSE: UCB-E on doubly robust means, which predictions learned from past candidates sharpen.

Tolochinsky, Tenzer and Romano 2026, "Valid Best-Model Identification for LLM Evaluation via
Low-Rank Factorization", Algorithm 1. Predictions enter as a control variate only, so useless ones
cost draws and not correctness. Strong where history predicts which candidate solves which example.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from bestarm_agent.selectors.rules.pulse_estimates import OneStepEstimates, Step
from bestarm_agent.selectors.rules.pulse_predictions import Predictions, Rest
from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.selectors.types import (
    Ask,
    Belief,
    BoolArray,
    Bounds,
    Choice,
    FloatArray,
    Pair,
    Problem,
    State,
    Tell,
)
from bestarm_agent.stats.intervals.freedman import freedman
from bestarm_agent.stats.models.history_validation import HistoryModel

_UNSEEN = int(State.UNSEEN)
_PRIOR_PULLS = 64.0  # by which a prediction is taken for calibrated, hence of weight 1


class Pulse(UcbE):
    """UCB-E whose means are averages of doubly robust one-step estimates.

    The example factors are frozen. A candidate's own factors are refitted when a batch of its pulls
    begins, if it has new scores and ``tau`` batches have begun (over all candidates) since the last
    round of refits. Each candidate's first batch is its warm-up, and counts.

    In flight: predictions, weight and probability of a pull are those at its ask (see
    ``pulse_estimates``). The estimate rests on the pulls up to the first one that is not told; the
    width counts pending pulls.

    Guarantee: with uniform draws the betting intervals on the raw scores hold at every time.
    Freedman's interval (theorem 1) uses the predictions and, in place of a known bound, the
    variance seen: heuristic, and so is everything under ``focus``, where raw scores are biased.

    Args:
        history: what was learned from past candidates on the same examples, in the same order; the
            examples may go on. Without it, or if it does not predict held-out candidates, the rule
            is UCB-E with the same ``a`` and ``batch``.
        a: exploration, > 0.
        batch: pulls of the same candidate per step, >= 1.
        tau: steps between rounds of refits, >= 1; the paper uses 1,000. Few cost little here.
        weight: how lambda is set from the scores. "covariance" regresses the candidate's scores on
            their predictions, starting from 1; "plug-in" is the paper's, which looks at the mean
            residual alone and leaves the warm-up without predictions.
        interval: "betting" or "freedman".
        focus: share in [0, 1) of the draws made with probability proportional to the predicted
            standard deviation of the score, rather than uniformly.
    """

    name: ClassVar[str] = "pulse"

    def __init__(
        self,
        problem: Problem,
        *,
        history: HistoryModel | None = None,
        a: float = 1.0,
        batch: int = 64,
        tau: int = 10,
        weight: Literal["covariance", "plug-in"] = "covariance",
        interval: Literal["betting", "freedman"] = "betting",
        focus: float = 0.0,
    ) -> None:
        if not a > 0:
            raise ValueError(f"a must be > 0, got {a}")
        if tau < 1:
            raise ValueError(f"tau must be at least 1 step, got {tau}")
        if not 0 <= focus < 1:
            raise ValueError(f"focus must be in [0, 1), got {focus}")
        super().__init__(problem, eta=a, batch=batch)
        self._plain = history is None or not history.validation.is_useful
        self._tau, self._weight, self._interval = tau, weight, interval
        self._focus = focus
        self._uniform = True  # whether all draws so far were
        self._n_steps = 0  # batches begun after the warm-up
        self._round = np.full(problem.n_candidates, -1)  # of each candidate's last refit
        self._rest: Rest | None = None  # of the candidate of this batch
        self._step: Step | None = None
        self._step_is_shared = False  # with the uniform draws that follow in its batch
        self._estimates = OneStepEstimates(self.table)
        if history is not None:
            self._predictions = Predictions(history.factors, self.table)

    @property
    def uses_history(self) -> bool:
        """True if predictions are in use."""
        return not self._plain

    def _choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        choice = super()._choose(allowed, rng)
        if self._plain or not self._focus or choice is None:
            return choice
        candidate, example = choice.pair
        rest = self._rest_of(candidate)
        if rng.random() < self._focus:
            example = rest.draw(rng)
        share = (1.0 - self._focus) / rest.n + self._focus * rest.share(example)
        return Choice(Pair(candidate, example), share, choice.reason)

    def _rest_of(self, candidate: int) -> Rest:
        """Return the candidate's examples left, as its batch goes on or before one begins."""
        if self._rest is not None and self.batch.goes_on(candidate):
            return self._rest
        left = self.table.cells[candidate] == _UNSEEN
        return Rest(self._predictions.row(candidate), left, focused=True)

    def _asked(self, ask: Ask) -> None:
        begins = not self.batch.goes_on(ask.pair.candidate)
        super()._asked(ask)
        if not self._plain:
            self._note(ask, begins)

    def _note(self, ask: Ask, begins: bool) -> None:
        """Fix the parts of this pull's estimate (equation 2)."""
        candidate, example = ask.pair
        if begins or self._rest is None:
            self._rest = self._begin(candidate, example)
            self._step = None
        rest = self._rest
        uniform = ask.propensity is None or abs(ask.propensity * rest.n - 1.0) < 1e-9
        if self._step is None or not (uniform and self._step_is_shared):
            self._step = self._new_step(candidate, rest)
        self._step_is_shared = uniform
        self._uniform &= uniform
        # uniform draws of a batch all come from the examples left at its beginning
        inverse = self._step.n_left if uniform else 1.0 / (ask.propensity or 1.0)
        guess = float(self._predictions.row(candidate)[example])
        self._estimates.asked(self._step, guess, float(inverse))
        rest.drop(example)

    def _begin(self, candidate: int, example: int) -> Rest:
        """Begin a batch with ``example``: refit its candidate, if a round of refits is due."""
        left = self.table.cells[candidate] == _UNSEEN
        if self.table.n_unseen_of(candidate) + 1 < self.table.n_examples:  # not the warm-up
            due = self._n_steps // self._tau
            self._n_steps += 1
            if self._round[candidate] < due and self._predictions.refit(candidate):
                self._round[candidate] = due
        left[example] = True
        return Rest(self._predictions.row(candidate), left, focused=self._focus > 0)

    def _new_step(self, candidate: int, rest: Rest) -> Step:
        plain = self._weight == "plug-in" and self._round[candidate] < 0  # the warm-up
        weight = 0.0 if plain else self._lambda(candidate, rest)
        return Step(weight, rest.total, rest.n, self.table.n_examples, plain)

    def _lambda(self, candidate: int, rest: Rest) -> float:
        tally = self._estimates.of(candidate)
        if self._weight == "covariance":
            spread = max(0.0, rest.squares / rest.n - (rest.total / rest.n) ** 2)
            return tally.slope(_PRIOR_PULLS * spread)
        share = 1.0 - rest.total * tally.mean_residual / (rest.n * rest.squares)  # eq. 27
        return min(1.0, max(0.0, share))

    def _told(self, tell: Tell) -> None:
        if not self._plain:
            self._estimates.advance(int(self.table.candidate[tell.seq]))
        super()._told(tell)

    def _grown(self) -> None:
        if not self._plain:
            n_new = self.table.n_candidates - len(self._round)
            self._round = np.append(self._round, np.full(n_new, -1))
            self._rest = None
            self._predictions.grow()
            self._estimates.grow()
        super()._grown()

    def _mean_of(self, candidate: int, seen: float) -> float:
        """Return equation 3, or the plain mean once no example is left."""
        if self._plain:
            return seen
        tally = self._estimates.of(candidate)
        all_told = tally.at == self.table.n_examples
        return tally.mean if tally.n and not all_told else seen

    def _belief(self) -> Belief:
        seen = self.table.mean()
        if self._plain:
            return Belief(seen)
        means = np.array([self._mean_of(i, mean) for i, mean in enumerate(seen.tolist())])
        if self._interval == "betting" and self._uniform:
            return Belief(means)
        return Belief(means, self._freedman_bounds(means))

    def _freedman_bounds(self, means: FloatArray) -> Bounds:
        tallies = [self._estimates.of(i) for i in range(self.table.n_candidates)]
        means = np.nan_to_num(np.clip(means, 0.0, 1.0), nan=0.5)
        lower, upper = freedman(
            means,
            np.array([tally.variance for tally in tallies]),
            np.array([tally.n for tally in tallies]),
            (1.0 - self.problem.confidence) / max(1, len(tallies)),
            bound=2.0 / (1.0 - self._focus),  # theorem 1; draws are (1 - focus) / |U| likely
        )
        known = self.table.n_scored == self.table.n_examples
        return np.where(known, means, lower), np.where(known, means, upper)
