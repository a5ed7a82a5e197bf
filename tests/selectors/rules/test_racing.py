from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.racing import Racing
from bestarm_agent.selectors.types import Problem, State, Stop, Tell
from tests.support.selector_suite import SelectorSuite


class TestRacing(SelectorSuite):
    learns = False

    def make(self, problem: Problem) -> Rule:
        return Racing(problem)


def tell_levels(selector: Pairs, levels: list[float], n: int) -> list[int]:
    """Give every candidate the same score always; return who was asked."""
    asked = []
    for _ in range(n):
        [ask] = selector.ask()
        asked.append(ask.pair.candidate)
        selector.tell([Tell(ask.seq, State.DONE, levels[asked[-1]])])
    return asked


def test_the_beaten_leave_the_race() -> None:
    selector = Pairs(Racing(Problem(4, 400)))
    levels = [0.9, 0.1, 0.87, 0.1]
    tell_levels(selector, levels, 120)
    assert set(tell_levels(selector, levels, 40)) == {0, 2}
    assert selector.best().tied == (2,)
    row = [int(selector.table.example[seq]) for seq in selector.table.row(0)]
    other = [int(selector.table.example[seq]) for seq in selector.table.row(2)]
    assert set(row[: len(other)]) == set(other[: len(row)])


def test_a_decided_race_stops_or_goes_on_with_all() -> None:
    levels = [0.9, 0.1, 0.2]
    going_on = Pairs(Racing(Problem(3, 300)))
    tell_levels(going_on, levels, 300)
    assert going_on.best().separated
    assert set(tell_levels(going_on, levels, 60)) == {0, 1, 2}
    stopping = Pairs(Racing(Problem(3, 300, stop_when_separated=True)))
    while asks := stopping.ask():
        stopping.tell([Tell(asks[0].seq, State.DONE, levels[asks[0].pair.candidate])])
    assert stopping.stopped() is Stop.SEPARATED
    assert stopping.table.n_asked < 150


def test_a_candidate_that_joins_late_catches_up_on_the_same_examples() -> None:
    selector = Pairs(Racing(Problem(2, 400)))
    tell_levels(selector, [0.5, 0.45], 60)
    selector.add_candidates(1)
    assert set(tell_levels(selector, [0.5, 0.45, 0.6], 20)) == {2}
    early = {int(selector.table.example[seq]) for seq in selector.table.row(0)}
    assert {int(selector.table.example[seq]) for seq in selector.table.row(2)} <= early


def test_who_may_not_be_asked_is_passed_by() -> None:
    selector = Pairs(Racing(Problem(4, 400)))
    tell_levels(selector, [0.9, 0.1, 0.8, 0.1], 120)
    available = np.array([False, True, False, True])
    assert {ask.pair.candidate for ask in selector.ask(6, allowed=available)} == {1, 3}


@pytest.mark.parametrize("n_examples", [30])
def test_without_intervals_nobody_leaves(n_examples: int) -> None:
    selector = Pairs(Racing(Problem(2, n_examples, track_intervals=False)))
    asked = tell_levels(selector, [1.0, 0.0], 2 * n_examples)
    assert asked.count(0) == asked.count(1) == n_examples
