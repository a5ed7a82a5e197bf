"""Uniform sampling: every candidate is pulled equally often, on examples of its own.

The baseline of best-arm identification. ``filled-subset`` is the same on common examples.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import BoolArray, Choice, Pair


class Uniform(Selector):
    """The candidate with the fewest pulls is next (ties at random), on a random unseen example.

    With costs, n_i is proportional to 1 / sqrt(c_i). In flight: a pending pair counts as seen.
    """

    name: ClassVar[str] = "uniform"

    def _choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        counted = np.where(allowed, self.table.n_trials * self.weights, np.inf)
        fewest = np.flatnonzero(counted == counted.min())
        candidate = int(fewest[rng.integers(len(fewest))])
        example, propensity = self.draw_unseen(candidate, rng)
        return Choice(Pair(candidate, example), propensity, "uniform")
