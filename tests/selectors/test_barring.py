"""Candidates that leave the competition for a reason that is not their scores."""

from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Guarantee, Stop
from tests.support.selector_suite import World, WorldRun, opened, play, replay

RULES = ("ucb-e", "racing", "auto", "sysrs", "opt-mai")
K, N = 5, 20
MEANS = [0.1, 0.3, 0.5, 0.7, 0.95]


def begun(rule: str, *, seed: int = 0) -> Pairs:
    return opened(rule, K, N, seed=seed, budget=K * N)


@pytest.mark.parametrize("rule", RULES)
def test_the_barred_are_asked_no_more_and_come_last(rule: str) -> None:
    for seed in range(3):
        selector = begun(rule, seed=seed)
        run = WorldRun(selector, World.bernoulli(MEANS, N, seed), in_flight=3).go(20)
        selector.bar([4])
        n_before = len(run.pairs)
        run.finish()
        assert all(pair.candidate != 4 for pair in run.pairs[n_before:])
        assert len(run.pairs) > n_before
        assert selector.answer.ranking()[-1] == 4
        verdict = selector.answer.best()
        assert verdict.best != 4
        assert 4 not in verdict.tied
        assert selector.stopped() is not None


@pytest.mark.parametrize("rule", RULES)
def test_a_rebuilt_selector_goes_on_alike(rule: str) -> None:
    world = World.bernoulli(MEANS, N, 2)
    warm = WorldRun(begun(rule), world, 2).go(15)
    cold = replay(warm.events, begun(rule))
    warm.selector.bar([1, 4])
    cold.bar([1, 4])
    again = WorldRun(cold, world, 2, waiting=list(warm.waiting))
    n_before = len(warm.pairs)
    assert again.go(12).pairs == warm.go(12).pairs[n_before:]


def test_the_others_can_be_exact_without_the_barred() -> None:
    selector = begun("uniform")
    selector.bar([0])
    WorldRun(selector, World.bernoulli(MEANS, N, 1)).finish()
    assert selector.stopped() is Stop.EXHAUSTED
    assert selector.answer.estimates().guarantee is Guarantee.EXACT
    assert selector.table.n_trials[0] == 0
    assert selector.answer.margin() == 0.0
    selector = begun("ucb-e")
    selector.bar(range(K))
    assert selector.ask(3) == []
    assert selector.stopped() is Stop.EXHAUSTED


def test_a_barred_leader_leaves_the_title_to_the_next() -> None:
    selector = begun("uniform")
    play(selector, MEANS)
    gaps = [selector.answer.margin(i) for i in range(K)]
    assert gaps == pytest.approx(np.max(MEANS) - np.array(MEANS))
    assert selector.answer.best().best == 4
    selector.bar([4])
    assert selector.answer.best().best == 3
    assert selector.answer.best().separated
    assert selector.answer.ranking() == [3, 2, 1, 0, 4]


def test_barring_twice_and_growing_keep_who_is_barred() -> None:
    selector = begun("ucb-e")
    selector.bar([2])
    selector.bar([2, 3])
    selector.add_candidates(2)
    assert selector.answer.barred.tolist() == [False, False, True, True, False, False, False]
    asked = {ask.pair.candidate for ask in selector.ask(60)}
    assert asked == {0, 1, 4, 5, 6}
