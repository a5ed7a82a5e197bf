"""What is reserved for one pair: an attempt, its judging and its pull, all or nothing."""

from __future__ import annotations

import pytest

from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.engine.calls.pair import PairEvaluator
from bestarm_agent.engine.calls.reply_cache import ReplyCache
from bestarm_agent.engine.calls.retrying import Call
from bestarm_agent.engine.ledger import Ledger
from tests.support.runs import Actor, Scene, scored

CALL = Spend(calls=1, tokens=10, usd_nanos=100)  # the most that the candidate's call costs
JUDGING = Spend(calls=1, tokens=7, usd_nanos=30)


def reserved(budget: Budget, *, paid_before: bool = False) -> Spend | None:
    """What a pair under a judge reserves in a ledger; None if it does not fit."""
    judge = Actor("judge", lambda *_: scored(0.5), bound_spend=JUDGING)
    scene = Scene({"a": Actor("p", lambda *_: scored(0.5))}, judge=judge)
    ledger = Ledger(budget)
    clients = scene.clients(ledger)
    evaluator = PairEvaluator(
        ReplyCache(scene.store, ledger, use_cache=True), scene.judge_client(clients), ledger
    )
    (candidate,) = scene.candidates(clients, Spend())
    call: Call = candidate.call(scene.examples[0])
    if paid_before:
        call.spend = Spend(pulls=1)
    assert evaluator.bound(call, scene.examples[0]) == CALL + JUDGING
    taken = evaluator.reserve(call, scene.examples[0])
    outstanding = ledger.balance().outstanding
    if not taken:
        assert outstanding == Spend()
        return None
    return outstanding


@pytest.mark.parametrize(
    "budget",
    [Budget(calls=2), Budget(tokens=17), Budget(usd_nanos=130), Budget(pulls=1)],
)
def test_a_pair_reserves_attempt_judging_and_pull_together(budget: Budget) -> None:
    assert reserved(budget) == CALL + JUDGING + Spend(pulls=1)


@pytest.mark.parametrize(
    "budget",
    [Budget(calls=1), Budget(tokens=16), Budget(usd_nanos=129), Budget(pulls=0)],
)
def test_a_pair_that_does_not_fit_whole_reserves_nothing(budget: Budget) -> None:
    assert reserved(budget) is None


def test_a_pull_is_paid_once() -> None:
    assert reserved(Budget(pulls=0), paid_before=True) == CALL + JUDGING
