"""A rule's own estimates of its candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bestarm_agent.selectors.types import Bounds, FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """A rule's model-based estimates of its candidates.

    Attributes:
        bounds: (K,) lower and upper ends by the rule's model, used in place of the betting
            intervals; heuristic.
        chance: the model's probability that a candidate is the best; None if another's is higher.
    """

    mean: FloatArray  # (K,) point estimates; NaN where nothing is known
    bounds: Bounds | None = None
    tier: IntArray | None = None  # (K,) numbers that rank before the estimates, lowest first
    chance: Callable[[int], float | None] | None = None
