from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.certification.evidence import Goal, Method, RiskTest
from bestarm_agent.certification.screening import DrawScreen, PoolScreen, Verdict
from bestarm_agent.stats.keyed_random import KeyedRandom
from tests.stats.conftest import RateCheck


def test_a_good_and_a_bad_candidate_get_their_verdicts() -> None:
    for loss, verdict in ((0.0, Verdict.CERTIFIED), (1.0, Verdict.REFUTED)):
        screen = DrawScreen(Goal(0.3, 0.05))
        while screen.verdict is Verdict.UNDECIDED:
            screen.push(loss, [loss], [loss])
        assert screen.verdict is verdict
        assert screen.n < 20


def test_the_history_is_that_of_the_test() -> None:
    screen, test = DrawScreen(Goal(0.3, 0.05)), RiskTest(Goal(0.3, 0.05))
    for loss in (0.0, 1.0, 0.0, 0.5):
        assert screen.weights == [] or screen.weights[-1].sum() == pytest.approx(1)
        before = test.weights
        screen.push(loss, [0.5], [0.4])
        test.push(loss, [0.5], [0.4])
        assert screen.weights[-1] == pytest.approx(before)
        assert screen.log_wealths[-1] == test.log_wealth
    assert screen.log_e_value == test.log_peak


def test_a_missing_label_speaks_for_nobody() -> None:
    screen = DrawScreen(Goal(0.5, 0.1), Method("r-eval"), n_autoevaluators=0)
    for _ in range(100):
        screen.push(None)
    assert screen.verdict is Verdict.UNDECIDED
    assert screen.log_wealths[-1] < -2  # money on the smallest bets is left
    pool = PoolScreen(Goal(0.5, 0.1), np.zeros((0, 10)))
    ask = pool.ask(np.random.default_rng(0))
    pool.tell(ask.seq, None)
    assert pool.log_wealths[-1] < 0


@pytest.mark.parametrize("choose", [False, True])
def test_a_pool_is_decided_at_the_latest_when_all_is_labelled(choose: bool) -> None:
    random = KeyedRandom(0, "label")
    losses = (np.random.default_rng(1).random(50) < 0.3).astype(float)
    for risk in (losses.mean() + 0.02, losses.mean() - 0.02):
        screen = PoolScreen(Goal(float(risk), 0.001), 0.8 * losses[None], choose=choose)
        while screen.verdict is Verdict.UNDECIDED:
            ask = screen.ask(random.at(screen.n))
            screen.tell(ask.seq, float(losses[ask.example]))
        good = losses.mean() <= risk
        assert screen.verdict is (Verdict.CERTIFIED if good else Verdict.REFUTED)
        assert len(screen.weights) == len(screen.log_wealths) == screen.n <= 50
        assert screen.n_left == 50 - screen.n


@pytest.mark.slow
@pytest.mark.coverage
def test_both_directions_keep_their_promise(check_rate: RateCheck) -> None:
    # Level 1e-6 each, against delta = .1, at risks just on the wrong side of the target.
    wrong = {Verdict.CERTIFIED: 0, Verdict.REFUTED: 0}
    for seed in range(100):
        for verdict, risk in ((Verdict.CERTIFIED, 0.2001), (Verdict.REFUTED, 0.1999)):
            losses = (np.random.default_rng(seed).random(100) < risk).astype(float)
            screen = DrawScreen(Goal(0.2, 0.1), Method(n_factors=2))
            for loss in losses.tolist():
                screen.push(loss, [1 - loss], [1 - risk])
            wrong[verdict] += screen.verdict is verdict
    for count in wrong.values():
        check_rate(count, 100, 0.1)
