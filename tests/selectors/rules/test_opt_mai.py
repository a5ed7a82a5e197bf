from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.opt_mai import OptMai
from bestarm_agent.selectors.types import Problem, State, Tell
from tests.support.selector_suite import Run, SelectorSuite, World


class TestOptMai(SelectorSuite):
    def make(self, problem: Problem) -> Rule:
        return OptMai(problem)


class TestOptMaiOfFour(SelectorSuite):
    """More than half of the suite's six candidates are wanted: the mirrored problem."""

    learns = False

    def make(self, problem: Problem) -> Rule:
        return OptMai(problem, top_k=4, beta=0.9)


def run(selector: Pairs, scores: list[float]) -> list[int]:
    while asks := selector.ask():
        selector.tell([Tell(asks[0].seq, State.DONE, scores[asks[0].pair.candidate])])
    return [int(n) for n in selector.table.n_trials]


def test_the_rounds_by_hand() -> None:
    """n = 8, beta = .8, Q = 160: Q' = 160 / (1 - .8^7.228) = 199.8; sizes 8, 6, 4, 3, 2, 1.

    Pulls each: 4.996; + .16 Q'/6 = 10.325; + .128 Q'/4 = 16.72; + .1024 Q'/3 = 23.54;
    + .08192 Q'/2 = 31.73; + .065536 Q' = 44.82.
    """
    schedule = OptMai(Problem(8, 1000, budget=160), top_k=2)._schedule(8, 160)
    assert schedule.targets.tolist() == [4, 10, 16, 23, 31, 44]
    assert schedule.leaving.tolist() == [2, 2, 1, 1, 1, 1]


def test_a_trace_by_hand() -> None:
    """4K = 8 candidates: one quartile elimination (.3, .2 leave after 4), then accept-reject.

    .95 .8 .7 .62 .5 .4, K' = 2: gaps .25 .1 .1 .18 .3 .4, so .4 and .5 leave after 10;
    then .25 .1 .1 .18: .95 is accepted after 16; .8 .7 .62, K' = 1: gaps .1 .1 .18, so .62 leaves
    after 23; then one of .8 and .7 decides the other after 31.
    """
    selector = Pairs(OptMai(Problem(8, 1000, budget=160), top_k=2))
    scores = [0.95, 0.8, 0.7, 0.62, 0.5, 0.4, 0.3, 0.2]
    assert run(selector, scores) == [16, 31, 31, 23, 10, 10, 4, 4]
    assert selector.top() == (0, 1)


def test_wanting_most_of_them_mirrors_the_problem() -> None:
    """The worst two of eight on 1 - score: the same trace upside down."""
    selector = Pairs(OptMai(Problem(8, 1000, budget=160), top_k=6))
    scores = [0.05, 0.2, 0.3, 0.38, 0.5, 0.6, 0.7, 0.8]
    assert run(selector, scores) == [16, 31, 31, 23, 10, 10, 4, 4]
    assert selector.top() == (7, 6, 5, 4, 3, 2)
    assert selector.ranking()[6:] == [1, 0]


@pytest.mark.slow
def test_no_worker_is_pulled_often() -> None:
    """Zhou, Chen & Li 2014, section 6.2: 164 workers, Q = 10n, K = 20: at most 48 pulls.

    We find 50 or 57, depending on whether the last candidate is decided one round earlier; SAR has
    143. The paper does not say how it rounds the pulls of a round.
    """
    for seed in range(4):
        selector = Pairs(OptMai(Problem(164, 800, seed=seed, budget=1640), top_k=20))
        world = World.bernoulli(np.linspace(0.4, 1.0, 164), 800, seed)
        Run(selector, world).finish()
        assert 30 < selector.table.n_trials.max() <= 57
        assert selector.table.n_asked <= 1640


@pytest.mark.parametrize(("top_k", "in_flight"), [(1, 1), (3, 16), (20, 1), (39, 16), (40, 1)])
def test_the_chosen_set_has_the_size_wanted(top_k: int, in_flight: int) -> None:
    selector = Pairs(OptMai(Problem(40, 200, budget=1200), top_k=top_k))
    world = World.bernoulli(np.linspace(0.1, 0.9, 40), 200, seed=top_k)
    Run(selector, world, in_flight).finish()
    chosen, truth = selector.top(), world.mean(40, 200)
    assert len(set(chosen)) == top_k
    regret = np.sort(truth)[::-1][:top_k].mean() - truth[list(chosen)].mean()
    assert regret < 0.05


def test_equal_candidates_are_chosen_at_random() -> None:
    chosen: set[int] = set()
    for seed in range(40):
        selector = Pairs(OptMai(Problem(6, 100, seed=seed, budget=60), top_k=2))
        run(selector, [0.5] * 6)
        chosen.update(selector.top())
    assert chosen == set(range(6))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"beta": 0.75}, r"beta must be in \(0.75, 1\), got 0.75"),
        ({"beta": 1.0}, r"beta must be in \(0.75, 1\), got 1.0"),
        ({"top_k": 0}, "top_k must be >= 1, got 0"),
    ],
)
def test_senseless_parameters_are_refused(params: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pairs(OptMai(Problem(8, 10, budget=30), **params))  # type: ignore[arg-type]
