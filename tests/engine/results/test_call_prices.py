"""Prices of calls where contested, dearer examples are the likelier to come early."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from bestarm_agent.config.study import PRICE
from bestarm_agent.domain.candidate import Candidate, PromptTemplate
from bestarm_agent.domain.events import Asked, CandidatesAdded, Event, ExamplesAdded, Told
from bestarm_agent.domain.outcome import Scored
from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.engine.results.objectives import Means, MeanTracker, track_objective
from bestarm_agent.selectors.answer import even_odds
from bestarm_agent.selectors.auto.rule import Auto
from bestarm_agent.selectors.history import Factors, HistoryModel, Validation
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.shared_order import SharedOrder
from bestarm_agent.selectors.types import Problem
from bestarm_agent.stats.betting import Odds

FloatArray: TypeAlias = NDArray[np.float64]
N = 100
DOLLARS = np.where(np.arange(N) < 40, 3.0, 1.0)  # of 1,000 calls, 1.8 on average
WEIGHTS = np.where(np.arange(N) < 40, 2.0, 0.6)


def bought(order: SharedOrder, count: int) -> Iterator[Event]:
    """The log of a candidate that takes the first examples of an order."""
    yield CandidatesAdded(
        (Candidate("fake", "a", PromptTemplate("plain", text="{{ q }}")),), costs=(0.004,)
    )
    yield ExamplesAdded(tuple(map(str, range(N))), tuple(map(str, range(N))))
    for seq, example in enumerate(order.examples[:count].tolist()):
        chance = 1.0 / ((N - seq) * order.odds_of(example).ratio)
        paid = round(DOLLARS[example] * 1e6)
        outcome = Scored(1.0, None, Usage(), Spend(), 0.1, "", cached=False, usd_nanos=paid)
        yield Asked(seq, 0, example, chance, "")
        yield Told(seq, outcome, 1.0)


def prices_of(events: Iterator[Event], odds: Callable[[int], Odds]) -> Means:
    tracker = MeanTracker(PRICE, 0.8, odds)
    for event in events:
        tracker.take(event)
    return tracker.means()


@pytest.mark.slow
@pytest.mark.coverage
def test_prices_allow_for_the_order() -> None:
    # Of 60 intervals at .8 more than 27 miss with a probability below 1e-5.
    means, missed = [], 0
    for seed in range(60):
        order = SharedOrder(ScoreTable(1, N), seed, WEIGHTS)
        found = prices_of(bought(order, 50), order.odds_of)
        means.append(found.mean[0])
        missed += not found.lower[0] <= DOLLARS.mean() <= found.upper[0]
        assert found.upper[0] - found.lower[0] < 2
    assert np.mean(means) == pytest.approx(DOLLARS.mean(), abs=0.05)  # plain means: 2.2
    assert binom.sf(missed - 1, 60, 0.2) > 1e-5


def test_a_weighed_price_by_hand() -> None:
    # 100 examples are ahead of the first draw, 99 of the second, which has the first behind it.
    order = SharedOrder(ScoreTable(1, N), 0, WEIGHTS)
    first, second = order.examples[:2].tolist()
    x, y = DOLLARS[[first, second]].tolist()
    r, s = order.odds_of(first).ratio, order.odds_of(second).ratio
    expected = (100 * r * x + x + 99 * s * y) / (100 * r + 1 + 99 * s)
    assert prices_of(bought(order, 2), order.odds_of).mean[0] == pytest.approx(expected)


def test_a_price_is_exact_once_all_is_seen() -> None:
    order = SharedOrder(ScoreTable(1, N), 0, WEIGHTS)
    found = prices_of(bought(order, N), order.odds_of)
    assert found.mean[0] == pytest.approx(1.8)
    assert found.lower[0] == pytest.approx(found.upper[0]) == pytest.approx(1.8)


def test_an_objective_asks_the_rule_how_examples_were_drawn() -> None:
    factors = Factors(np.where(np.arange(N) < 40, 0.0, 6.0), np.ones((N, 1)))
    lesson = HistoryModel(factors, Validation(1, 4.0, 0.5, 0.02, 30))
    selector = Pairs(Auto(Problem(1, N), history=lesson))
    events = list(bought(selector.rule.order, 50))
    aim = track_objective({"objective": "cheapest-within-epsilon"}, selector)
    assert aim is not None
    for event in events:
        aim.take(event)
    found = aim.prices()
    assert found is not None
    assert found.lower[0] <= DOLLARS.mean() <= found.upper[0] < 4


def test_chances_that_nobody_accounts_for_leave_no_interval() -> None:
    order = SharedOrder(ScoreTable(1, N), 0, WEIGHTS)
    found = prices_of(bought(order, 50), even_odds)
    assert (found.lower[0], found.upper[0]) == (0.0, 4.0), "no more than the bound"
