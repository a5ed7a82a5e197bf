"""Doubly robust estimates of the candidates' means, fed in ask order.

Tolochinsky, Tenzer and Romano 2026, "Valid Best-Model Identification for LLM Evaluation via
Low-Rank Factorization", equations 2 to 5 and "From single-example to batch evaluation".

Before each draw the predictions, their weight and the examples left are fixed. One draw's estimate
is then (equation 2)

    (sum of the scores asked before + weight * sum of the predictions of the examples left
     + (score - weight * prediction of the drawn example) / probability of that draw) / N,

whose conditional mean is the candidate's mean whatever the predictions are (lemma 1). The average
of such estimates (equation 3) stays unbiased for any probabilities above 0; uniform draws in
batches, which share all but the last term, give the batch form of the paper.

In flight: a draw's estimate needs the scores of all draws asked before it, so draws enter in ask
order, as far as all of them are told. A void draw is left out, and so is its example.
"""

from __future__ import annotations

from dataclasses import dataclass

from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import State

_PENDING, _VOID = int(State.PENDING), int(State.VOID)


@dataclass(frozen=True, slots=True)
class Step:
    """Values fixed before one or more draws of a candidate's examples."""

    weight: float  # lambda in [0, 1]
    predicted: float  # sum of the predictions of the examples left
    n_left: int  # |U|, number of examples left
    n_examples: int  # N
    plain: bool = False  # whether predictions played no part (a warm-up draw of the paper's rule)


@dataclass(slots=True)
class Tally:
    """One candidate's draws so far, as far as all before them are told."""

    n: int = 0  # draws that were scored
    mean: float = 0.0  # equation 3, the average of their estimates
    squares: float = 0.0  # summed squared deviations of the estimates from their mean
    residual: float = 0.0  # summed Z of the draws that were not plain
    n_residual: int = 0  # number of those
    # sums over draws, reweighted to uniform ones: of 1, score, d, score * d, d * d, where d is
    # the prediction less its mean over the examples left
    ones: float = 0.0
    scores: float = 0.0
    offs: float = 0.0
    products: float = 0.0
    off_squares: float = 0.0
    # the prefix
    at: int = 0
    step: Step | None = None
    base: float = 0.0
    base_void: int = 0
    total: float = 0.0
    void: int = 0

    @property
    def variance(self) -> float:
        """Mean squared deviation of one draw's estimate."""
        return self.squares / self.n if self.n else 0.0

    @property
    def mean_residual(self) -> float:
        """Z-bar: 0 where there is none."""
        return self.residual / self.n_residual if self.n_residual else 0.0

    def slope(self, prior: float) -> float:
        """Regress scores on predictions: cov / var, drawn towards 1.

        Args:
            prior: imagined squared deviations of a calibrated prediction, for which the optimal
                weight (equation 5) is 1.
        """
        if self.off_squares + prior <= 0.0:
            return 0.0
        covariance = self.products - self.scores * self.offs / self.ones if self.n else 0.0
        return min(1.0, max(0.0, (covariance + prior) / (self.off_squares + prior)))

    def take(self, step: Step, prediction: float, inverse: float, score: float) -> None:
        """Add the next draw: its step, prediction, 1 / probability, and score."""
        if step is not self.step:
            self.step, self.base, self.base_void = step, self.total, self.void
        residual = (score - step.weight * prediction) * inverse  # Z, after eq. 2
        known = self.base + step.weight * step.predicted
        self._average((known + residual) / (step.n_examples - self.base_void))  # eq. 2
        if not step.plain:
            self.residual += residual
            self.n_residual += 1
        self._regress(prediction - step.predicted / step.n_left, score, inverse / step.n_left)
        self.total += score

    def _average(self, estimate: float) -> None:
        self.n += 1
        off = estimate - self.mean
        self.mean += off / self.n  # eq. 3
        self.squares += off * (estimate - self.mean)

    def _regress(self, off: float, score: float, share: float) -> None:
        self.ones += share
        self.scores += share * score
        self.offs += share * off
        self.products += share * score * off
        self.off_squares += share * off * off


class OneStepEstimates:
    """The tallies of all candidates of a table, which may grow."""

    def __init__(self, table: ScoreTable) -> None:
        self._table = table
        self._tallies: list[Tally] = []
        self._draws: list[tuple[Step, float, float]] = []
        self.grow()

    def grow(self) -> None:
        """Make room for candidates that joined the table."""
        n_new = self._table.n_candidates - len(self._tallies)
        self._tallies += [Tally() for _ in range(n_new)]

    def of(self, candidate: int) -> Tally:
        """One candidate's tally."""
        return self._tallies[candidate]

    def asked(self, step: Step, prediction: float, inverse: float) -> None:
        """Store step, prediction and 1 / probability of the next ask."""
        self._draws.append((step, prediction, inverse))

    def advance(self, candidate: int) -> None:
        """Add the draws of a candidate up to the first one that is pending."""
        tally, table = self._tallies[candidate], self._table
        trials, state = table.row(candidate), table.state
        while tally.at < len(trials) and (known := state[trials[tally.at]]) != _PENDING:
            seq = trials[tally.at]
            if known == _VOID:
                tally.void += 1
            else:
                tally.take(*self._draws[seq], float(table.score[seq]))
            tally.at += 1
