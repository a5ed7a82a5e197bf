"""The mode of a router's log: every prompt is answered by the candidates that the router chose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.engine.record import Size
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.selectors.history import HistoryModel
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import BoolArray

ROUTED = "preselect"  # section of the recorded configuration that marks such a log


class RouterPlan(Rule):
    """Asks nothing by itself: prompts come from outside, and the router chooses."""

    name: ClassVar[str] = "router"
    exogenous: ClassVar[bool] = False
    seeks_best: ClassVar[bool] = False

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> None:
        """Choose nothing."""


@dataclass(frozen=True, slots=True)
class Preselection:
    """Answers prompts as they come."""

    def pairs(
        self, size: Size, candidates: Sequence[Candidate], history: HistoryModel | None = None
    ) -> Pairs:
        """Make what the log of a router is replayed into."""
        return Pairs(RouterPlan(size.problem(per_dollar=False)))

    def notices(self, pairs: Pairs, size: Size) -> tuple[str, ...]:
        """Return nothing."""
        return ()

    def result(self, pairs: Pairs, standing: Standing) -> None:
        """Return None: the standing shows the scores."""
