"""Row Mean Imputation: evaluate pairs drawn uniformly at random, compare row means.

Zhou et al. 2024, "On Speeding Up Language Model Evaluation", Algorithm 3 and section 4.3 (whose
text draws the pair from all unseen pairs). It learns nothing about where to spend.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors import BoolArray, Choice, Rule
from bestarm_agent.selectors.rules.ucb_e_lrf import random_pair


class RowMean(Rule):
    """Uniformly random unseen pair of the whole grid. In flight: a pending pair counts as seen."""

    name: ClassVar[str] = "row-mean"

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        """Pick any unseen pair."""
        return random_pair(self, allowed, rng)
