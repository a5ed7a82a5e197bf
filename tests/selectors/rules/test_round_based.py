from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rules.opt_mai import (
    Field,
    Schedule,
    SequentialHalving,
    SuccessiveRejects,
    fit_schedule,
    one_leaves_per_phase,
)
from bestarm_agent.selectors.types import Ask, Problem, State, Stop, Tell
from tests.support.selector_suite import Run, World


def pulls(selector: Pairs, scores: Sequence[float], in_flight: int = 1) -> list[int]:
    """Pulls of each candidate in the whole run; all examples of a candidate score the same."""
    shape = (len(scores), selector.table.n_examples)
    states = np.full(shape, int(State.DONE), dtype=np.int8)
    world = World(np.broadcast_to(np.array(scores)[:, None], shape), states)
    Run(selector, world, in_flight).finish()
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
    fitted = fit_schedule(lambda nominal: one_leaves_per_phase(8, nominal), 8, 100, 5)
    assert fitted.targets.tolist() == [1]
    selector = Pairs(SuccessiveRejects(Problem(8, 100, budget=5)))
    assert sum(pulls(selector, [0.5] * 8)) == 5
    assert selector.stopped() is Stop.BUDGET


# what happens in flight

SCORES = (0.9, 0.1, 0.5, 0.7)


def opened(budget: int = 40) -> Pairs:
    """Successive Rejects on four candidates: targets 6, 8 and 12 at a budget of 40."""
    return Pairs(SuccessiveRejects(Problem(4, 100, budget=budget)))


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
        problem = Problem(9, 80, seed=seed, budget=300)
        rule = SuccessiveRejects(problem)
        alone, crowded = Pairs(SuccessiveRejects(problem)), Pairs(rule)
        Run(alone, world).finish()
        Run(crowded, world, in_flight=16, seed=seed).finish()
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


def test_a_missing_budget_names_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"'sequential-halving'.*`budget` is not given; set it"):
        Pairs(SequentialHalving(Problem(4, 10)))


def test_fields_keep_the_order_of_leaving() -> None:
    field = Field(np.arange(5)).drop(3, 1).accept(4).drop(0)
    assert (field.active.tolist(), field.accepted, field.dropped) == ([2], (4,), (3, 1, 0))
