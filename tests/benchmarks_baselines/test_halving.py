from __future__ import annotations

from benchmarks.baselines.halving import SequentialHalving

from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import Problem
from tests.support.selector_suite import SelectorSuite


class TestSequentialHalving(SelectorSuite):
    def make(self, problem: Problem) -> Rule:
        return SequentialHalving(problem)
