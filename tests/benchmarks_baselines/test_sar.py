from __future__ import annotations

import pytest
from benchmarks.baselines.sar import Sar

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import Problem, State, Stop, Tell
from tests.support.selector_suite import SelectorSuite


class TestSar(SelectorSuite):
    def make(self, problem: Problem) -> Rule:
        return Sar(problem)


class TestSarOfThree(SelectorSuite):
    learns = False  # three of the 24 are looked for, not the one best

    def make(self, problem: Problem) -> Rule:
        return Sar(problem, top_k=3)


def run(selector: Pairs, scores: list[float]) -> list[int]:
    while asks := selector.ask():
        selector.tell([Tell(asks[0].seq, State.DONE, scores[asks[0].pair.candidate])])
    return [int(n) for n in selector.table.n_trials]


def test_a_trace_by_hand() -> None:
    """Targets 6, 8, 12 as in Successive Rejects at K = 4, T = 40; two are wanted.

    Gaps of .9, .7, .5, .1: .4, .2, .2, .6, so the last is rejected after 6 pulls; then .4, .2, .2,
    so the first is accepted after 8; the last two part after 12.
    """
    selector = Pairs(Sar(Problem(4, 100, budget=40, stop_when_separated=False), top_k=2))
    assert run(selector, [0.9, 0.1, 0.5, 0.7]) == [8, 6, 12, 12]
    assert selector.top() == (0, 3)
    assert selector.ranking() == [0, 3, 2, 1]


def test_the_most_pulls_of_one_worker_are_those_of_the_paper() -> None:
    """Zhou, Chen & Li 2014, section 6.2: 164 workers, Q = 10n, K = 20: up to 143 (n_{K-1})."""
    assert (
        Sar(Problem(164, 800, budget=1640, stop_when_separated=False), top_k=20)
        ._schedule(164, 1640)
        .targets[-1]
        == 143
    )


def test_it_ends_when_the_rest_is_decided() -> None:
    """Two of .5, .5, .1 are wanted: all gaps are .4; if the last is rejected first, that is all."""
    counts = set()
    for seed in range(20):
        selector = Pairs(
            Sar(Problem(3, 100, seed=seed, budget=30, stop_when_separated=False), top_k=2)
        )
        counts.add(tuple(run(selector, [0.5, 0.5, 0.1])))
        assert set(selector.top()) == {0, 1}
        assert selector.stopped() is Stop.BUDGET
    assert (7, 7, 7) in counts
    assert len(counts) == 3


def test_equals_at_the_border_are_rejected_not_accepted() -> None:
    """Accepting them would fill the set with whoever is tied at the top after two pulls."""
    selector = Pairs(Sar(Problem(30, 400, budget=300, stop_when_separated=False), top_k=3))
    run(selector, [1.0] * 30)
    assert selector.table.n_trials.max() >= 20


def test_when_all_are_wanted_nothing_is_asked_twice_over() -> None:
    selector = Pairs(Sar(Problem(3, 100, budget=30, stop_when_separated=False), top_k=5))
    run(selector, [0.5, 0.6, 0.7])
    assert sorted(selector.top()) == [0, 1, 2]


def test_a_senseless_number_is_refused() -> None:
    with pytest.raises(ValueError, match="top_k must be >= 1, got 0"):
        Pairs(Sar(Problem(3, 100, budget=30, stop_when_separated=False), top_k=0))
