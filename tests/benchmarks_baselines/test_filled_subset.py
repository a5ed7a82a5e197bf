from __future__ import annotations

import numpy as np
from benchmarks.baselines.filled_subset import FilledSubset

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import Problem
from tests.support.selector_suite import SelectorSuite


class TestFilledSubset(SelectorSuite):
    learns = False

    def make(self, problem: Problem) -> Rule:
        return FilledSubset(problem)


def test_an_example_is_finished_before_the_next_begins() -> None:
    pairs = [
        ask.pair for ask in Pairs(FilledSubset(Problem(4, 5, stop_when_separated=False))).ask(20)
    ]
    for start in range(0, 20, 4):
        block = pairs[start : start + 4]
        assert len({pair.example for pair in block}) == 1
        assert {pair.candidate for pair in block} == {0, 1, 2, 3}


def test_the_order_of_candidates_within_an_example_is_random() -> None:
    firsts = {
        Pairs(FilledSubset(Problem(4, 5, seed=seed, stop_when_separated=False)))
        .ask()[0]
        .pair.candidate
        for seed in range(40)
    }
    assert firsts == {0, 1, 2, 3}


def test_late_candidates_catch_up_on_common_examples() -> None:
    selector = Pairs(FilledSubset(Problem(2, 9, stop_when_separated=False)))
    early = {ask.pair.example for ask in selector.ask(8)}
    selector.add_candidates(1)
    late = [ask.pair for ask in selector.ask(4)]
    assert {pair.candidate for pair in late} == {2}
    assert {pair.example for pair in late} == early


def test_a_candidate_that_was_away_catches_up() -> None:
    selector = Pairs(FilledSubset(Problem(2, 9, stop_when_separated=False)))
    early = [ask.pair.example for ask in selector.ask(3, allowed=np.array([True, False]))]
    late = [ask.pair for ask in selector.ask(3)]
    assert [pair.candidate for pair in late] == [1, 1, 1]
    assert [pair.example for pair in late] == early
