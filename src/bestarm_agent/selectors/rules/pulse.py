"""PULSE: UCB-E on doubly robust means, which predictions learned from past models sharpen.

Tolochinsky, Tenzer and Romano 2026, "Valid Best-Model Identification for LLM Evaluation via
Low-Rank Factorization", Algorithm 1; its models are the candidates here:

    Stage 1: initialisation
     4  fit (U_train, V) to the scores of past models; freeze V        (``stats.history``)
     5  for each model i: evaluate one batch of B random examples      (T_0 = 1)
     9  refit U to the observed entries; predictions S^ = sigma(U'V)
    10  lambda_i = 0
    Stage 2: bandit loop
    13  i = argmax of mu_i + sqrt(a / |O_i|), among models with |O_i| < n
    14  every tau steps: refit U to what is observed now; S^ anew
    17  lambda_i by step 3
    18  sample a batch B_t of B examples from U_i, those that i has not seen
    19  evaluate
    20  update mu_i

mu_i is the average (equation 3) of one estimate for each pull (equation 2), whose predictions,
weight and examples left are fixed before the draw. Its mean is the model's mean whatever the
predictions are (lemma 1), so useless ones cost pulls and not correctness:

    theta = (sum_{O_i} S_ij + lambda sum_{U_i} S^_ij + Z) / n,  Z = |U_i| (S_ij - lambda S^_ij)  (2)
    lambda = clip(1 - F Z-bar / (|U_i| Phi), 0, 1)                                              (27)

with F and Phi the sums of the predictions over U_i and of their squares, and Z-bar the mean of Z so
far. The pulls of a batch share all but Z, which is the paper's batch form.

Where this differs. Models do not touch each other once V is frozen, so a model is refitted (lines 9
and 14) when a batch of its own begins. A round of refits comes every 10 steps, not 1,000: it costs
little here, and finds the best model with fewer calls. In flight, a pull's prediction and weight
are those at its ask, mu_i rests on the pulls up to the first that is not told, and |O_i| counts
pending pulls. A void pull is left out, and so is its example.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.rules.ucb_e import UcbE, left_of_batch
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import Belief, FloatArray, Problem, State, Tell
from bestarm_agent.stats.arrays import SingleArray
from bestarm_agent.stats.history import Factors, HistoryModel

_UNSEEN, _PENDING, _VOID = int(State.UNSEEN), int(State.PENDING), int(State.VOID)
_DONE, _FAILED = int(State.DONE), int(State.FAILED)


class Pulse(UcbE):
    """UCB-E whose means are averages of doubly robust one-step estimates: lines 5, 6, 13 and 18.

    Each candidate's first batch is its warm-up, and counts. The intervals are those of the raw
    scores: they hold at every time, and are blind to predictions.

    Args:
        history: what was learned from past candidates on the same examples, in the same order.
            Without it, or if it does not predict held-out candidates, the rule is UCB-E with the
            same ``a`` and ``batch``.
        a: exploration, > 0.
        batch: pulls of the same candidate per step, >= 1.
        tau: steps between rounds of refits, >= 1.
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
    ) -> None:
        if not a > 0:
            raise ValueError(f"a must be > 0, got {a}")
        if tau < 1:
            raise ValueError(f"tau must be at least 1 step, got {tau}")
        super().__init__(problem, eta=a, batch=batch)
        self.tau = tau
        self._predictions: Predictions | None = None  # None: plain means
        if history is not None:
            predictions = Predictions(history.factors, self.table)
            self._predictions = predictions if history.validation.is_useful else None
        self._n_steps = 0  # t: batches begun in stage 2
        self._round = np.full(problem.n_candidates, -1)  # of refits, each candidate's last
        self._step: Step | None = None  # of the batch under way
        self._draws: list[tuple[Step, float]] = []  # step and prediction, by number of the ask
        self._estimates = [Estimate() for _ in range(problem.n_candidates)]
        self._mu = np.full(problem.n_candidates, np.nan)  # equation 3; NaN: plain mean

    @property
    def uses_history(self) -> bool:
        """True if predictions are in use."""
        return self._predictions is not None

    def asked(self, seq: int) -> None:
        """Lines 9, 10, 14 and 17 as a batch begins; fix the pull's part of equation 2."""
        if self._predictions is None:
            return
        candidate, example = int(self.table.candidate[seq]), int(self.table.example[seq])
        begins = left_of_batch(self.table, self.batch) == self.batch - 1
        if begins or self._step is None:
            self._step = self._begin(self._predictions, candidate, example)
        self._draws.append((self._step, float(self._predictions.row(candidate)[example])))

    def told(self, tell: Tell) -> None:
        """Line 20, for the pulls that are told up to the first pending one."""
        if self._predictions is None:
            return
        candidate, table = int(self.table.candidate[tell.seq]), self.table
        estimate, trials = self._estimates[candidate], table.row(candidate)
        while estimate.at < len(trials) and (state := table.state[trials[estimate.at]]) != _PENDING:
            pull = trials[estimate.at]
            score = None if state == _VOID else float(table.score[pull])
            estimate.take(*self._draws[pull], score)
        is_complete = estimate.at == table.n_examples  # then the plain mean is exact
        self._mu[candidate] = estimate.mean if estimate.n and not is_complete else np.nan

    def belief(self) -> Belief:
        """Return mu_i."""
        return Belief(np.where(np.isnan(self._mu), self.table.mean(), self._mu))

    def changed(self) -> None:
        """Make room for candidates."""
        n_new = self.table.n_candidates - len(self._round)
        self._round = np.append(self._round, np.full(n_new, -1))
        self._mu = np.append(self._mu, np.full(n_new, np.nan))
        self._estimates += [Estimate() for _ in range(n_new)]
        self._step = None
        if self._predictions is not None:
            self._predictions.grow()

    def _begin(self, predictions: Predictions, candidate: int, example: int) -> Step:
        """Begin a batch with ``example``, which is pending already."""
        if self.table.n_unseen_of(candidate) + 1 < self.table.n_examples:  # stage 2
            due = self._n_steps // self.tau  # lines 9 and 14
            self._n_steps += 1
            if self._round[candidate] < due and predictions.refit(candidate):
                self._round[candidate] = due
        left = self.table.cells[candidate] == _UNSEEN
        left[example] = True
        guesses = predictions.row(candidate)[left].astype(float)
        total, squares = float(guesses.sum()), float(guesses @ guesses)  # F, Phi
        is_first, weight = bool(self._round[candidate] < 0), 0.0  # stage 1 and line 10
        if not is_first:  # line 17: equation 27
            excess = total * self._estimates[candidate].mean_residual / (len(guesses) * squares)
            weight = min(1.0, max(0.0, 1.0 - excess))
        return Step(weight, total, len(guesses), self.table.n_examples, is_first)


@dataclass(frozen=True, slots=True)
class Step:
    """Values of equation 2 that are fixed before the draws of a batch."""

    weight: float  # lambda in [0, 1]
    predicted: float  # F, the sum of the predictions of the examples left
    n_left: int  # |U_i|
    n_examples: int  # n
    is_first: bool  # before the first refit, when predictions play no part


@dataclass(slots=True)
class Estimate:
    """mu_i of one candidate, from its pulls as far as all before them are told."""

    at: int = 0  # pulls taken
    n: int = 0  # those that were scored
    mean: float = 0.0  # equation 3
    n_residual: int = 0
    residual: float = 0.0  # summed Z of the pulls after the first refit
    step: Step | None = None  # of the latest pull
    total: float = 0.0  # summed scores
    void: int = 0
    seen: float = 0.0  # ``total`` when the step began: the sum over O_i
    seen_void: int = 0

    @property
    def mean_residual(self) -> float:
        """Z-bar: 0 where there is none."""
        return self.residual / self.n_residual if self.n_residual else 0.0

    def take(self, step: Step, prediction: float, score: float | None) -> None:
        """Take in the next pull: its step, S^_ij and S_ij, None where it is void."""
        self.at += 1
        if score is None:
            self.void += 1
            return
        if step is not self.step:
            self.step, self.seen, self.seen_void = step, self.total, self.void
        residual = (score - step.weight * prediction) * step.n_left  # Z
        known = self.seen + step.weight * step.predicted
        theta = (known + residual) / (step.n_examples - self.seen_void)  # equation 2
        self.n += 1
        self.mean += (theta - self.mean) / self.n  # equation 3
        if not step.is_first:
            self.residual += residual
            self.n_residual += 1
        self.total += score


class Predictions:
    """Predicted scores S^: candidates' rows of sigma(U'V), refitted when asked to.

    A candidate stays at its last fit until ``refit``; before the first it is the average past
    candidate. Rows are worked out when they are first looked at.
    """

    def __init__(self, factors: Factors, table: ScoreTable) -> None:
        self._factors = factors.of(table.n_examples)
        self._table = table
        self._positions: list[FloatArray] = []  # u_i
        self._n_fitted: list[int] = []
        self._rows: dict[int, SingleArray] = {}
        self.grow()

    def grow(self) -> None:
        """Make room for candidates that joined the table."""
        n_new = self._table.n_candidates - len(self._positions)
        self._positions += [np.zeros(self._factors.rank) for _ in range(n_new)]
        self._n_fitted += [0] * n_new

    def row(self, candidate: int) -> SingleArray:
        """(N,) predicted scores in (0, 1); not to be changed."""
        if candidate not in self._rows:
            self._rows[candidate] = self._factors.predict(self._positions[candidate])
        return self._rows[candidate]

    def refit(self, candidate: int) -> bool:
        """Fit a candidate to all its scores; return whether there were new ones."""
        table = self._table
        trials = np.asarray(table.row(candidate))
        state = table.state[trials]
        scored = trials[(state == _DONE) | (state == _FAILED)]
        if len(scored) == self._n_fitted[candidate]:
            return False
        self._positions[candidate] = self._factors.locate(
            table.example[scored], table.score[scored], self._positions[candidate]
        )
        self._n_fitted[candidate] = len(scored)
        self._rows.pop(candidate, None)
        return True
