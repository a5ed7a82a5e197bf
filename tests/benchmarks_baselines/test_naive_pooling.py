from __future__ import annotations

import numpy as np
import pytest
from benchmarks.baselines.naive_pooling import NaivePooling

from bestarm_agent.selectors.types import State, Tell
from bestarm_agent.stats.history import Factors
from tests.support.histories import lesson
from tests.support.selector_suite import World, WorldRun, opened


def test_the_mean_fills_up_with_predictions_by_hand() -> None:
    """Predictions are 1/2 (offset 0, no directions); scores 1, 1, then 0.25 of four examples.

    The refit comes with the first pull after the warm-up batch of two, so from then on the mean is
    (2 + 2 / 2) / 4, then (2.25 + 1 / 2) / 4.
    """
    blank = lesson(Factors(np.zeros(4), np.zeros((4, 0))))
    selector = opened(NaivePooling, 1, 4, history=blank, batch=2)
    for ask in selector.ask(2):
        selector.tell([Tell(ask.seq, State.DONE, 1.0)])
    assert selector.estimates().mean[0] == 1.0
    [ask] = selector.ask()
    assert selector.estimates().mean[0] == pytest.approx(3 / 4)
    selector.tell([Tell(ask.seq, State.DONE, 0.25)])
    assert selector.estimates().mean[0] == pytest.approx(2.75 / 4)


def test_useless_history_is_left_alone() -> None:
    world = World.bernoulli([0.2, 0.5, 0.8], 30, seed=5)
    naive = opened(NaivePooling, 3, 30, history=lesson(30, gain=0.0), batch=4)
    plain = opened("ucb-e", 3, 30, batch=4)
    assert WorldRun(naive, world).go(60).pairs == WorldRun(plain, world).go(60).pairs
