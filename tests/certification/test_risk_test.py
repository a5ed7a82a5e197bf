from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from bestarm_agent.certification.betting import METHODS, BetPrior, Goal, Method, RiskTest
from bestarm_agent.stats.arrays import FloatArray
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
