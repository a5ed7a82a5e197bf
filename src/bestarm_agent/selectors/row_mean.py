"""Row Mean Imputation: evaluate pairs drawn uniformly at random, compare row means.

Zhou et al. 2024, "On Speeding Up Language Model Evaluation", Algorithm 3 and section 4.3 (whose
text draws the pair from all unseen pairs). A baseline without any learning: unbiased at all times,
and slow, since weak candidates are evaluated as often as strong ones.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import BoolArray, Choice, Pair


class RowMean(Selector):
    """Uniformly random unseen pair over the whole grid; estimates by row means.

    In flight: a pending pair is seen; nothing else changes, since no score is looked at.

    Example:
        >>> from bestarm_agent.selectors.types import Problem
        >>> selector = RowMean(Problem(n_candidates=2, n_examples=3))
        >>> len(selector.ask(99))
        6
    """

    name: ClassVar[str] = "row-mean"

    def _choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        return random_pair(self, allowed, rng)


def random_pair(selector: Selector, allowed: BoolArray, rng: np.random.Generator) -> Choice:
    """Draw one of the unseen pairs of the ``allowed`` (K,) candidates uniformly."""
    unseen = np.cumsum(np.where(allowed, selector.table.n_unseen, 0))
    cell = rng.integers(unseen[-1])
    candidate = int(np.searchsorted(unseen, cell, side="right"))
    example, propensity = selector.draw_unseen(candidate, rng)
    return Choice(Pair(candidate, example), propensity, "random")
