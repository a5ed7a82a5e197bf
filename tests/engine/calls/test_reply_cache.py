"""The reply cache: which requests share a reply, and what a reply from it costs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import pytest

from bestarm_agent.domain.events import Attempted, Event, Settled
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.engine.call import Call, Model, reply_key
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.reply_cache import ReplyCache
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.base import Capabilities
from bestarm_agent.store.store import Store
from tests.support import runs
from tests.support.runs import Actor, attempt_log, scored
from tests.support.virtual_time import run_virtual

REQUEST = Request(
    "m", text="?", params={"temperature": 0.5}, example="e0", candidate="c", inputs={"q": "1"}
)
PLAIN = Capabilities(frozenset({"temperature"}))


@dataclass
class Able(Actor):
    """A provider whose replies may depend on the example or its fields."""

    able: Capabilities = PLAIN

    def capabilities(self, model: str) -> Capabilities:
        return self.able


def actor(able: Capabilities | None = None, name: str = "p") -> Able:
    return Able(name, lambda *_: scored(1.0), able=able or PLAIN)


def key_of(provider: Able | None = None, fingerprint: str = "v1", **changes: object) -> str:
    request = replace(REQUEST, **changes)  # type: ignore[arg-type]
    return reply_key(provider or actor(), fingerprint, request)


@pytest.mark.parametrize(
    "other",
    [
        {"model": "other"},
        {"text": "!"},
        {"params": {"temperature": 0.6}},
        {"params": {}},
        {"attempt": 1},
        {"top_logprobs": 5},
        {"response_schema": {"title": "verdict"}},
        {"fingerprint": "v2"},
        {"provider": actor(name="q")},
    ],
    ids=lambda change: next(iter(change)),
)
def test_requests_that_differ_in_what_is_sent_or_to_whom_share_no_reply(
    other: dict[str, Any],
) -> None:
    assert key_of() == key_of()
    assert key_of() != key_of(**other)


@pytest.mark.parametrize(
    ("field", "change"), [("by_example", {"example": "e1"}), ("by_inputs", {"inputs": {"q": "2"}})]
)
def test_example_and_fields_count_where_replies_depend_on_them(
    field: str, change: dict[str, Any]
) -> None:
    depends = actor(replace(PLAIN, **{field: True}))  # type: ignore[arg-type]
    assert key_of() == key_of(**change)
    assert key_of(depends) != key_of(depends, **change)


class Scene:
    """A reply cache over a store, one provider, and a budget."""

    def __init__(self, *, use_cache: bool = True) -> None:
        self.provider = actor()
        self.ledger = Ledger(Budget())
        self.store = Store.in_memory()
        self.replies = ReplyCache(self.store, self.ledger, own="" if use_cache else "a run")
        self.client = runs.Scene({}).client(self.provider, self.ledger)

    def call(self, *, resent: bool = False, fingerprint: str = "v1") -> Call:
        model = Model(self.client, REQUEST.model, fingerprint)
        key = Call(model, REQUEST).key
        call = Call(model, REQUEST, attempt_log(*[key] * resent))
        call.reservation = self.ledger.reserve(self.provider.bound(REQUEST) + Spend(answers=1))
        return call

    def obtain(self, *calls: Call) -> list[Reply]:
        async def play() -> list[Reply]:
            return [await self.replies.obtain(call) for call in calls]

        return run_virtual(play())


async def test_a_reply_from_the_cache_is_a_pull_that_costs_nothing() -> None:
    scene = Scene()
    first, second = scene.call(), scene.call()

    await scene.replies.obtain(first)
    second.permit = second.model.limits.take(REQUEST, Spend(calls=1))
    await scene.replies.obtain(second)
    assert len(scene.provider.sent) == 1
    assert (first.found, second.found) == (False, True)
    assert second.spend == Spend(answers=1)
    assert scene.ledger.spent == first.spend + second.spend
    assert scene.ledger.outstanding == Spend()
    assert (second.reservation, second.permit) == (None, None)
    assert await scene.store.claim_reply(second.key), "others may look it up"


async def test_a_claim_ends_with_the_reply_and_the_next_one_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    call, put = scene.call(), scene.store.put_reply

    async def then_claimed(key: str, reply: Reply, payload: str | None = None) -> None:
        await put(key, reply, payload)
        assert await scene.store.claim_reply(key), "by another pair"

    monkeypatch.setattr(scene.store, "put_reply", then_claimed)
    await scene.replies.obtain(call)
    assert not await scene.store.claim_reply(call.key)


def test_what_a_found_reply_cost_takes_the_place_of_the_bound_that_was_charged() -> None:
    scene = Scene()
    first = scene.call()
    scene.obtain(first)
    bound = scene.provider.bound(REQUEST)
    scene.ledger.charge(bound)  # as for an attempt that a kill cut off
    logged: list[Event] = []
    again = scene.call()
    again.log = log = attempt_log(first.key, record=logged.append)
    log.lost = [Attempted(0, first.key, bound), Attempted(0, first.key, bound)]
    scene.obtain(again)
    assert (again.found, log.lost) == (True, [Attempted(0, first.key, bound)])
    log.close()
    assert logged == [Settled(0, first.key, first.spend), Settled(0, first.key, bound)]
    assert first.spend != bound + Spend(answers=1)
    assert again.spend == first.spend - bound
    assert scene.ledger.spent == first.spend + first.spend


@pytest.mark.parametrize(
    ("use_cache", "second", "n_sent"),
    [
        (True, {}, 1),
        (True, {"fingerprint": "v2"}, 2),  # another version of the model
        (False, {}, 2),
        (False, {"resent": True}, 1),  # a run's own replies are looked up without the cache
    ],
)
def test_which_replies_are_looked_up(use_cache: bool, second: dict[str, Any], n_sent: int) -> None:
    scene = Scene(use_cache=use_cache)
    scene.obtain(scene.call(), scene.call(**second))
    assert len(scene.provider.sent) == n_sent


async def test_a_reply_that_could_not_be_bought_can_be_claimed_by_others() -> None:
    scene = Scene()
    refused = ProviderError("no", kind=FailureKind.REFUSED)
    scene.provider.answer = lambda *_: refused

    call = scene.call()
    with pytest.raises(ProviderError, match="no"):
        await scene.replies.obtain(call)
    assert await scene.store.claim_reply(call.key)


async def test_a_call_that_is_not_sent_gives_its_claim_back() -> None:
    scene = Scene()
    call = scene.call()
    scene.replies.claim(call)
    assert not await scene.store.claim_reply(call.key)
    call.let_go()
    assert await scene.store.claim_reply(call.key)


def test_a_model_that_refuses_whatever_is_left_out_is_not_asked_for_ever() -> None:
    scene = Scene()
    names = frozenset({"temperature"})
    refused = ProviderError("no", kind=FailureKind.BAD_REQUEST, refused=names)
    scene.provider.answer = lambda *_: refused
    with pytest.raises(ProviderError, match="no"):
        scene.obtain(scene.call())
    assert len(scene.provider.sent) == 1 + 3, "again for its one parameter, and two for the limit"


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_that_a_reply_is_waited_for_is_said(elsewhere: bool) -> None:
    scene = Scene()
    scene.provider.latency = lambda _request: 10.0
    call = scene.call()
    buying = [] if elsewhere else [asyncio.create_task(scene.replies.obtain(scene.call()))]
    if elsewhere:
        await scene.store.claim_reply(call.key)
    await asyncio.sleep(1.0)
    waiting = asyncio.create_task(scene.replies.obtain(call))
    await asyncio.sleep(1.0)
    (wait,) = scene.client.board.summary(0.0)
    if elsewhere:
        scene.store.release_reply(call.key)
    for task in (waiting, *buying):
        await task
    assert wait.reason == "another call is buying the reply"


def test_remarks_come_once_with_their_number_the_most_frequent_first() -> None:
    scene = Scene(use_cache=False)
    notices = [("ignores seed",), ("ignores seed", "ignores top_k"), ()]
    scene.provider.answer = lambda *_: replace(scored(1.0), notices=notices.pop(0))
    scene.obtain(scene.call(), scene.call(), scene.call(resent=True))
    assert scene.replies.remarks() == (
        "p/m ignores seed (3 replies)",
        "p/m ignores top_k (1 reply)",
    )


def test_only_the_attempt_that_was_answered_is_replaced_by_its_cost() -> None:
    """Time-outs before a kill stay in the books, of pairs and of proposers alike."""
    scene = Scene()
    first = scene.call()
    scene.obtain(first)
    bound, cost = scene.provider.bound(REQUEST), first.spend - Spend(answers=1)
    before = scene.ledger.spent
    again = scene.call()
    again.log = log = attempt_log(first.key)
    log.lost = [Attempted(None, first.key, bound)] * 3  # two timed out, one was answered
    scene.ledger.charge(bound + bound + bound)
    scene.obtain(again)
    log.close()
    assert scene.ledger.spent == before + bound + bound + cost + Spend(answers=1)
