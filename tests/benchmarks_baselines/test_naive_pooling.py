from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.baselines.naive_pooling import NaivePooling

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.selectors.types import Problem, State, Tell
from bestarm_agent.stats.history import Factors, HistoryModel, Validation
from tests.support.selector_suite import SelectorSuite, World, WorldRun

USEFUL = Validation(2, 4.0, gain=0.4, gain_se=0.01, n_candidates=50)


def lesson(n_examples: int) -> HistoryModel:
    rng = np.random.default_rng(75)
    return HistoryModel(
        Factors(rng.normal(size=n_examples), rng.normal(size=(n_examples, 2))), USEFUL
    )


class TestNaivePooling(SelectorSuite):
    easy_budget = 300  # the made-up predictions mislead it at first

    def make(self, problem: Problem) -> Rule:
        return NaivePooling(problem, history=lesson(problem.n_examples), batch=3, tau=2)


class TestNaivePoolingWithoutHistory(SelectorSuite):
    def make(self, problem: Problem) -> Rule:
        return NaivePooling(problem, batch=3)


def test_the_mean_fills_up_with_predictions_by_hand() -> None:
    """Predictions are 1/2 (offset 0, no directions); scores 1, 1, then 0.25 of four examples.

    The refit comes with the first pull after the warm-up batch of two, so from then on the mean is
    (2 + 2 / 2) / 4, then (2.25 + 1 / 2) / 4.
    """
    blank = HistoryModel(Factors(np.zeros(4), np.zeros((4, 0))), USEFUL)
    selector = Pairs(NaivePooling(Problem(1, 4, stop_when_separated=False), history=blank, batch=2))
    for ask in selector.ask(2):
        selector.tell([Tell(ask.seq, State.DONE, 1.0)])
    assert selector.estimates().mean[0] == 1.0
    [ask] = selector.ask()
    assert selector.estimates().mean[0] == pytest.approx(3 / 4)
    selector.tell([Tell(ask.seq, State.DONE, 0.25)])
    assert selector.estimates().mean[0] == pytest.approx(2.75 / 4)


def test_useless_history_is_left_alone() -> None:
    known = lesson(30)
    useless = HistoryModel(known.factors, replace(USEFUL, gain=0.0))
    world = World.bernoulli([0.2, 0.5, 0.8], 30, seed=5)
    naive = WorldRun(
        Pairs(NaivePooling(Problem(3, 30, stop_when_separated=False), history=useless, batch=4)),
        world,
    ).go(60)
    plain = WorldRun(Pairs(UcbE(Problem(3, 30, stop_when_separated=False), batch=4)), world).go(60)
    assert naive.pairs == plain.pairs
