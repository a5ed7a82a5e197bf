"""Paired top-two on a model of the scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bestarm_agent.selectors.auto.axes_model import Posterior
from bestarm_agent.selectors.auto.duels import Duels, effective_prices, narrowed
from bestarm_agent.selectors.auto.rule import Auto
from bestarm_agent.selectors.types import Ask, State, Tell
from bestarm_agent.stats.arrays import FloatArray
from tests.support.selector_suite import World, WorldRun, opened, play


def duels_of(mean: list[float], **given: object) -> Duels:
    """Duels on a posterior of standard deviation .1 each, ties broken by number."""
    n = len(mean)
    alone = np.zeros((n, 1), dtype=int), np.zeros((n, 1))
    none = np.zeros((1, 1))  # is shared
    posterior = Posterior(np.array(mean), np.full(n, 0.1), alone, lambda one, two: none[one, two])
    given = {"out": np.full(n, False), "void_share": np.zeros(n)} | given
    return Duels(posterior, np.arange(float(n)), **given)  # type: ignore[arg-type]


def chosen(run: WorldRun, n: int) -> FloatArray:
    """Return how often each candidate is among the next ``n`` of a run, whose calls all return."""
    while run.waiting:
        run.tell()
    before = run.selector.table.n_trials.copy()
    run.go(n)
    return np.asarray(run.selector.table.n_trials - before, dtype=float)


class Fixed(np.random.Generator):
    """Draws one number over and over."""

    def __init__(self, number: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.number = number

    def random(self, *_: object, **__: object) -> Any:  # noqa: ANN401 - as its base class
        return self.number


def test_chances_to_overtake_by_hand() -> None:
    duels = duels_of([0.5, 0.7, 0.6])
    assert duels.order.tolist() == [1, 2, 0]
    assert duels.floor_weight.tolist() == [3.0, 1.0, 2.0]
    # variance of a gap .02: z = .1 / .1414 and .2 / .1414
    np.testing.assert_allclose(duels.weight, [0.2398, 0.0786], atol=1e-4)
    squared = duels_of([0.5, 0.7, 0.6], power=2.0)
    np.testing.assert_allclose(squared.weight, duels.weight**2)
    assert squared.likeliest == duels.likeliest
    duels = duels_of([0.5, 0.7, 0.6], void_share=np.array([0.0, 0.6, 0.0]))
    # void pulls keep challengers: variance .02 + .36 / 12 = .05: z = .1 / .2236 and .2 / .2236
    np.testing.assert_allclose(duels.weight, [0.3274, 0.1855], atol=1e-4)


def test_a_chance_counts_for_its_price_by_hand() -> None:
    duels = duels_of([0.5, 0.7, 0.6], price=np.array([0.04, 0.01, 0.09]))
    # the best is the cheapest, so prices count in full: 4, 1 and 9 times the least
    np.testing.assert_allclose(duels.weight, [0.23975 / 5, 0.07865 / 2.5], atol=1e-5)
    # ranks 3, 1, 2, times the square roots of these
    np.testing.assert_allclose(duels.floor_weight, [6.0, 1.0, 6.0])
    plain, equal = (
        duels_of([0.5, 0.7, 0.6, 0.65], most_challengers=1.4, price=price)
        for price in (None, np.full(4, 0.7))
    )
    assert equal.weight.tobytes() == plain.weight.tobytes(), "one price for all changes no bit"
    assert equal.floor_weight.tobytes() == plain.floor_weight.tobytes()


@pytest.mark.parametrize(
    ("price", "mean", "found"),
    [
        # logarithms 0, 1, 2 and means .5, .7, .6: correlation .1 / sqrt(2 * .02) = .5
        (np.exp([3.0, 4.0, 5.0]), [0.5, 0.7, 0.6], np.exp([0.0, 0.5, 1.0])),
        (np.array([1.0, 2.0]), [0.6, 0.5], np.array([1.0, 2.0])),
        (np.array([1.0, 2.0]), [0.5, 0.6], np.array([1.0, 1.0])),
    ],
)
def test_prices_that_go_with_quality_count_less_by_hand(
    price: FloatArray, mean: list[float], found: FloatArray
) -> None:
    np.testing.assert_allclose(effective_prices(price, np.array(mean)), found)


def test_of_a_pair_the_one_that_saw_less_is_pulled() -> None:
    duels = duels_of([0.5, 0.7, 0.6])
    # weights .2398 and .0786: below .753 it is candidate 2
    for number, seen, allowed, pulled in [
        (0.5, [9, 9, 9], [True] * 3, 1),
        (0.5, [9, 10, 9], [True] * 3, 2),
        (0.9, [9, 10, 9], [True] * 3, 0),
        (0.9, [11, 10, 9], [True] * 3, 1),
        (0.5, [9, 9, 9], [True, False, True], 2),
        (0.5, [9, 9, 9], [True, False, False], 0),
    ]:
        assert duels.draw(np.array(allowed), np.array(seen), Fixed(number)) == pulled


def test_a_known_budget_narrows_the_choice_by_hand() -> None:
    # four equal challengers count as 4; of weights 1, 1/4, 1/4, 1/4 it is 1.75^2 / 1.1875 = 2.6
    np.testing.assert_allclose(narrowed(np.full(4, 0.3), most=4.0), np.ones(4))
    weight = np.array([0.8, 0.2, 0.2, 0.2])
    np.testing.assert_allclose(narrowed(weight, most=2.6), [1.0, 0.25, 0.25, 0.25])
    # one step of power 1.5: 1, 1/8, ...: 1.375^2 / 1.047 = 1.81
    np.testing.assert_allclose(narrowed(weight, most=2.5), [1.0, 0.125, 0.125, 0.125])
    np.testing.assert_allclose(narrowed(weight, most=1.7)[1], 0.25 ** (1.5**2))
    assert narrowed(np.zeros(3), most=1.0).tolist() == [0.0, 0.0, 0.0]


def test_the_floor_keeps_up_who_is_furthest_behind_by_rank() -> None:
    duels, everyone = duels_of([0.5, 0.9, 0.5, 0.8, 0.5]), np.full(5, True)
    seen = np.array([1, 8, 2, 5, 1])  # times ranks 3, 1, 4, 2, 5: 3, 8, 8, 10, 5
    assert duels.below_floor(everyone, seen) == 0
    assert duels.below_floor(np.array([False, True, True, True, True]), seen) == 4
    assert duels.below_floor(everyone, np.array([9, 9, 9, 9, 1])) == 4


def test_a_small_budget_goes_to_some_of_the_candidates() -> None:
    scores = np.random.default_rng(4).random(60).tolist()
    selector = opened(Auto, 60, 30, budget=40)
    asked = play(selector, scores, 40)
    assert len(set(asked[:20])) == len(set(asked)) == 20, "all of them first"
    assert max(np.bincount(asked)) > 2, "the rest goes to the best"
    assert scores[selector.answer.best().best] == max(scores[i] for i in asked)
    selector.add_budget(60)
    assert len({*asked, *play(selector, scores, 60)}) == 60
    others = set(play(opened(Auto, 60, 30, budget=40, seed=1), scores, 40))
    assert len(others) == 20
    assert others != set(asked)


@pytest.mark.parametrize(
    ("budget", "n_tried"), [(1, 2), (5, 2), (6, 3), (14, 7), (15, 10), (100, 10), (None, 10)]
)
def test_how_many_a_budget_is_for(budget: int | None, n_tried: int) -> None:
    assert opened(Auto, 10, 30, budget=budget).rule.n_tried == n_tried
    assert opened("ucb-e", 10, 30, budget=budget).rule.n_tried == 10


def test_who_leaves_makes_room_where_few_are_tried() -> None:
    selector = opened(Auto, 12, 30, budget=8)
    asked = set(play(selector, [0.5] * 12, 6))
    selector.bar([*asked][:2])
    assert len({*play(selector, [0.5] * 12, 2)} - asked) == 2


def test_with_axes_all_may_be_tried() -> None:
    axes = np.array([[i // 4, i % 4] for i in range(16)])
    assert opened(Auto, 16, 30, budget=8, axes=axes).rule.n_tried == 16


def test_a_rule_that_was_given_a_budget_is_not_anytime() -> None:
    assert opened(Auto, 3, 30).rule.anytime
    assert not opened(Auto, 3, 30, budget=20).rule.anytime


@pytest.mark.slow
def test_towards_the_end_of_a_budget_duels_go_to_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bestarm_agent.selectors.auto.rule._FLOOR", 0.0)
    world = World.bernoulli([0.6] * 20, 400, 9)
    spread = []
    for budget in (800, None):
        new = chosen(WorldRun(opened(Auto, 20, 400, seed=4, budget=budget), world).go(600), 200)
        spread.append(float(new.sum() ** 2 / (new**2).sum()))  # effective number of candidates
    assert spread[0] < 0.7 * spread[1]


def with_hidden_failures(seed: int) -> World:
    """The first of six solves half of 200 examples, and 70 % of its wrong answers are void."""
    world = World.bernoulli([0.5, 0.62, 0.45, 0.4, 0.35, 0.3], 200, seed)
    hidden = np.random.default_rng([seed, 76]).random(200) < 0.7
    world.states[0, (world.scores[0] == 0.0) & hidden] = State.VOID
    return world


@pytest.mark.slow
def test_a_candidate_whose_failures_are_void_is_not_shown_to_be_the_best() -> None:
    for seed in range(12):
        world = with_hidden_failures(seed)
        selector = WorldRun(opened(Auto, 6, 200, seed=seed, budget=400), world).go(400).selector
        verdict, estimates = selector.answer.best(), selector.answer.estimates()
        assert verdict.best == 0  # of what could be measured it has the highest mean
        assert 1 in verdict.tied
        truth = world.scores.mean(axis=1)
        assert (estimates.lower <= truth).all()
        assert (estimates.upper >= truth).all()


def test_many_pulls_at_once_spread_out_and_move_no_estimate() -> None:
    world = World.bernoulli([0.7, 0.69, 0.68, 0.2, 0.2, 0.2], 300, 6)
    run = WorldRun(opened(Auto, 6, 300, seed=1), world).go(120)
    chosen(run, 0)
    before = run.selector.answer.estimates().mean
    asks = run.ask(60)
    np.testing.assert_allclose(run.selector.answer.estimates().mean, before)
    new = np.bincount([ask.pair.candidate for ask in asks], minlength=6)
    assert new.max() <= 30
    assert (new[:3] > 5).all()


@pytest.mark.slow
def test_once_it_is_convinced_it_aims_at_the_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    def pulls(seed: int, *, stop: bool = True) -> WorldRun:
        world = World.bernoulli([0.8, 0.5, *[0.45] * 6], 400, seed)
        return WorldRun(opened(Auto, 8, 400, seed=seed, stop_when_separated=stop), world)

    runs = [pulls(seed).finish() for seed in range(2)]
    reasons = [event.reason for event in runs[0].events if isinstance(event, Ask)]
    assert reasons[-1] == "proof"
    assert "duel" in reasons
    going_on = pulls(0, stop=False).go(len(runs[0].pairs))
    assert all(event.reason != "proof" for event in going_on.events if isinstance(event, Ask))
    monkeypatch.setattr("bestarm_agent.selectors.auto.rule._UNLIKELY", 0.0)
    duels = [pulls(seed).finish() for seed in range(2)]
    assert sum(len(run.pairs) for run in runs) < 0.85 * sum(len(run.pairs) for run in duels)


@pytest.mark.slow
def test_without_caps_a_place_is_opened_once_the_last_ones_scores_are_in() -> None:
    """Else the leaders that all others meet there are chosen blindly, and proofs take longer."""

    def pulls(seed: int, in_flight: int, *, open_ended: bool) -> int:
        world = World.bernoulli([0.95, 0.8, *np.linspace(0.1, 0.7, 14)], 300, seed)
        asked_for = {"stop_when_separated": True, "open_ended": open_ended}
        rule = opened(Auto, 16, 300, seed=seed, **asked_for)
        asked, told = rule.ask(in_flight), 0
        while told < len(asked) and rule.stopped() is None:
            rule.tell([world.outcome(asked[told])])
            asked += rule.ask(1)
            told += 1
        return len(asked)

    assert pulls(3, 1, open_ended=True) == pulls(3, 1, open_ended=False)
    totals = [sum(pulls(s, 64, open_ended=is_open) for s in (0, 1)) for is_open in (True, False)]
    assert totals[0] < 0.9 * totals[1]  # .70; of four single runs between .62 and .91


def test_money_spent_narrows_the_choice() -> None:
    selector = opened(Auto, 4, 50, budget=40, costs=(1.0, 1.0, 1.0, 1.0))
    for _ in range(10):
        [ask] = selector.ask()
        selector.tell([Tell(ask.seq, State.DONE, 0.5, cost=2.0)])
    assert isinstance(selector.rule, Auto)
    assert selector.rule._most_challengers() == pytest.approx(4**0.5)  # 20 of 40 are spent


def test_a_barred_leader_is_no_longer_compared_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bestarm_agent.selectors.auto.rule._FLOOR", 0.0)
    world = World.bernoulli([0.9, 0.6, 0.5, 0.1], 300, 10)
    run = WorldRun(opened(Auto, 4, 300, seed=1), world).go(200)
    chosen(run, 0)
    assert run.selector.answer.best().best == 0
    run.selector.bar([0])
    new = chosen(run, 60)
    assert new[0] == 0
    assert run.selector.answer.best().best == 1
    assert min(new[1], new[2]) > 5  # the next two are compared with each other
