"""Promises about money and places that only a rare turn of events puts to the test."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import pytest

from bestarm_agent.domain.events import Attempted
from bestarm_agent.domain.spend import Budget, Resource, Spend
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.engine.evaluate import Evaluation, Evaluator
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.limits.model_limits import ModelLimits, RateLimits
from bestarm_agent.engine.limits.pauses import Permit
from bestarm_agent.engine.limits.prompt_caches import PromptCaches
from bestarm_agent.engine.reply_cache import ReplyCache
from bestarm_agent.errors import FailureKind
from bestarm_agent.providers.api.errors import kind_of
from bestarm_agent.providers.failures import failure
from bestarm_agent.store.run_state import fold
from tests.support.runs import Actor, Scene, always, attempt_log
from tests.support.store_runs import asked, grid, started, told
from tests.support.virtual_time import LoopClock, run_virtual

CALL = Spend(calls=1, tokens=10, usd_nanos=100)  # the most that a call of ``Actor`` costs
ANSWERED = Spend(calls=1, tokens=5, usd_nanos=60)


async def test_a_first_call_that_fails_has_not_filled_the_prompt_cache() -> None:
    caches = PromptCaches(LoopClock())
    with pytest.raises(ConnectionError), caches.sent("prefix"):
        raise ConnectionError
    with caches.sent("prefix"):
        assert caches.filling, "the next call is the first, and others wait for it"
    with caches.sent("prefix"):
        assert not caches.filling, "it was answered"


def test_a_pair_whose_reply_is_found_after_a_kill_lost_nothing() -> None:
    scene, ledger = Scene({"a": Actor("p", always(0.5))}, n_examples=1), Ledger(Budget())
    clients = scene.clients(ledger)
    evaluator = Evaluator(ReplyCache(scene.store, ledger), scene.judge_client(clients))
    (candidate,), (example,) = scene.candidates(clients, Spend()), scene.examples
    bought = Evaluation(candidate, example, attempt_log())
    assert bought.reserve(CALL, Spend())
    run_virtual(evaluator.evaluate(bought))
    log = attempt_log(bought.call.key)
    log.lost = [Attempted(0, "", CALL)]
    again = Evaluation(candidate, example, log, spend=CALL)
    assert again.reserve(CALL, Spend())
    outcome = run_virtual(evaluator.evaluate(again))
    assert outcome is not None
    assert again.call.found
    assert (outcome.spend, outcome.lost_spend) == (ANSWERED + Spend(answers=1), Spend())
    assert not outcome.cached, "the run bought it itself"


def test_cached_tokens_of_replies_that_cost_nothing_are_not_counted() -> None:
    bought, reused = told(0), told(1)
    reused = replace(reused, outcome=replace(reused.outcome, cached=True))
    state = fold([started(), *grid(), asked(0), asked(1), bought, reused])
    assert state.cached_tokens == bought.outcome.usage.cached > 0


@dataclass
class ByLength(Actor):
    """A provider whose calls cost at most what the example's number says."""

    def bound(self, request: Request) -> Spend:
        return Spend(calls=1, tokens=10, usd_nanos=100 * (1 + int(request.example[1:])))


def test_a_longer_example_raises_what_its_candidate_may_cost() -> None:
    scene = Scene({"a": ByLength("p", always(0.5))}, n_examples=4)
    scene.run()
    assert scene.loop.pool.candidates[0].bound.usd_nanos >= 400


def test_payment_required_is_a_quota_whatever_the_server_says() -> None:
    assert kind_of(402, [], "") is FailureKind.QUOTA_EXHAUSTED


def sent(limits: ModelLimits, most: int) -> Permit:
    permit = limits.take(Request("m", text="?"), Spend(calls=1, tokens=most))
    assert permit is not None
    limits.send(permit)
    return permit


async def test_after_an_outage_one_call_goes_and_the_others_wait_for_its_answer() -> None:
    limits = ModelLimits(Actor("p", always(0.5)), "m", RateLimits(), LoopClock())
    down, request = failure(FailureKind.UNREACHABLE, "no connection"), Request("m", text="?")
    limits.ended(sent(limits, 1), Reply("it answered before"))
    in_flight = [sent(limits, 1) for _ in range(12)]
    for permit in in_flight[:10]:
        limits.ended(permit, down)
    assert limits.opens_in == pytest.approx(0.5)
    for permit, result in zip(in_flight[10:], (down, None), strict=True):
        limits.ended(permit, result)
        assert limits.opens_in == pytest.approx(0.5), "calls of before the outage say nothing"
    for pause in (0.5, 1.0, 2.0):
        assert limits.opens_in == pytest.approx(pause), "twice as long after each probe"
        assert limits.room == 0
        await asyncio.sleep(pause)
        assert limits.room == 1
        probe = sent(limits, 1)
        await asyncio.sleep(60.0)
        assert limits.take(request, CALL) is None, "a probe that hangs was not answered"
        limits.ended(probe, down)
    await asyncio.sleep(limits.opens_in)
    limits.ended(sent(limits, 1), None)
    assert limits.room == 1, "a probe that was cut off says nothing, and another one may go"
    limits.ended(sent(limits, 1), Reply("it is back"))
    assert (limits.room, limits.opens_in) == (float("inf"), 0.0)


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        (FailureKind.TIMEOUT, 60.0),
        (FailureKind.CONNECTION, 60.0),
        (FailureKind.MALFORMED_REPLY, 60.0),
        (FailureKind.OVERLOADED, 0.0),
        (FailureKind.UNREACHABLE, 0.0),
        (None, 60.0),  # cut off
    ],
)
async def test_tokens_of_an_attempt_that_may_have_been_billed_are_not_given_back(
    kind: FailureKind | None, kept: float
) -> None:
    per_minute = {Resource.TOKENS: 6060.0, Resource.REQUESTS: 600.0}  # a burst of 60.6 tokens
    limits = ModelLimits(Actor("p", always(0.5)), "m", RateLimits(per_minute), LoopClock())
    limits.ended(sent(limits, 60), None if kind is None else failure(kind, "no answer"))
    tokens, requests = limits.buckets[Resource.TOKENS], limits.buckets[Resource.REQUESTS]
    assert tokens.used(0.0) == kept
    assert tokens.level(0.0) == pytest.approx(60.6 - kept)
    assert requests.used(0.0) == 1.0, "providers count requests that they reject"
