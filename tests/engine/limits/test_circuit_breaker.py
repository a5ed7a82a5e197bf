"""Models that stop answering, or never began to, are found out by few calls."""

from __future__ import annotations

import asyncio

import pytest

from bestarm_agent.cli.progress import waits_line
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.engine.call import RetryPolicy
from bestarm_agent.engine.loop import End, Rules
from bestarm_agent.errors import FailureKind
from bestarm_agent.selectors.types import State
from tests.support.runs import Actor, Answer, Scene, always, failing, scored
from tests.support.virtual_time import run_virtual

POLICY = RetryPolicy()


def dead(name: str, kind: FailureKind = FailureKind.UNREACHABLE) -> Actor:
    return Actor(name, lambda *_: failing(kind), latency=lambda _: 0.1)


def out(kind: FailureKind, until: float) -> Answer:
    """Fail from 20 s on, until a time."""

    def answer(_request: Request, _before: int) -> Reply | Exception:
        now = asyncio.get_running_loop().time()
        return failing(kind) if 20 < now < until else scored(0.5)

    return answer


def n_void(scene: Scene) -> int:
    return int(scene.loop.record.pairs.table.count(State.VOID).sum())


@pytest.mark.parametrize("in_flight", [1, 16, 64])
@pytest.mark.parametrize("kind", [FailureKind.UNREACHABLE, FailureKind.SERVER])
def test_a_model_that_never_answered_is_given_up_in_seconds(
    in_flight: int, kind: FailureKind
) -> None:
    actor = dead("p", kind)
    scene = Scene({"a": actor}, n_examples=500, in_flight=in_flight, rules=Rules(), policy=POLICY)
    assert scene.run() is End.FAILURES
    assert len(actor.sent) <= in_flight + 20
    assert scene.loop.seconds < 60
    assert "p/a does not answer" in scene.loop.pool.broken()["a"]
    assert n_void(scene) <= 5


def test_the_others_go_on_without_a_model_that_never_answered() -> None:
    gone, good = dead("p"), Actor("q", always(0.5))
    scene = Scene({"gone": gone, "good": good}, n_examples=100, policy=POLICY)
    assert scene.run() is End.FAILURES
    assert len(good.sent) == 100
    assert len(gone.sent) <= 30
    assert scene.loop.record.state.pending, "they can be sent once it answers"


def test_examples_that_always_fail_are_no_outage() -> None:
    """Each tenth one of a; its retries must not take all probes from those that would answer."""

    def answer(request: Request, _before: int) -> Reply | Exception:
        number = int(request.example.removeprefix("e"))
        if request.model == "a" and number % 10 == 0:
            return failing(FailureKind.SERVER)
        return scored(float(number % (5 if request.model == "a" else 3) > 0))

    models = dict.fromkeys("abcd", Actor("p", answer, latency=lambda _: 0.05))
    scene = Scene(models, n_examples=200, in_flight=16, policy=POLICY)
    assert scene.run() is End.EXHAUSTED
    assert scene.loop.seconds < 60
    table = scene.loop.record.pairs.table
    assert table.count(State.VOID).tolist() == [20, 0, 0, 0]
    assert table.count(State.DONE).tolist() == [180, 200, 200, 200]


@pytest.mark.slow
def test_an_outage_is_waited_for_with_few_calls() -> None:
    actor = Actor("p", out(FailureKind.OVERLOADED, 320))
    scene = Scene({"a": actor}, n_examples=400, in_flight=8, policy=RetryPolicy(max_attempts=5))
    assert scene.run() is End.EXHAUSTED
    during = [at for at, _ in actor.sent if 20 < at < 320]
    assert len(during) <= 40, "2,930 requests were once sent for 586 void pairs"
    assert n_void(scene) <= 4
    assert scene.loop.seconds < 320 + 120


def test_an_outage_without_end_ends_the_run() -> None:
    actor = Actor("p", out(FailureKind.CONNECTION, 1e9))
    scene = Scene({"a": actor}, n_examples=1000, in_flight=8, policy=POLICY)
    assert scene.run() is End.FAILURES
    assert sum(at > 20 for at, _ in actor.sent) <= 60
    assert 900 < scene.loop.seconds < 1200


def test_a_model_that_accepts_a_call_and_is_silent_is_named_until_it_answers() -> None:
    def line(seconds: float) -> str:
        actor = Actor("p", always(0.5), latency=lambda _: 30.0)
        scene = Scene({"a": actor}, n_examples=8, in_flight=4, policy=POLICY)
        return waits_line(run_virtual(scene.waits_after(seconds)))

    silent = [f"p/a has not answered yet, for {seconds} s" for seconds in (8, 16, 24)]
    assert [line(seconds) for seconds in (8, 16, 24, 32, 40)] == [*silent, "", ""]


async def test_a_probe_that_is_cut_off_lets_another_one_go() -> None:
    actor = dead("p")
    loop = await Scene({"a": actor}, n_examples=50, in_flight=4, policy=POLICY).cut_off(3.0)
    before = len(actor.sent)
    await loop.run()
    assert before < len(actor.sent) <= 30
