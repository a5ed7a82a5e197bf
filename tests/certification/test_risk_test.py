from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from bestarm_agent.certification.betting import (
    METHODS,
    BetPrior,
    Goal,
    Method,
    RiskTest,
    risk_interval,
)
from bestarm_agent.certification.certificate import Screen
from bestarm_agent.stats.arrays import FloatArray
from bestarm_agent.stats.non_inferiority import Conclusion
from tests.support.portfolio_grids import GridMethod, exact_prior, published_prior
from tests.support.rates import RateCheck


def slow_test(
    observations: FloatArray, risk: float, tops: FloatArray, nodes: FloatArray, masses: FloatArray
) -> tuple[list[float], FloatArray]:
    """Algorithm 1 word for word, with the bets of equation 19: log wealths, last weights."""
    n, n_factors = observations.shape
    own = np.ones(n_factors)
    wealth, path = 1.0, []
    for i in range(n):
        gains = np.empty(n_factors)
        weights = own / own.sum()
        for s in range(n_factors):
            span = tops[s] - risk
            past = np.ones(len(nodes))
            for j in range(i):
                past *= 1 - nodes / span * (observations[j, s] - risk)
            bet = (nodes * past * masses).sum() / (past * masses).sum() / span
            gains[s] = 1 - bet * (observations[i, s] - risk)
        wealth *= float(weights @ gains)
        own *= gains
        path.append(math.log(wealth))
    return path, own / own.sum()


def rounds(
    n: int, risk: float, flips: float, seed: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Losses, guesses that are wrong with probability ``flips``, means of ten other guesses."""
    rng = np.random.default_rng(seed)
    losses = rng.random(n) < risk
    guesses = losses ^ (rng.random(n) < flips)
    others = (rng.random((n, 10)) < risk) ^ (rng.random((n, 10)) < flips)
    return losses.astype(float), guesses.astype(float), others.mean(axis=1)


def one_by_one(test: RiskTest, columns: Sequence[FloatArray]) -> list[float]:
    """Push one round after the other; return the log wealth after each."""
    path = []
    for loss, guess, other in zip(*(column.tolist() for column in columns), strict=True):
        test.push(loss, guess, other)
        path.append(test.log_wealth)
    return path


def test_one_round_by_hand() -> None:
    test = RiskTest(Goal(0.2, 0.1), Method(n_factors=2))
    test.push(1.0, 1.0, 0.3)
    # Factor 0 sees q = 1: payoff 1. Factor 1 sees 1 + (.3 - 1) = .3: payoff .1 / 1.8. The mean bet
    # is a half: wealths .5 and .972222, of weight a half each.
    assert test.log_wealth == pytest.approx(math.log(0.736111), abs=1e-6)
    assert test.weights == pytest.approx([0.339623, 0.660377], abs=1e-6)
    assert (test.n, test.log_peak, test.certified) == (1, 0.0, False)


@pytest.mark.parametrize("grid", [exact_prior, published_prior])
def test_equals_the_algorithm_word_for_word(grid: Callable[[], BetPrior]) -> None:
    prior = grid()
    test = RiskTest(Goal(0.3, 0.1), GridMethod(n_factors=3, prior=prior))
    losses, guesses, others = rounds(30, 0.2, flips=0.1, seed=4)
    path = one_by_one(test, (losses, guesses, others))
    observations = losses[:, None] + np.outer(others - guesses, test.reliance)
    tops = np.array([1.0, 1.5, 2.0])
    expected, weights = slow_test(observations, 0.3, tops, prior.nodes, prior.masses)
    assert path == pytest.approx(expected, abs=1e-9)
    assert test.weights == pytest.approx(weights, abs=1e-9)
    assert test.log_peak == pytest.approx(max(0.0, *expected), abs=1e-9)


@pytest.mark.parametrize(
    "method",
    [
        lambda: Method(),
        lambda: GridMethod(prior=exact_prior()),
        lambda: Method(betting="plug-in"),
    ],
)
def test_many_at_once_equal_one_at_a_time(method: Callable[[], Method]) -> None:
    columns = rounds(100, 0.1, flips=0.1, seed=9)
    singly, at_once = (RiskTest(Goal(0.12, 0.1), method()) for _ in range(2))
    path, found = one_by_one(singly, columns), list[float]()
    for part in (slice(0, 5), slice(5, 70), slice(70, 100)):
        found += at_once.extend(*(column[part] for column in columns)).tolist()
    assert found == pytest.approx(path, abs=1e-9)
    assert at_once.log_peak == pytest.approx(singly.log_peak, abs=1e-9)
    assert at_once.n == singly.n
    assert at_once.weights == pytest.approx(singly.weights)
    assert at_once.stakes() == pytest.approx(singly.stakes())


def test_the_whole_wealth_is_the_weighted_sum_of_the_factors() -> None:
    test = RiskTest(Goal(0.12, 0.1), Method(betting="plug-in", horizon=200))
    columns = rounds(200, 0.1, flips=0.05, seed=5)
    for loss, guess, other in zip(*columns, strict=True):  # equation 11, round by round
        weights, before = test.weights, test.log_wealth
        stakes = test.stakes()
        test.push(float(loss), float(guess), float(other))
        observations = loss + test.reliance * (other - guess)
        spans = 1 + test.reliance - 0.12
        gain = float(weights @ (1 - stakes * (observations - 0.12) / spans))
        assert test.log_wealth - before == pytest.approx(math.log(gain), abs=1e-9)


def test_weights_move_to_the_factors_that_reduce_the_variance() -> None:
    heaviest = {}
    for flips in (0.01, 0.1, 0.3):
        test = RiskTest(Goal(0.12, 0.1))
        test.extend(*rounds(4000, 0.1, flips, seed=6))
        heaviest[flips] = float(test.weights @ test.reliance)
    # Figure 2 of the paper: concentrated around 0.9, 0.5 and 0.
    assert heaviest[0.01] > 0.65
    assert 0.3 < heaviest[0.1] < 0.7
    assert heaviest[0.3] < 0.3


def test_factors() -> None:
    assert Method("r-eval").reliance().tolist() == [0.0]
    assert Method("r-autoeval").reliance().tolist() == [1.0]
    assert Method().reliance() == pytest.approx(np.linspace(0, 1, 10))


def test_wrong_arguments_are_refused() -> None:
    goal = Goal(0.1, 0.1)
    for message, make in (
        ("did you mean `r-autoeval", lambda: Method(name="r-autoevl").reliance()),
        ("2 or more", lambda: Method(n_factors=1).reliance()),
        ("did you mean `plug-in`", lambda: RiskTest(goal, Method(betting="plugin"))),
        ("delta must be in", lambda: Goal(0.1, 1.0)),
        (r"a loss must be in \[0, 1\], got 50", lambda: RiskTest(goal).push(50.0)),
        ("guesses must be in", lambda: RiskTest(goal).extend([0.0], [np.nan], [0.0])),
    ):
        with pytest.raises(ValueError, match=message):
            make()


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("betting", ["portfolio", "plug-in"])
def test_a_risk_above_the_target_is_rarely_certified(
    method: str, betting: str, check_rate: RateCheck
) -> None:
    # One-sided binomial test at level 1e-6 against delta = 0.1; watched after every label.
    false = 0
    for seed in range(250):
        test = RiskTest(Goal(0.12, 0.1), Method(method, betting))
        test.extend(*rounds(250, 0.1201, flips=0.1, seed=seed))
        false += test.certified
    check_rate(false, 250, 0.1)


@pytest.mark.slow
@pytest.mark.coverage
def test_an_autoevaluator_that_hides_all_losses_fools_nobody(check_rate: RateCheck) -> None:
    # Level 1e-6. It guesses 0 where a label will be asked for next after a 0, and else the truth.
    false = 0
    for seed in range(250):
        rng = np.random.default_rng([seed, 1])
        test = RiskTest(Goal(0.2, 0.1))
        liar = False
        for loss in (rng.random(200) < 0.201).astype(float).tolist():
            others = (rng.random(3) < 0.201).astype(float)
            test.push(loss, 0.0 if liar else loss, 0.0 if liar else float(others.mean()))
            liar = loss == 0.0
        false += test.certified
    check_rate(false, 250, 0.1)


# the interval that follows


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
@pytest.mark.coverage
def test_the_interval_covers(check_rate: RateCheck) -> None:
    # Level 1e-6: an interval of level .8 misses in at most 20 % of runs, either side in 10 %.
    below = above = 0
    for seed in range(120):
        data = rounds(100, 0.1, 0.05, seed)
        lower, upper = risk_interval(*data, delta=0.2, method=Method(n_factors=3))
        below += upper < 0.1
        above += lower > 0.1
    check_rate(below, 120, 0.1)
    check_rate(above, 120, 0.1)


# both directions at once


def test_a_good_and_a_bad_candidate_get_their_verdicts() -> None:
    for loss, verdict in ((0.0, Conclusion.PASSED), (1.0, Conclusion.FAILED)):
        screen = Screen(Goal(0.3, 0.05))
        while screen.verdict is Conclusion.UNDECIDED:
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
    assert screen.verdict is Conclusion.UNDECIDED
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
    wrong = {Conclusion.PASSED: 0, Conclusion.FAILED: 0}
    for seed in range(100):
        for verdict, risk in ((Conclusion.PASSED, 0.2001), (Conclusion.FAILED, 0.1999)):
            losses = (np.random.default_rng(seed).random(100) < risk).astype(float)
            screen = Screen(Goal(0.2, 0.1), Method(n_factors=2))
            for loss in losses.tolist():
                screen.push(loss, 1 - loss, 1 - risk)
            wrong[verdict] += screen.verdict is verdict
    for count in wrong.values():
        check_rate(count, 100, 0.1)
