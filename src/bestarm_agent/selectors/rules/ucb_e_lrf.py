"""UCB-E-LRF: optimistic means and the choice of examples from an ensemble of low-rank models.

Zhou et al. 2024, "On Speeding Up Language Model Evaluation", Algorithms 2 and 6. Meant for many
close candidates on examples with much in common. The model decides which example is seen, so its
means are biased towards examples on which models disagree, and nothing is guaranteed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtri

from bestarm_agent.selectors.rules.lrf import LowRankRule, random_pair
from bestarm_agent.selectors.rules.ucb_e import highest, left_of_batch
from bestarm_agent.selectors.types import (
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

_UNSEEN, _PENDING = int(State.UNSEEN), int(State.PENDING)
_SWEEPS_AGAIN = 3  # from the last fit


class UcbELrf(LowRankRule):
    """UCB-E on the mean and the uncertainty of the low-rank ensemble (Algorithm 2).

    Begins with uniformly random pairs. Then it takes the candidate of the highest index, pulls it
    on the ``batch`` unseen examples of the largest spread, and fits the model again.

    In flight: the model is fitted whenever ``batch`` more outcomes are told, or the batch is asked
    and nothing is pending; a fit ends the batch under way. Until a fit has seen the score of a pair
    that was asked, its spread counts as 0; a candidate with void pulls only is taken to score 0.
    Random pairs are asked until as many are told as the warm-up wants. With one call in flight the
    rule is the paper's, step by step.

    The intervals are a model's opinion: a normal quantile at the joint level times a standard
    deviation that has two parts, the members' row means (a delete-d jackknife, hence widened by
    sqrt((1 - drop) / drop)) and the chance of unseen 0/1 scores; cut to what is certain. Until the
    first fit they say only what is certain.

    Args:
        eta: uncertainty scaling, > 0; the paper uses 5.
        warm_up: share T0 / (K N) of the grid to evaluate at random first, in [0, 1); the paper
            uses 5 %.
        batch: pulls b between fits, >= 1; the paper uses 32.
        model: see ``LowRankRule``.
    """

    name: ClassVar[str] = "ucb-e-lrf"
    exogenous: ClassVar[bool] = False

    def __init__(
        self,
        problem: Problem,
        *,
        eta: float = 5.0,
        warm_up: float = 0.05,
        batch: int = 32,
        **model: Any,  # noqa: ANN401 - the base class says what they are
    ) -> None:
        if not eta > 0:
            raise ValueError(f"eta must be > 0, got {eta}")
        if not 0 <= warm_up < 1:
            raise ValueError(f"warm_up must be in [0, 1), got {warm_up}")
        if batch < 1:
            raise ValueError(f"batch must be at least 1, got {batch}")
        super().__init__(problem, **model)
        self.eta, self.warm_up = eta, warm_up
        self.batch = batch
        self._fitted_at = 0  # asks before the last fit
        self._n_fits = 0
        self._n_told = 0
        self._since_fit: list[int] = []  # asks told since the last fit
        self._spread_totals: FloatArray = np.empty(0)
        self._row_spreads: tuple[int, FloatArray] = (-1, np.empty(0))  # of one candidate

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        """Pull the candidate of the batch, or that of the highest index."""
        if self._ensemble is None:
            return random_pair(self, allowed, rng)
        candidate = self.table.latest
        if not (self.left and allowed[candidate]):
            candidate = highest(np.where(allowed, self._index(), -np.inf), rng)
        return self._pull(candidate, rng)

    def _index(self) -> FloatArray:
        """(K,) B_i = mean_i + bonus_i, infinite for candidates that were never pulled (line 2)."""
        table = self.table
        never_worked = (table.n_scored == 0) & (table.count(State.VOID) > 0)
        means = np.where(never_worked, 0.0, self._predicted_means())
        bonus = self._bonus() / np.sqrt(self.weights)  # pulls weighed by cost
        return np.where(table.n_trials > 0, means + bonus, np.inf)

    @property
    def left(self) -> int:
        """Pulls of the batch under way that are still to be asked."""
        if self._ensemble is None or not self.table.n_unseen_of(self.table.latest):
            return 0
        return left_of_batch(self.table, self.batch, self._fitted_at)

    def told(self, tell: Tell) -> None:
        """Fit the model if it is time to."""
        super().told(tell)
        self._n_told += 1
        self._since_fit.append(tell.seq)
        if self._is_time_to_fit():
            self._refit()

    def _is_time_to_fit(self) -> bool:
        table = self.table
        if self._ensemble is None:
            wanted = self.warm_up * table.n_candidates * table.n_examples
            return self._n_told >= wanted - 1e-9
        if len(self._since_fit) >= self.batch:
            return True
        return self.left == 0 and self._n_told == table.n_asked

    def _pull(self, candidate: int, rng: np.random.Generator) -> Choice:
        """Take the unseen example of the largest R_ij (Algorithm 2, line 4), ties at random."""
        spreads = self._spreads_of(candidate)
        unseen = self.table.cells[candidate] == _UNSEEN
        example = highest(np.where(unseen, spreads, -1.0), rng)
        return Choice(Pair(candidate, example), None, "spread")

    def _spreads_of(self, candidate: int) -> FloatArray:
        if self._row_spreads[0] != candidate:
            [spreads] = self._fitted().spreads([candidate])
            self._row_spreads = (candidate, spreads)
        return self._row_spreads[1]

    def _bonus(self) -> FloatArray:
        """(K,) eta / m sum_j R_ij (Algorithm 2, line 2), less pairs asked since the fit."""
        pending = np.flatnonzero(self.table.state == _PENDING)
        asked = np.concatenate([pending, np.array(self._since_fit, dtype=np.intp)])
        who = self.table.candidate[asked].astype(np.intp)
        spreads = self._fitted().cell_spreads(who, self.table.example[asked].astype(np.intp))
        totals = self._spread_totals - np.bincount(who, spreads, self.table.n_candidates)
        return self.eta / self.table.n_examples * totals

    def _refit(self) -> None:
        if self._ensemble is not None:
            self._fit(self._ensemble, _SWEEPS_AGAIN, self._n_fits)
        else:
            self._ensemble = self._fitted_anew(self._n_fits)
        self._n_fits += 1
        self._since_fit.clear()
        self._fitted_at = self.table.n_asked
        self._measure_spreads()

    def changed(self) -> None:
        """Let the model grow."""
        super().changed()
        self._measure_spreads()

    def _measure_spreads(self) -> None:
        self._row_spreads = (-1, np.empty(0))
        if self._ensemble is not None:
            self._spread_totals = self._ensemble.spread_totals()

    def belief(self) -> Belief:
        """Return the model's row means and intervals."""
        belief = super().belief()
        return replace(belief, bounds=self._bounds()) if self.problem.track_intervals else belief

    def _bounds(self) -> Bounds:
        table = self.table
        certain = table.total / table.n_examples
        possible = certain + (table.n_examples - table.n_scored) / table.n_examples
        if self._ensemble is None or self._ensemble.drop == 0:
            return certain, possible
        means = self._predicted_means()
        level = (1 - self.problem.confidence) / (2 * table.n_candidates)
        reach = -ndtri(level) * np.sqrt(self._jackknife_variance() + self._chance_variance())
        lower = np.clip(means - reach, certain, possible)
        return lower, np.clip(means + reach, lower, possible)

    def _jackknife_variance(self) -> FloatArray:
        ensemble, cells = self._fitted(), self._seen_cells()
        members: FloatArray = ensemble.member_means(cells).var(axis=1)
        return (1 - ensemble.drop) / ensemble.drop * members

    def _chance_variance(self) -> FloatArray:
        """(K,) variance of the unseen part of the row mean, (1 + total) / (2 + n) being right."""
        n, n_examples = self.table.n_scored, self.table.n_examples
        right = (1 + self.table.total) / (2 + n)
        return (n_examples - n) / n_examples**2 * right * (1 - right)
