"""Numeric entry points refuse what breaks a rule, with the value, and stay as they were."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bestarm_agent.certification import Goal, Screened, certify, certify_losses
from bestarm_agent.certification.betting import RiskTest
from bestarm_agent.domain.spend import Usage
from bestarm_agent.domain.values import Example, Reply, Score, Token, Vote, each_drawn
from bestarm_agent.errors import BestarmError, ConfigError
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Guarantee, Problem, State, Stop, Tell
from bestarm_agent.stats.new_examples import examples_needed
from bestarm_agent.stats.non_inferiority import Comparison, Conclusion, Question
from tests.support.selector_suite import opened

NAN, INFINITE = float("nan"), float("inf")
GOAL = Goal(0.2, 0.1)
LOSSES = np.zeros((2, 30))
QUESTION = Question(0.05, False, 0.05, 1, 3)


def begun() -> Pairs:
    return opened("ucb-e", 3, 10, seed=0, budget=30)


def full() -> Comparison:
    comparison = Comparison(QUESTION)
    for _ in range(3):
        comparison.push((1.0, 1.0), (1.0, 1.0))
    return comparison


def passing(candidate: int) -> Screened:
    return Screened(candidate, Conclusion.PASSED, (0,), 3.0, (), (), 0.0)


@pytest.mark.parametrize(
    ("value", "act"),
    [
        ("-1", lambda: begun().bar([-1])),
        ("3", lambda: begun().bar([0, 3])),
        ("-1", lambda: Problem(2, 5, independent=(-1,))),
        ("5", lambda: Problem(2, 5, independent=(0, 5))),
        ("-7", lambda: Problem(2, 5, seed=-7)),
        ("-1", lambda: certify_losses(LOSSES, None, GOAL, ratio=-1)),
        ("0", lambda: certify_losses(LOSSES, LOSSES, GOAL, max_labels=0)),
        (r"\[0, 0\]", lambda: certify_losses(LOSSES, None, GOAL, order=[0, 0])),
        (r"\[0, -1\]", lambda: certify_losses(LOSSES, None, GOAL, order=[0, -1])),
        (r"\[2\]", lambda: certify_losses(LOSSES, None, GOAL, order=[2])),
        (r"\[1, 1\]", lambda: certify([1, 1], passing)),
        ("1e-170", lambda: examples_needed(1e-170, 0.15, 0.025)),
        ("0", lambda: examples_needed(0.0, 0.15, 0.025)),
        ("-0.1", lambda: examples_needed(-0.1, 0.15, 0.025)),
        ("nan", lambda: examples_needed(NAN, 0.15, 0.025)),
        ("nan", lambda: RiskTest(GOAL).push(0.0, guess=NAN)),
        ("1.5", lambda: RiskTest(GOAL).push(0.0, others=1.5)),
        ("-1", lambda: RiskTest(GOAL).push(-1)),
        ("3", lambda: full().push((1.0, 1.0), (1.0, 1.0))),
        ("nan", lambda: Comparison(QUESTION).push((NAN, NAN), (0.0, 0.0))),
        ("1.0, 0.0", lambda: Comparison(QUESTION).push((1.0, 0.0), (0.0, 0.0))),
        ("1.5", lambda: Score(1.5)),
        ("nan", lambda: Score(1.0, gold=NAN)),
        ("-0.5", lambda: Score(1.0, measures=(None, -0.5))),
        ("inf", lambda: Vote("me", INFINITE)),
        ("2", lambda: Reply("", score=2)),
        ("-1", lambda: Reply("", usd_nanos=-1)),
        ("1e\\+16", lambda: Reply("", seconds=1e16)),
        ("-3", lambda: Usage(output=-3)),
    ],
)
def test_a_value_that_breaks_a_rule_is_named(value: str, act: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=f"got .*{value}|of {value}|all {value}"):
        act()


@pytest.mark.parametrize(
    "odd",
    [
        {"score": NAN},
        {"score": 1.5},
        {"cost": -1.0},
        {"gold": 2.0},
        {"state": State.PENDING},
        {"seq": 9},
        {"seq": -1},
        {"seq": 0},  # which is in the batch already
    ],
)
def test_a_batch_is_told_as_a_whole_or_not_at_all(odd: dict[str, Any]) -> None:
    selector, untouched = begun(), begun()
    for one in (selector, untouched):
        one.ask(3)
    good = [Tell(seq, State.DONE, 1.0) for seq in range(3)]
    with pytest.raises(ValueError, match=r"got|number|outcome"):
        selector.tell([*good[:2], replace(good[2], **odd)])
    assert selector.table.count(State.PENDING).sum() == 3
    for one in (selector, untouched):
        one.tell(good)
    assert np.array_equal(selector.table.cells, untouched.table.cells)
    assert selector.answer.estimates().mean.tolist() == untouched.answer.estimates().mean.tolist()


@pytest.mark.parametrize("rule", ["ucb-e", "racing", "auto"])
@pytest.mark.parametrize("scores", [0, 6])
def test_nothing_is_shown_of_candidates_that_all_left(rule: str, scores: int) -> None:
    selector = opened(rule, 3, 10, seed=0, budget=30)
    asks = selector.ask(scores)
    selector.tell([Tell(ask.seq, State.DONE, 1.0) for ask in asks])
    selector.bar([0, 1, 2])
    assert selector.stopped() is Stop.EXHAUSTED
    assert selector.answer.estimates().guarantee is not Guarantee.EXACT
    with pytest.raises(ValueError, match="all candidates have left"):
        selector.answer.best()
    assert selector.ask(3) == []


def test_an_id_that_another_rows_draw_has_is_refused() -> None:
    rows = [Example("a", {}), Example("a#2", {})]
    assert len(each_drawn(rows, 1)) == 2
    with pytest.raises(ConfigError, match="`a#2` stands for draw 2 of example `a`"):
        each_drawn(rows, 2)
    assert issubclass(ConfigError, BestarmError)


def test_what_is_right_is_taken() -> None:
    assert examples_needed(1e-100, 0.15, 0.025) > 10**190
    assert Token("a", -INFINITE).logprob == -INFINITE, "it is refused where a plug-in hands it in"
    selector = begun()
    selector.bar([0, 0])
    assert selector.answer.barred.tolist() == [True, False, False]
