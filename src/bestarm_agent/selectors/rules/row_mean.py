"""Row Mean Imputation: evaluate pairs drawn uniformly at random, compare row means.

Zhou et al. 2024, "On Speeding Up Language Model Evaluation", Algorithm 3 and section 4.3 (whose
text draws the pair from all unseen pairs). A baseline that learns nothing about where to spend.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import BoolArray, Choice, Pair


class RowMean(Selector):
    """Uniformly random unseen pair of the whole grid. In flight: a pending pair counts as seen."""

    name: ClassVar[str] = "row-mean"

    def _choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        return random_pair(self, allowed, rng)


def random_pair(selector: Selector, allowed: BoolArray, rng: np.random.Generator) -> Choice:
    """Draw one of the unseen pairs of the ``allowed`` (K,) candidates uniformly.

    With costs, candidate i's pairs come up 1 / weight_i times as often.
    """
    candidate = _random_row(selector, allowed, rng)
    example, propensity = selector.draw_unseen(candidate, rng)
    return Choice(Pair(candidate, example), propensity, "random")


def _random_row(selector: Selector, allowed: BoolArray, rng: np.random.Generator) -> int:
    n_unseen = np.where(allowed, selector.table.n_unseen, 0)
    if selector.problem.costs is None:
        cells = np.cumsum(n_unseen)
        return int(np.searchsorted(cells, rng.integers(cells[-1]), side="right"))
    shares = n_unseen / selector.weights
    return int(rng.choice(len(shares), p=shares / shares.sum()))
