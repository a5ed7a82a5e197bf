"""Runs that stop once the best is established to be good enough."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.rules.opt_mai import OptMai
from bestarm_agent.selectors.rules.racing import Racing
from bestarm_agent.selectors.types import Ask, Problem, State, Stop, Tell
from tests.support.selector_suite import World, WorldRun

N = 300
NEAR = World.bernoulli([0.8, 0.79, 0.3, 0.2], N, 3)


def finished(rule: str, world: World = NEAR, **asked: float | bool) -> WorldRun:
    return WorldRun(make_selector(rule, Problem(4, N, **asked)), world).finish()  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", ["racing", "auto", "uniform"])
def test_a_run_stops_once_the_leading_one_is_near_enough(rule: str) -> None:
    run = finished(rule, stop_when_separated=True, within=0.1)
    selector = run.selector
    assert selector.stopped() is Stop.WITHIN
    assert selector.margin() <= 0.1
    assert not selector.best().separated
    means = NEAR.mean(4, N)
    assert means[selector.best().best] >= means.max() - 0.1


@pytest.mark.slow
def test_near_enough_costs_less_than_the_best() -> None:
    whole = finished("racing", within=1e-9)  # else it ends once they are level
    near = finished("racing", stop_when_separated=True, within=0.1)
    nearer = finished("racing", stop_when_separated=True, within=0.03)
    assert len(near.pairs) < 0.7 * len(whole.pairs)
    assert len(near.pairs) < len(nearer.pairs) <= len(whole.pairs)
    assert whole.pairs[: len(near.pairs)] == near.pairs


def test_a_set_is_near_enough_if_each_of_it_is() -> None:
    problem = Problem(4, N, budget=4 * N, stop_when_separated=True, within=0.25)
    selector = Pairs(OptMai(problem, top_k=3))
    WorldRun(selector, World.bernoulli([0.9, 0.85, 0.3, 0.28], N, 4)).finish()
    assert selector.stopped() is Stop.WITHIN
    assert set(selector.top()) >= {0, 1}


@pytest.mark.slow
def test_a_rebuilt_selector_stops_at_the_same_pair() -> None:
    warm = finished("auto", stop_when_separated=True, within=0.1)
    cold = make_selector("auto", Problem(4, N, stop_when_separated=True, within=0.1))
    for event in warm.events:
        if isinstance(event, Tell):
            cold.tell([event])
        elif isinstance(event, Ask):
            assert cold.stopped() is None
            cold.adopt([event])
    assert cold.stopped() is Stop.WITHIN


@pytest.mark.slow
@pytest.mark.coverage
def test_good_enough_is_wrong_at_most_at_level_delta() -> None:
    # 40 runs at delta = .2, binomial at 1e-6: the leader of three is .05 or .08 behind, and 16
    # calls in flight decide who leads.
    wrong = 0
    for seed in range(40):
        rows = np.random.default_rng([seed, 5]).permuted(
            (np.arange(60) < np.array([[35], [32], [30]])) * 1.0, axis=1
        )
        world = World(rows, np.full(rows.shape, int(State.DONE), dtype=np.int8))
        problem = Problem(3, 60, seed, 0.8, stop_when_separated=True, within=0.03)
        run = WorldRun(Pairs(Racing(problem)), world, in_flight=16).finish()
        if run.selector.stopped() in (Stop.WITHIN, Stop.SEPARATED):
            wrong += run.selector.best().best != 0
    assert binom.sf(wrong - 1, 40, 0.2) >= 1e-6


@pytest.mark.parametrize("asked", [{"within": 0.0}, {"within": 1.0}])
def test_what_is_good_enough_lies_between_0_and_1(asked: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must be in \(0, 1\), got"):
        Problem(2, 10, **asked)  # type: ignore[arg-type]
