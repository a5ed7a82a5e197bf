"""Rules that sample evenly: ``uniform`` and ``racing``."""

from __future__ import annotations

import numpy as np

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rules.racing import Racing, Uniform
from bestarm_agent.selectors.types import Stop
from tests.support.selector_suite import opened, play


def examples_of(selector: Pairs, row: int) -> set[int]:
    return {int(selector.table.example[seq]) for seq in selector.table.row(row)}


def test_counts_never_differ_by_more_than_one_and_examples_are_each_ones_own() -> None:
    selector = opened(Uniform, 5, 20)
    for _ in range(100):
        selector.ask()
        counts = selector.table.n_trials
        assert counts.max() - counts.min() <= 1
    selector = opened(Uniform, 2, 100)
    selector.ask(40)
    rows = [examples_of(selector, row) for row in (0, 1)]
    assert len(rows[0]) == len(rows[1]) == 20
    assert len(rows[0] & rows[1]) < 12


def test_who_was_away_catches_up() -> None:
    selector = opened(Uniform, 3, 20)
    selector.ask(10, allowed=np.array([True, True, False]))
    assert {ask.pair.candidate for ask in selector.ask(5)} == {2}


def test_the_beaten_leave_the_race_and_who_may_not_be_asked_is_passed_by() -> None:
    selector = opened(Racing, 4, 400)
    levels = [0.9, 0.1, 0.87, 0.1]
    play(selector, levels, 120)
    assert set(play(selector, levels, 40)) == {0, 2}
    assert selector.answer.best().tied == (2,)
    assert examples_of(selector, 0) == examples_of(selector, 2)
    available = np.array([False, True, False, True])
    assert {ask.pair.candidate for ask in selector.ask(6, allowed=available)} == {1, 3}


def test_a_decided_race_stops_or_goes_on_with_all() -> None:
    levels = [0.9, 0.1, 0.2]
    going_on = opened(Racing, 3, 300)
    play(going_on, levels, 300)
    assert going_on.answer.best().separated
    assert set(play(going_on, levels, 60)) == {0, 1, 2}
    stopping = opened(Racing, 3, 300, stop_when_separated=True)
    assert len(play(stopping, levels)) < 150
    assert stopping.stopped() is Stop.SEPARATED


def test_a_candidate_that_joins_late_catches_up_on_the_same_examples() -> None:
    selector = opened(Racing, 2, 400)
    play(selector, [0.5, 0.45], 60)
    selector.add_candidates(1)
    assert set(play(selector, [0.5, 0.45, 0.6], 20)) == {2}
    assert examples_of(selector, 2) <= examples_of(selector, 0)


def test_without_intervals_nobody_leaves() -> None:
    asked = play(opened(Racing, 2, 30, track_intervals=False), [1.0, 0.0], 60)
    assert asked.count(0) == asked.count(1) == 30
