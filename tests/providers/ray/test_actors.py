"""Balance and health of actors, against fake ones in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Json, Reply, Request
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.failures import BilledError, failure
from bestarm_agent.providers.ray.provider import RayProvider
from tests.support.virtual_time import run_virtual

pytest.importorskip("ray", reason="needs the extra ray")

BOUND = Spend(calls=1, tokens=100, usd_nanos=1_000, gpu_seconds=10.0)


class FakeActor:
    """Takes the place of Ray's handle; every call takes ``seconds``."""

    def __init__(self) -> None:
        self.texts: list[str] = []
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

    async def _answer(self, request: Request) -> Reply | ProviderError:
        text, death = str(request.text), self.death
        self.texts.append(text)
        timer = asyncio.ensure_future(asyncio.sleep(self.seconds))
        await asyncio.wait([timer, death], return_when=asyncio.FIRST_COMPLETED)
        if death.done():
            death.result()
        if text == "bad":
            return failure(FailureKind.BAD_REQUEST, "no")
        return Reply(text.upper(), sent={"top_k": 1})


class _Method:
    def __init__(self, function: Callable[..., Any]) -> None:
        self.remote = function


class FakeRay(RayProvider):
    """The provider over fake actors, all of them up unless told otherwise."""

    actors: list[FakeActor]

    @classmethod
    def over(cls, n_actors: int, *, up: bool = True) -> FakeRay:
        options: Mapping[str, Json] = {"adapter": "python", "replicas": n_actors}
        fake = cls.create("ray", {**options, "start_seconds": 60}, Path())
        fake.actors = [FakeActor() for _ in range(n_actors)]
        for actor in fake.actors:
            if up:
                actor.up.set()
        return fake

    def _actor(self, number: int) -> FakeActor:
        return self.actors[number]

    def _missing(self) -> str:
        return "no actor was up"

    def bound(self, request: Request) -> Spend:
        return BOUND

    def ask(self, *texts: str) -> list[asyncio.Task[Reply]]:
        return [asyncio.ensure_future(self.generate(Request("m", text=text))) for text in texts]

    @property
    def sizes(self) -> list[int]:
        return [len(actor.texts) for actor in self.actors]


Scene: TypeAlias = Callable[[FakeRay], Awaitable[None]]


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.kill", lambda actor: setattr(actor, "killed", True))
    monkeypatch.setattr("bestarm_agent.providers.ray.provider.connect", lambda address: False)


def play(n_actors: int) -> Callable[[Scene], Callable[[], None]]:
    """Make a test of a scene with actors that are all up."""

    def test_of(scene: Scene) -> Callable[[], None]:
        async def main() -> None:
            fake = FakeRay.over(n_actors)
            async with fake:
                await asyncio.sleep(0)
                await scene(fake)
            assert all(actor.killed for actor in fake.actors)

        return lambda: run_virtual(main())

    return test_of


async def failed(task: asyncio.Task[Reply]) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await task
    return caught.value


@play(1)
async def test_replies_say_who_gave_them_and_a_failure_is_its_own(fake: FakeRay) -> None:
    good, bad = fake.ask("good", "bad")
    reply = await good
    assert (reply.text, reply.sent) == ("GOOD", {"top_k": 1, "actor": 0, "host": "node"})
    assert (await failed(bad)).kind is FailureKind.BAD_REQUEST


@pytest.mark.parametrize(
    ("n_actors", "n_calls", "sizes"), [(1, 3, [3]), (2, 64, [32, 32]), (4, 6, [2, 2, 1, 1])]
)
def test_a_burst_is_spread(n_actors: int, n_calls: int, sizes: list[int]) -> None:
    @play(n_actors)
    async def scene(fake: FakeRay) -> None:
        tasks = fake.ask(*(f"call {n}" for n in range(n_calls)))
        assert len({(await task).text for task in tasks}) == n_calls
        assert fake.sizes == sizes
        assert [one.in_flight for one in fake.endpoints] == [0] * n_actors

    scene()


@play(2)
async def test_the_actor_with_the_fewest_calls_gets_the_next(fake: FakeRay) -> None:
    fake.actors[0].seconds = 100.0
    slow = fake.ask("slow")
    for number in range(4):
        await asyncio.sleep(2)
        await fake.ask(f"{number}")[0]
    assert fake.sizes == [1, 4]
    await slow[0]


@play(1)
async def test_lost_calls_share_the_time_of_their_actor(fake: FakeRay) -> None:
    lost = fake.ask("a", "b")
    await asyncio.sleep(0.5)
    lost += fake.ask("c")
    await asyncio.sleep(0.4)
    fake.actors[0].die()
    errors = [await failed(task) for task in lost]
    seconds = []
    for error in errors:
        assert (error.kind, error.transient) == (FailureKind.SERVER, True)
        assert "actor 0 on node died while it answered" in str(error)
        assert isinstance(error, BilledError)
        assert (error.spend.calls, error.spend.tokens) == (1, 0)
        assert error.spend.usd_nanos == pytest.approx(100 * error.spend.gpu_seconds, abs=1)
        seconds.append(error.spend.gpu_seconds)
    assert seconds == pytest.approx([0.9 / 3, 0.9 / 3, 0.4 / 3])
    assert sum(seconds) <= 0.9, "no second of the one actor is charged twice"
    assert (await fake.ask("again")[0]).text == "AGAIN"


@play(1)
async def test_no_call_is_charged_more_than_its_bound(fake: FakeRay) -> None:
    fake.actors[0].seconds = 1000.0
    (task,) = fake.ask("a")
    await asyncio.sleep(500)
    fake.actors[0].die()
    error = await failed(task)
    assert isinstance(error, BilledError)
    assert error.spend == Spend(calls=1, usd_nanos=1_000, gpu_seconds=10.0)


@play(2)
async def test_calls_go_to_an_actor_that_is_up_and_to_one_that_comes_back(fake: FakeRay) -> None:
    tasks = fake.ask("a")
    await asyncio.sleep(0.01)
    fake.actors[0].die(restarts=False)
    await failed(tasks[0])
    assert [one.failure for one in fake.endpoints] == [FailureKind.UNREACHABLE, None]
    assert (await fake.ask("b")[0]).sent["actor"] == 1
    fake.actors[0].up.set()
    await asyncio.sleep(0.01)
    assert fake.endpoints[0].failure is None


@play(1)
async def test_calls_are_given_up_after_start_seconds_without_any_actor(fake: FakeRay) -> None:
    (lost,) = fake.ask("a")
    await asyncio.sleep(0.01)
    fake.actors[0].die(restarts=False)
    await failed(lost)
    began = asyncio.get_running_loop().time()
    error = await failed(fake.ask("b")[0])
    assert asyncio.get_running_loop().time() - began == pytest.approx(60.0)
    assert (error.kind, error.transient) == (FailureKind.UNREACHABLE, True)
    assert "none of 1 actor was up for 60 s (`start_seconds`)" in str(error)
    waiting, dropped = fake.ask("c", "dropped")
    await asyncio.sleep(30)
    dropped.cancel()
    fake.actors[0].up.set()
    assert (await waiting).text == "C"
    assert "dropped" not in fake.actors[0].texts


@play(2)
async def test_actors_that_cannot_be_started_end_the_run(fake: FakeRay) -> None:
    from ray.exceptions import RayActorError

    lost = fake.ask("a", "b")
    await asyncio.sleep(0.01)
    for actor in fake.actors:
        actor.fatal = RayActorError("id", "a trace\nModuleNotFoundError: no module named x")
        actor.die()
    assert [(await failed(task)).kind for task in lost] == [FailureKind.SERVER] * 2
    assert (await failed(fake.ask("c")[0])).kind is FailureKind.MODEL_NOT_FOUND
    again = FakeRay.over(2)
    again.actors = fake.actors
    with pytest.raises(ConfigError, match="`ray`: no actor can be started: ModuleNotFound"):
        await again.start()


@play(1)
async def test_the_start_waits_for_the_first_actor_only(up: FakeRay) -> None:
    assert up.endpoints[0].failure is None
    late = FakeRay.over(3, up=False)
    late.actors[1].up.set()
    async with late:
        states = [one.failure for one in late.endpoints]
        assert states == [FailureKind.UNREACHABLE, None, FailureKind.UNREACHABLE]
    with pytest.raises(ConfigError, match="no actor was up"):
        await FakeRay.over(1, up=False).start()
