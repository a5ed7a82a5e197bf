"""Calls with a long beginning in common: the first fills the provider's cache."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bestarm_agent.domain.spend import Budget, Resource, Spend
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.engine.call import Call, Model, ProviderClient
from bestarm_agent.engine.evaluate import ReadyCandidate
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.limits.gates import Slot
from bestarm_agent.engine.limits.model_limits import RateLimits
from bestarm_agent.errors import FailureKind
from tests.support import runs
from tests.support.runs import Actor, always, failing, scored
from tests.support.virtual_time import run_virtual

SECONDS = 10.0  # that a call takes
TIMES = list[float]


class Caller:
    """Sends calls of one model, each in a task of its own; ``first`` is what the first one gets."""

    def __init__(
        self,
        first: Reply | Exception | None = None,
        in_flight: int = 64,
        limits: RateLimits | None = None,
    ) -> None:
        self.first = first or scored(1.0)
        self.actor = Actor("api", self.answer, lambda _request: SECONDS)
        scene = runs.Scene({}, provider_in_flight=in_flight, limiters={"m": limits or RateLimits()})
        self.client: ProviderClient = scene.client(self.actor, Ledger(Budget()))
        self.board = self.client.board
        self.model = Model(self.client, "m")

    def answer(self, _request: Request, _before: int) -> Reply | Exception:
        return self.first if len(self.actor.sent) == 1 else scored(1.0)

    async def call(self, text: str, prefix: str) -> None:
        request = Request("m", text=text, prefix=(prefix,) if prefix else ())
        call = Call(self.model, request)
        call.slot = Slot(self.client.gate, inside=False)
        await call.slot.reenter()
        try:
            await self.client.send(call)
        finally:
            call.let_go()

    def begin(self, prefixes: str) -> list[asyncio.Task[None]]:
        """Begin a call for each letter, a blank for one without prefix."""
        return [
            asyncio.create_task(self.call(f"{one}{i}", one.strip()))
            for i, one in enumerate(prefixes, start=len(self.actor.sent))
        ]

    def sent(self, prefix: str) -> TIMES:
        """When calls with a prefix were sent."""
        found = [at for at, one in self.actor.sent if "".join(one.prefix) == prefix.strip()]
        return [round(at, 1) for at in found]


def sent(prefixes: str, caller: Caller | None = None) -> list[TIMES]:
    """When the calls of each prefix were sent, if all begin at once."""
    caller = caller or Caller()

    async def play() -> None:
        await asyncio.wait(caller.begin(prefixes))

    run_virtual(play())
    return [caller.sent(prefix) for prefix in dict.fromkeys(prefixes)]


def test_the_first_call_of_each_beginning_goes_alone_and_the_others_together() -> None:
    assert sent("aaaabb  ") == [[0, SECONDS, SECONDS, SECONDS], [0, SECONDS], [0, 0]]


def test_a_cache_is_known_for_five_minutes_after_its_last_use() -> None:
    caller = Caller()

    async def play() -> None:
        for pause in (0.0, 200.0, 200.0, 301.0):
            await asyncio.sleep(pause)
            await asyncio.wait(caller.begin("aa"))

    run_virtual(play())
    # each pause begins when the calls before it have ended
    assert caller.sent("a") == [0, 10, 220, 220, 430, 430, 741, 751]


@pytest.mark.parametrize(
    ("first", "others_at"),
    [
        (scored(1.0), SECONDS),
        (failing(FailureKind.OVERLOADED), SECONDS),
        (failing(FailureKind.BAD_REQUEST, fatal=True), SECONDS),
        (failing(FailureKind.RATE_LIMITED, retry_after=30.0), SECONDS),  # that call alone waits
    ],
)
def test_others_go_when_the_first_has_ended_whatever_its_end(
    first: Reply | Exception, others_at: float
) -> None:
    [times] = sent("aaaa", Caller(first))
    others = times[1:4]
    assert others_at <= min(others) <= max(others) <= others_at + 2.1


def test_others_go_when_the_first_is_cancelled() -> None:
    caller = Caller()

    async def play() -> None:
        first, *others = caller.begin("aaa")
        await asyncio.sleep(4)
        first.cancel()
        await asyncio.wait([first, *others])

    run_virtual(play())
    assert caller.sent("a") == [0, 4, 4]


def test_one_that_waits_can_be_cancelled_and_holds_nothing_then() -> None:
    caller = Caller()

    async def play() -> None:
        _, second, third = caller.begin("aaa")
        await asyncio.sleep(4)
        assert [wait.reason for wait in caller.board.summary(4.0)] == [
            "first call fills the prompt cache"
        ]
        second.cancel()
        await asyncio.wait([second, third])
        await asyncio.sleep(SECONDS)
        assert not caller.board.summary(0.0)

    run_virtual(play())
    assert caller.sent("a") == [0, SECONDS]
    assert caller.client.gate.inside == 0


def test_a_call_waits_once_so_that_failing_first_calls_do_not_add_up() -> None:
    caller = Caller()
    caller.actor.answer = lambda _request, before: (
        scored(1.0) if before else failing(FailureKind.SERVER)
    )
    [times] = sent("aaaa", caller)
    assert times[:4] == [0, SECONDS, SECONDS, SECONDS]
    assert max(times) < 3 * SECONDS


@pytest.mark.parametrize(
    ("in_flight", "limits"),
    [(1, None), (2, None), (2, RateLimits({Resource.REQUESTS: 2.0}))],
)
def test_few_places_and_slow_limits_are_no_deadlock(
    in_flight: int, limits: RateLimits | None
) -> None:
    times = sent("aaabbb", Caller(in_flight=in_flight, limits=limits))
    assert sum(map(len, times)) == 6
    for one in times:
        assert one[1] >= one[0] + SECONDS


class WithPrefix(runs.Scene):
    """A run whose candidates have a long beginning in common."""

    prefix: tuple[str, ...] = ("q",)

    def candidates(self, *args: object) -> list[ReadyCandidate]:
        ready = super().candidates(*args)  # type: ignore[arg-type]
        return [replace(one, prefix=self.prefix) for one in ready]


def played(prefix: tuple[str, ...], **changes: object) -> tuple[WithPrefix, Actor]:
    actor = Actor("api", always(1.0), lambda _request: SECONDS)
    scene = WithPrefix({"m": actor}, **changes)  # type: ignore[arg-type]
    scene.prefix = prefix
    scene.run()
    return scene, actor


@pytest.mark.parametrize("prefix", [(), ("q",)])
def test_a_run_asks_for_no_more_pairs_while_calls_wait(prefix: Sequence[str]) -> None:
    scene, actor = played(tuple(prefix), in_flight=6, n_examples=12)
    asked = scene.loop.record.state.asks["example"].tolist()
    assert sorted(asked) == list(range(12))
    assert actor.most <= 6
    waves = [round(at / SECONDS) for at, _ in actor.sent]
    # alone, then five others; the place of the first was filled again meanwhile, and so on
    assert waves == ([0] * 6 + [1] * 6 if not prefix else [0] + [1] * 6 + [2] * 5)


def test_hard_caps_hold_while_calls_wait() -> None:
    bound = Spend(calls=1, tokens=10, usd_nanos=100)
    scene, actor = played(("q",), budget=Budget(usd_nanos=5 * bound.usd_nanos), in_flight=6)
    spent = scene.loop.ledger.spent
    assert spent.usd_nanos <= 500
    assert spent.calls == len(actor.sent) > 5
    assert scene.loop.ledger.outstanding == Spend()
