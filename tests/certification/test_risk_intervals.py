from __future__ import annotations

import pytest

from bestarm_agent.certification.betting import Goal, Method, RiskTest, risk_interval
from tests.certification.test_risk_test import rounds
from tests.support.rates import RateCheck


def test_the_upper_bound_is_where_the_test_stops_certifying() -> None:
    losses, guesses, others = rounds(400, 0.1, 0.05, seed=1)
    lower, upper = risk_interval(losses, guesses, others, delta=0.1)
    for risk, expected in ((upper + 2e-4, True), (upper - 2e-4, False)):
        test = RiskTest(Goal(risk, 0.05))
        test.extend(losses, guesses, others)
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
    data = rounds(1500, 0.1, 0.01, seed=3)
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
        data = rounds(100, 0.1, 0.05, seed)
        lower, upper = risk_interval(*data, delta=0.2, method=Method(n_factors=3))
        below += upper < 0.1
        above += lower > 0.1
    check_rate(below, 120, 0.1)
    check_rate(above, 120, 0.1)
