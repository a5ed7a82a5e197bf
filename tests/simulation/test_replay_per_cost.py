"""Money in the simulator: levels are never passed, and every answer is noted."""

from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem
from bestarm_agent.simulation.replay_per_cost import replay_per_cost
from bestarm_agent.simulation.score_matrices import ScoreMatrix
from bestarm_agent.simulation.simulated_calls import Conditions, SimulatedCalls
from tests.support.spending import replay_spending

LEVELS = [5.0, 40.0, 400.0, 1e6]


def matrix() -> ScoreMatrix:
    rng = np.random.default_rng(2)
    scores = (rng.random((5, 60)) < np.linspace(0.3, 0.9, 5)[:, None]).astype(np.float32)
    return ScoreMatrix(scores, tuple("abcde"), costs=np.array([1.0, 2.0, 4.0, 8.0, 16.0]))


@pytest.mark.parametrize("per_cost", [False, True])
@pytest.mark.parametrize("rule", ["ucb-e", "sysrs", "opt-mai"])
def test_no_level_is_passed(rule: str, per_cost: bool) -> None:
    seen: list[Problem] = []

    def make(problem: Problem) -> Pairs:
        seen.append(problem)
        return make_selector(rule, problem)

    world = SimulatedCalls(matrix(), 3, Conditions())
    found = replay_spending(make, world, LEVELS, seed=3, per_cost=per_cost)
    assert [one.level for one in found] == LEVELS
    assert all(0 < one.spent <= one.level for one in found)
    assert [one.pulls for one in found] == sorted(one.pulls for one in found)
    assert found[-1].best == int(np.argmax(matrix().means))
    assert {problem.costs is not None for problem in seen} == {per_cost}


def test_costs_and_rising_levels_are_needed() -> None:
    free = ScoreMatrix(np.ones((2, 3), dtype=np.float32), ("a", "b"))
    with pytest.raises(ValueError, match="needs a cost"):
        replay_spending(
            lambda p: make_selector("uniform", p), SimulatedCalls(free, 0, Conditions()), [1.0]
        )
    with pytest.raises(ValueError, match="rising"):
        replay_spending(
            lambda p: make_selector("uniform", p),
            SimulatedCalls(matrix(), 0, Conditions()),
            [2.0, 1.0],
        )


@pytest.mark.parametrize("rule", ["ucb-e", "sysrs", "auto"])
def test_answers_per_cost_are_those_of_the_purchases(rule: str) -> None:
    """A budget of so many pairs is that share of the money: 5 x 60 pairs cost 1,860."""

    def make(problem: Problem) -> Pairs:
        return make_selector(rule, problem)

    budgets = [10, 75, 150]
    found = replay_per_cost(
        make, SimulatedCalls(matrix(), 3, Conditions()), budgets, seed=3, depth=2
    )
    levels = [budget * 6.2 for budget in budgets]
    bought = replay_spending(
        make, SimulatedCalls(matrix(), 3, Conditions()), levels, seed=3, per_cost=True
    )
    assert [answer.budget for answer in found.answers] == budgets
    assert [(a.cost, a.evaluated, a.best) for a in found.answers] == [
        (one.spent, one.pulls, one.best) for one in bought
    ]
    assert all(len(answer.ranking) == 2 for answer in found.answers)
    reruns = sum(one.pulls for one in bought)
    assert found.pulls == (bought[-1].pulls if rule == "ucb-e" else reruns)


def test_a_rule_that_is_told_the_costs_buys_more_of_the_cheap() -> None:
    """Two equal candidates, one of them 16 times as dear: uniform pulls it a quarter as often."""
    scores = np.tile((np.arange(400) % 2).astype(np.float32), (2, 1))
    costs = ScoreMatrix(scores, ("cheap", "dear"), costs=np.array([1.0, 16.0]))
    world = SimulatedCalls(costs, 0, Conditions())
    [answer] = replay_per_cost(lambda p: make_selector("uniform", p), world, [80]).answers
    assert answer.cost <= 80 * 8.5
    dear = (answer.cost - answer.evaluated) / 15
    assert dear / (answer.evaluated - dear) == pytest.approx(0.25, abs=0.02)
