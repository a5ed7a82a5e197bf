"""Models that stop answering, or never began to, are found out by few calls."""

from __future__ import annotations

import asyncio

import pytest

from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.engine.call import RetryPolicy
from bestarm_agent.engine.loop import End, Rules
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.report.words import waits_line
from bestarm_agent.selectors.types import State
from tests.support.runs import Actor, Scene, scored
from tests.support.virtual_time import run_virtual


def down(kind: FailureKind) -> ProviderError:
    return ProviderError("nobody there", kind=kind, transient=True)


def dead(name: str, kind: FailureKind = FailureKind.UNREACHABLE) -> Actor:
    return Actor(name, lambda *_: down(kind), latency=lambda _: 0.1)


@pytest.mark.parametrize("in_flight", [1, 16, 64])
@pytest.mark.parametrize("kind", [FailureKind.UNREACHABLE, FailureKind.SERVER])
def test_a_model_that_never_answered_is_given_up_in_seconds(
    in_flight: int, kind: FailureKind
) -> None:
    actor = dead("p", kind)
    scene = Scene(
        {"a": actor}, n_examples=500, in_flight=in_flight, rules=Rules(), policy=RetryPolicy()
    )
    assert scene.run() is End.FAILURES
    assert len(actor.sent) <= in_flight + 20
    assert scene.loop.seconds < 60
    assert "p/a does not answer" in scene.loop.pool.broken()["a"]
    assert int(scene.loop.record.pairs.table.count(State.VOID).sum()) <= 5


def test_the_others_go_on_without_a_model_that_never_answered() -> None:
    gone, good = dead("p"), Actor("q", lambda *_: scored(0.5))
    scene = Scene({"gone": gone, "good": good}, n_examples=100, policy=RetryPolicy())
    assert scene.run() is End.FAILURES
    assert len(good.sent) == 100
    assert len(gone.sent) <= 30
    assert scene.loop.record.state.pending, "they can be sent once it answers"


def test_examples_that_always_fail_are_no_outage() -> None:
    """Each tenth one of a; its retries must not take all probes from those that would answer."""

    def answer(request: Request, _before: int) -> Reply | ProviderError:
        number = int(request.example.removeprefix("e"))
        if request.model == "a" and number % 10 == 0:
            return down(FailureKind.SERVER)
        return scored(float(number % (5 if request.model == "a" else 3) > 0))

    actor = Actor("p", answer, latency=lambda _: 0.05)
    models = dict.fromkeys("abcdefghijkl", actor)
    scene = Scene(models, n_examples=300, in_flight=16, selector="auto", policy=RetryPolicy())
    assert scene.run() is End.EXHAUSTED
    assert scene.loop.seconds < 60
    table = scene.loop.record.pairs.table
    assert table.count(State.VOID).tolist() == [30, *[0] * 11]
    assert table.count(State.DONE).tolist() == [270, *[300] * 11]


@pytest.mark.slow
def test_an_outage_is_waited_for_with_few_calls() -> None:
    def answer(_request: Request, _before: int) -> Reply | ProviderError:
        now = asyncio.get_running_loop().time()
        return down(FailureKind.OVERLOADED) if 20 < now < 320 else scored(0.5)

    actor = Actor("p", answer)
    scene = Scene({"a": actor}, n_examples=400, in_flight=8, policy=RetryPolicy(max_attempts=5))
    assert scene.run() is End.EXHAUSTED
    during = [at for at, _ in actor.sent if 20 < at < 320]
    assert len(during) <= 40, "2,930 requests were once sent for 586 void pairs"
    assert int(scene.loop.record.pairs.table.count(State.VOID).sum()) <= 4
    assert scene.loop.seconds < 320 + 120


def test_an_outage_without_end_ends_the_run() -> None:
    def answer(_request: Request, _before: int) -> Reply | ProviderError:
        now = asyncio.get_running_loop().time()
        return down(FailureKind.CONNECTION) if now > 20 else scored(0.5)

    actor = Actor("p", answer)
    scene = Scene({"a": actor}, n_examples=1000, in_flight=8, policy=RetryPolicy())
    assert scene.run() is End.FAILURES
    assert sum(at > 20 for at, _ in actor.sent) <= 60
    assert 900 < scene.loop.seconds < 1200


def test_a_model_that_accepts_a_call_and_is_silent_is_named_until_it_answers() -> None:
    actor = Actor("p", lambda *_: scored(0.5), latency=lambda request: 30.0)
    scene = Scene({"a": actor}, n_examples=20, in_flight=4, policy=RetryPolicy())

    async def play() -> list[str]:
        loop = await scene.open()
        running = asyncio.create_task(loop.run())
        told = []
        for _ in range(6):
            await asyncio.sleep(8.0)
            waits = scene.board.summary(asyncio.get_running_loop().time())
            told.append(waits_line(waits))
        await running
        return told

    silent = [f"p/a has not answered yet, for {seconds} s" for seconds in (8, 16, 24)]
    assert run_virtual(play()) == [*silent, "", "", ""]


async def test_a_probe_that_is_cut_off_lets_another_one_go() -> None:
    actor = dead("p")
    scene = Scene({"a": actor}, n_examples=50, in_flight=4, policy=RetryPolicy())

    loop = await scene.open()
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(3.0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    before = len(actor.sent)
    await loop.run()
    before, after = (before, len(actor.sent))
    assert before < after <= 30
