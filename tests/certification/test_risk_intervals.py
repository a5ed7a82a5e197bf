from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.certification.betting import Goal, Method, RiskTest, risk_interval
from bestarm_agent.stats.arrays import FloatArray
from tests.stats.conftest import RateCheck


def flips(n: int, seed: int, risk: float = 0.1, wrong: float = 0.05) -> tuple[FloatArray, ...]:
    rng = np.random.default_rng(seed)
    losses = rng.random(n) < risk
    guesses = losses ^ (rng.random(n) < wrong)
    others = ((rng.random((n, 10)) < risk) ^ (rng.random((n, 10)) < wrong)).mean(axis=1)
    return losses.astype(float), guesses.astype(float), others


def test_the_upper_bound_is_where_the_test_stops_certifying() -> None:
    losses, guesses, others = flips(400, seed=1)
    lower, upper = risk_interval(losses, guesses, others, delta=0.1)
    for risk, expected in ((upper + 2e-4, True), (upper - 2e-4, False)):
        test = RiskTest(Goal(risk, 0.05))
        for loss, guess, other in zip(losses, guesses, others, strict=True):
            test.push(float(loss), float(guess), float(other))
        assert test.certified is expected
    flipped = risk_interval(1 - losses, 1 - guesses, 1 - others, delta=0.1)
    assert flipped == pytest.approx((1 - upper, 1 - lower), abs=2e-4)


def test_one_loss_by_hand() -> None:
    # One loss of 0: the wealth at target a is the mean of 1 + b a / (1 - a) = 1 + a / (2 (1 - a)),
    # which reaches 2 / delta = 20 at a = 38 / 39.
    lower, upper = risk_interval(
        [0.0], [0.0], [0.0], delta=0.1, method=Method("r-eval"), tolerance=1e-9
    )
    assert lower == 0.0
    assert upper == pytest.approx(38 / 39, abs=1e-6)


@pytest.mark.slow
def test_a_good_autoevaluator_narrows_the_interval() -> None:
    data = flips(1500, seed=3, wrong=0.01)
    width = {}
    for name in ("r-eval", "r-autoeval+"):
        lower, upper = risk_interval(*data, delta=0.1, method=Method(name))
        width[name] = upper - lower
    assert width["r-autoeval+"] < 0.7 * width["r-eval"]


@pytest.mark.slow
@pytest.mark.coverage
def test_coverage(check_rate: RateCheck) -> None:
    # Level 1e-6: an interval of level .8 misses in at most 20 % of runs, either side in 10 %.
    below = above = 0
    for seed in range(120):
        lower, upper = risk_interval(*flips(100, seed), delta=0.2, method=Method(n_factors=3))
        below += upper < 0.1
        above += lower > 0.1
    check_rate(below, 120, 0.1)
    check_rate(above, 120, 0.1)
