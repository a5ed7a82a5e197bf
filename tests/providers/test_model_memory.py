"""LoadSettings and unloading within the memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest

from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.model_memory import ModelMemory, available_bytes, available_cores


class Fake:
    """A model of a given size that writes down what happens to it."""

    def __init__(self, name: str, n_bytes: int, log: list[str]) -> None:
        self.name = name
        self.n_bytes = n_bytes
        self.is_idle = False
        self.is_loaded = False
        self.is_broken = False
        self._log = log

    async def load(self) -> None:
        await asyncio.sleep(0)
        if self.is_broken:
            raise failure(FailureKind.MODEL_NOT_FOUND, "broken")
        self._log.append(f"+{self.name}")
        self.is_loaded = True

    async def unload(self) -> None:
        self._log.append(f"-{self.name}")
        self.is_loaded = False


def within(n_bytes: int, *models: Fake) -> Callable[[Collection[str]], bool]:
    """Models fit together if their sizes add up to at most ``n_bytes``."""
    sizes = {model.name: model.n_bytes for model in models}
    return lambda names: sum(sizes[name] for name in names) <= n_bytes


async def settle() -> None:
    """Let every task of the loop run as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


def fakes(log: list[str], *sizes: int) -> list[Fake]:
    return [Fake("abcdef"[i], size, log) for i, size in enumerate(sizes)]


async def use(memory: ModelMemory, models: Sequence[Fake]) -> None:
    """Admit one model after the other; each is idle again at once."""
    for model in models:
        model.is_idle = False
        await memory.ensure_loaded(model)
        model.is_idle = True
        memory.note_idle()


def test_the_longest_unused_model_makes_room() -> None:
    log: list[str] = []

    async def main() -> None:
        a, b, c, d = fakes(log, 4, 4, 4, 2)
        await use(ModelMemory(within(10, a, b, c, d), 1), [a, b, a, c, d, b])

    asyncio.run(main())
    assert log == ["+a", "+b", "-b", "+c", "+d", "-a", "+b"]


def test_as_many_go_as_the_new_one_needs() -> None:
    log: list[str] = []

    async def main() -> None:
        a, b, c = fakes(log, 4, 4, 10)
        await use(ModelMemory(within(10, a, b, c), 1), [a, b, c])

    asyncio.run(main())
    assert log == ["+a", "+b", "-a", "-b", "+c"]


def test_a_model_that_is_kept_leaves_only_where_the_others_cannot_make_room() -> None:
    log: list[str] = []

    async def main() -> None:
        a, b, c, d = fakes(log, 4, 4, 4, 10)
        await use(ModelMemory(within(10, a, b, c, d), 1, pinned={"a"}), [a, b, c, d])

    asyncio.run(main())
    assert log == ["+a", "+b", "-b", "+c", "-c", "-a", "+d"]


def test_a_kept_model_does_not_leave_because_the_others_are_busy() -> None:
    log: list[str] = []

    async def main() -> None:
        a, b, c = fakes(log, 4, 4, 4)
        memory = ModelMemory(within(10, a, b, c), 1, pinned={"a"})
        await use(memory, [a, b])
        b.is_idle = False
        coming = asyncio.create_task(memory.ensure_loaded(c))
        await settle()
        assert log == ["+a", "+b"]
        b.is_idle = True
        memory.note_idle()
        await coming

    asyncio.run(main())
    assert log == ["+a", "+b", "-b", "+c"]


def test_a_busy_model_stays_and_the_new_one_waits() -> None:
    log: list[str] = []

    async def main() -> None:
        a, b, c = fakes(log, 6, 6, 2)
        memory = ModelMemory(within(10, a, b, c), 1)
        await memory.ensure_loaded(a)
        waiting = [asyncio.create_task(memory.ensure_loaded(model)) for model in (b, c)]
        await settle()
        memory.note_idle()  # somebody else became idle
        await settle()
        assert log == ["+a"]
        a.is_idle = True
        memory.note_idle()
        await asyncio.wait(waiting)

    asyncio.run(main())
    assert log == ["+a", "-a", "+b", "+c"]


def test_one_that_ended_by_itself_is_loaded_again_in_its_own_room() -> None:
    log: list[str] = []

    async def main() -> None:
        (a,) = fakes(log, 10)
        memory = ModelMemory(within(10, a), 1)
        for _ in range(3):
            await memory.ensure_loaded(a)
            a.is_loaded = False

    asyncio.run(main())
    assert log == ["+a"] * 3


def test_several_are_loaded_at_once_where_that_is_allowed() -> None:
    log: list[str] = []

    async def main() -> None:
        a, b, c = fakes(log, 5, 5, 5)
        memory = ModelMemory(within(10, a, b, c), 1, loads_at_once=3)
        a.is_broken = True
        admitted = [asyncio.create_task(memory.ensure_loaded(model)) for model in (a, b, c)]
        await asyncio.wait(admitted)
        assert isinstance(admitted[0].exception(), ProviderError)

    asyncio.run(main())
    assert log == ["+b", "+c"], "c waited until a had failed and left its room"


def test_a_model_that_cannot_be_loaded_takes_no_room() -> None:
    log: list[str] = []

    async def main() -> None:
        a, b = fakes(log, 10, 10)
        memory = ModelMemory(within(10, a, b), 1)
        a.is_broken = True
        with pytest.raises(ProviderError):
            await memory.ensure_loaded(a)
        await memory.ensure_loaded(b)

    asyncio.run(main())
    assert log == ["+b"]


def test_somebody_who_gives_up_waiting_lets_the_next_one_in() -> None:
    log: list[str] = []

    async def main() -> None:
        a, b, c = fakes(log, 6, 6, 2)
        memory = ModelMemory(within(10, a, b, c), 1)
        await memory.ensure_loaded(a)
        first, second = (asyncio.create_task(memory.ensure_loaded(model)) for model in (b, c))
        await settle()
        first.cancel()
        await asyncio.wait([first, second])

    asyncio.run(main())
    assert log == ["+a", "+c"]


def test_linux_says_what_is_free(tmp_path: Path) -> None:
    account = tmp_path / "meminfo"
    account.write_text("MemTotal:  100 kB\nMemFree:  5 kB\nMemAvailable:   40 kB\n")
    assert available_bytes(account) == 40 * 1024


@pytest.mark.parametrize("content", [None, "", "MemAvailable: much\n"])
def test_elsewhere_all_memory_counts(tmp_path: Path, content: str | None) -> None:
    account = tmp_path / "meminfo"
    if content is not None:
        account.write_text(content)
    assert available_bytes(account) > 1e8


def test_there_is_a_core() -> None:
    assert available_cores() >= 1


def test_what_is_being_loaded_can_be_seen_until_it_is_there() -> None:
    log: list[str] = []
    slow, broken = fakes(log, 1, 1)
    broken.is_broken = True

    async def main() -> None:
        memory = ModelMemory(within(2, slow, broken), 1)
        for model in (slow, broken):
            coming = asyncio.create_task(memory.ensure_loaded(model))
            await asyncio.sleep(0)
            assert list(memory.loading) == [model.name]
            await asyncio.wait([coming])
            assert not memory.loading
            assert (coming.exception() is None) == model.is_loaded

    asyncio.run(main())
