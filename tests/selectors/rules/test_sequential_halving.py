from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.opt_mai import SequentialHalving
from bestarm_agent.selectors.types import Problem, State, Tell
from tests.support.selector_suite import SelectorSuite


class TestSequentialHalving(SelectorSuite):
    def make(self, problem: Problem) -> Rule:
        return SequentialHalving(problem)


@pytest.mark.parametrize(
    ("k", "budget", "targets", "leaving"),
    [
        # 3 rounds of 32 pulls: 4 each for 8, 8 more for 4, 16 more for 2
        (8, 96, [4, 12, 28], [4, 2, 1]),
        # 3 rounds of 40/3 pulls: floor(2.67), floor(4.44), floor(6.67); 5 -> 3 -> 2 -> 1
        (5, 40, [2, 6, 12], [2, 1, 1]),
        (2, 10, [5], [1]),
        # too little for one pull each in every round: one each, and what follows
        (8, 12, [1, 2, 4], [4, 2, 1]),
    ],
)
def test_the_rounds_by_hand(k: int, budget: int, targets: list[int], leaving: list[int]) -> None:
    schedule = SequentialHalving(Problem(k, 100, budget=budget))._schedule(k, budget)
    assert schedule.targets.tolist() == targets
    assert schedule.leaving.tolist() == leaving


def test_a_trace_by_hand() -> None:
    selector = Pairs(SequentialHalving(Problem(8, 100, budget=96)))
    scores = [0.5, 0.8, 0.1, 0.6, 0.2, 0.9, 0.3, 0.4]
    while asks := selector.ask():
        selector.tell([Tell(asks[0].seq, State.DONE, scores[asks[0].pair.candidate])])
    assert selector.table.n_trials.tolist() == [12, 28, 4, 12, 4, 28, 4, 4]
    assert selector.ranking() == [5, 1, 3, 0, 7, 6, 4, 2]


def test_budget_that_examples_cannot_take_is_spent_in_earlier_rounds() -> None:
    """Plain halving would give 20, 40 and 80 pulls each, but there are 30 examples."""
    selector = Pairs(SequentialHalving(Problem(8, 30, budget=200)))
    while asks := selector.ask():
        selector.tell([Tell(asks[0].seq, State.DONE, asks[0].pair.candidate / 10)])
    counts = selector.table.n_trials
    assert counts.max() == 30
    assert counts.min() > 200 // 24
    assert 190 <= counts.sum() <= 200


def test_common_examples_are_shared_by_all() -> None:
    selector = Pairs(SequentialHalving(Problem(4, 40, budget=40)))
    asks = selector.ask(20)
    by_candidate = [{a.pair.example for a in asks if a.pair.candidate == i} for i in range(4)]
    assert all(examples == by_candidate[0] for examples in by_candidate)
    assert len(np.unique([ask.pair.example for ask in asks])) == 5
