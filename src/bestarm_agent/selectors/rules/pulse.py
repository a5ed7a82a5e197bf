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

from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.selectors.types import Belief, Problem, State, Tell
from bestarm_agent.stats.arrays import FloatArray, SingleArray
from bestarm_agent.stats.history import Factors, HistoryModel

_PENDING, _VOID = int(State.PENDING), int(State.VOID)


class Pulse(UcbE):
    """UCB-E whose means are averages of doubly robust one-step estimates: lines 5, 6, 13 and 18.

    Each candidate's first batch is its warm-up, and counts. The intervals hold at every time,
    whatever the predictions are (``stats.control``).

    Args:
        history: what was learned from past candidates on the same examples, in the same order.
            Without it, or if it does not predict held-out candidates, the rule is UCB-E with the
            same ``a`` and ``batch``.
        a: exploration, > 0.
        batch: pulls of the same candidate per step, >= 1.
        tau: steps between rounds of refits, >= 1.

    Example:
        >>> from bestarm_agent.selectors import Problem, State, Tell, make_selector
        >>> pairs = make_selector("pulse", Problem(n_candidates=3, n_examples=20), batch=4)
        >>> while asks := pairs.ask():  # candidate 2 is right everywhere, the others nowhere
        ...     right = float(asks[0].pair.candidate == 2)
        ...     pairs.tell([Tell(asks[0].seq, State.DONE, right)])
        >>> pairs.answer.best().best
        2
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
        self.answer.learn(history)
        self.tau = tau
        self._factors = self.answer.factors  # None: history is of no use, and means are plain
        self.uses_history = self._factors is not None
        self._n_steps = 0  # t: batches begun in stage 2
        self._n_in_a_row = 0  # latest pulls of the batch under way
        self._step: Step | None = None  # of this batch
        self._draws: list[tuple[Step, float]] = []  # step and prediction, by number of the ask
        self._predictions: list[Predictions] = []
        self._estimates: list[Estimate] = []
        self._mu = np.empty(0)  # equation 3; NaN: plain mean
        self.changed()

    def told(self, tell: Tell) -> None:
        """Line 20, for the pulls that are told up to the first pending one."""
        if self._factors is None:
            return
        self._draw()
        candidate, table = int(self.table.candidate[tell.seq]), self.table
        if tell.state is not State.VOID:
            self._predictions[candidate].scored.append((int(table.example[tell.seq]), tell.score))
        estimate = self._estimates[candidate]
        # Equation 3 is an average over pulls in ask order. Taking a later pull before an earlier
        # one that is pending would weigh scores by how fast they come.
        for pull in table.row(candidate)[estimate.n + estimate.void :]:
            if (state := table.state[pull]) == _PENDING:
                break
            score = None if state == _VOID else float(table.score[pull])
            estimate.take(*self._draws[pull], score)
        is_complete = estimate.n + estimate.void == table.n_examples  # then the plain mean is exact
        self._mu[candidate] = estimate.mean if estimate.n and not is_complete else np.nan

    def belief(self) -> Belief:
        """Return mu_i."""
        return Belief(np.where(np.isnan(self._mu), self.table.mean(), self._mu))

    def changed(self) -> None:
        """Make room for candidates."""
        n_new = self.table.n_candidates - len(self._mu)
        self._mu = np.append(self._mu, np.full(n_new, np.nan))
        if self._factors is not None:
            self._draw()
            average = self._factors.predict(np.zeros(self._factors.rank))
            self._predictions += [Predictions(self._factors, average) for _ in range(n_new)]
            self._estimates += [Estimate() for _ in range(n_new)]
        self._step = None

    def _draw(self) -> None:
        """Fix each new pull's part of equation 2: its prediction, and its batch's step."""
        table = self.table
        for seq in range(len(self._draws), table.n_asked):
            candidate, example = int(table.candidate[seq]), int(table.example[seq])
            # A batch is a run of asks of one candidate, cut after ``batch`` of them. So it can be
            # told from the log alone, and a resumed run cuts the same batches.
            goes_on = seq > 0 and table.candidate[seq - 1] == candidate
            self._n_in_a_row = self._n_in_a_row % self.batch + 1 if goes_on else 1
            if self._n_in_a_row == 1 or self._step is None:
                self._step = self._begin(candidate, int(table.position[seq]))
            self._draws.append((self._step, float(self._predictions[candidate].row[example])))

    def _begin(self, candidate: int, position: int) -> Step:
        """Begin a batch with a candidate's pull number ``position``, from 0."""
        predictions, n_examples = self._predictions[candidate], self.table.n_examples
        if position:  # stage 2
            predictions.refit(self._n_steps // self.tau)  # lines 9 and 14
            self._n_steps += 1
        seen = self.table.example[self.table.row(candidate)[:position]]
        guesses = np.delete(predictions.row, seen).astype(float)  # of U_i
        total, squares = float(guesses.sum()), float(guesses @ guesses)  # F, Phi
        is_first, weight = predictions.round < 0, 0.0  # stage 1 and line 10
        if not is_first:  # line 17: equation 27
            past = self._estimates[candidate]
            residual = past.residual / max(1, past.n_residual)  # Z-bar
            # Outside [0, 1] predictions would count more than once, or against their sign.
            excess = total * residual / (len(guesses) * squares)
            weight = min(1.0, max(0.0, 1.0 - excess))
        return Step(weight, total, len(guesses), n_examples, is_first)


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

    n: int = 0  # pulls that were scored
    mean: float = 0.0  # equation 3
    n_residual: int = 0
    residual: float = 0.0  # summed Z of the pulls after the first refit
    step: Step | None = None  # of the latest pull
    total: float = 0.0  # summed scores
    void: int = 0
    seen: float = 0.0  # ``total`` when the step began: the sum over O_i
    seen_void: int = 0

    def take(self, step: Step, prediction: float, score: float | None) -> None:
        """Take in the next pull: its step, S^_ij and S_ij, None where it is void."""
        if score is None:
            self.void += 1
            return
        if step is not self.step:
            self.step, self.seen, self.seen_void = step, self.total, self.void
        # One score, weighted by the number of examples it was drawn from, corrects the sum of the
        # predictions for the examples left. So theta is unbiased whatever the predictions are.
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
    """Predicted scores S^ of one candidate: a row of sigma(U'V).

    Attributes:
        row: (N,) predictions in (0, 1) by the last fit; at first, of the average past candidate.
        round: number of refits at the last fit; -1 before the first.
        scored: examples and their scores, for the next fit.
    """

    def __init__(self, factors: Factors, average: SingleArray) -> None:
        self.row = average
        self.round = -1
        self._factors = factors
        self._position: FloatArray = np.zeros(factors.rank)  # u_i
        self.scored: list[tuple[int, float]] = []
        self._n_fitted = 0

    def refit(self, round_number: int) -> None:
        """Fit to all scores, once in each round of refits, if there are new ones."""
        # One fit for each round, and none without new scores: it would find the same position
        # again.
        if self.round >= round_number or len(self.scored) == self._n_fitted:
            return
        examples, scores = map(np.array, zip(*self.scored, strict=True))
        self._position = self._factors.locate(examples, scores, self._position)
        self.row = self._factors.predict(self._position)
        self.round, self._n_fitted = round_number, len(self.scored)
