"""UCB-E on the means of the low-rank model, without its uncertainty: an ablation of UCB-E-LRF.

Zhou et al. 2024, "On Speeding Up Language Model Evaluation", Algorithm 6.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors import Choice, Pair
from bestarm_agent.selectors.rules.ucb_e_lrf import UcbELrf
from bestarm_agent.selectors.types import Belief
from bestarm_agent.stats.arrays import FloatArray


class ScoreOnly(UcbELrf):
    """Pulls the candidate of the highest index ``batch`` times, on uniformly random examples."""

    name: ClassVar[str] = "ucb-e-lrf-score-only"
    exogenous: ClassVar[bool] = True

    def _pull(self, candidate: int, rng: np.random.Generator) -> Choice:
        example = self.draw_unseen(candidate, rng)
        return Choice(Pair(candidate, example), "ucb")

    def _bonus(self) -> FloatArray:
        """(K,) sqrt(eta / |S_i|) (Algorithm 6, line 2)."""
        return np.sqrt(self.eta / np.maximum(self.table.n_trials, 1))

    def belief(self) -> Belief:
        """Return the model's row means; the betting intervals hold."""
        return Belief(super().belief().mean)
