from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.certification.betting import Goal, Method, RiskTest
from bestarm_agent.certification.certificate import Screen
from bestarm_agent.stats.non_inferiority import Decision
from tests.support.rates import RateCheck


def test_a_good_and_a_bad_candidate_get_their_verdicts() -> None:
    for loss, verdict in ((0.0, Decision.PASSED), (1.0, Decision.FAILED)):
        screen = Screen(Goal(0.3, 0.05))
        while screen.verdict is Decision.UNDECIDED:
            screen.push(loss, loss, loss)
        assert screen.verdict is verdict
        assert screen.n < 20


def test_the_history_is_that_of_the_test() -> None:
    screen, test = Screen(Goal(0.3, 0.05)), RiskTest(Goal(0.3, 0.05))
    for loss in (0.0, 1.0, 0.0, 0.5):
        assert screen.weights == [] or screen.weights[-1].sum() == pytest.approx(1)
        before = test.weights
        screen.push(loss, 0.5, 0.4)
        test.push(loss, 0.5, 0.4)
        assert screen.weights[-1] == pytest.approx(before)
        assert screen.log_wealths[-1] == test.log_wealth
    assert screen.log_e_value == test.log_peak


def test_a_missing_label_speaks_for_nobody() -> None:
    screen = Screen(Goal(0.5, 0.1), Method("r-eval"))
    for _ in range(100):
        screen.push(None)
    assert screen.verdict is Decision.UNDECIDED
    assert screen.log_wealths[-1] < -2  # money on the smallest bets is left


def test_a_range_counts_at_its_worst_end_in_both_directions() -> None:
    def wealth(guess: tuple[float, float], others: tuple[float, float]) -> float:
        screen = Screen(Goal(0.3, 0.1))
        screen.push_ranges(0.0, guess, others)
        return screen.log_wealths[0]

    assert wealth((0.2, 0.9), (0.1, 0.6)) == wealth((0.2, 0.2), (0.6, 0.6))
    assert wealth((0.2, 0.9), (0.1, 0.6)) < wealth((0.9, 0.9), (0.1, 0.1))


@pytest.mark.slow
@pytest.mark.coverage
def test_both_directions_keep_their_promise(check_rate: RateCheck) -> None:
    # Level 1e-6 each, against delta = .1, at risks just on the wrong side of the target.
    wrong = {Decision.PASSED: 0, Decision.FAILED: 0}
    for seed in range(100):
        for verdict, risk in ((Decision.PASSED, 0.2001), (Decision.FAILED, 0.1999)):
            losses = (np.random.default_rng(seed).random(100) < risk).astype(float)
            screen = Screen(Goal(0.2, 0.1), Method(n_factors=2))
            for loss in losses.tolist():
                screen.push(loss, 1 - loss, 1 - risk)
            wrong[verdict] += screen.verdict is verdict
    for count in wrong.values():
        check_rate(count, 100, 0.1)
