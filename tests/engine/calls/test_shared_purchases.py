"""Runs that share a store buy each reply once, also at the same time."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from bestarm_agent import Study
from bestarm_agent.domain.spend import Budget
from bestarm_agent.domain.values import Reply
from bestarm_agent.engine.limits.waits import Wait
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.errors import FailureKind
from bestarm_agent.store.store import Claim, Store
from tests.support.api_studies import ANTHROPIC_MODELS, KEYS, OPENAI_MODELS, study_of
from tests.support.fake_api import FakeApi, in_thread, quality
from tests.support.runs import Actor, Scene, always, failing, scored


@pytest.mark.slow
def test_five_runs_at_once_send_each_request_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)
    answer = quality({**OPENAI_MODELS, **ANTHROPIC_MODELS})
    one, other = (FakeApi(answer=answer, key=key) for key in KEYS.values())

    async def run(path: Path) -> Standing:
        async with Study.open(path) as study:
            return await study.run()

    async def all_five(path: Path) -> list[Standing]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(path)) for _ in range(5)]
        return [task.result() for task in tasks]

    with in_thread(one), in_thread(other):
        path = study_of(tmp_path, one, other, n_examples=5)
        standings = asyncio.run(all_five(path))
    requests = len(one.received) + len(other.received)
    assert requests == 6 * 5
    assert sum(standing.spent.calls for standing in standings) == requests
    assert [standing.told for standing in standings] == [30] * 5


async def test_a_reply_that_another_run_fails_to_buy_is_bought_by_the_next() -> None:
    broken = failing(FailureKind.SERVER, fatal=True)
    actor = Actor("p", lambda _, before: broken if before == 0 else scored(0.5))
    first = Scene({"a": actor}, n_examples=4)
    second = Scene({"a": actor}, n_examples=4, store=first.store)

    loops = [await first.open(), await second.open()]
    async with asyncio.TaskGroup() as group:
        for loop in loops:
            group.create_task(loop.run())
    assert len(actor.sent) == 8
    spends = [scene.loop.ledger.spent for scene in (first, second)]
    assert sum(spend.calls for spend in spends) == 8


async def test_an_interrupted_purchase_leaves_no_claim() -> None:
    actor = Actor("p", always(0.5), latency=lambda _: 10.0)
    loop = await Scene({"a": actor}, n_examples=3, budget=Budget(calls=20)).cut_off(1.0)
    await loop.run()
    assert loop.ledger.spent.calls == 6


class CountingStore(Store):
    """Notes when the right to buy each reply was asked for."""

    asked_at: dict[str, list[float]]

    def claim_reply(self, key: str) -> Claim:
        self.asked_at.setdefault(key, []).append(asyncio.get_running_loop().time())
        return super().claim_reply(key)


async def test_a_pair_that_waits_for_another_runs_purchase_holds_no_place() -> None:
    """Candidate `a` is being bought elsewhere; meanwhile the one place is for `b`."""
    slow = Actor("p", always(0.5), latency=lambda _: 100.0)
    quick = Actor("q", always(0.4))
    store = CountingStore.in_memory()
    store.asked_at = {}
    first = Scene({"a": slow}, n_examples=1, store=store)
    second = Scene({"a": slow, "b": quick}, n_examples=1, in_flight=1, store=store)

    buying = asyncio.create_task((await first.open()).run())
    await asyncio.sleep(1.0)
    loop = await second.open()
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(50.0)
    assert [at for at, _ in quick.sent] == [pytest.approx(1.0, abs=1.0)]
    asked_at = max(store.asked_at.values(), key=len)[2:11]
    pauses = [late - early for early, late in pairwise(asked_at)]
    assert pauses == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0])
    assert second.board.summary(0.0) == (Wait("p", "another call is buying the reply", 1, None),)
    await buying
    await running
    assert loop.pool.gate.inside == 0
    assert len(slow.sent) == 1, "its reply came from the store"


async def test_replies_that_another_run_bought_are_judged_in_the_places_of_the_run() -> None:
    bought = Actor("p", always(0.5), latency=lambda _: 100.0)
    judge = Actor("j", lambda *_: Reply("0.5"), latency=lambda _: 10.0)
    first = Scene({"a": bought}, n_examples=4)
    second = Scene({"a": bought}, n_examples=4, in_flight=1, store=first.store, judge=judge)

    buying = asyncio.create_task((await first.open()).run())
    await asyncio.sleep(1.0)
    await (await second.open()).run()
    await buying
    assert (len(bought.sent), len(judge.sent), judge.most) == (4, 4, 1)


async def test_a_run_cancelled_while_it_waits_for_a_place_gives_its_claim_back() -> None:
    """It may buy the reply now, and all places are taken by calls that last."""
    bought = Actor("p", lambda *_: failing(FailureKind.SERVER, fatal=True), latency=lambda _: 10.0)
    lasting = Actor("q", always(0.4), latency=lambda _: 1000.0)
    first = Scene({"a": bought}, n_examples=1)
    second = Scene({"a": bought, "b": lasting}, n_examples=1, in_flight=1, store=first.store)

    buying = asyncio.create_task((await first.open()).run())
    await asyncio.sleep(1.0)
    loop = await second.cut_off(50.0)
    assert (len(bought.sent), len(lasting.sent)) == (1, 1)
    await buying
    call = loop.pool.candidates[0].call(second.examples[0])
    assert await second.store.claim_reply(call.key)
