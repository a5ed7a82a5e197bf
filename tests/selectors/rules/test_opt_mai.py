"""Rules that spend a budget in rounds: ``opt-mai``, ``sysrs`` and halving."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from benchmarks.baselines.halving import SequentialHalving

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.opt_mai import (
    Field,
    OptMai,
    Schedule,
    SuccessiveRejects,
    fit_schedule,
)
from bestarm_agent.selectors.types import Ask, Problem, State, Stop, Tell
from tests.support.selector_suite import SelectorSuite, World, WorldRun


class TestOptMai(SelectorSuite):
    def make(self, problem: Problem) -> Rule:
        return OptMai(problem)


class TestOptMaiOfFour(SelectorSuite):
    """More than half of the suite's six candidates are wanted: the mirrored problem."""

    learns = False

    def make(self, problem: Problem) -> Rule:
        wanted = min(4, max(1, problem.n_candidates - 1))
        return OptMai(problem, top_k=wanted, beta=0.9)


def run(selector: Pairs, scores: list[float]) -> list[int]:
    while asks := selector.ask():
        selector.tell([Tell(asks[0].seq, State.DONE, scores[asks[0].pair.candidate])])
    return [int(n) for n in selector.table.n_trials]


def test_the_rounds_by_hand() -> None:
    """n = 8, beta = .8, Q = 160: Q' = 160 / (1 - .8^7.228) = 199.8; sizes 8, 6, 4, 3, 2, 1.

    Pulls each: 4.996; + .16 Q'/6 = 10.325; + .128 Q'/4 = 16.72; + .1024 Q'/3 = 23.54;
    + .08192 Q'/2 = 31.73; + .065536 Q' = 44.82.
    """
    schedule = OptMai(Problem(8, 1000, budget=160, stop_when_separated=False), top_k=2)._schedule(
        8, 160
    )
    assert schedule.targets.tolist() == [4, 10, 16, 23, 31, 44]
    assert schedule.leaving.tolist() == [2, 2, 1, 1, 1, 1]


def test_a_trace_by_hand() -> None:
    """4K = 8 candidates: one quartile elimination (.3, .2 leave after 4), then accept-reject.

    .95 .8 .7 .62 .5 .4, K' = 2: gaps .25 .1 .1 .18 .3 .4, so .4 and .5 leave after 10;
    then .25 .1 .1 .18: .95 is accepted after 16; .8 .7 .62, K' = 1: gaps .1 .1 .18, so .62 leaves
    after 23; then one of .8 and .7 decides the other after 31.
    """
    selector = Pairs(OptMai(Problem(8, 1000, budget=160, stop_when_separated=False), top_k=2))
    scores = [0.95, 0.8, 0.7, 0.62, 0.5, 0.4, 0.3, 0.2]
    assert run(selector, scores) == [16, 31, 31, 23, 10, 10, 4, 4]
    assert selector.top() == (0, 1)


def test_wanting_most_of_them_mirrors_the_problem() -> None:
    """The worst two of eight on 1 - score: the same trace upside down."""
    selector = Pairs(OptMai(Problem(8, 1000, budget=160, stop_when_separated=False), top_k=6))
    scores = [0.05, 0.2, 0.3, 0.38, 0.5, 0.6, 0.7, 0.8]
    assert run(selector, scores) == [16, 31, 31, 23, 10, 10, 4, 4]
    assert selector.top() == (7, 6, 5, 4, 3, 2)
    assert selector.ranking()[6:] == [1, 0]


@pytest.mark.slow
def test_no_worker_is_pulled_often() -> None:
    """Zhou, Chen & Li 2014, section 6.2: 164 workers, Q = 10n, K = 20: at most 48 pulls.

    We find 50 or 57, depending on whether the last candidate is decided one round earlier; SAR has
    143. The paper does not say how it rounds the pulls of a round.
    """
    for seed in range(4):
        selector = Pairs(
            OptMai(Problem(164, 800, seed=seed, budget=1640, stop_when_separated=False), top_k=20)
        )
        world = World.bernoulli(np.linspace(0.4, 1.0, 164), 800, seed)
        WorldRun(selector, world).finish()
        assert 30 < selector.table.n_trials.max() <= 57
        assert selector.table.n_asked <= 1640


@pytest.mark.parametrize(("top_k", "in_flight"), [(1, 1), (3, 16), (20, 1), (39, 16)])
def test_the_chosen_set_has_the_size_wanted(top_k: int, in_flight: int) -> None:
    selector = Pairs(OptMai(Problem(40, 200, budget=1200, stop_when_separated=False), top_k=top_k))
    world = World.bernoulli(np.linspace(0.1, 0.9, 40), 200, seed=top_k)
    WorldRun(selector, world, in_flight).finish()
    chosen, truth = selector.top(), world.mean(40, 200)
    assert len(set(chosen)) == top_k
    regret = np.sort(truth)[::-1][:top_k].mean() - truth[list(chosen)].mean()
    assert regret < 0.05


def test_equal_candidates_are_chosen_at_random() -> None:
    chosen: set[int] = set()
    for seed in range(40):
        selector = Pairs(
            OptMai(Problem(6, 100, seed=seed, budget=60, stop_when_separated=False), top_k=2)
        )
        run(selector, [0.5] * 6)
        chosen.update(selector.top())
    assert chosen == set(range(6))


@pytest.mark.parametrize(
    ("k", "budget", "targets", "leaving"),
    [
        # 3 rounds of 32 pulls: 4 each for 8, 8 more for 4, 16 more for 2
        (8, 96, [4, 12, 28], [4, 2, 1]),
        # 3 rounds of 40/3 pulls: floor(2.67), floor(4.44), floor(6.67); 5 -> 3 -> 2 -> 1
        (5, 40, [2, 6, 12], [2, 1, 1]),
        (2, 10, [5], [1]),
        # too little for one pull each in every round: one each, and what follows
        (8, 12, [1, 2, 4], [4, 2, 1]),
    ],
)
def test_the_rounds_of_halving_by_hand(
    k: int, budget: int, targets: list[int], leaving: list[int]
) -> None:
    schedule = SequentialHalving(
        Problem(k, 100, budget=budget, stop_when_separated=False)
    )._schedule(k, budget)
    assert schedule.targets.tolist() == targets
    assert schedule.leaving.tolist() == leaving


def test_halving_by_hand() -> None:
    selector = Pairs(SequentialHalving(Problem(8, 100, budget=96, stop_when_separated=False)))
    scores = [0.5, 0.8, 0.1, 0.6, 0.2, 0.9, 0.3, 0.4]
    while asks := selector.ask():
        selector.tell([Tell(asks[0].seq, State.DONE, scores[asks[0].pair.candidate])])
    assert selector.table.n_trials.tolist() == [12, 28, 4, 12, 4, 28, 4, 4]
    assert selector.ranking() == [5, 1, 3, 0, 7, 6, 4, 2]


def test_budget_that_examples_cannot_take_is_spent_in_earlier_rounds() -> None:
    """Plain halving would give 20, 40 and 80 pulls each, but there are 30 examples."""
    problem = Problem(8, 30, budget=200, stop_when_separated=False)
    selector = Pairs(SequentialHalving(problem))
    while asks := selector.ask():
        selector.tell([Tell(asks[0].seq, State.DONE, asks[0].pair.candidate / 10)])
    counts = selector.table.n_trials
    assert counts.max() == 30
    assert counts.min() > 200 // 24
    assert 190 <= counts.sum() <= 200


def test_common_examples_are_shared_by_all() -> None:
    selector = Pairs(SequentialHalving(Problem(4, 40, budget=40, stop_when_separated=False)))
    asks = selector.ask(20)
    by_candidate = [{a.pair.example for a in asks if a.pair.candidate == i} for i in range(4)]
    assert all(examples == by_candidate[0] for examples in by_candidate)
    assert len(np.unique([ask.pair.example for ask in asks])) == 5


class TestSuccessiveRejects(SelectorSuite):
    def make(self, problem: Problem) -> Rule:
        return SuccessiveRejects(problem)


def phases(k: int, budget: float) -> Schedule:
    return SuccessiveRejects(Problem(k, 1000, budget=1000))._schedule(k, budget)


def test_the_phases_by_hand() -> None:
    """K = 4, T = 40: L = 1/2 + 1/2 + 1/3 + 1/4 = 19/12, so n_k = ceil(36 / L / (4, 3, 2))."""
    schedule = phases(4, 40)
    assert schedule.targets.tolist() == [6, 8, 12]
    assert schedule.leaving.tolist() == [1, 1, 1]
    assert schedule.n_pulls(4, 1000) == 4 * 6 + 3 * 2 + 2 * 4


def test_phases_without_further_pulls_are_joined() -> None:
    """K = 5, T = 12: L = 107/60, n_k = ceil(3.93 / (5, 4, 3, 2)) = 1, 1, 2, 2."""
    schedule = phases(5, 12)
    assert schedule.targets.tolist() == [1, 2]
    assert schedule.leaving.tolist() == [2, 2]


@pytest.mark.parametrize(("k", "budget"), [(2, 2), (3, 17), (10, 100), (53, 4000), (400, 900)])
def test_the_phases_cost_no_more_than_the_budget(k: int, budget: int) -> None:
    n_pulls = phases(k, budget).n_pulls(k, 10**9)
    assert budget - 2 * k <= n_pulls <= budget


def test_rejects_by_hand() -> None:
    """Scores .9, .1, .5, .7: 1 leaves after 6 pulls, 2 after 8, 3 after 12, as does the winner."""
    selector = Pairs(SuccessiveRejects(Problem(4, 100, budget=40, stop_when_separated=False)))
    scores = [0.9, 0.1, 0.5, 0.7]
    order = []
    while asks := selector.ask():
        order.append(asks[0].pair.candidate)
        selector.tell([Tell(asks[0].seq, State.DONE, scores[order[-1]])])
    assert np.bincount(order).tolist() == [12, 6, 8, 12]
    assert all(sorted(order[at : at + 4]) == [0, 1, 2, 3] for at in range(0, 24, 4))
    assert all(sorted(order[at : at + 3]) == [0, 2, 3] for at in range(24, 30, 3))
    assert sorted(order[30:]) == [0, 0, 0, 0, 3, 3, 3, 3]
    assert selector.ranking() == [0, 3, 2, 1]


def test_equal_candidates_leave_at_random() -> None:
    winners = set()
    for seed in range(60):
        selector = Pairs(
            SuccessiveRejects(Problem(4, 20, seed=seed, budget=24, stop_when_separated=False))
        )
        while asks := selector.ask():
            selector.tell([Tell(asks[0].seq, State.DONE, 0.5)])
        winners.add(selector.best().best)
    assert winners == {0, 1, 2, 3}


def test_the_synchronised_rule_compares_on_common_examples() -> None:
    selector = Pairs(SuccessiveRejects(Problem(6, 50, budget=120, stop_when_separated=False)))
    world = World.bernoulli(np.linspace(0.2, 0.7, 6), 50, seed=4)
    WorldRun(selector, world).finish()
    table = selector.table
    longest = max((table.row(i) for i in range(6)), key=len)
    order = [int(table.example[seq]) for seq in longest]
    for i in range(6):
        assert [int(table.example[seq]) for seq in table.row(i)] == order[: len(table.row(i))]


def pulls(selector: Pairs, scores: Sequence[float], in_flight: int = 1) -> list[int]:
    """Pulls of each candidate in the whole run; all examples of a candidate score the same."""
    shape = (len(scores), selector.table.n_examples)
    states = np.full(shape, int(State.DONE), dtype=np.int8)
    world = World(np.broadcast_to(np.array(scores)[:, None], shape), states)
    WorldRun(selector, world, in_flight).finish()
    return [int(n) for n in selector.table.n_trials]


# schedules


def schedule_of(nominal: float) -> Schedule:
    """Three candidates; one leaves at a fifth, one at two fifths of the budget."""
    return Schedule(np.array([int(nominal // 5), int(2 * nominal // 5)]), np.array([1, 1]))


def test_the_cost_of_a_schedule() -> None:
    schedule = Schedule(np.array([4, 4, 9]), np.array([2, 1, 1]))
    assert schedule.n_pulls(5, 100) == 5 * 4 + 0 + 2 * 5
    assert schedule.n_pulls(5, 6) == 5 * 4 + 0 + 2 * 2
    assert schedule.n_pulls(5, 3) == 5 * 3


def test_a_schedule_that_fits_is_kept_as_it_is() -> None:
    fitted = fit_schedule(schedule_of, 3, 1000, 52)
    assert fitted.targets.tolist() == [10, 20]  # 3 * 10 + 2 * 10 = 50


def test_what_examples_cannot_take_goes_to_all_rounds() -> None:
    fitted = fit_schedule(schedule_of, 3, 15, 43)
    assert fitted.n_pulls(3, 15) == 43
    assert fitted.targets[0] == 13  # 3 * 13 + 2 * 2


def test_a_budget_for_everything_evaluates_everything() -> None:
    fitted = fit_schedule(schedule_of, 3, 15, 45)
    assert (fitted.targets >= 15).all()


def test_a_budget_below_one_pull_each_takes_the_smallest_schedule() -> None:
    fitted = fit_schedule(partial(phases, 8), 8, 100, 5)
    assert fitted.targets.tolist() == [1]
    selector = Pairs(SuccessiveRejects(Problem(8, 100, budget=5, stop_when_separated=False)))
    assert sum(pulls(selector, [0.5] * 8)) == 5
    assert selector.stopped() is Stop.BUDGET


# what happens in flight

SCORES = (0.9, 0.1, 0.5, 0.7)


def opened(budget: int = 40) -> Pairs:
    """Successive Rejects on four candidates: targets 6, 8 and 12 at a budget of 40."""
    return Pairs(SuccessiveRejects(Problem(4, 100, budget=budget, stop_when_separated=False)))


def tell(selector: Pairs, asks: Sequence[Ask]) -> None:
    selector.tell([Tell(ask.seq, State.DONE, SCORES[ask.pair.candidate]) for ask in asks])


def test_slots_go_to_the_next_round_while_the_last_outcome_is_out() -> None:
    selector = opened()
    asks = selector.ask(24)
    assert selector.table.n_trials.tolist() == [6, 6, 6, 6]
    late = next(ask for ask in asks if ask.pair.candidate == 2)
    tell(selector, [ask for ask in asks if ask is not late])
    ahead = selector.ask(6)  # the second round wants 2 more of each survivor
    assert sorted(ask.pair.candidate for ask in ahead) == [0, 0, 2, 2, 3, 3]
    assert selector.table.n_trials.tolist() == [8, 6, 8, 8]
    tell(selector, [*ahead, late])
    assert selector.ranking() == [0, 3, 2, 1]


def test_looking_two_rounds_ahead() -> None:
    selector = opened()
    asks = selector.ask(24)
    tell(selector, asks[1:])
    ahead = selector.ask(10)
    counts = np.bincount([ask.pair.candidate for ask in ahead[6:]], minlength=4)
    assert counts.tolist() == [2, 0, 0, 2]  # of the third round, whose field is 0 and 3


def test_a_decision_rests_on_the_pulls_of_its_round_alone() -> None:
    """Candidate 1 is ahead of 2 on the first six pulls of each, behind on all that is told."""
    selector = opened()
    first = selector.ask(24)
    late = next(ask for ask in first if ask.pair.candidate == 3)
    scores = {0: 0.9, 1: 0.5, 2: 0.4, 3: 0.8}
    selector.tell(
        [Tell(a.seq, State.DONE, scores[a.pair.candidate]) for a in first if a is not late]
    )
    ahead = selector.ask(6)
    assert {ask.pair.candidate for ask in ahead} == {0, 1, 3}
    selector.tell([Tell(a.seq, State.DONE, 0.0) for a in ahead])
    assert selector.estimates().mean[1] < selector.estimates().mean[2]
    selector.tell([Tell(late.seq, State.DONE, 0.8)])
    assert selector.ranking()[-1] == 2


def dropped(selector: Pairs) -> list[int]:
    return selector.ranking()[::-1]


@pytest.mark.slow
def test_latency_moves_no_decision() -> None:
    """On common examples a candidate's first pulls are the same however many are in flight."""
    for seed in range(10):
        world = World.bernoulli(np.linspace(0.3, 0.7, 9), 80, seed)
        problem = Problem(9, 80, seed=seed, budget=300, stop_when_separated=False)
        rule = SuccessiveRejects(problem)
        alone, crowded = Pairs(SuccessiveRejects(problem)), Pairs(rule)
        WorldRun(alone, world).finish()
        WorldRun(crowded, world, in_flight=16, seed=seed).finish()
        n_closed = len(rule._field.dropped)
        assert n_closed >= 6
        assert dropped(crowded)[:n_closed] == dropped(alone)[:n_closed]


def test_a_candidate_that_may_not_be_called_holds_nobody_up() -> None:
    selector = opened()
    available = np.array([True, True, False, True])
    for _ in range(30):
        tell(selector, selector.ask(1, allowed=available))
    # 1 leaves for the time being; 2, of which nothing is known, stays, so 3 leaves next
    assert selector.table.n_trials.tolist() == [12, 6, 0, 8]
    tell(selector, selector.ask(10))
    assert selector.table.n_trials[2] > 0


# void pulls, growth


def test_a_candidate_with_void_pulls_only_leaves_first() -> None:
    selector = opened()
    for ask in selector.ask(24):
        state = State.VOID if ask.pair.candidate == 0 else State.DONE
        selector.tell([Tell(ask.seq, state, SCORES[ask.pair.candidate])])
    assert selector.ranking() == [3, 2, 1, 0]
    assert {ask.pair.candidate for ask in selector.ask(3)} == {1, 2, 3}


def test_new_candidates_race_against_the_survivors() -> None:
    selector = opened(budget=100)
    while selector.table.n_asked < 80:
        tell(selector, selector.ask(1))
    assert selector.ranking()[-1] == 1
    selector.add_candidates(1)
    asked = []
    while asks := selector.ask(1):
        asked.append(asks[0].pair.candidate)
        score = (*SCORES, 1.0)[asked[-1]]
        selector.tell([Tell(asks[0].seq, State.DONE, score)])
    assert 1 not in asked
    assert asked.count(4) > len(asked) // 2
    assert selector.best().best == 4


def test_budget_added_goes_on_with_the_survivors() -> None:
    selector = opened()
    pulls(selector, SCORES)
    assert selector.stopped() is Stop.BUDGET
    selector.add_budget(100)
    assert selector.stopped() is Stop.BUDGET  # the winner is alone
    selector.add_candidates(1)
    assert selector.stopped() is None
    with pytest.raises(ValueError, match="cannot add -1"):
        selector.add_budget(-1)


def test_fields_keep_the_order_of_leaving() -> None:
    field = Field(np.arange(5)).drop(3, 1).accept(4).drop(0)
    assert (field.active.tolist(), field.accepted, field.dropped) == ([2], (4,), (3, 1, 0))
