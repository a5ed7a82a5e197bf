"""The adaptive gate: its rules, one by one."""

from __future__ import annotations

import asyncio

from bestarm_agent.schedule.concurrency import Concurrency
from bestarm_agent.testing.virtual_time import LoopClock, run_virtual


def a_round(concurrency: Concurrency, in_flight: int | None = None) -> None:
    """As many answered calls as the capacity, so many of them at once."""
    most = concurrency.capacity if in_flight is None else in_flight
    left = concurrency.capacity
    while left:
        now = min(most, left)
        for _ in range(now):
            concurrency.sent()
        for _ in range(now):
            concurrency.answered(first=True)
        left -= now


def after_a_refusal(capacity: int) -> Concurrency:
    """A gate of this capacity, past its slow start and its cool-down."""
    concurrency = Concurrency(1000, LoopClock())
    concurrency.gate.resize(capacity * 5 // 4)
    for _ in range(capacity * 5 // 4):
        concurrency.sent()
    concurrency.refused(0.0)
    for _ in range(capacity * 5 // 4 - 1):
        concurrency.gave_up()
    return concurrency


def test_it_doubles_until_the_first_refusal() -> None:
    async def scene() -> list[int]:
        concurrency, capacities = Concurrency(150, LoopClock()), list[int]()
        for _ in range(4):
            capacities.append(concurrency.capacity)
            a_round(concurrency)
        return [*capacities, concurrency.capacity]

    assert run_virtual(scene()) == [20, 40, 80, 150, 150]


def test_it_starts_no_higher_than_its_most() -> None:
    async def scene() -> int:
        return Concurrency(7, LoopClock()).capacity

    assert run_virtual(scene()) == 7


def test_it_grows_only_when_it_is_used() -> None:
    async def scene() -> tuple[int, int]:
        concurrency = Concurrency(1000, LoopClock())
        a_round(concurrency, in_flight=15)
        unused = concurrency.capacity
        a_round(concurrency, in_flight=16)  # 80 % of 20
        return unused, concurrency.capacity

    assert run_virtual(scene()) == (20, 40)


def test_after_a_refusal_it_grows_by_a_twentieth() -> None:
    async def scene() -> list[int]:
        concurrency, capacities = after_a_refusal(80), list[int]()
        await asyncio.sleep(15.0)
        for _ in range(3):
            capacities.append(concurrency.capacity)
            a_round(concurrency)
        return capacities

    assert run_virtual(scene()) == [80, 84, 88]


def test_a_refusal_cuts_once_in_a_cool_down() -> None:
    async def scene() -> list[int]:
        concurrency, capacities = after_a_refusal(100), list[int]()
        for seconds in (1.0, 13.9, 0.2):
            await asyncio.sleep(seconds)
            for _ in range(concurrency.capacity):
                concurrency.sent()
            concurrency.refused(0.0)
            for _ in range(concurrency.capacity):
                concurrency.gave_up()
            capacities.append(concurrency.capacity)
        return capacities

    # The refusals at 1 s and at 14.9 s prolong the cool-down: at 15.1 s it is not over.
    assert run_virtual(scene()) == [100, 100, 100]


def test_a_cut_starts_from_what_was_in_flight() -> None:
    async def scene() -> int:
        concurrency = Concurrency(1000, LoopClock())
        concurrency.gate.resize(160)
        for _ in range(81):
            concurrency.sent()
        concurrency.refused(0.0)
        return concurrency.capacity

    assert run_virtual(scene()) == 64


def test_a_probe_that_is_refused_cuts_nothing() -> None:
    async def scene() -> int:
        concurrency = after_a_refusal(100)
        await asyncio.sleep(20.0)
        concurrency.sent()
        concurrency.refused(0.0, probe=True)
        return concurrency.capacity

    assert run_virtual(scene()) == 100


def test_the_cool_down_lasts_as_long_as_the_pause_that_was_asked_for() -> None:
    async def scene() -> tuple[int, int]:
        concurrency = after_a_refusal(80)
        concurrency.sent()
        concurrency.refused(40.0)
        await asyncio.sleep(39.0)
        a_round(concurrency)
        before = concurrency.capacity
        await asyncio.sleep(1.0)
        a_round(concurrency)
        return before, concurrency.capacity

    assert run_virtual(scene()) == (80, 84)


def test_other_failures_pause_growth_and_cut_nothing() -> None:
    async def scene() -> tuple[int, int]:
        concurrency = Concurrency(1000, LoopClock())
        concurrency.sent()
        concurrency.failed()
        a_round(concurrency)
        paused = concurrency.capacity
        await asyncio.sleep(15.0)
        a_round(concurrency)
        return paused, concurrency.capacity

    assert run_virtual(scene()) == (20, 40)


def test_answers_after_a_retry_do_not_count() -> None:
    async def scene() -> int:
        concurrency = Concurrency(1000, LoopClock())
        for _ in range(20):
            concurrency.sent()
        for _ in range(20):
            concurrency.answered(first=False)
        return concurrency.capacity

    assert run_virtual(scene()) == 20


def test_it_never_closes_entirely() -> None:
    async def scene() -> int:
        concurrency = Concurrency(1, LoopClock())
        concurrency.sent()
        concurrency.refused(0.0)
        return concurrency.capacity

    assert run_virtual(scene()) == 1
