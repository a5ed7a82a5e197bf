"""UCB-E-LRF: optimistic means and the choice of examples from an ensemble of low-rank models.

Zhou et al. 2024, "On Speeding Up Language Model Evaluation", Algorithms 2 and 6. Meant for many
close candidates on examples with much in common. The model decides which example is seen, so its
means are biased towards examples on which models disagree, and nothing is guaranteed.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from scipy.stats import norm

from bestarm_agent.selectors.lrf import LowRankSelector
from bestarm_agent.selectors.row_mean import random_pair
from bestarm_agent.selectors.types import (
    Ask,
    BoolArray,
    Choice,
    FloatArray,
    Pair,
    Problem,
    State,
    Tell,
)

_UNSEEN, _PENDING = int(State.UNSEEN), int(State.PENDING)
_SWEEPS_AGAIN = 3  # from the last fit


class UcbELrfScoreOnly(LowRankSelector):
    """UCB-E whose means come from the low-rank model: the paper's ablation.

    Begins with uniformly random pairs. Then it pulls the candidate of the highest
    mean + sqrt(eta / pulls) ``batch`` times, on uniformly random examples, and fits the model
    again.

    In flight: the model is fitted whenever ``batch`` more outcomes are told, or the batch is asked
    and nothing is pending; a fit ends the batch under way, so what follows uses it. Between fits,
    pending pulls count as seen in the width, as void ones do; a candidate with void pulls only is
    taken to score 0. Random pairs are asked until as many are told as the warm-up wants. With one
    call in flight all this is the paper's algorithm, step by step.

    A rebuilt selector repeats every fit of the log it is fed.

    Args:
        problem: K, N, seed and the rest.
        eta: uncertainty scaling, > 0; the paper uses 5.
        warm_up: share T0 / (K N) of the grid to evaluate at random first, in [0, 1); the paper
            uses 5 %.
        batch: pulls between fits, >= 1; the paper uses 32.
        warm_start: whether a fit begins where the last one ended; the published program begins
            every one anew.
        model: see ``LowRankSelector``.

    Raises:
        ValueError: a parameter is out of range.

    Example:
        >>> selector = UcbELrfScoreOnly(Problem(n_candidates=4, n_examples=50), batch=8)
        >>> len(selector.ask(10))
        10
    """

    name: ClassVar[str] = "ucb-e-lrf-score-only"

    def __init__(
        self,
        problem: Problem,
        *,
        eta: float = 5.0,
        warm_up: float = 0.05,
        batch: int = 32,
        warm_start: bool = True,
        **model: Any,  # noqa: ANN401 - the base class says what they are
    ) -> None:
        if not eta > 0:
            raise ValueError(f"eta must be > 0, got {eta}")
        if not 0 <= warm_up < 1:
            raise ValueError(f"warm_up must be in [0, 1), got {warm_up}")
        if batch < 1:
            raise ValueError(f"batch must be at least 1, got {batch}")
        super().__init__(problem, **model)
        self.eta, self.warm_up, self.batch, self.warm_start = eta, warm_up, batch, warm_start
        self._n_fits = 0
        self._n_told = 0
        self._since_fit: list[int] = []  # asks told since the last fit
        self._current, self._left = 0, 0  # the candidate of this batch, pulls left in it

    def _choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        if self._ensemble is None:
            return random_pair(self, allowed, rng)
        if self._left and allowed[self._current]:
            candidate = self._current
        else:
            index = np.where(allowed, self._index(), -np.inf)
            ties = np.flatnonzero(index == index.max())
            candidate = int(ties[rng.integers(len(ties))])
        return self._pull(candidate, rng)

    def _pull(self, candidate: int, rng: np.random.Generator) -> Choice:
        example, propensity = self.draw_unseen(candidate, rng)
        return Choice(Pair(candidate, example), propensity, "ucb")

    def _index(self) -> FloatArray:
        """(K,) B_i, pulls weighed by cost; infinite for candidates that were never pulled."""
        table = self.table
        never_worked = (table.n_scored == 0) & (table.count(State.VOID) > 0)
        means = np.where(never_worked, 0.0, self._predicted_means())
        bonus = self._bonus() / np.sqrt(self.weights)
        return np.where(table.n_trials > 0, means + bonus, np.inf)

    def _bonus(self) -> FloatArray:
        """Algorithm 6, line 2: sqrt(eta / |S_i|)."""
        return np.sqrt(self.eta / np.maximum(self.table.n_trials, 1))

    def _asked(self, ask: Ask) -> None:
        if self._ensemble is not None:
            candidate = ask.pair.candidate
            same = self._left > 0 and candidate == self._current
            self._current, self._left = candidate, (self._left if same else self.batch) - 1
            if not self.table.n_unseen_of(candidate):
                self._left = 0

    def _told(self, tell: Tell) -> None:
        super()._told(tell)
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
        return self._left == 0 and self._n_told == table.n_asked

    def _refit(self) -> None:
        if self._ensemble is not None and self.warm_start:
            self._fit(self._ensemble, _SWEEPS_AGAIN, self._n_fits)
        else:
            self._ensemble = self._fitted_anew(self._n_fits)
        self._n_fits += 1
        self._since_fit.clear()
        self._left = 0


class UcbELrf(UcbELrfScoreOnly):
    """UCB-E on the mean and the uncertainty of the low-rank ensemble.

    Begins with uniformly random pairs. Then it takes the candidate of the highest
    mean + eta x mean spread, pulls it on the ``batch`` unseen examples of the largest spread, and
    fits the model again.

    In flight: fits and the warm-up are those of ``UcbELrfScoreOnly``. Between fits the spread of a
    pair that was asked counts as 0, until a fit has seen its score. With one call in flight the
    rule is the paper's, step by step.

    The intervals are a model's opinion: a normal quantile at the joint level times a standard
    deviation that has two parts, the members' row means (a delete-d jackknife, hence widened by
    sqrt((1 - drop) / drop)) and the chance of unseen 0/1 scores; cut to what is certain. Until the
    first fit they say only what is certain.

    Args:
        problem: K, N, seed and the rest.
        bonus: "all": the spread of all N examples enters the bonus, as in the paper; "unobserved":
            that of unseen ones only, as in its published program.
        spread: "population": standard deviation over K_ens, as in the paper; "unbiased": over
            K_ens - 1, as in its program.
        rule: see ``UcbELrfScoreOnly`` and ``LowRankSelector``.

    Raises:
        ValueError: a parameter is out of range.

    Example:
        >>> selector = UcbELrf(Problem(n_candidates=4, n_examples=50), batch=8)
        >>> len(selector.ask(10))
        10
    """

    name: ClassVar[str] = "ucb-e-lrf"
    exogenous: ClassVar[bool] = False

    def __init__(
        self,
        problem: Problem,
        *,
        bonus: Literal["all", "unobserved"] = "all",
        spread: Literal["population", "unbiased"] = "population",
        **rule: Any,  # noqa: ANN401 - the base classes say what they are
    ) -> None:
        if bonus not in ("all", "unobserved"):
            raise ValueError(f"bonus must be 'all' or 'unobserved', got {bonus!r}")
        if spread not in ("population", "unbiased"):
            raise ValueError(f"spread must be 'population' or 'unbiased', got {spread!r}")
        super().__init__(problem, **rule)
        self.bonus = bonus
        self._unbiased = spread == "unbiased"
        self._spread_totals: FloatArray = np.empty(0)
        self._row_spreads: tuple[int, FloatArray] = (-1, np.empty(0))  # of one candidate

    def _pull(self, candidate: int, rng: np.random.Generator) -> Choice:
        """Algorithm 2, line 4: the unseen example of the largest spread, ties at random."""
        spreads = self._spreads_of(candidate)
        spreads = np.where(self.table.cells[candidate] == _UNSEEN, spreads, -1.0)
        ties = np.flatnonzero(spreads == spreads.max())
        example = int(ties[rng.integers(len(ties))])
        return Choice(Pair(candidate, example), None, "spread")

    def _spreads_of(self, candidate: int) -> FloatArray:
        if self._row_spreads[0] != candidate:
            [spreads] = self._fitted().spreads([candidate], unbiased=self._unbiased)
            self._row_spreads = (candidate, spreads)
        return self._row_spreads[1]

    def _bonus(self) -> FloatArray:
        """Algorithm 2, line 2: eta / m sum_j R_ij, less pairs asked since the fit."""
        pending = np.flatnonzero(self.table.state == _PENDING)
        asked = np.concatenate([pending, np.array(self._since_fit, dtype=np.intp)])
        who = self.table.candidate[asked].astype(np.intp)
        spreads = self._fitted().cell_spreads(
            who, self.table.example[asked].astype(np.intp), unbiased=self._unbiased
        )
        totals = self._spread_totals - np.bincount(who, spreads, self.table.n_candidates)
        return self.eta / self.table.n_examples * totals

    def _refit(self) -> None:
        super()._refit()
        self._measure_spreads()

    def _grown(self) -> None:
        super()._grown()
        self._measure_spreads()

    def _measure_spreads(self) -> None:
        self._row_spreads = (-1, np.empty(0))
        if self._ensemble is not None:
            without = self.table.observed() if self.bonus == "unobserved" else None
            self._spread_totals = self._ensemble.spread_totals(without, unbiased=self._unbiased)

    def _bounds(self) -> tuple[FloatArray, FloatArray]:
        if not self.problem.track_intervals:
            return super()._bounds()
        table = self.table
        certain = table.total / table.n_examples
        possible = certain + (table.n_examples - table.n_scored) / table.n_examples
        if self._ensemble is None or self._ensemble.drop == 0:
            return certain, possible
        means = self._predicted_means()
        level = (1 - self.problem.confidence) / (2 * table.n_candidates)
        reach = norm.isf(level) * np.sqrt(self._jackknife_variance() + self._chance_variance())
        lower = np.clip(means - reach, certain, possible)
        return lower, np.clip(means + reach, lower, possible)

    def _jackknife_variance(self) -> FloatArray:
        ensemble, cells = self._fitted(), self._seen_cells()
        members: FloatArray = ensemble.member_means(cells).var(axis=1)
        return (1 - ensemble.drop) / ensemble.drop * members

    def _chance_variance(self) -> FloatArray:
        """Of the unseen scores' share in the row mean, at (1 + total) / (2 + n) right."""
        n, n_examples = self.table.n_scored, self.table.n_examples
        right = (1 + self.table.total) / (2 + n)
        return (n_examples - n) / n_examples**2 * right * (1 - right)
