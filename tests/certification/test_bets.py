from __future__ import annotations

import math

import numpy as np
import pytest

from bestarm_agent.certification.betting import (
    BetPrior,
    BettingRule,
    Goal,
    PlugInBets,
    UniversalPortfolio,
    chebyshev_prior,
)
from bestarm_agent.stats.arrays import FloatArray
from tests.support.portfolio_grids import exact_prior, published_prior


def feed(bets: BettingRule, values: FloatArray) -> None:
    for value in values:
        bets.push(np.full(len(bets.log_wealths), value))


def portfolio(risk: float, prior: BetPrior | None = None, n_factors: int = 1) -> UniversalPortfolio:
    return UniversalPortfolio(risk, np.full(n_factors, 1.0 - risk), prior)


def plug_in(risk: float, delta: float = 0.1, horizon: int | None = None) -> PlugInBets:
    return PlugInBets(Goal(risk, delta), np.array([1.0 - risk]), horizon)


def test_two_rounds_of_a_portfolio_by_hand() -> None:
    bets = portfolio(0.5, chebyshev_prior(2))  # bets .14645 and .85355
    assert bets.stakes() == pytest.approx([0.5])
    feed(bets, np.array([0.0]))  # payoff -1: wealths 1.14645 and 1.85355
    assert bets.log_wealth == pytest.approx(math.log(1.5))
    assert bets.stakes() == pytest.approx([(0.146447 * 1.146447 + 0.853553 * 1.853553) / 3])
    feed(bets, np.array([1.0]))  # payoff 1: 1.5 (1 - 0.58333) = 0.625
    assert bets.log_wealth == pytest.approx(math.log(0.625))
    assert bets.log_wealths == pytest.approx([math.log(0.625)])


def test_two_plug_in_bets_by_hand() -> None:
    bets = plug_in(0.1, horizon=100)
    # lambda_1 = sqrt(2 ln 10 / (100 * 0.25)) = 0.429193, as a share of 1 / (1 - 0.1)
    feed(bets, np.array([0.0]))
    assert bets.log_wealth == pytest.approx(math.log(1 + 0.1 * 0.429193), abs=1e-6)
    # mu_1 = .25, variance (.25 + .0625) / 2: lambda_2 = sqrt(2 ln 10 / 15.625) = 0.542891
    assert bets.stakes() == pytest.approx([0.9 * 0.542891], abs=1e-6)
    feed(bets, np.array([1.0]))
    expected = (1 + 0.1 * 0.429193) * (1 - 0.9 * 0.542891)
    assert bets.log_wealth == pytest.approx(math.log(expected), abs=1e-6)


def test_plug_in_bets_stake_at_most_three_quarters_and_spread_their_effort() -> None:
    assert plug_in(0.5, 0.01, horizon=2).stakes() == pytest.approx([0.75])
    bets = plug_in(0.5)
    feed(bets, np.full(50, 0.5))
    variance = 0.25 / 51  # every mean so far was a half
    by_hand = 0.5 * math.sqrt(2 * math.log(10) / (51 * math.log(52) * variance))
    assert bets.stakes() == pytest.approx([min(0.75, by_hand)])


@pytest.mark.parametrize("risk", [0.05, 0.1, 0.3])
def test_64_nodes_are_all_but_exact_over_5000_rounds(risk: float) -> None:
    losses = (np.random.default_rng(2).random(5000) < risk).astype(float)
    few, many = portfolio(0.12), portfolio(0.12, chebyshev_prior(4096))
    for bets in (few, many):
        feed(bets, losses)
    assert few.log_wealth == pytest.approx(many.log_wealth, abs=1e-6)
    assert few.stakes() == pytest.approx(many.stakes(), abs=1e-6)


@pytest.mark.slow
def test_a_hundred_thousand_rounds_neither_overflow_nor_vanish() -> None:
    losses = np.concatenate([np.ones(2000), np.zeros(98_000)])
    bets = portfolio(0.5, n_factors=2)
    feed(bets, losses)
    # The best constant bet b makes 2000 ln(1-b) + 98000 ln(1+b) = 58122 at b = .96; a portfolio
    # falls short of it by about half a logarithm of the number of rounds (Cover and Ordentlich).
    best = 2000 * math.log(0.04) + 98_000 * math.log(1.96)
    assert best - 15 < bets.log_wealth < best


def test_exact_masses_and_quadrature_agree_and_the_published_grid_does_not() -> None:
    losses = (np.random.default_rng(3).random(1000) < 0.1).astype(float)
    wealth = {}
    for prior in (chebyshev_prior, exact_prior, published_prior):
        bets = portfolio(0.12, prior())
        feed(bets, losses)
        wealth[prior] = bets.log_wealth
    assert wealth[exact_prior] == pytest.approx(wealth[chebyshev_prior], abs=1e-4)
    assert abs(wealth[published_prior] - wealth[exact_prior]) > 0.1


def test_a_lost_bet_of_everything_leaves_the_others() -> None:
    bets = portfolio(0.5, BetPrior(np.array([0.5, 1.0]), np.array([0.5, 0.5])))
    feed(bets, np.ones(40))  # the second bet is ruined at once
    assert bets.log_wealth == pytest.approx(math.log(0.5) + 40 * math.log(0.5))
