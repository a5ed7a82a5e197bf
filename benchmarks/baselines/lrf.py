"""Low-rank factorisation without active choice.

Zhou et al. 2024, "On Speeding Up Language Model Evaluation", section 3.2 and Algorithm 5.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors import BoolArray, Choice, Tell
from bestarm_agent.selectors.rules.ucb_e_lrf import SWEEPS, UcbELrf, random_pair
from bestarm_agent.selectors.types import Belief


class Lrf(UcbELrf):
    """Uniformly random pairs, compared by the low-rank model of ``ucb-e-lrf``.

    The model is fitted from the start whenever estimates are asked for after a tell (some 15 ms at
    154 x 805, 0.3 s at 1000 x 2000).
    """

    name: ClassVar[str] = "lrf"
    exogenous: ClassVar[bool] = True

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        """Pick any unseen pair."""
        return random_pair(self, allowed, rng)

    def told(self, tell: Tell) -> None:
        """Give up the last fit."""
        self._is_fitted = False

    def changed(self) -> None:
        """Give up the last fit."""
        self._is_fitted = False

    def belief(self) -> Belief:
        """Fit the model if there are new scores."""
        if not self._is_fitted and self.table.n_scored.any():
            self._ensemble = self._new_ensemble()
            self._ensemble.fit(self._seen(), SWEEPS, self._random.at(1))
            self._is_fitted = True
        return Belief(super().belief().mean)
