from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.opt_mai import (
    SuccessiveRejects,
    one_leaves_per_phase,
)
from bestarm_agent.selectors.types import Problem, State, Tell
from tests.support.selector_suite import Run, SelectorSuite, World


class TestSuccessiveRejects(SelectorSuite):
    def make(self, problem: Problem) -> Rule:
        return SuccessiveRejects(problem)


def test_the_phases_by_hand() -> None:
    """K = 4, T = 40: L = 1/2 + 1/2 + 1/3 + 1/4 = 19/12, so n_k = ceil(36 / L / (4, 3, 2))."""
    schedule = one_leaves_per_phase(4, 40)
    assert schedule.targets.tolist() == [6, 8, 12]
    assert schedule.leaving.tolist() == [1, 1, 1]
    assert schedule.n_pulls(4, 1000) == 4 * 6 + 3 * 2 + 2 * 4


def test_phases_without_further_pulls_are_joined() -> None:
    """K = 5, T = 12: L = 107/60, n_k = ceil(3.93 / (5, 4, 3, 2)) = 1, 1, 2, 2."""
    schedule = one_leaves_per_phase(5, 12)
    assert schedule.targets.tolist() == [1, 2]
    assert schedule.leaving.tolist() == [2, 2]


@pytest.mark.parametrize(("k", "budget"), [(2, 2), (3, 17), (10, 100), (53, 4000), (400, 900)])
def test_the_phases_cost_no_more_than_the_budget(k: int, budget: int) -> None:
    n_pulls = one_leaves_per_phase(k, budget).n_pulls(k, 10**9)
    assert budget - 2 * k <= n_pulls <= budget


def test_a_trace_by_hand() -> None:
    """Scores .9, .1, .5, .7: 1 leaves after 6 pulls, 2 after 8, 3 after 12, as does the winner."""
    selector = Pairs(SuccessiveRejects(Problem(4, 100, budget=40)))
    scores = [0.9, 0.1, 0.5, 0.7]
    order = []
    while asks := selector.ask():
        order.append(asks[0].pair.candidate)
        selector.tell([Tell(asks[0].seq, State.DONE, scores[order[-1]])])
    assert np.bincount(order).tolist() == [12, 6, 8, 12]
    assert all(sorted(order[at : at + 4]) == [0, 1, 2, 3] for at in range(0, 24, 4))
    assert all(sorted(order[at : at + 3]) == [0, 2, 3] for at in range(24, 30, 3))
    assert sorted(order[30:]) == [0, 0, 0, 0, 3, 3, 3, 3]
    assert selector.ranking() == [0, 3, 2, 1]


def test_equal_candidates_leave_at_random() -> None:
    winners = set()
    for seed in range(60):
        selector = Pairs(SuccessiveRejects(Problem(4, 20, seed=seed, budget=24)))
        while asks := selector.ask():
            selector.tell([Tell(asks[0].seq, State.DONE, 0.5)])
        winners.add(selector.best().best)
    assert winners == {0, 1, 2, 3}


def test_the_synchronised_rule_compares_on_common_examples() -> None:
    selector = Pairs(SuccessiveRejects(Problem(6, 50, budget=120)))
    world = World.bernoulli(np.linspace(0.2, 0.7, 6), 50, seed=4)
    Run(selector, world).finish()
    table = selector.table
    longest = max((table.row(i) for i in range(6)), key=len)
    order = [int(table.example[seq]) for seq in longest]
    for i in range(6):
        assert [int(table.example[seq]) for seq in table.row(i)] == order[: len(table.row(i))]
