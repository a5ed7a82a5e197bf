"""What rules share that complete the score matrix by a low-rank model.

Zhou et al. 2024, "On Speeding Up Language Model Evaluation", section 3.2 and Algorithm 5.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import (
    Belief,
    BoolArray,
    Choice,
    FloatArray,
    Pair,
    Problem,
    State,
    Tell,
)
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.stats.models.low_rank import LowRankEnsemble
from bestarm_agent.stats.models.observed_cells import SeenCells

_DONE, _FAILED = int(State.DONE), int(State.FAILED)
SWEEPS = 10  # of least squares; from an even start three to five already agree to .001


class LowRankRule(Rule):
    """A rule that looks at scores through an ensemble of low-rank models.

    Estimates are row means in which unseen scores, pending and void ones too, are predicted. They
    are a model's opinion, whatever the guarantee of the intervals.

    Args:
        rank: of the model, >= 1.
        members: number K_ens of models in the ensemble, >= 2.
        drop: probability with which a model leaves a seen pair out, in [0, 1).
        ridge: penalty on squared factors, >= 0; the paper has none, its published program 0.1.
    """

    _model: ClassVar[type[LowRankEnsemble]] = LowRankEnsemble

    def __init__(
        self,
        problem: Problem,
        *,
        rank: int = 1,
        members: int = 64,
        drop: float = 0.05,
        ridge: float = 0.0,
    ) -> None:
        super().__init__(problem)
        self._rank, self._members, self._drop = rank, members, drop
        self._ridge = ridge
        self._fit_random = KeyedRandom(problem.seed, "low-rank")
        self._seen: SeenCells | None = None  # None: to be gathered again
        self._ensemble: LowRankEnsemble | None = None
        self._new_ensemble(0)  # checks the parameters

    def _seen_cells(self) -> SeenCells:
        if self._seen is None:
            table = self.table
            told = np.flatnonzero((table.state == _DONE) | (table.state == _FAILED))
            self._seen = SeenCells(
                table.candidate[told],
                table.example[told],
                table.score[told],
                (table.n_candidates, table.n_examples),
            )
        return self._seen

    def _new_ensemble(self, number: int) -> LowRankEnsemble:
        return self._model(
            self.table.n_candidates,
            self.table.n_examples,
            self._fit_random.at(2 * number),
            rank=self._rank,
            n_members=self._members,
            drop=self._drop,
            ridge=self._ridge,
        )

    def _fit(self, ensemble: LowRankEnsemble, n_sweeps: int, number: int) -> None:
        ensemble.fit(self._seen_cells(), n_sweeps, self._fit_random.at(2 * number + 1))

    def _fitted_anew(self, number: int) -> LowRankEnsemble:
        """Fit a new ensemble to all scores; ``number`` keys its random numbers."""
        ensemble = self._new_ensemble(number)
        self._fit(ensemble, SWEEPS, number)
        return ensemble

    def told(self, tell: Tell) -> None:
        """Gather the scores anew."""
        self._seen = None

    def changed(self) -> None:
        """Let the model grow."""
        self._seen = None
        if self._ensemble is not None:
            self._ensemble.grow(self.table.n_candidates, self.table.n_examples)

    def belief(self) -> Belief:
        """Return row means in which unseen scores are predicted."""
        if self._ensemble is None:
            return super().belief()
        return Belief(np.where(self.table.n_scored > 0, self._predicted_means(), np.nan))

    def _predicted_means(self) -> FloatArray:
        """(K,) row means, by the model even where no score was seen."""
        return self._fitted().means(self._seen_cells())

    def _fitted(self) -> LowRankEnsemble:
        if self._ensemble is None:
            raise RuntimeError("the model has not been fitted yet")
        return self._ensemble


def random_pair(selector: Rule, allowed: BoolArray, rng: np.random.Generator) -> Choice:
    """Draw one of the unseen pairs of the ``allowed`` (K,) candidates uniformly.

    With costs, candidate i's pairs come up 1 / weight_i times as often.
    """
    candidate = _random_row(selector, allowed, rng)
    example, propensity = selector.draw_unseen(candidate, rng)
    return Choice(Pair(candidate, example), propensity, "random")


def _random_row(selector: Rule, allowed: BoolArray, rng: np.random.Generator) -> int:
    n_unseen = np.where(allowed, selector.table.n_unseen, 0)
    if selector.problem.costs is None:
        cells = np.cumsum(n_unseen)
        return int(np.searchsorted(cells, rng.integers(cells[-1]), side="right"))
    shares = n_unseen / selector.weights
    return int(rng.choice(len(shares), p=shares / shares.sum()))
