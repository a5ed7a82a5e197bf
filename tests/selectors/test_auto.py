"""Paired top-two on the one-factor model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bestarm_agent.selectors.auto import Auto
from bestarm_agent.selectors.contest import Contest, chance_of_being_best, sharpened, weighed
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Guarantee, Problem, State, Stop, Tell
from bestarm_agent.stats.outlook import Outlook
from bestarm_agent.testing.selector_runs import Run, World
from bestarm_agent.testing.selector_suite import SelectorSuite


class TestAuto(SelectorSuite):
    def make(self, problem: Problem) -> Auto:
        return Auto(problem)


class TestAutoForASet(SelectorSuite):
    def make(self, problem: Problem) -> Auto:
        return Auto(problem, top_k=2, narrow=False)


NOBODY = np.full(9, False)


def outlook_of(mean: list[float], sd: float = 0.1) -> Outlook:
    n = len(mean)
    return Outlook(np.array(mean), np.full(n, sd), np.arange(n), sd**2 * np.eye(n))


class Fixed(np.random.Generator):
    """Draws one number over and over."""

    def __init__(self, number: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.number = number

    def random(self, *_: object, **__: object) -> Any:  # noqa: ANN401 - as its base class
        return self.number


def test_chances_to_overtake_by_hand() -> None:
    contest = Contest.of(outlook_of([0.5, 0.7, 0.6]), 1, np.arange(3.0), out=NOBODY[:3])
    assert contest.order.tolist() == [1, 2, 0]
    assert contest.rank.tolist() == [3, 1, 2]
    # variance of a gap .02, inflated .025: z = .1 / .1581 and .2 / .1581
    np.testing.assert_allclose(contest.weight, [[0.2635**2, 0.1030**2]], atol=1e-4)


def test_a_chance_counts_for_its_price_by_hand() -> None:
    outlook, ties = outlook_of([0.5, 0.7, 0.6]), np.arange(3.0)
    price = np.array([0.04, 0.01, 0.09])
    contest = Contest.of(outlook, 1, ties, out=NOBODY[:3], price=price)
    # the best is the cheapest, so prices count in full: 4, 1 and 9 times the least
    np.testing.assert_allclose(contest.weight, [[0.2635**2 / 5, 0.1030**2 / 2.5]], atol=1e-5)
    # ranks 3, 1, 2, times the square roots of these
    np.testing.assert_allclose(contest.burden, [6.0, 1.0, 6.0])


def test_prices_that_go_with_quality_count_less_by_hand() -> None:
    # logarithms 0, 1, 2 and means .5, .7, .6: correlation .1 / sqrt(2 * .02) = .5
    found = weighed(np.exp([3.0, 4.0, 5.0]), np.array([0.5, 0.7, 0.6]))
    np.testing.assert_allclose(found, np.exp([0.0, 0.5, 1.0]))
    np.testing.assert_allclose(weighed(np.array([1.0, 2.0]), np.array([0.6, 0.5])), [1.0, 2.0])
    np.testing.assert_allclose(weighed(np.array([1.0, 2.0]), np.array([0.5, 0.6])), [1.0, 1.0])


def test_one_price_for_all_changes_no_bit() -> None:
    outlook, ties = outlook_of([0.5, 0.7, 0.6, 0.65]), np.arange(4.0)
    plain = Contest.of(outlook, 2, ties, out=NOBODY[:4], field=1.4)
    equal = Contest.of(outlook, 2, ties, out=NOBODY[:4], field=1.4, price=np.full(4, 0.7))
    assert equal.weight.tobytes() == plain.weight.tobytes()
    assert equal.burden.tobytes() == plain.burden.tobytes()


def test_of_a_pair_the_one_that_saw_less_is_pulled() -> None:
    contest = Contest.of(outlook_of([0.5, 0.7, 0.6]), 1, np.arange(3.0), out=NOBODY[:3])
    everybody = np.full(3, True)
    # weights .0694 and .0106: below .867 it is candidate 2
    for number, seen, pulled in [
        (0.5, [9, 9, 9], 1),
        (0.5, [9, 10, 9], 2),
        (0.9, [9, 10, 9], 0),
        (0.9, [11, 10, 9], 1),
    ]:
        assert contest.draw(everybody, np.array(seen), Fixed(number)) == pulled
    assert contest.draw(np.array([True, False, True]), np.array([9, 9, 9]), Fixed(0.5)) == 2
    assert contest.draw(np.array([True, False, False]), np.array([9, 9, 9]), Fixed(0.5)) == 0


def test_leaders_stand_against_those_outside_the_set() -> None:
    contest = Contest.of(outlook_of([0.9, 0.7, 0.6, 0.1]), 2, np.arange(4.0), out=NOBODY[:4])
    assert contest.rank.tolist() == [1, 1, 2, 3]
    assert contest.weight.shape == (2, 2)
    assert contest.weight.argmax() == 2  # the second leader against the first challenger


def test_a_known_budget_narrows_the_field_by_hand() -> None:
    # four equal challengers count as 4; of weights 1, 1/4, 1/4, 1/4 it is 1.75^2 / 1.1875 = 2.6
    np.testing.assert_allclose(sharpened(np.full(4, 0.3), most=4.0), np.ones(4))
    weight = np.array([0.8, 0.2, 0.2, 0.2])
    np.testing.assert_allclose(sharpened(weight, most=2.6), [1.0, 0.25, 0.25, 0.25])
    # one step of power 1.5: 1, 1/8, ...: 1.375^2 / 1.047 = 1.81
    np.testing.assert_allclose(sharpened(weight, most=2.5), [1.0, 0.125, 0.125, 0.125])
    np.testing.assert_allclose(sharpened(weight, most=1.7)[1], 0.25 ** (1.5**2))
    assert sharpened(np.zeros(3), most=1.0).tolist() == [0.0, 0.0, 0.0]


def test_a_known_budget_shortens_the_reach_of_the_floor_by_hand() -> None:
    outlook, everybody = outlook_of([0.5, 0.9, 0.5, 0.8, 0.5]), np.full(5, True)
    seen = np.array([1, 8, 2, 5, 1])  # times ranks 3, 1, 4, 2, 5: 3, 8, 8, 10, 5
    at_first = Contest.of(outlook, 1, np.arange(5.0), out=NOBODY[:5], field=5.0)
    assert at_first.least_loaded(everybody, seen) == 0
    for field, found in ((1.2, 0), (1.0, 1)):  # ranks up to ceil(2 * 1.2) = 3, then up to 2
        at_last = Contest.of(outlook, 1, np.arange(5.0), out=NOBODY[:5], field=field)
        assert at_last.least_loaded(everybody, seen) == found
    others = np.array([True, False, True, False, True])  # nobody in sight may be asked
    assert at_last.least_loaded(others, seen) == 0
    unplanned = Contest.of(outlook, 1, np.arange(5.0), out=NOBODY[:5])
    assert unplanned.least_loaded(everybody, np.array([9, 9, 9, 9, 1])) == 4


def test_a_rule_that_was_given_a_budget_is_not_anytime() -> None:
    assert Auto(Problem(3, 30)).anytime
    assert Auto(Problem(3, 30, budget=20), narrow=False).anytime
    assert not Auto(Problem(3, 30, budget=20)).anytime


@pytest.mark.parametrize("floor", [0.0, 1.0])
def test_towards_the_end_of_a_budget_pulls_go_to_fewer(floor: float) -> None:
    world = World.bernoulli([0.6] * 20, 400, 9)
    spread = []
    for budget in (800, None):
        run = Run(Auto(Problem(20, 400, seed=4, budget=budget), floor=floor), world).go(600)
        before = run.selector.table.n_trials.copy()
        run.go(200)
        new = run.selector.table.n_trials - before
        spread.append(float(new.sum() ** 2 / (new**2).sum()))  # effective number of candidates
    assert spread[0] < 0.7 * spread[1]


def test_probability_of_being_best_by_hand() -> None:
    draws = np.random.default_rng(0).standard_normal((20_000, 2))
    # the gap's standard deviation is .1 sqrt(2 * 1.25): P = Phi(.1 / .158) = .7365
    found = chance_of_being_best(outlook_of([0.6, 0.5]), 0, draws, NOBODY[:2])
    assert found == pytest.approx(0.7365, abs=0.015)


def test_all_candidates_see_the_same_examples_in_the_same_order() -> None:
    run = Run(Auto(Problem(8, 60, seed=1)), World.bernoulli(np.linspace(0.2, 0.8, 8), 60, 1))
    run.go(200)
    rows = [[p.example for p in run.pairs if p.candidate == i] for i in range(8)]
    longest = max(rows, key=len)
    assert all(row == longest[: len(row)] for row in rows)
    assert min(len(row) for row in rows) >= 1


def test_pulls_go_to_those_that_may_be_best() -> None:
    world = World.bernoulli([0.8, 0.75, *np.linspace(0.05, 0.4, 18)], 300, 2)
    selector = Run(Auto(Problem(20, 300, seed=3)), world).go(900).selector
    n = selector.table.n_trials
    assert n[:2].sum() > 350
    assert n.min() >= 3
    verdict = selector.best()
    assert verdict.probability is not None
    assert 0.3 < verdict.probability <= 1.0


def test_the_rank_floor_keeps_everybody_in_sight() -> None:
    world = World.bernoulli([0.9, *np.linspace(0.1, 0.3, 9)], 400, 4)
    with_floor = Run(Auto(Problem(10, 400), floor=1.0), world).go(600).selector
    order = np.argsort(-with_floor.table.n_trials)
    load = with_floor.table.n_trials[order] * np.arange(1, 11)
    assert load.max() < 1.6 * load.min()


def test_pending_pulls_move_no_estimate() -> None:
    world = World.bernoulli(np.linspace(0.3, 0.7, 6), 80, 5)
    run = Run(Auto(Problem(6, 80, seed=2)), world).go(150)
    while run.waiting:
        run.tell()
    before = run.selector.estimates().mean
    run.ask(40)
    np.testing.assert_allclose(run.selector.estimates().mean, before)


def test_many_pulls_at_once_spread_out() -> None:
    world = World.bernoulli([0.7, 0.69, 0.68, 0.2, 0.2, 0.2], 300, 6)
    run = Run(Auto(Problem(6, 300, seed=1)), world).go(120)
    while run.waiting:
        run.tell()
    before = run.selector.table.n_trials.copy()
    run.ask(60)
    new = run.selector.table.n_trials - before
    assert new.max() <= 30
    assert (new[:3] > 5).all()


def test_a_clear_winner_stops_the_run_on_paired_evidence() -> None:
    world = World.bernoulli([0.9, 0.3, 0.25, 0.2], 400, 7)
    selector = Auto(Problem(4, 400, stop_when_separated=True))
    run = Run(selector, world).finish()
    assert selector.stopped() is Stop.SEPARATED
    assert selector.best().best == 0
    assert selector.best().guarantee is Guarantee.ANYTIME_VALID
    assert len(run.pairs) < 400


def test_near_ties_stop_wrongly_in_few_runs_however_sure_the_model_is() -> None:
    """Error at .95 on pairs of equals: 60 runs, at most 8 wrong (binomial at .05: 1e-3)."""
    wrong = stopped = 0
    for seed in range(60):
        world = World.bernoulli([0.5, 0.5, 0.5], 60, 100 + seed)
        selector = Auto(Problem(3, 60, seed=seed, stop_when_separated=True))
        Run(selector, world).finish()
        means = world.mean(3, 60)
        stopped += selector.stopped() is Stop.SEPARATED
        wrong += means[selector.best().best] < means.max() - 1e-9
    assert wrong <= 8
    assert stopped <= 60


def test_examples_that_join_fall_anywhere_in_the_order() -> None:
    world = World.bernoulli(np.linspace(0.2, 0.8, 5), 90, 8)
    run = Run(Auto(Problem(5, 40, seed=5)), world).go(100)
    run.grow(candidates=0, examples=50)
    n_old = len(run.pairs)
    run.go(60)
    new = [pair.example for pair in run.pairs[n_old:]]
    assert any(example >= 40 for example in new)
    assert run.finish().selector.stopped() is Stop.EXHAUSTED
    np.testing.assert_allclose(run.selector.estimates().mean, world.mean(5, 90))


def test_a_candidate_without_any_score_is_last() -> None:
    selector = Auto(Problem(3, 30))
    for _ in range(40):
        [ask] = selector.ask()
        state = State.VOID if ask.pair.candidate == 1 else State.DONE
        selector.tell([Tell(ask.seq, state, 0.5 * (state == State.DONE))])
    assert selector.ranking()[-1] == 1
    assert np.isnan(selector.estimates().mean[1])


@pytest.mark.parametrize("wrong", [{"top_k": 0}, {"warm_up": 0}, {"floor": 1.5}])
def test_a_parameter_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        make_selector("auto", Problem(3, 30), **wrong)


def test_money_spent_narrows_the_field() -> None:
    selector = Auto(Problem(4, 50, budget=40, costs=(1.0, 1.0, 1.0, 1.0)))
    for _ in range(10):
        [ask] = selector.ask()
        selector.tell([Tell(ask.seq, State.DONE, 0.5, cost=2.0)])
    assert selector._field() == pytest.approx(4**0.5)  # 20 of 40 are spent


def test_a_barred_leader_is_no_longer_compared_with() -> None:
    world = World.bernoulli([0.9, 0.6, 0.5, 0.1], 300, 10)
    run = Run(Auto(Problem(4, 300, seed=1), floor=0.0), world).go(200)
    while run.waiting:
        run.tell()
    assert run.selector.best().best == 0
    run.selector.bar([0])
    before = run.selector.table.n_trials.copy()
    run.go(60)
    new = run.selector.table.n_trials - before
    assert new[0] == 0
    assert run.selector.best().best == 1
    assert min(new[1], new[2]) > 5  # the next two are compared with each other
