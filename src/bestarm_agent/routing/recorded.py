"""What the log of a router's prompts is read with: it is a run's log in which no rule chose."""

from __future__ import annotations

import numpy as np

from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import BoolArray, Choice

ROUTED = "preselect"  # what the configuration in such a log has beside a study's


class Routed(Selector):
    """Stands for the router; asks nothing by itself.

    A router goes by scores, and prompts come as they come: nothing is guaranteed.
    """

    name = "router"
    exogenous = False

    def _choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        return None
