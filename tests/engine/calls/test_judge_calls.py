"""Judges that call models, inside the run loop, in virtual time."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from bestarm_agent.domain.events import Told
from bestarm_agent.domain.spend import Budget, Spend, Usage
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.engine.loop import End
from bestarm_agent.errors import Blame, FailureKind, ProviderError
from tests.support.runs import Actor, Scene
from tests.support.virtual_time import run_virtual


def answering(request: Request, _before: int) -> Reply:
    return Reply(f"{request.model} on {request.example}", usage=Usage(3, 0, 0, 2), usd_nanos=60)


def worth(value: float) -> Reply:
    return Reply(str(value), usage=Usage(5, 0, 0, 1), usd_nanos=40)


def candidate() -> Actor:
    return Actor("p", answering)


def judge(bound: int = 50) -> Actor:
    upper = Spend(calls=1, tokens=10, usd_nanos=bound)
    return Actor("j", lambda *_: worth(0.75), bound_spend=upper)


def failing(kind: FailureKind, *, transient: bool = False, fatal: bool = False) -> ProviderError:
    return ProviderError(f"scripted {kind}", kind=kind, transient=transient, fatal=fatal)


def test_what_judging_cost_is_told_apart() -> None:
    asker = judge()
    scene = Scene({"a": candidate()}, n_examples=4, judge=asker)
    assert scene.run() is End.EXHAUSTED
    for outcome in scene.outcomes():
        assert outcome.score is not None
        assert outcome.score.value == 0.75
        assert outcome.score.votes[0].said == "0.75"
        assert outcome.usage.total == 5, "the usage is the candidate's"
        assert outcome.judge_spend == Spend(calls=1, tokens=6, usd_nanos=40)
        assert outcome.spend == Spend(pulls=1, calls=2, tokens=11, usd_nanos=100)
    assert scene.loop.ledger.spent == scene.loop.record.state.spend
    assert scene.loop.ledger.spent == Spend(pulls=4, calls=8, tokens=44, usd_nanos=400)
    assert {request.example for _, request in asker.sent} == {f"a/e{j}" for j in range(4)}
    assert {request.candidate for _, request in asker.sent} == {"a"}


@pytest.mark.parametrize("in_flight", [1, 3, 32])
def test_no_cap_is_passed_with_judges_in_flight(in_flight: int) -> None:
    scene = Scene(
        {"a": candidate(), "b": candidate()},
        in_flight=in_flight,
        judge=judge(bound=900),
        budget=Budget(usd_nanos=2500),
    )
    assert scene.run() is End.BUDGET
    ledger = scene.loop.ledger
    assert 1500 < ledger.spent.usd_nanos <= 2500
    assert ledger.outstanding == Spend()
    assert not scene.loop.record.state.pending, "no pair was begun that could not be judged"


def test_a_judge_that_fails_makes_a_pair_void_and_never_wrong() -> None:
    broken = failing(FailureKind.SERVER, transient=True)
    asker = Actor("j", lambda r, _: broken if r.example == "a/e2" else worth(1.0))
    scene = Scene({"a": candidate()}, n_examples=5, judge=asker)
    scene.run()
    [outcome] = [outcome for outcome in scene.outcomes() if outcome.failure]
    failure = outcome.failure
    assert failure is not None
    assert (failure.kind, failure.blame) == (FailureKind.JUDGE_FAILED, Blame.JUDGE)
    assert "judge model j/judge-model gave no answer: scripted server" in failure.message
    assert outcome.judge_spend == Spend(calls=3), "three attempts"
    assert outcome.reply_key is not None, "the answer is paid for and kept"
    assert scene.loop.record.pairs.estimates().mean[0] == 1.0


def test_only_the_judge_is_asked_again_after_a_bad_key() -> None:
    locked = failing(FailureKind.AUTHENTICATION, fatal=True)
    keys: list[ProviderError | Reply] = [locked]
    asker = Actor("j", lambda *_: keys[-1])
    one, two = candidate(), candidate()
    store = Scene({"a": one}).store
    first = Scene({"a": one}, n_examples=6, in_flight=3, judge=asker, store=store)
    assert first.run() is End.FAILURES
    assert len(one.sent) <= 4, "nothing more was bought once no reply could be scored"
    assert first.loop.record.state.pending
    assert "no reply can be judged" in first.loop.pool.broken()["a"]
    keys.append(worth(0.5))
    second = Scene({"a": two}, n_examples=6, judge=asker, store=store)
    assert second.run() is End.EXHAUSTED
    bought = {request.example for _, request in one.sent}
    assert {request.example for _, request in two.sent} == {f"e{j}" for j in range(6)} - bought


@pytest.mark.parametrize("use_cache", [True, False])
async def test_an_interrupted_judgement_does_not_buy_the_answer_again(use_cache: bool) -> None:
    one = candidate()
    asker = judge()
    asker.latency = lambda _request: 10.0
    scene = Scene({"a": one}, n_examples=4, in_flight=4, judge=asker, use_cache=use_cache)

    loop = await scene.open()
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(5.0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await loop.run()) is End.EXHAUSTED
    assert len(one.sent) == 4
    assert len(asker.sent) == 8, "what was in flight at the judge is sent again"
    spent = scene.loop.ledger.spent
    assert spent == scene.loop.record.state.spend
    assert spent.usd_nanos == 4 * (60 + 50 + 40), "a judge's call cut off counts with its bound"
    told = [event.outcome for event in await scene.events() if isinstance(event, Told)]
    judging = [outcome.judge_spend.usd_nanos for outcome in told]
    assert judging == [90] * 4


def test_a_slow_judge_holds_places_and_nothing_locks_up() -> None:
    """Candidate and judge share one provider with one place."""
    both = Actor("p", lambda r, n: worth(1.0) if r.model == "judge-model" else answering(r, n))
    scene = Scene({"a": both}, n_examples=9, in_flight=4, provider_in_flight=1, judge=both)
    assert scene.run() is End.EXHAUSTED
    assert both.most == 1
    answers = judgements = 0
    for _, request in both.sent:
        judgements += request.model == "judge-model"
        answers += request.model != "judge-model"
        assert answers - judgements <= 4, "no more pairs wait for the judge than may be in flight"


def test_the_candidates_provider_is_free_while_the_judge_works() -> None:
    one, asker = candidate(), judge()
    asker.latency = lambda _request: 30.0
    scene = Scene({"a": one}, n_examples=8, in_flight=8, provider_in_flight=2, judge=asker)
    scene.run()
    assert max(at for at, _ in one.sent) <= 4.0
    assert asker.most == 2, "the judge has a gate of its own"


async def test_a_full_queue_at_the_judge_says_so() -> None:
    asker = judge()
    asker.latency = lambda _request: 30.0
    scene = Scene({"a": candidate()}, n_examples=6, provider_in_flight=2, judge=asker)

    loop = await scene.open()
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(20.0)
    waits = scene.board.summary(asyncio.get_running_loop().time())
    await running
    assert scene.board.summary(0.0) == ()
    assert [(wait.provider, wait.reason, wait.count) for wait in waits] == [
        ("judge asking", "queue full", 4),
        ("j/judge-model", "has not answered yet, for 19 s", 0),
    ]


def test_judgements_come_from_the_cache() -> None:
    asker = judge()
    scene = Scene({"a": candidate()}, n_examples=4, judge=asker)
    scene.run()
    again = Scene({"a": candidate()}, n_examples=4, judge=asker, store=scene.store)
    again.run()
    assert len(asker.sent) == 4
    assert again.loop.ledger.spent == Spend(pulls=4)


async def test_a_judgement_that_the_budget_cannot_repeat_waits_for_more() -> None:
    busy = failing(FailureKind.OVERLOADED, transient=True)
    one = candidate()
    asker = Actor("j", lambda _, before: busy if before == 0 else worth(1.0))
    scene = Scene({"a": one}, n_examples=2, in_flight=1, judge=asker, budget=Budget(calls=2))

    loop = await scene.open()
    first = await loop.run()
    assert loop.record.state.pending
    loop.set_budget(Budget(calls=100))
    assert (first, await loop.run()) == (End.BUDGET, End.EXHAUSTED)
    assert len(one.sent) == 2
    spent = scene.loop.ledger.spent
    assert spent.calls == len(one.sent) + len(asker.sent)
    assert spent.pulls == 2
    assert scene.loop.record.state.spend == spent


@pytest.mark.parametrize("seed", [5, 8, 12, 14, 16])
def test_retries_and_judgements_at_one_provider_do_not_block_each_other(seed: int) -> None:
    """Answered pairs wait for the line to be judged in, retried ones for the answered to end."""
    rng = np.random.default_rng(seed)

    def answer(request: Request, _before: int) -> Reply | Exception:
        if request.model != "judge-model" and rng.random() < 0.4:
            return failing(FailureKind.OVERLOADED, transient=True)
        return worth(1.0)

    busy = Actor("p", answer, latency=lambda _request: float(rng.choice([0.2, 1.0, 3.0])))
    quick = Actor("q", lambda *_: worth(1.0), latency=lambda _: float(rng.choice([0.2, 0.5])))
    scene = Scene(
        {"busy": busy, "quick": quick},
        n_examples=30,
        in_flight=2,
        provider_in_flight=1 + seed % 2,
        judge=busy,
        selector="uniform",
    )

    async def play() -> End:
        loop = await scene.open()
        async with asyncio.timeout(1e5):
            return await loop.run()

    assert run_virtual(play()) is End.EXHAUSTED
