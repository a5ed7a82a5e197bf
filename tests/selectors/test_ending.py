"""When a run ends, and whom it asks until then: separated, equal, or good enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.proofs import Proofs
from bestarm_agent.selectors.types import Problem, State, Stop, Tell
from tests.support.rates import RateCheck
from tests.support.selector_suite import World, WorldRun, opened, play, replay

N = 300
NEAR = World.bernoulli([0.8, 0.79, 0.3, 0.2], N, 3)
STOPS = {"stop_when_separated": True}


def finished(rule: str, **asked: Any) -> WorldRun:  # noqa: ANN401 - options of a problem
    return WorldRun(opened(rule, 4, N, **STOPS, **asked), NEAR).finish()


@pytest.mark.parametrize(
    ("rule", "scores", "stop", "n_tied"),
    [
        ("uniform", [0.0, 1.0, 0.0], Stop.SEPARATED, 0),
        ("ucb-e", [1.0, 1.0, 0.0], Stop.INDIFFERENT, 1),  # they are complete, and equal
    ],
)
def test_a_run_stops_once_no_score_can_change_its_answer(
    rule: str, scores: list[float], stop: Stop, n_tied: int
) -> None:
    selector = opened(rule, 3, 400, **STOPS)
    play(selector, scores)
    assert selector.stopped() is stop
    verdict = selector.answer.best()
    assert scores[verdict.best] == 1.0
    assert (len(verdict.tied), verdict.separated) == (n_tied, n_tied == 0)
    assert selector.table.n_trials[2] < 200  # it has shown what it is long before the end
    assert n_tied == 0 or selector.answer.margin() == 0


@pytest.mark.parametrize("rule", ["racing", "auto", "uniform"])
def test_a_run_stops_once_the_leading_one_is_near_enough(rule: str) -> None:
    run = finished(rule, within=0.1)
    selector = run.selector
    assert selector.stopped() is Stop.WITHIN
    assert selector.answer.margin() <= 0.1
    assert not selector.answer.best().separated
    means = NEAR.mean(4, N)
    assert means[selector.answer.best().best] >= means.max() - 0.1
    cold = replay(run.events[:-2], opened(rule, 4, N, **STOPS, within=0.1))
    assert cold.stopped() is None
    assert replay(run.events[-2:], cold).stopped() is Stop.WITHIN


def test_a_set_is_near_enough_if_each_of_it_is() -> None:
    selector = opened("opt-mai", 4, N, **STOPS, budget=4 * N, within=0.25, top_k=3)
    WorldRun(selector, World.bernoulli([0.9, 0.85, 0.3, 0.28], N, 4)).finish()
    assert selector.stopped() is Stop.WITHIN
    assert set(selector.answer.leading(selector.rule.top_k)) >= {0, 1}


@pytest.mark.slow
@pytest.mark.coverage
def test_good_enough_is_wrong_at_most_at_level_delta(check_rate: RateCheck) -> None:
    # 40 runs at delta = .2, binomial at 1e-6: the leader of three is .05 or .075 behind, 16
    # calls in flight decide who leads.
    wrong = 0
    for seed in range(40):
        rows = np.random.default_rng([seed, 5]).permuted(
            (np.arange(40) < np.array([[24], [22], [21]])) * 1.0, axis=1
        )
        problem = {"seed": seed, "confidence": 0.8, "within": 0.03}
        selector = opened("racing", 3, 40, **STOPS, **problem)
        WorldRun(selector, World.of(rows), in_flight=16).finish()
        if selector.stopped() in (Stop.WITHIN, Stop.SEPARATED):
            wrong += selector.answer.best().best != 0
    check_rate(wrong, 40, 0.2)


@pytest.mark.parametrize("within", [0.0, 1.0])
def test_what_is_good_enough_lies_between_0_and_1(within: float) -> None:
    with pytest.raises(ValueError, match=r"must be in \(0, 1\), got"):
        Problem(2, 10, within=within)


# candidates that are shown to be beaten are not asked in place of those that cannot be

BEATEN = World.bernoulli([0.9, 0.85, 0.02], 120, seed=1)
RULES = ["auto", "pulse", "racing", "ucb-e", "uniform"]
ONLY_BEATEN = np.array([False, False, True])


def after_seventy_scores_each(rule: str, *, stops: bool) -> Pairs:
    asked = {"stop_when_separated": stops, "within": 1e-9 if stops else None}
    run = WorldRun(opened(rule, 3, 120, **asked), BEATEN)
    for row in list(range(3)) * 70:
        if run.ask(1, allowed=np.arange(3) == row):
            run.tell()
    return run.selector


@pytest.mark.parametrize("rule", RULES)
def test_only_what_can_still_decide_is_asked(rule: str) -> None:
    selector = after_seventy_scores_each(rule, stops=True)
    tied = selector.answer.best().tied
    assert tied  # the two good ones are too close to be told apart
    if not selector.rule.exogenous:  # its intervals show nothing
        assert 2 in tied
        return
    assert 2 not in tied
    assert selector.ask(1, allowed=ONLY_BEATEN) == []
    assert selector.stopped() is None
    asks = selector.ask(1, allowed=~ONLY_BEATEN)
    assert [ask.pair.candidate < 2 for ask in asks] == [True]


@pytest.mark.parametrize("rule", RULES)
def test_a_run_to_the_end_of_its_budget_asks_whoever_it_may(rule: str) -> None:
    assert len(after_seventy_scores_each(rule, stops=False).ask(1, allowed=ONLY_BEATEN)) == 1


@pytest.mark.parametrize("rule", RULES)
def test_keeping_nobody_out_is_one_case_however_it_is_said(rule: str) -> None:
    selector = after_seventy_scores_each(rule, stops=True)
    while selector.ask(1, allowed=~ONLY_BEATEN):  # both good ones are asked all, and pending
        pass
    choice = selector.next_choice()
    assert choice is not None
    assert selector.next_choice(np.full(3, True)) == choice


@pytest.mark.parametrize(("rule", "size"), [("ucb-e", 1), ("uniform", 1), ("opt-mai", 2)])
def test_looking_at_the_last_rival_first_changes_no_answer(rule: str, size: int) -> None:
    """After every outcome, as asked of all intervals anew; the rows that lead change."""
    selector = opened(rule, 5, 12, budget=60, **({"top_k": size} if size > 1 else {}))
    proofs, table, said = selector.answer._proofs, selector.table, set[tuple[bool, int]]()
    chances = np.array([0.95, 0.9, 0.5, 0.1, 0.05])
    rng = np.random.default_rng(3)
    while asks := selector.ask():
        score = float(rng.random() < chances[asks[0].pair.candidate])
        selector.tell([Tell(asks[0].seq, State.DONE, score)])
        growing = (table.n_unseen > 0) | (table.count(State.PENDING) > 0)
        for best in (selector.answer.leading(size), [int(rng.integers(5))]):
            found = proofs.may_change(best)
            fresh = Proofs(proofs._evidence, selector.answer.on_new, 0.05)
            rivals = [fresh.rivals(row, best) for row in best]
            open_ones = [
                of & (growing | growing[row]) for row, of in zip(best, rivals, strict=True)
            ]
            assert found == any(map(np.any, open_ones))
            said.add((found, len(best)))
    assert said >= {(True, size), (False, 1)}
