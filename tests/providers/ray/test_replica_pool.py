"""Messages, balance and health of actors, against fake ones in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest

from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.failures import BilledError, failure
from bestarm_agent.providers.ray.replicas import ReplicaPool
from bestarm_agent.testing.virtual_time import run_virtual

pytest.importorskip("ray", reason="needs the extra ray")

_T = TypeVar("_T")
BOUND = Spend(calls=1, tokens=100, usd_nanos=1_000, gpu_seconds=10.0)


class FakeActor:
    """Takes the place of Ray's handle; every call takes ``seconds``, and is answered apart."""

    def __init__(self) -> None:
        self.messages: list[tuple[float, list[str]]] = []  # time, texts
        self.seconds = 1.0
        self.up = asyncio.Event()
        self.death: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.fatal: Exception | None = None
        self.killed = False
        self.start = self
        self.answer = _Method(self._answer)

    def options(self, *, max_task_retries: int) -> _Method:
        assert max_task_retries == -1
        return _Method(self._start)

    def die(self, *, restarts: bool = True) -> None:
        """End in the middle of all calls."""
        from ray.exceptions import ActorUnavailableError

        self.up.clear()
        death, self.death = self.death, asyncio.get_running_loop().create_future()
        death.set_exception(ActorUnavailableError("Socket closed", b"x" * 16))
        if restarts:
            self.up.set()

    async def _start(self) -> str:
        await self.up.wait()
        if self.fatal is not None:
            raise self.fatal
        return "node"

    async def _answer(self, requests: Sequence[Request]) -> AsyncIterator[Awaitable[object]]:
        texts = [str(request.text) for request in requests]
        self.messages.append((asyncio.get_running_loop().time(), texts))
        death = self.death
        for place, text in enumerate(texts):
            timer = asyncio.ensure_future(asyncio.sleep(self.seconds))
            await asyncio.wait([timer, death], return_when=asyncio.FIRST_COMPLETED)
            if death.done():
                death.result()
            yield _value([(place, _reply_to(text))])


class _Method:
    def __init__(self, function: Callable[..., Any]) -> None:
        self.remote = function


async def _value(value: _T) -> _T:
    return value


def _reply_to(text: str) -> Reply | ProviderError:
    if text == "bad":
        return failure(FailureKind.BAD_REQUEST, "no")
    return Reply(text.upper(), sent={"top_k": 1})


class Pool:
    """A pool over fake actors, all of them up unless told otherwise."""

    def __init__(self, n_actors: int, monkeypatch: pytest.MonkeyPatch, up: bool = True) -> None:
        monkeypatch.setattr("ray.kill", lambda actor: setattr(actor, "killed", True))
        self.actors = [FakeActor() for _ in range(n_actors)]
        for actor in self.actors:
            if up:
                actor.up.set()
        clock = asyncio.get_running_loop().time
        self.pool = ReplicaPool("ray", self.actors, 60.0, clock)

    def ask(self, *texts: str) -> list[asyncio.Task[Reply]]:
        return [
            asyncio.ensure_future(self.pool.answer(Request("m", text=text), lambda: BOUND))
            for text in texts
        ]

    @property
    def sizes(self) -> list[list[int]]:
        return [[len(texts) for _, texts in actor.messages] for actor in self.actors]


def numbers(count: int) -> list[str]:
    return [f"call {number}" for number in range(count)]


async def failed(task: asyncio.Task[Reply]) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await task
    return caught.value


def run(main: Coroutine[Any, Any, None]) -> None:
    run_virtual(main)


def test_calls_travel_together_after_5_ms_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        fake = Pool(1, monkeypatch)
        await fake.pool.start()
        began = asyncio.get_running_loop().time()
        first = fake.ask("a", "b")
        await asyncio.sleep(0.004)
        second = fake.ask("c")
        replies = [await task for task in first + second]
        ((sent, texts),) = fake.actors[0].messages
        assert sent - began == pytest.approx(0.005)
        assert texts == ["a", "b", "c"]
        assert [reply.text for reply in replies] == ["A", "B", "C"]
        assert replies[0].sent == {"top_k": 1, "actor": 0, "host": "node"}
        await fake.pool.close()
        assert fake.actors[0].killed

    run(main())


@pytest.mark.parametrize(
    ("n_actors", "n_calls", "sizes"),
    [
        (1, 130, [[64, 64, 2]]),
        (2, 64, [[32], [32]]),
        (4, 64, [[16], [16], [16], [16]]),
        (8, 64, [[16], [16], [16], [16], [], [], [], []]),
        (2, 20, [[16], [4]]),
        (3, 1, [[1], [], []]),
    ],
)
def test_a_burst_is_spread_in_messages_of_16_to_64(
    monkeypatch: pytest.MonkeyPatch, n_actors: int, n_calls: int, sizes: list[list[int]]
) -> None:
    async def main() -> None:
        fake = Pool(n_actors, monkeypatch)
        await fake.pool.start()
        await asyncio.sleep(0)  # all are up
        tasks = fake.ask(*numbers(n_calls))
        assert len({(await task).text for task in tasks}) == n_calls
        assert fake.sizes == sizes
        assert [replica.in_flight for replica in fake.pool.replicas] == [0] * n_actors
        await fake.pool.close()

    run(main())


def test_the_actor_with_the_fewest_calls_gets_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        fake = Pool(2, monkeypatch)
        fake.actors[0].seconds = 100.0
        await fake.pool.start()
        await asyncio.sleep(0)
        slow = fake.ask("slow")
        for text in numbers(4):
            await asyncio.sleep(2)
            (task,) = fake.ask(text)
            await task
        assert fake.sizes == [[1], [1, 1, 1, 1]]
        await slow[0]
        await fake.pool.close()

    run(main())


def test_answers_do_not_wait_for_the_slowest_of_their_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        fake = Pool(1, monkeypatch)
        await fake.pool.start()
        first, _, last = fake.ask("a", "b", "c")
        await first
        assert not last.done()
        assert fake.pool.replicas[0].in_flight == 2
        await last
        await fake.pool.close()

    run(main())


def test_a_failure_of_one_call_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        fake = Pool(1, monkeypatch)
        await fake.pool.start()
        good, bad = fake.ask("good", "bad")
        assert (await good).text == "GOOD"
        assert (await failed(bad)).kind is FailureKind.BAD_REQUEST
        await fake.pool.close()

    run(main())


def test_calls_of_an_actor_that_died_fail_with_their_share_of_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        fake = Pool(1, monkeypatch)
        await fake.pool.start()
        done, *lost = fake.ask("a", "b", "c")
        await asyncio.sleep(0.505)
        lost += fake.ask("d")  # in another message
        await done
        await asyncio.sleep(0.4)
        fake.actors[0].die()
        errors = [await failed(task) for task in lost]
        for error in errors:
            assert (error.kind, error.transient) == (FailureKind.SERVER, True)
            assert "actor 0 on node died while it answered" in str(error)
            assert isinstance(error, BilledError)
            assert (error.spend.calls, error.spend.tokens) == (1, 0)
            assert error.spend.usd_nanos == pytest.approx(100 * error.spend.gpu_seconds, abs=1)
        seconds = [error.spend.gpu_seconds for error in errors if isinstance(error, BilledError)]
        assert seconds == pytest.approx([1.4 / 3, 1.4 / 3, 0.895 / 3])
        assert sum(seconds) <= 1.4, "no second of the one actor is charged twice"
        again = await fake.ask("again")[0]
        assert again.text == "AGAIN"
        await fake.pool.close()

    run(main())


def test_no_call_is_charged_more_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        fake = Pool(1, monkeypatch)
        fake.actors[0].seconds = 1000.0
        await fake.pool.start()
        (task,) = fake.ask("a")
        await asyncio.sleep(500)
        fake.actors[0].die()
        error = await failed(task)
        assert isinstance(error, BilledError)
        assert error.spend == Spend(calls=1, usd_nanos=1_000, gpu_seconds=10.0)
        await fake.pool.close()

    run(main())


def test_calls_wait_for_an_actor_that_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        fake = Pool(2, monkeypatch)
        await fake.pool.start()
        await asyncio.sleep(0)
        tasks = fake.ask("a")
        await asyncio.sleep(0.01)
        for actor in fake.actors:
            actor.seconds = 0.1
        fake.actors[0].die(restarts=False)
        await failed(tasks[0])
        states = [replica.status.failure for replica in fake.pool.replicas]
        assert states == [FailureKind.UNREACHABLE, None]
        assert (await fake.ask("b")[0]).sent["actor"] == 1
        fake.actors[0].up.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert fake.pool.replicas[0].status.failure is None
        await fake.pool.close()

    run(main())


def test_calls_are_given_up_after_start_seconds_without_any_actor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        fake = Pool(1, monkeypatch)
        await fake.pool.start()
        (lost,) = fake.ask("a")
        await asyncio.sleep(0.01)
        fake.actors[0].die(restarts=False)
        await failed(lost)
        began = asyncio.get_running_loop().time()
        error = await failed(fake.ask("b")[0])
        assert asyncio.get_running_loop().time() - began == pytest.approx(60.0)
        assert (error.kind, error.transient) == (FailureKind.UNREACHABLE, True)
        assert "none of 1 actor was up for 60 s (`start_seconds`)" in str(error)
        waiting = fake.ask("c")
        await asyncio.sleep(30)
        fake.actors[0].up.set()
        assert (await waiting[0]).text == "C"
        await fake.pool.close()

    run(main())


def test_actors_that_cannot_be_started_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.exceptions import RayActorError

    async def main() -> None:
        fake = Pool(2, monkeypatch)
        for actor in fake.actors:
            actor.fatal = RayActorError("id", "a trace\nModuleNotFoundError: no module named x")
        with pytest.raises(ConfigError, match="`ray`: no actor can be started: ModuleNotFound"):
            await fake.pool.start()
        error = await failed(fake.ask("a")[0])
        assert error.kind is FailureKind.MODEL_NOT_FOUND
        await fake.pool.close()

    run(main())


def test_the_start_waits_for_the_first_actor_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        fake = Pool(3, monkeypatch, up=False)
        fake.actors[1].up.set()
        await fake.pool.start()
        assert [replica.is_up for replica in fake.pool.replicas] == [False, True, False]
        await fake.pool.close()
        none = Pool(1, monkeypatch, up=False)
        with pytest.raises(TimeoutError):
            await none.pool.start()
        await none.pool.close()

    run(main())


def test_what_is_cancelled_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        fake = Pool(1, monkeypatch)
        await fake.pool.start()
        kept, dropped = fake.ask("kept", "dropped")
        await asyncio.sleep(0)
        dropped.cancel()
        assert (await kept).text == "KEPT"
        assert fake.actors[0].messages[0][1] == ["kept"]
        waiting = fake.ask("never")
        await asyncio.sleep(0)
        await fake.pool.close()
        await asyncio.wait(waiting)
        assert waiting[0].cancelled()

    run(main())
