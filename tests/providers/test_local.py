"""Which models are loaded, and what their seconds cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence

import pytest

from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.local import LocalModel, ModelMemory, SharedTime
from tests.support.virtual_time import run_virtual


class Fake(LocalModel):
    """A model that takes a second to load."""

    is_broken = False

    def __init__(self, name: str, said: list[str]) -> None:
        super().__init__(name)
        self.said = said
        self._is_loaded = False

    @property
    def is_loaded(self) -> bool:
        return self._is_loaded

    def end(self) -> None:
        """End by itself."""
        self._is_loaded = False

    async def load(self) -> None:
        await asyncio.sleep(1.0)
        if self.is_broken:
            raise failure(FailureKind.MODEL_NOT_FOUND, f"{self.name} is broken")
        self.said.append(f"+{self.name}")
        self._is_loaded = True

    async def unload(self) -> None:
        self.said.append(f"-{self.name}")
        self._is_loaded = False


async def call(memory: ModelMemory, model: Fake, seconds: float = 1.0) -> None:
    async with memory.hold(model):
        assert model.is_loaded
        model.said.append(model.name)
        await asyncio.sleep(seconds)


def said_by(body: Callable[..., Coroutine[None, None, None]]) -> list[str]:
    """What models called a, b and c said during a scene."""
    said: list[str] = []
    run_virtual(body(ModelMemory(), *(Fake(name, said) for name in "abc")))
    return said


async def all_of(*calls: Coroutine[None, None, None]) -> None:
    async with asyncio.TaskGroup() as group:
        for one in calls:
            group.create_task(one)


def test_calls_of_one_model_share_a_load_and_another_waits_for_their_end() -> None:
    async def body(memory: ModelMemory, a: Fake, b: Fake, _: Fake) -> None:
        async with asyncio.TaskGroup() as group:
            for one in (a, b, a, b, a):
                group.create_task(call(memory, one))
            await asyncio.sleep(1.5)
            group.create_task(call(memory, a, 5.0))  # comes while b waits, and goes on
            await asyncio.sleep(6.0)
            assert memory.loading == ("b",)

    assert said_by(body) == [*("+a", "a", "a", "a", "a"), *("-a", "+b", "b", "b")]


def test_the_model_that_waited_longest_is_next() -> None:
    async def body(memory: ModelMemory, a: Fake, b: Fake, c: Fake) -> None:
        await all_of(*(call(memory, one) for one in (a, c, b, c, b)))

    loads = [line for line in said_by(body) if line.startswith("+")]
    assert loads == ["+a", "+c", "+b"]


def test_where_all_fit_all_stay() -> None:
    async def body(_: ModelMemory, a: Fake, b: Fake, __: Fake) -> None:
        memory = ModelMemory(lambda models: True)
        await all_of(*(call(memory, one) for one in (a, b, a, b)))

    assert sorted(said_by(body)) == ["+a", "+b", "a", "a", "b", "b"]


def two_fit(models: Sequence[LocalModel]) -> bool:
    return len(models) <= 2


def test_as_many_stay_as_fit_and_the_one_idle_longest_makes_room() -> None:
    async def body(_: ModelMemory, a: Fake, b: Fake, c: Fake) -> None:
        memory = ModelMemory(two_fit)
        for model in (a, b, a, c, a, b):
            await call(memory, model)

    assert said_by(body) == [*("+a", "a", "+b", "b", "a"), *("-b", "+c", "c", "a", "-c", "+b", "b")]


def test_nothing_is_unloaded_under_a_call_that_came_while_another_was_unloaded() -> None:
    async def body(_: ModelMemory, a: Fake, b: Fake, c: Fake) -> None:
        def fits(models: Sequence[LocalModel]) -> bool:
            return c not in models or len(models) == 1

        memory, under_way = ModelMemory(fits), asyncio.Event()

        async def long_call() -> None:
            async with memory.hold(b):
                under_way.set()
                await asyncio.sleep(5.0)
                assert b.is_loaded

        async def unload() -> None:
            a.said.append("-a")
            later.append(asyncio.create_task(long_call()))
            await under_way.wait()

        later: list[asyncio.Task[None]] = []
        await call(memory, a)
        await call(memory, b)
        a.unload = unload  # type: ignore[method-assign]
        await call(memory, c)
        assert all(task.done() for task in later)

    assert said_by(body) == [*("+a", "a", "+b", "b"), *("-a", "-b", "+c", "c")]


def test_one_that_ended_by_itself_is_loaded_again_though_calls_are_under_way() -> None:
    async def body(memory: ModelMemory, a: Fake, *_: Fake) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(call(memory, a, 60.0))
            await asyncio.sleep(2.0)
            a.end()
            await asyncio.wait_for(call(memory, a), 3.0)

    assert said_by(body) == ["+a", "a", "+a", "a"]


def test_one_that_cannot_be_loaded_fails_its_calls_and_no_others() -> None:
    async def body(memory: ModelMemory, a: Fake, b: Fake, _: Fake) -> None:
        a.is_broken = True

        async def refused() -> None:
            with pytest.raises(ProviderError, match="a is broken"):
                await call(memory, a)

        await all_of(refused(), call(memory, b), refused())

    assert said_by(body) == ["+b", "b"]


def test_a_call_that_is_cancelled_while_it_waits_or_loads_holds_nobody_up() -> None:
    async def body(memory: ModelMemory, a: Fake, b: Fake, c: Fake) -> None:
        loading, waiting = (asyncio.create_task(call(memory, one)) for one in (a, b))
        await asyncio.sleep(0.5)
        other = asyncio.create_task(call(memory, c))
        await asyncio.sleep(0)
        loading.cancel()
        waiting.cancel()
        await asyncio.wait([loading, waiting])
        await asyncio.wait_for(other, 10.0)

    assert said_by(body) == ["+c", "c"]


def test_no_call_is_charged_more_than_the_most_and_the_rest_is_not_lost() -> None:
    now = 0.0
    time = SharedTime(lambda: now, most=5.0)
    time.begin()
    now = 12.0
    charged = [time.leave(time.enter()) for _ in range(4)]
    assert charged == [5.0, 5.0, 2.0, 0.0]
    time.end()
    now = 50.0
    assert time.leave(time.enter()) == 0.0, "it was not up"
