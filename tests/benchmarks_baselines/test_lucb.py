from __future__ import annotations

import numpy as np
import pytest
from benchmarks.baselines.lucb import Lucb

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import Problem, State, Stop, Tell
from tests.support.selector_suite import SelectorSuite


class TestLucb(SelectorSuite):
    def make(self, problem: Problem) -> Rule:
        return Lucb(problem)


class TestLucbOfTwo(SelectorSuite):
    learns = False  # two of the 24 are looked for, not the one best

    def make(self, problem: Problem) -> Rule:
        return Lucb(problem, top_k=2, delta=0.1)


def arms(selector: Pairs, scores: list[float], n: int) -> list[int]:
    found = []
    for _ in range(n):
        [ask] = selector.ask()
        found.append(ask.pair.candidate)
        selector.tell([Tell(ask.seq, State.DONE, scores[found[-1]])])
    return found


def test_a_trace_by_hand() -> None:
    """Scores 1, 0, .9, delta = .1. Upper bounds of 1 and 2 in rounds 1 to 4:

    t = 1: equal widths, so 2. t = 2: ln(600) = 6.397: 1.788 against .9 + 1.265, so 2.
    t = 3: ln(3037.5) = 8.019: 2.002 against .9 + 1.156, so 2.
    t = 4: ln(9600) = 9.170: 2.141 against .9 + 1.071, so 1.
    """
    found = arms(
        Pairs(Lucb(Problem(3, 100, stop_when_separated=False), delta=0.1)), [1.0, 0.0, 0.9], 11
    )
    assert sorted(found[:3]) == [0, 1, 2]
    assert found[3:] == [0, 2, 0, 2, 0, 2, 0, 1]


def test_both_of_a_round_are_chosen_before_either_is_told() -> None:
    """After .9, .5, .4: the round is (0, 1); a zero for 0 in between does not change the second."""
    selector = Pairs(Lucb(Problem(3, 100, stop_when_separated=False)))
    asks = selector.ask(3)
    selector.tell([Tell(a.seq, State.DONE, (0.9, 0.5, 0.4)[a.pair.candidate]) for a in asks])
    [first] = selector.ask()
    selector.tell([Tell(first.seq, State.DONE, 0.0)])
    [second] = selector.ask()
    assert (first.pair.candidate, second.pair.candidate) == (0, 1)


def test_the_partner_is_left_out_if_it_cannot_be_called() -> None:
    selector = Pairs(Lucb(Problem(3, 100, stop_when_separated=False)))
    asks = selector.ask(3)
    selector.tell([Tell(a.seq, State.DONE, (0.9, 0.5, 0.4)[a.pair.candidate]) for a in asks])
    available = np.array([True, False, True])
    assert selector.ask(1)[0].pair.candidate == 0
    assert selector.ask(1, allowed=available)[0].pair.candidate in (0, 2)


def test_a_set_stands_apart_once_all_its_members_do() -> None:
    selector = Pairs(Lucb(Problem(4, 400, stop_when_separated=True), top_k=2))
    scores = [1.0, 0.95, 0.05, 0.0]
    while asks := selector.ask(4):
        selector.tell([Tell(a.seq, State.DONE, scores[a.pair.candidate]) for a in asks])
    assert selector.stopped() is Stop.SEPARATED
    assert selector.top() == (0, 1)
    estimates = selector.estimates()
    assert estimates.lower[:2].min() > estimates.upper[2:].max()
    assert estimates.lower[0] < estimates.upper[1]


def test_the_counts_are_the_most_even_ones() -> None:
    """Zhou, Chen & Li 2014, section 6.2: LUCB gives a worker 6 to 17 tasks at Q = 10n, K = 20."""
    selector = Pairs(Lucb(Problem(164, 800, track_intervals=False), top_k=20))
    means = np.linspace(0.4, 1.0, 164)
    rng = np.random.default_rng(5)
    for _ in range(1640):
        [ask] = selector.ask()
        score = float(rng.random() < means[ask.pair.candidate])
        selector.tell([Tell(ask.seq, State.DONE, score)])
    counts = selector.table.n_trials
    assert counts.min() >= 4
    assert counts.max() <= 30


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"delta": 0.0}, r"delta must be in \(0, 1\), got 0.0"),
        ({"top_k": 0}, "top_k must be >= 1, got 0"),
    ],
)
def test_senseless_parameters_are_refused(params: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pairs(Lucb(Problem(8, 10, stop_when_separated=False), **params))  # type: ignore[arg-type]
