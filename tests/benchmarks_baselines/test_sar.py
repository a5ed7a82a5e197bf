from __future__ import annotations

import pytest
from benchmarks.baselines.sar import Sar

from bestarm_agent.selectors.types import Problem, Stop
from tests.support.selector_suite import opened, play


def test_a_trace_by_hand() -> None:
    """Targets 6, 8, 12 as in Successive Rejects at K = 4, T = 40; two are wanted.

    Gaps of .9, .7, .5, .1: .4, .2, .2, .6, so the last is rejected after 6 pulls; then .4, .2, .2,
    so the first is accepted after 8; the last two part after 12.
    """
    selector = opened(Sar, 4, 100, budget=40, top_k=2)
    play(selector, [0.9, 0.1, 0.5, 0.7])
    assert selector.table.n_trials.tolist() == [8, 6, 12, 12]
    assert selector.top() == (0, 3)
    assert selector.ranking() == [0, 3, 2, 1]


def test_the_most_pulls_of_one_worker_are_those_of_the_paper() -> None:
    """Zhou, Chen & Li 2014, section 6.2: 164 workers, Q = 10n, K = 20: up to 143 (n_{K-1})."""
    rule = Sar(Problem(164, 800, budget=1640), top_k=20)
    assert rule._schedule(164, 1640).targets[-1] == 143


def test_it_ends_when_the_rest_is_decided() -> None:
    """Two of .5, .5, .1 are wanted: all gaps are .4; if the last is rejected first, that is all."""
    counts = set()
    for seed in range(20):
        selector = opened(Sar, 3, 100, seed=seed, budget=30, top_k=2)
        play(selector, [0.5, 0.5, 0.1])
        counts.add(tuple(selector.table.n_trials.tolist()))
        assert set(selector.top()) == {0, 1}
        assert selector.stopped() is Stop.BUDGET
    assert (7, 7, 7) in counts
    assert len(counts) == 3


def test_equals_at_the_border_are_rejected_not_accepted() -> None:
    """Accepting them would fill the set with whoever is tied at the top after two pulls."""
    selector = opened(Sar, 30, 400, budget=300, top_k=3)
    play(selector, [1.0] * 30)
    assert selector.table.n_trials.max() >= 20


def test_when_all_are_wanted_nothing_is_asked_twice_over() -> None:
    selector = opened(Sar, 3, 100, budget=30, top_k=5)
    play(selector, [0.5, 0.6, 0.7])
    assert sorted(selector.top()) == [0, 1, 2]


def test_a_senseless_number_is_refused() -> None:
    with pytest.raises(ValueError, match="top_k must be >= 1, got 0"):
        opened(Sar, 3, 100, budget=30, top_k=0)
