"""Money in the simulator: levels are never passed, and every answer is noted."""

from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem
from bestarm_agent.simulation.matrices import ScoreMatrix
from bestarm_agent.simulation.spending import replay_spending
from bestarm_agent.simulation.world import Conditions, World

LEVELS = [5.0, 40.0, 400.0, 1e6]


def matrix() -> ScoreMatrix:
    rng = np.random.default_rng(2)
    scores = (rng.random((5, 60)) < np.linspace(0.3, 0.9, 5)[:, None]).astype(np.float32)
    return ScoreMatrix(scores, tuple("abcde"), costs=np.array([1.0, 2.0, 4.0, 8.0, 16.0]))


@pytest.mark.parametrize("per_cost", [False, True])
@pytest.mark.parametrize("rule", ["ucb-e", "sysrs", "successive-rejects"])
def test_no_level_is_passed(rule: str, per_cost: bool) -> None:
    seen: list[Problem] = []

    def make(problem: Problem) -> Selector:
        seen.append(problem)
        return make_selector(rule, problem)

    world = World(matrix(), 3, Conditions())
    found = replay_spending(make, world, LEVELS, seed=3, per_cost=per_cost)
    assert [one.level for one in found] == LEVELS
    assert all(0 < one.spent <= one.level for one in found)
    assert [one.pulls for one in found] == sorted(one.pulls for one in found)
    assert found[-1].best == int(np.argmax(matrix().means))
    assert {problem.costs is not None for problem in seen} == {per_cost}


def test_costs_and_rising_levels_are_needed() -> None:
    free = ScoreMatrix(np.ones((2, 3), dtype=np.float32), ("a", "b"))
    with pytest.raises(ValueError, match="needs a cost"):
        replay_spending(lambda p: make_selector("uniform", p), World(free, 0, Conditions()), [1.0])
    with pytest.raises(ValueError, match="rising"):
        replay_spending(
            lambda p: make_selector("uniform", p), World(matrix(), 0, Conditions()), [2.0, 1.0]
        )
