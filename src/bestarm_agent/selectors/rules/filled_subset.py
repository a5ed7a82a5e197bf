"""Filled Subset: evaluate one random example after the other on all candidates.

Zhou et al. 2024, "On Speeding Up Language Model Evaluation", Algorithm 4. A baseline: comparisons
are on common examples, but it learns nothing about where to spend.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import BoolArray, Choice, Pair


class FilledSubset(Selector):
    """All candidates on one random example, then on the next.

    The candidate with the fewest asks comes next (ties at random), on its first unseen example of
    one shared order, so that candidates which join late or were not available catch up. In flight:
    a pending pair counts as seen.
    """

    name: ClassVar[str] = "filled-subset"
    common_examples: bool = True
    heeds_costs: bool = False

    def _choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        unseen = np.where(allowed, self.table.n_unseen, -1)
        fewest = np.flatnonzero(unseen == unseen.max())
        candidate = int(fewest[rng.integers(len(fewest))])
        example, propensity = self.draw_unseen(candidate, rng)
        return Choice(Pair(candidate, example), propensity, "fill")
