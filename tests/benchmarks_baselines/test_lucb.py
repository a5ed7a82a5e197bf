from __future__ import annotations

import numpy as np
import pytest
from benchmarks.baselines.lucb import Lucb

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Stop
from tests.support.selector_suite import World, WorldRun, opened, play


def test_a_trace_by_hand() -> None:
    """Scores 1, 0, .9, delta = .1. Upper bounds of 1 and 2 in rounds 1 to 4:

    t = 1: equal widths, so 2. t = 2: ln(600) = 6.397: 1.788 against .9 + 1.265, so 2.
    t = 3: ln(3037.5) = 8.019: 2.002 against .9 + 1.156, so 2.
    t = 4: ln(9600) = 9.170: 2.141 against .9 + 1.071, so 1.
    """
    found = play(opened(Lucb, 3, 100, delta=0.1), [1.0, 0.0, 0.9], 11)
    assert sorted(found[:3]) == [0, 1, 2]
    assert found[3:] == [0, 2, 0, 2, 0, 2, 0, 1]


def after_one_each() -> Pairs:
    """After .9, .5, .4 the round is (0, 1)."""
    selector = opened(Lucb, 3, 100)
    play(selector, [0.9, 0.5, 0.4], 3)
    return selector


def test_both_of_a_round_are_chosen_before_either_is_told() -> None:
    """A zero for 0 in between does not change the second, unless that cannot be called."""
    assert play(after_one_each(), [0.0, 0.5, 0.4], 2) == [0, 1]
    selector = after_one_each()
    assert selector.ask(1)[0].pair.candidate == 0
    [ask] = selector.ask(1, allowed=np.array([True, False, True]))
    assert ask.pair.candidate in (0, 2)


def test_a_set_stands_apart_once_all_its_members_do() -> None:
    selector = opened(Lucb, 4, 400, stop_when_separated=True, top_k=2)
    play(selector, [1.0, 0.95, 0.05, 0.0])
    assert selector.stopped() is Stop.SEPARATED
    assert selector.top() == (0, 1)
    estimates = selector.estimates()
    assert estimates.lower[:2].min() > estimates.upper[2:].max()
    assert estimates.lower[0] < estimates.upper[1]


def test_the_counts_are_the_most_even_ones() -> None:
    """Zhou, Chen & Li 2014, section 6.2: LUCB gives a worker 6 to 17 tasks at Q = 10n, K = 20."""
    selector = opened(Lucb, 164, 800, track_intervals=False, top_k=20)
    WorldRun(selector, World.bernoulli(np.linspace(0.4, 1.0, 164), 800, seed=5)).go(1640)
    counts = selector.table.n_trials
    assert counts.min() >= 4
    assert counts.max() <= 40


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"delta": 0.0}, r"delta must be in \(0, 1\), got 0.0"),
        ({"top_k": 0}, "top_k must be >= 1, got 0"),
    ],
)
def test_senseless_parameters_are_refused(params: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        opened(Lucb, 8, 10, **params)
