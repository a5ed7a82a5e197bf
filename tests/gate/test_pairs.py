from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from bestarm_agent.domain.values import Slice
from bestarm_agent.gate.pairs import GatePlan
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Ask, Problem, State, Stop, Tell
from bestarm_agent.stats.arrays import FloatArray
from bestarm_agent.stats.non_inferiority import Comparison, Conclusion, Question
from tests.support.rates import RateCheck
from tests.support.selector_suite import flown

MARGIN = 0.05
Latency = Callable[[float], float]


def gate(
    n_challengers: int,
    n: int,
    *,
    groups: Sequence[Sequence[int]] = (),
    margin: float = MARGIN,
    seed: int = 0,
    budget: int | None = None,
) -> Pairs:
    """A gate over n examples, whose slices, if there are any, have these members."""
    question = Question(margin, False, 0.05, n_challengers, n, 1 + len(groups))
    slices = [
        (Slice(f"s{k}", tuple(group)), replace(question, n_examples=len(group)))
        for k, group in enumerate(groups)
    ]
    problem = Problem(1 + n_challengers, n, budget=budget)
    return Pairs(GatePlan(problem, 0, question, seed, slices))


def plan_of(pairs: Pairs) -> GatePlan:
    assert isinstance(pairs.rule, GatePlan)
    return pairs.rule


def over_all(pairs: Pairs, row: int) -> Comparison:
    return plan_of(pairs).challengers[row].comparisons[0]


def scored(ask: Ask, scores: FloatArray) -> Tell:
    value = float(scores[ask.pair])
    if np.isnan(value):
        return Tell(ask.seq, State.VOID)
    return Tell(ask.seq, State.DONE, value)


def drive(
    pairs: Pairs, scores: FloatArray, in_flight: int = 1, latency: Latency = lambda _: 1.0
) -> int:
    """Run a gate to its end; each answer comes after a time that depends on its score."""
    for _ in flown(pairs, lambda a: (scored(a, scores), latency(float(scores[a.pair]))), in_flight):
        pass
    return pairs.table.n_asked


def replayed(live: Pairs, again: Pairs, scores: FloatArray, n_asked: int = 10**6) -> None:
    """Run a gate, many outcomes at once, and another one by its log; compare their evidence."""
    while live.table.n_asked < n_asked and (asks := live.ask(17)):
        live.tell([scored(ask, scores) for ask in asks])
        again.adopt(asks)
        for ask in asks:
            again.tell([scored(ask, scores)])
    assert again.stopped() == live.stopped()
    for row, one in plan_of(live).challengers.items():
        theirs = plan_of(again).challengers[row].comparisons
        assert [part.gains for part in theirs] == [part.gains for part in one.comparisons]


def world(n_challengers: int, n_examples: int, rates: tuple[float, float], seed: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    chances = np.array([rates[0]] + [rates[1]] * n_challengers)
    return (rng.random((1 + n_challengers, n_examples)) < chances[:, None]).astype(float)


def test_baseline_and_challengers_take_the_same_examples_in_turn() -> None:
    pairs = gate(2, 50)
    asked = [ask.pair for ask in pairs.ask(9)]
    assert [pair.candidate for pair in asked] == [0, 1, 2] * 3
    by_row = [[pair.example for pair in asked if pair.candidate == row] for row in range(3)]
    assert by_row[0] == by_row[1] == by_row[2]
    assert len(set(by_row[0])) == 3
    first, same, other = (
        [ask.pair.example for ask in gate(1, 50, seed=seed).ask(20)] for seed in (1, 1, 2)
    )
    assert first == same != other


def test_a_decided_challenger_is_asked_no_more() -> None:
    scores = np.ones((3, 400))
    scores[2] = 0.0
    pairs = gate(2, 400)
    drive(pairs, scores)
    verdicts = [one.verdict for one in plan_of(pairs).challengers.values()]
    assert verdicts == [Conclusion.PASSED, Conclusion.FAILED]
    assert pairs.stopped() is Stop.VERDICT
    asked = np.bincount(pairs.table.candidate, minlength=3)
    assert asked[2] < asked[1] == asked[0] < 200


@pytest.mark.parametrize("in_flight", [7, 64])
def test_slow_wrong_answers_change_no_verdict(in_flight: int) -> None:
    scores = world(3, 300, (0.8, 0.78), seed=3)
    calm, stormy = gate(3, 300), gate(3, 300)
    drive(calm, scores)
    drive(stormy, scores, in_flight, lambda score: 1.0 if score else 40.0)
    for row in (1, 2, 3):
        one, other = over_all(calm, row), over_all(stormy, row)
        assert one.verdict is other.verdict
        assert one.gains == other.gains


@pytest.mark.slow
@pytest.mark.coverage
def test_wrong_passes_with_calls_in_flight_that_take_longer_when_wrong(
    check_rate: RateCheck,
) -> None:
    # Binomial test at 1e-6 of the rate .05: the challenger is worse by the margin and a little.
    wrong, by_completion, runs = 0, 0, 150
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        baseline = (np.arange(80) < 72).astype(float)
        challenger = np.where(rng.permutation(80) < 6, 0.0, baseline)
        scores = rng.permuted(np.stack([baseline, challenger]).T, axis=0).T
        true = float((scores[1] - scores[0]).mean())
        pairs = gate(1, 80, margin=min(0.99, -true - 0.01), seed=seed)
        drive(pairs, scores, 64, lambda score: 1.0 if score else 30.0)
        wrong += over_all(pairs, 1).verdict is Conclusion.PASSED
        first = [plan_of(pairs).parts[0].examples[place] for place in range(40)]
        quick = [j for j in first if scores[:, j].all()]
        by_completion += float((scores[1] - scores[0])[quick].mean()) > true + 0.01
    check_rate(wrong, runs, 0.05)
    assert by_completion == runs  # the answers that come first show no difference at all


def test_one_that_cannot_be_called_holds_no_other_up() -> None:
    scores = np.ones((3, 200))
    pairs, able = gate(2, 200), np.array([True, False, True])
    while asks := pairs.ask(4, allowed=able):
        pairs.tell([scored(ask, scores) for ask in asks])
    assert over_all(pairs, 2).verdict is Conclusion.PASSED
    assert over_all(pairs, 1).n == 0
    assert pairs.stopped() is None  # the run loop says why it ends


def test_a_baseline_that_cannot_be_called_is_not_left_far_behind() -> None:
    pairs = gate(2, 200)
    asks = pairs.ask(200, allowed=np.array([False, True, True]))
    assert len(asks) == 2 * 32


def test_all_examples_with_too_many_missing_scores_leave_it_open() -> None:
    scores = world(1, 100, (0.8, 0.8), seed=6)
    scores[1, ::3] = np.nan
    pairs = gate(1, 100)
    drive(pairs, scores)
    assert pairs.stopped() is Stop.EXHAUSTED
    assert over_all(pairs, 1).verdict is Conclusion.UNDECIDED


def test_a_log_that_is_replayed_leads_to_the_same() -> None:
    live, again = gate(3, 500, budget=700), gate(3, 500, budget=700)
    replayed(live, again, world(3, 500, (0.8, 0.74), seed=7), 680)
