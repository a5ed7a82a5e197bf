"""The mode of a router's log: every prompt is answered by the candidates that the router chose."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.config.goal_specs import SelectorSpec
from bestarm_agent.engine.setup.selection import Selection
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.stats.arrays import BoolArray

ROUTED = "preselect"  # section of the recorded configuration that marks such a log
SUFFIX = f"-{ROUTED}"  # of its name, behind that of the study


class RouterPlan(Rule):
    """Asks nothing by itself: prompts come from outside, and the router chooses."""

    name: ClassVar[str] = "router"
    exogenous: ClassVar[bool] = False
    seeks_best: ClassVar[bool] = False

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> None:
        """Choose nothing."""


ROUTING = Selection(SelectorSpec(stop_when_separated=False), rule=RouterPlan)
