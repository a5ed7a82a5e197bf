"""Rules that sample evenly: ``uniform`` and ``racing``."""

from __future__ import annotations

import numpy as np

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.racing import Racing, Uniform
from bestarm_agent.selectors.types import Problem, State, Stop, Tell
from tests.support.selector_suite import SelectorSuite


class TestUniform(SelectorSuite):
    learns = False

    def make(self, problem: Problem) -> Rule:
        return Uniform(problem)


def test_counts_never_differ_by_more_than_one() -> None:
    selector = Pairs(Uniform(Problem(5, 20, stop_when_separated=False)))
    for _ in range(100):
        selector.ask()
        counts = selector.table.n_trials
        assert counts.max() - counts.min() <= 1


def test_candidates_see_different_examples() -> None:
    asks = Pairs(Uniform(Problem(2, 100, stop_when_separated=False))).ask(40)
    rows = [{a.pair.example for a in asks if a.pair.candidate == i} for i in range(2)]
    assert len(rows[0]) == len(rows[1]) == 20
    assert len(rows[0] & rows[1]) < 12


def test_who_was_away_catches_up() -> None:
    selector = Pairs(Uniform(Problem(3, 20, stop_when_separated=False)))
    selector.ask(10, allowed=np.array([True, True, False]))
    assert {ask.pair.candidate for ask in selector.ask(5)} == {2}


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
    selector = Pairs(Racing(Problem(4, 400, stop_when_separated=False)))
    levels = [0.9, 0.1, 0.87, 0.1]
    tell_levels(selector, levels, 120)
    assert set(tell_levels(selector, levels, 40)) == {0, 2}
    assert selector.best().tied == (2,)
    row = [int(selector.table.example[seq]) for seq in selector.table.row(0)]
    other = [int(selector.table.example[seq]) for seq in selector.table.row(2)]
    assert set(row[: len(other)]) == set(other[: len(row)])


def test_a_decided_race_stops_or_goes_on_with_all() -> None:
    levels = [0.9, 0.1, 0.2]
    going_on = Pairs(Racing(Problem(3, 300, stop_when_separated=False)))
    tell_levels(going_on, levels, 300)
    assert going_on.best().separated
    assert set(tell_levels(going_on, levels, 60)) == {0, 1, 2}
    stopping = Pairs(Racing(Problem(3, 300)))
    while asks := stopping.ask():
        stopping.tell([Tell(asks[0].seq, State.DONE, levels[asks[0].pair.candidate])])
    assert stopping.stopped() is Stop.SEPARATED
    assert stopping.table.n_asked < 150


def test_a_candidate_that_joins_late_catches_up_on_the_same_examples() -> None:
    selector = Pairs(Racing(Problem(2, 400, stop_when_separated=False)))
    tell_levels(selector, [0.5, 0.45], 60)
    selector.add_candidates(1)
    assert set(tell_levels(selector, [0.5, 0.45, 0.6], 20)) == {2}
    early = {int(selector.table.example[seq]) for seq in selector.table.row(0)}
    assert {int(selector.table.example[seq]) for seq in selector.table.row(2)} <= early


def test_who_may_not_be_asked_is_passed_by() -> None:
    selector = Pairs(Racing(Problem(4, 400, stop_when_separated=False)))
    tell_levels(selector, [0.9, 0.1, 0.8, 0.1], 120)
    available = np.array([False, True, False, True])
    assert {ask.pair.candidate for ask in selector.ask(6, allowed=available)} == {1, 3}


def test_without_intervals_nobody_leaves() -> None:
    selector = Pairs(Racing(Problem(2, 30, track_intervals=False)))
    asked = tell_levels(selector, [1.0, 0.0], 60)
    assert asked.count(0) == asked.count(1) == 30
