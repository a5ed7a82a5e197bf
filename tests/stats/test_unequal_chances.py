"""Bets on draws that are more likely where there is more to see: fair all the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from math import inf
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from bestarm_agent.selectors.auto.rule import Auto
from bestarm_agent.selectors.history import Factors, HistoryModel, Validation
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.shared_order import SharedOrder
from bestarm_agent.selectors.types import Problem
from bestarm_agent.stats.betting import Bets, LowerBound, Odds, bet_grid
from bestarm_agent.stats.paired_sequences import PairedSequences
from tests.stats.one_by_one import Intervals, Wager, push

FloatArray: TypeAlias = NDArray[np.float64]
RateCheck: TypeAlias = Callable[[int, int, float], None]


def odds_along(order: tuple[int, ...], weights: FloatArray) -> list[Odds]:
    """Odds of every draw, by their definition."""
    found = []
    for at, drawn in enumerate(order):
        left = weights[list(order[at:])]
        found.append(Odds(float(left.mean() / weights[drawn]), float(left.mean() / left.min())))
    return found


def chance_of(order: tuple[int, ...], weights: FloatArray) -> float:
    ordered = weights[list(order)]
    return float(np.prod(ordered / np.cumsum(ordered[::-1])[::-1]))


def test_a_draw_by_hand() -> None:
    # N = 4, m = 1/2, one bet b = 1/2: c = 1/2, stake = .5 sqrt(.5) = .3536.
    wager = Wager(0.5, Bets((0.5,), (1.0,)), size=4)
    wager.push(1.0, Odds(2.0, 2.0))  # at most .98 / 2; gain = 2 (1 / .5 - 1)
    assert wager.wealth == pytest.approx(1 + 0.353553 * 2)
    wager = Wager(0.5, Bets((0.5,), (1.0,)), size=4)
    wager.push(1.0, Odds(0.5, 4.0))  # at most .98 / 4 = .245; gain = 1/2
    assert wager.wealth == pytest.approx(1 + 0.245 / 2)


@pytest.mark.parametrize("values", [(0.0, 0.0, 1.0, 1.0), (0.2, 0.9, 0.4, 0.5)])
def test_wealth_is_expected_to_stay_under_the_hypothesis(values: tuple[float, ...]) -> None:
    """Over all orders by their chances, exactly; the last draw says nothing more."""
    weights = np.array([0.3, 1.0, 0.5, 3.0])
    bets, mean = bet_grid(4, 0.1), float(np.mean(values))
    expected = np.zeros(3)
    for order in permutations(range(4)):
        wager = Wager(mean, bets, 4)
        for at, odds in enumerate(odds_along(order, weights)[:3]):
            wager.push(values[order[at]], odds)
            expected[at] += chance_of(order, weights) * min(wager.wealth, 1e9)
    np.testing.assert_allclose(expected, 1.0, atol=1e-4)  # odds of 0 are raised to 1e-9
    assert (expected <= 1 + 1e-12).all()


def test_several_draws_at_once_are_as_good_as_one_by_one() -> None:
    rng = np.random.default_rng(0)
    values, weights = rng.random(40), rng.random(40) + 0.2
    odds = odds_along(tuple(rng.permutation(40).tolist()), weights)
    one, many = (Wager(0.4, bet_grid(40, 0.05), 40) for _ in range(2))
    for value, odd in zip(values.tolist(), odds, strict=True):
        one.push(value, odd)
    many.extend(values, np.array(odds))
    assert many.wealth == pytest.approx(one.wealth) or many.wealth == one.wealth == inf


def test_a_lower_bound_replays_its_odds() -> None:
    """The bound is the edge of what wagers with these odds reject."""
    rng = np.random.default_rng(1)
    values: FloatArray = np.where(rng.random(60) < 0.8, 1.0, 0.0)
    weights = rng.random(60) + 0.2
    bets = bet_grid(60, 0.1)
    bound = LowerBound(0.1, bets, 60)
    odds = odds_along(tuple(range(60)), weights)
    bound.extend(values[:30], np.array(odds[:30]))
    assert 0.2 < bound.lower < values.mean()

    def highest(wager: Wager) -> float:
        wager.extend(values[:30], np.array(odds[:30]))
        return wager.highest

    assert highest(Wager(bound.lower, bets, 60)) >= 10
    assert highest(Wager(min(1.0, bound.lower + 0.05), bets, 60)) < 10


def test_the_shared_order_states_its_odds() -> None:
    weights = np.array([0.3, 1.0, 0.5, 3.0, 1.0])
    order = SharedOrder(ScoreTable(2, 5), 3, weights)
    expected = odds_along(tuple(order.examples.tolist()), weights)
    for example, odds in zip(order.examples.tolist(), expected, strict=True):
        assert order.odds_of(example) == pytest.approx(odds)
    assert not order.is_even
    even = SharedOrder(ScoreTable(2, 5), 3)
    assert [even.odds_of(example) for example in range(5)] == [Odds(1.0, 1.0)] * 5


@pytest.mark.coverage
def test_heavier_examples_come_first_by_their_weight(check_rate: RateCheck) -> None:
    # Of 2,000 orders the heaviest of four comes first in 1/2, the lightest in 1/16.
    weights = np.array([0.5, 3.0, 4.0, 0.5])
    first = [int(SharedOrder(ScoreTable(1, 4), s, weights).examples[0]) for s in range(2000)]
    check_rate(first.count(2), 2000, 0.5)
    check_rate(first.count(3), 2000, 1 / 16)
    check_rate(2000 - first.count(2), 2000, 0.5)


def drawn(rng: np.random.Generator, weights: FloatArray) -> tuple[int, ...]:
    """An order in which each comes next with a chance proportional to its weight."""
    return tuple(np.argsort(rng.exponential(size=len(weights)) / weights).tolist())


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize("heavy", ["ones", "zeros"])
def test_the_mean_is_ever_missed_at_most_at_level_alpha(heavy: str, check_rate: RateCheck) -> None:
    # 300 runs at alpha = .2: ones, or zeros, are up to six times as likely to come early.
    rng = np.random.default_rng(2)
    values = (np.arange(60) < 40) * 1.0
    weights = np.where((values == 1) == (heavy == "ones"), 2.0, 1 / 3) + 0.2 * rng.random(60)
    missed, alone = 0, 0
    for _ in range(300):
        order = drawn(rng, weights)
        weighed, naive = (Intervals(1, 60, 0.2) for _ in range(2))
        bad = worse = False
        for example, odds in zip(order[:-1], odds_along(order, weights), strict=False):
            weighed.push(0, values[example], values[example], odds)
            naive.push(0, values[example], values[example])
            bad |= not weighed.lower[0] - 1e-9 <= 2 / 3 <= weighed.upper[0] + 1e-9
            worse |= not naive.lower[0] - 1e-9 <= 2 / 3 <= naive.upper[0] + 1e-9
        missed, alone = missed + bad, alone + worse
    check_rate(missed, 300, 0.2)
    assert alone > 200  # without the odds the bounds are wrong: the test could fail


@pytest.mark.slow
@pytest.mark.coverage
def test_a_row_as_good_as_another_is_beaten_at_most_at_level_alpha(check_rate: RateCheck) -> None:
    # 400 runs at alpha = .2: the second row wins on ten contested examples, which come early, and
    # loses ten of the others.
    rng = np.random.default_rng(3)
    x, y = np.full(80, 0.5), np.full(80, 0.5)
    x[:10], y[:10] = 0.0, 1.0
    x[10:20], y[10:20] = 1.0, 0.0
    weights = np.where(np.arange(80) < 10, 2.0, 0.5)
    lost = alone = 0
    for _ in range(400):
        order = drawn(rng, weights)
        weighed, naive = (PairedSequences(2, 80, 0.2) for _ in range(2))
        for example, odds in zip(order, odds_along(order, weights), strict=True):
            for row, values in enumerate((x, y)):
                push(weighed, row, example, values[example], values[example], odds)
                push(naive, row, example, values[example], values[example])
        lost += bool(weighed.beaten_by(1)[0])  # looks at every prefix, not at the last alone
        alone += bool(naive.beaten_by(1)[0])
    check_rate(lost, 400, 0.2)
    assert alone > 200


@pytest.mark.slow
@pytest.mark.coverage
def test_the_odds_hold_also_after_a_run_of_the_same_seed(check_rate: RateCheck) -> None:
    # 100 runs at alpha = .2. The first run saw 60 examples; ones look contested, zeros easy.
    values = (np.arange(300) < 150) * 1.0
    strong, missed = Validation(1, 4.0, 0.5, 0.02, 30), 0
    for seed in range(100):
        seen = Auto(Problem(2, 300, seed=seed)).order.examples[:60]
        offset = np.full(300, 2.0)
        offset[seen] = np.where(values[seen] == 1, -1.0, 9.0)
        history = HistoryModel(Factors(offset, np.ones((300, 1))), strong)
        order = Auto(Problem(2, 300, seed=seed), history=history).order
        row, bad = Intervals(1, 300, 0.2), False
        for example in order.examples[:-1].tolist():
            row.push(0, values[example], values[example], order.odds_of(example))
            bad |= not row.lower[0] - 1e-9 <= 0.5 <= row.upper[0] + 1e-9
        missed += bad
    check_rate(missed, 100, 0.2)
