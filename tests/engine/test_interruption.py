"""What an interruption at a bad moment must not do: leak, overspend, buy twice, or hang."""

from __future__ import annotations

import asyncio

import pytest

from bestarm_agent.domain.events import Asked
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.engine.call import reply_key
from bestarm_agent.engine.loop import End, RunLoop
from bestarm_agent.errors import Blame, FailureKind
from tests.support.runs import Actor, Scene, scored
from tests.support.virtual_time import run_virtual


def asked_before(loop: RunLoop, count: int) -> None:
    """As if an earlier process had asked for pairs, sent them, and been killed."""
    for ask in loop.record.pairs.ask(count):
        loop.record.record(Asked(ask.seq, *ask.pair, ask.reason))


async def test_calls_that_a_crash_cut_off_do_not_take_a_run_beyond_its_cap() -> None:
    actor = Actor("p", lambda *_: scored(1.0))
    scene = Scene({"a": actor}, n_examples=10, in_flight=4, budget=Budget(calls=6))

    loop = await scene.open()
    asked_before(loop, 4)
    assert (await loop.run()) is End.BUDGET
    assert len(actor.sent) == 2, "four may have been sent before"
    assert scene.loop.ledger.spent.calls == 6
    assert scene.loop.ledger.outstanding == Spend()


async def test_a_reply_that_an_earlier_process_bought_waits_for_a_budget() -> None:
    """Also without the cache: it is this run's own."""
    actor = Actor("p", lambda *_: scored(1.0))
    budget = Budget(calls=0)
    scene = Scene({"a": actor}, n_examples=1, budget=budget, use_cache=False)

    loop = await scene.open()
    candidate, example = loop.pool.candidates[0], scene.examples[0]
    key = reply_key(actor, candidate.model.fingerprint, candidate.request(example))
    await scene.store.put_reply(key, scored(1.0))
    asked_before(loop, 1)
    first = await loop.run()
    loop.set_budget(Budget(calls=5))
    assert (first, await loop.run()) == (End.BUDGET, End.EXHAUSTED)
    assert actor.sent == []
    assert scene.loop.ledger.spent == Spend(pulls=1, calls=1, tokens=5, usd_nanos=60)
    assert scene.loop.record.state.spend == scene.loop.ledger.spent


async def test_an_end_while_the_log_is_written_leaves_nothing_set_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    actor = Actor("p", lambda *_: scored(1.0))
    scene = Scene({"a": actor}, n_examples=8, in_flight=4, budget=Budget(calls=8))

    loop = await scene.open()
    with monkeypatch.context() as slow:
        slow.setattr(loop.record, "flush", lambda: asyncio.sleep(10.0))
        running = asyncio.create_task(loop.run())
        await asyncio.sleep(1.0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert loop.ledger.outstanding == Spend()
    assert loop.pool.gate.inside == 0
    assert len(loop.record.state.pending) == 4
    assert (await loop.run()) is End.EXHAUSTED
    assert len(actor.sent) == 8
    assert scene.loop.ledger.spent == scene.loop.record.state.spend
    assert scene.loop.ledger.outstanding == Spend()


class Careless(Actor):
    """Awaits a task that it cancelled itself, as buggy programs do."""

    async def generate(self, request: Request) -> Reply:
        if request.example == "e1":
            task = asyncio.create_task(asyncio.sleep(5.0))
            task.cancel()
            await task
        return scored(1.0)


def test_a_cancellation_from_within_a_provider_voids_the_pair_and_the_run_goes_on() -> None:
    scene = Scene({"a": Careless("p", lambda *_: scored(1.0))}, n_examples=4, selector="uniform")

    async def play() -> End:
        loop = await scene.open()
        async with asyncio.timeout(1e4):
            return await loop.run()

    assert run_virtual(play()) is End.EXHAUSTED
    (failed,) = [outcome.failure for outcome in scene.outcomes() if outcome.failure]
    assert (failed.kind, failed.blame) == (FailureKind.INTERNAL, Blame.HARNESS)
