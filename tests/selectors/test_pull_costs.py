"""Working per unit of cost: what a pull is expected to cost, and where the pulls go then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import Ask, Pair, Problem, State, Tell
from bestarm_agent.stats import costs
from bestarm_agent.stats.costs import pull_weights
from tests.support.selector_suite import K, N, World, WorldRun, opened


def told(table: ScoreTable, candidate: int, cost: float) -> None:
    seq, example = table.n_asked, int(table.n_trials[candidate])
    table.ask(Ask(seq, Pair(candidate, example), ""))
    table.tell(Tell(seq, State.DONE, 1.0, cost))


def expected_costs(prior: NDArray[np.float64], table: ScoreTable) -> NDArray[np.float64]:
    n_told = table.n_trials - table.count(State.PENDING)
    return costs.expected_costs(prior, n_told, table.spent)


def test_expected_costs_by_hand() -> None:
    prior = np.array([10.0, 10.0, 1.0])
    table = ScoreTable(3, 9)
    assert expected_costs(prior, table).tolist() == [10.0, 10.0, 1.0]
    told(table, 0, 4.0)
    # 10 was foreseen and 4 spent, so all priors shrink to 0.4; the first has one pull of its own
    assert expected_costs(prior, table) == pytest.approx([(4 + 4) / 2, 4.0, 0.4])
    told(table, 2, 2.0)
    # 11 foreseen, 6 spent
    assert expected_costs(prior, table) == pytest.approx(
        [(10 * 6 / 11 + 4) / 2, 10 * 6 / 11, (6 / 11 + 2) / 2]
    )


def test_what_says_nothing_of_costs_leaves_an_expectation_above_zero() -> None:
    table = ScoreTable(2, 9)
    table.ask(Ask(0, Pair(0, 0), ""))  # pending
    assert expected_costs(np.array([1.0, 2.0]), table).tolist() == [1.0, 2.0]
    table = ScoreTable(2, 9)
    for _ in range(9):
        told(table, 0, 0.0)  # free
    assert expected_costs(np.array([1.0, 1.0]), table).tolist() == [0.1, 1.0]
    told(table, 1, 1e9)
    assert (expected_costs(np.array([1e-9, 1.0]), table) > 0).all()


def test_nobody_counts_more_than_a_hundred_times_as_much_as_another() -> None:
    weights = pull_weights(expected_costs(np.array([1e-12, 1.0]), ScoreTable(2, 1)))
    assert weights[1] / weights[0] == pytest.approx(100.0)


def test_equal_costs_change_nothing() -> None:
    world = World.with_failures((K, N), 3)
    for rule in ("auto", "ucb-e", "uniform", "racing"):
        plain, equal = (
            WorldRun(opened(rule, K, N, costs=costs), world).go(40) for costs in (None, (0.3,) * K)
        )
        assert plain.pairs == equal.pairs


def pulls_of(rule: str, costs: tuple[float, ...], n_pulls: int) -> list[int]:
    """Pulls of candidates that all score 1 and cost what was expected."""
    selector = opened(rule, len(costs), 5000, costs=costs)
    for _ in range(n_pulls):
        [ask] = selector.ask()
        selector.tell([Tell(ask.seq, State.DONE, 1.0, costs[ask.pair.candidate])])
    return [int(n) for n in selector.table.n_trials]


@pytest.mark.parametrize("rule", ["uniform", "ucb-e"])
def test_pulls_of_equals_go_by_the_square_root_of_their_costs(rule: str) -> None:
    pulls = pulls_of(rule, (1.0, 4.0, 16.0), 1400)
    assert pulls == pytest.approx([800, 400, 200], abs=4)  # 1 : 1/2 : 1/4 of 1,400


def test_ucb_e_per_cost_by_hand() -> None:
    """Weights sqrt(1/2), sqrt(2) of costs 1 and 4, halved widths to the fourth root."""
    selector = opened("ucb-e", 2, 50, costs=(1.0, 4.0))
    for candidate, score in ((0, 1.0), (1, 1.0)):
        ask = Ask(selector.table.n_asked, Pair(candidate, candidate), "by hand")
        selector.adopt([ask])
        selector.tell([Tell(ask.seq, State.DONE, score, (1.0, 4.0)[candidate])])
    rule = selector.rule
    assert isinstance(rule, UcbE)
    assert rule.weights == pytest.approx([2**-0.5, 2**0.5])
    assert rule._index() == pytest.approx([1 + 2**0.25, 1 + 2**-0.25])
    assert selector.ask()[0].pair.candidate == 0


def test_common_examples_are_pulled_alike_whatever_they_cost() -> None:
    for rule in ("racing", "benchmarks.baselines.filled_subset:FilledSubset"):
        assert pulls_of(rule, (1.0, 100.0), 200) == [100, 100]


@pytest.mark.slow
def test_auto_spends_less_on_a_dear_half_that_is_as_good() -> None:
    """Ten candidates, every other one 100 times as dear: most pulls go to the cheap ones."""
    costs = (1.0, 100.0) * 5
    dear = np.array(costs) > 1.0
    pulls = {None: 0, costs: 0}
    for seed in range(4):
        world = World.bernoulli(np.linspace(0.65, 0.35, 10), 400, seed)
        for told in pulls:
            selector = opened("auto", 10, 400, seed=seed, costs=told)
            for _ in range(600):
                [ask] = selector.ask()
                outcome = world.outcome(ask)
                selector.tell([replace(outcome, cost=costs[ask.pair.candidate])])
            pulls[told] += int(selector.table.n_trials[dear].sum())
            assert selector.table.n_trials.min() >= 3  # nobody is forgotten
    assert pulls[costs] < 0.6 * pulls[None]


def test_candidates_that_join_bring_their_costs() -> None:
    selector = opened("ucb-e", 2, 9, costs=(1.0, 2.0))
    selector.add_candidates(1, [4.0])
    assert selector.rule.problem.costs == (1.0, 2.0, 4.0)
    expected = selector.rule.expected_costs()
    assert expected is not None
    assert expected.tolist() == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("known", "new"), [((1.0, 2.0), None), ((1.0, 2.0), [1.0, 2.0]), (None, [1.0])]
)
def test_candidates_that_join_must_be_priced_as_the_others_are(
    known: tuple[float, ...] | None, new: list[float] | None
) -> None:
    with pytest.raises(ValueError, match="need as many costs"):
        opened("ucb-e", 2, 9, costs=known).add_candidates(1, new)


@pytest.mark.parametrize("costs", [(1.0,), (1.0, 0.0), (1.0, float("inf")), (1.0, float("nan"))])
def test_senseless_costs_are_refused(costs: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="cost"):
        Problem(2, 9, costs=costs)
