from __future__ import annotations

import numpy as np

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.racing import Uniform
from bestarm_agent.selectors.types import Problem
from tests.support.selector_suite import SelectorSuite


class TestUniform(SelectorSuite):
    learns = False

    def make(self, problem: Problem) -> Rule:
        return Uniform(problem)


def test_counts_never_differ_by_more_than_one() -> None:
    selector = Pairs(Uniform(Problem(5, 20)))
    for _ in range(100):
        selector.ask()
        counts = selector.table.n_trials
        assert counts.max() - counts.min() <= 1


def test_candidates_see_different_examples() -> None:
    asks = Pairs(Uniform(Problem(2, 100))).ask(40)
    rows = [{a.pair.example for a in asks if a.pair.candidate == i} for i in range(2)]
    assert len(rows[0]) == len(rows[1]) == 20
    assert len(rows[0] & rows[1]) < 12


def test_who_was_away_catches_up() -> None:
    selector = Pairs(Uniform(Problem(3, 20)))
    selector.ask(10, allowed=np.array([True, True, False]))
    assert {ask.pair.candidate for ask in selector.ask(5)} == {2}
