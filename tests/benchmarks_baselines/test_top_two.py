from __future__ import annotations

import numpy as np
import pytest
from benchmarks.baselines.top_two import TopTwo
from scipy.stats import beta

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import State, Tell
from tests.support.selector_suite import opened


def told(scores: list[list[float]], n_examples: int = 100) -> tuple[Pairs, TopTwo]:
    """A selector that has been told the given scores of each candidate."""
    selector = opened(TopTwo, len(scores), n_examples)
    assert isinstance(selector.rule, TopTwo)
    for i, row in enumerate(scores):
        only = np.arange(len(scores)) == i
        asks = selector.ask(len(row), allowed=only)
        selector.tell([Tell(a.seq, State.DONE, s) for a, s in zip(asks, row, strict=True)])
    return selector, selector.rule


def test_the_posterior_by_hand() -> None:
    """Three right of four: Beta(4, 2). Mean over 8 examples: 3/8 seen, half of it at 4/6."""
    selector, rule = told([[1.0, 1.0, 0.0, 1.0], []], n_examples=8)
    wins, losses = rule._posterior()
    assert (wins[0], losses[0]) == (4, 2)
    np.testing.assert_allclose(selector.estimates().mean, [3 / 8 + 4 / 8 * 4 / 6, np.nan])


def test_a_draw_has_the_posterior_of_the_mean_over_all_examples() -> None:
    _, rule = told([[1.0, 1.0, 0.0, 1.0]], n_examples=8)
    rng = np.random.default_rng(1)
    draws = np.array([rule._draw(rng)[0] for _ in range(4000)])
    assert draws.mean() == pytest.approx(3 / 8 + 4 / 8 * 4 / 6, abs=0.01)
    assert draws.std() == pytest.approx(4 / 8 * beta(4, 2).std(), rel=0.08)


def test_pulls_in_flight_narrow_the_posterior_and_leave_its_mean_alone() -> None:
    selector, rule = told([[1.0, 1.0, 0.0, 1.0], [0.0]])
    selector.ask(6, allowed=np.array([True, False]))
    wins, losses = (each[0] for each in rule._posterior())
    assert wins / (wins + losses) == pytest.approx(4 / 6)
    assert wins + losses == pytest.approx(6 + 6)


@pytest.mark.coverage
def test_the_leader_gets_half() -> None:
    """Two far-apart candidates: binomial, 5.2 standard errors of 1,000 pulls."""
    selector, _ = told([[1.0] * 60, [0.0] * 60], n_examples=5000)
    found = np.mean([ask.pair.candidate == 0 for ask in selector.ask(1000)])
    assert abs(found - 0.5) < 5.2 * np.sqrt(0.25 / 1000)
