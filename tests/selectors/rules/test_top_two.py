from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta

from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.rules.top_two import TopTwo
from bestarm_agent.selectors.types import Problem, State, Tell
from bestarm_agent.testing.selector_suite import SelectorSuite


class TestBeta(SelectorSuite):
    def make(self, problem: Problem) -> Selector:
        return TopTwo(problem)


class TestGaussian(SelectorSuite):
    def make(self, problem: Problem) -> Selector:
        return TopTwo(problem, posterior="gaussian")


def told(scores: list[list[float]], n_examples: int = 100, **params: float) -> TopTwo:
    """A selector that has been told the given scores of each candidate."""
    selector = TopTwo(Problem(len(scores), n_examples), **params)  # type: ignore[arg-type]
    for i, row in enumerate(scores):
        only = np.arange(len(scores)) == i
        asks = selector.ask(len(row), allowed=only)
        selector.tell([Tell(a.seq, State.DONE, s) for a, s in zip(asks, row, strict=True)])
    return selector


def test_the_beta_posterior_by_hand() -> None:
    """Three right of four: Beta(4, 2). Mean over 8 examples: 3/8 seen, half of it at 4/6."""
    selector = told([[1.0, 1.0, 0.0, 1.0], []], n_examples=8)
    assert (selector._wins[0], selector._losses[0]) == (4, 2)
    np.testing.assert_allclose(selector.estimates().mean, [3 / 8 + 4 / 8 * 4 / 6, np.nan])


def test_a_draw_has_the_posterior_of_the_mean_over_all_examples() -> None:
    selector = told([[1.0, 1.0, 0.0, 1.0]], n_examples=8)
    rng = np.random.default_rng(1)
    draws = np.array([selector._draw_means(rng)[0] for _ in range(4000)])
    assert draws.mean() == pytest.approx(3 / 8 + 4 / 8 * 4 / 6, abs=0.01)
    assert draws.std() == pytest.approx(4 / 8 * beta(4, 2).std(), rel=0.08)


def test_the_pooled_variance_by_hand() -> None:
    """.2, .4 around .3 and .5, .6, .7 around .6: (.02 + .02 + 1/4) / (1 + 5 - 2)."""
    selector = told([[0.2, 0.4], [0.5, 0.6, 0.7], []])
    assert selector._pooled_variance() == pytest.approx(0.29 / 4)


def test_pulls_in_flight_narrow_the_posterior_and_leave_its_mean_alone() -> None:
    selector = told([[1.0, 1.0, 0.0, 1.0], [0.0]])
    only = np.array([True, False])
    selector.ask(6, allowed=only)
    wins, losses = selector._wins[0], selector._losses[0]
    assert wins / (wins + losses) == pytest.approx(4 / 6)
    assert wins + losses == pytest.approx(6 + 6)


def test_void_pulls_of_a_candidate_that_never_worked_count_against_it() -> None:
    selector = TopTwo(Problem(2, 400))
    counts = [0, 0]
    for _ in range(200):
        [ask] = selector.ask()
        counts[ask.pair.candidate] += 1
        state = State.VOID if ask.pair.candidate == 0 else State.DONE
        selector.tell([Tell(ask.seq, state, 0.3)])
    assert selector._losses[0] == 1 + counts[0]
    assert selector.best().best == 1


def test_a_single_lucky_score_does_not_make_the_best() -> None:
    selector = told([[1.0], [1.0] * 45 + [0.0] * 5])
    assert selector.table.mean()[0] > selector.table.mean()[1]
    assert selector.best().best == 1


def test_a_candidate_seen_in_full_is_known_exactly() -> None:
    selector = told([[0.5] * 6, [1.0]], n_examples=6)
    rng = np.random.default_rng(1)
    assert {float(selector._draw_means(rng)[0]) for _ in range(50)} == {0.5}


@pytest.mark.coverage
@pytest.mark.parametrize("share", [0.5, 0.8])
def test_the_leader_gets_its_share(share: float) -> None:
    """Two far-apart candidates: binomial, 5.2 standard errors of 1,000 pulls."""
    selector = told([[1.0] * 60, [0.0] * 60], n_examples=5000, leader_share=share)
    asks = selector.ask(1000)
    found = np.mean([ask.pair.candidate == 0 for ask in asks])
    assert abs(found - share) < 5.2 * np.sqrt(share * (1 - share) / 1000)


def test_the_rival_takes_the_turn_of_a_leader_that_cannot_be_called() -> None:
    selector = told([[1.0] * 60, [0.0] * 60, [0.0] * 60])
    available = np.array([False, True, True])
    assert {ask.pair.candidate for ask in selector.ask(40, allowed=available)} == {1, 2}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"leader_share": 1.0}, r"leader_share must be in \(0, 1\), got 1.0"),
        ({"posterior": "flat"}, "posterior must be 'beta' or 'gaussian', got 'flat'"),
    ],
)
def test_senseless_parameters_are_refused(params: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TopTwo(Problem(8, 10), **params)  # type: ignore[arg-type]
