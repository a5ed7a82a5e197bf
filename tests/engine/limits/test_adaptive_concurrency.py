"""The adaptive gate: its rules, one by one."""

from __future__ import annotations

import asyncio

from bestarm_agent.engine.limits.concurrency_gates import AdaptiveConcurrency
from tests.support.virtual_time import LoopClock


def a_round(concurrency: AdaptiveConcurrency, in_flight: int | None = None) -> None:
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


def after_a_refusal(*, pause: float = 0.0, restarted: bool = True) -> AdaptiveConcurrency:
    """A gate that a refusal beside 100 calls let in has cut to 90; 15 s of cool-down lie ahead."""
    concurrency = AdaptiveConcurrency(1000, LoopClock())
    concurrency.aim(100)
    send(concurrency, 101)
    concurrency.refused(pause)
    for _ in range(100):
        concurrency.answered(first=False)
    while restarted and concurrency.capacity < concurrency.target:
        send(concurrency, 1)
        concurrency.answered(first=False)
    return concurrency


def send(concurrency: AdaptiveConcurrency, calls: int) -> None:
    for _ in range(calls):
        concurrency.sent()


async def test_it_doubles_until_the_first_refusal() -> None:
    concurrency, capacities = AdaptiveConcurrency(150, LoopClock()), list[int]()
    for _ in range(4):
        capacities.append(concurrency.capacity)
        a_round(concurrency)
    assert [*capacities, concurrency.capacity] == [20, 40, 80, 150, 150]


async def test_it_starts_no_higher_than_its_most() -> None:
    assert AdaptiveConcurrency(7, LoopClock()).capacity == 7


async def test_it_grows_only_when_it_is_used() -> None:
    concurrency = AdaptiveConcurrency(1000, LoopClock())
    a_round(concurrency, in_flight=15)
    unused = concurrency.capacity
    a_round(concurrency, in_flight=16)  # 80 % of 20
    assert (unused, concurrency.capacity) == (20, 40)


async def test_who_leaves_in_a_pause_is_not_replaced_and_then_each_answer_adds_one() -> None:
    concurrency = after_a_refusal(pause=5.0, restarted=False)
    capacities = [concurrency.target, concurrency.capacity]
    await asyncio.sleep(5.0)
    for _ in range(3):
        a_round(concurrency)
        capacities.append(concurrency.capacity)
    assert capacities == [90, 11, 22, 44, 88]


async def test_without_a_pause_those_in_flight_make_room_one_by_one() -> None:
    concurrency, capacities = AdaptiveConcurrency(1000, LoopClock()), list[int]()
    concurrency.aim(100)
    send(concurrency, 101)
    concurrency.refused(0.0)
    for _ in range(100):
        concurrency.answered(first=True)
    capacities.append(concurrency.capacity)
    assert capacities == [90], "no restart from below: the answers keep the time"


async def test_then_it_grows_by_a_twentieth() -> None:
    concurrency, capacities = after_a_refusal(), list[int]()
    await asyncio.sleep(15.0)
    for _ in range(3):
        capacities.append(concurrency.capacity)
        a_round(concurrency)
    assert capacities == [90, 94, 99]


async def test_a_refusal_cuts_once_in_a_cool_down_but_never_leaves_more_than_were_let_in() -> None:
    concurrency, targets = after_a_refusal(), list[int]()
    for seconds in (1.0, 13.9, 0.2):
        await asyncio.sleep(seconds)
        send(concurrency, 81)
        concurrency.refused(0.0)
        targets.append(concurrency.target)
        for _ in range(80):
            concurrency.gave_up()
    assert targets == [80, 80, 72]


async def test_all_refusals_of_a_burst_tell_how_many_were_let_in() -> None:
    concurrency = AdaptiveConcurrency(1000, LoopClock())
    concurrency.aim(160)
    send(concurrency, 160)
    concurrency.refused(0.0)
    for _ in range(79):
        concurrency.refused(0.0, news=False)
    assert (concurrency.target, concurrency.capacity) == (72, 72)  # 90 % of 80


async def test_a_refusal_while_few_are_in_flight_cuts_nothing() -> None:
    concurrency, targets = after_a_refusal(), list[int]()
    await asyncio.sleep(20.0)
    for calls in (71, 72):  # 80 % of 90 are 72
        send(concurrency, calls)
        concurrency.refused(0.0)
        targets.append(concurrency.target)
        for _ in range(calls - 1):
            concurrency.gave_up()
    assert targets == [90, 63]


async def test_a_probe_that_is_refused_cuts_nothing() -> None:
    concurrency = after_a_refusal()
    await asyncio.sleep(20.0)
    concurrency.sent()
    concurrency.refused(0.0, probe=True)
    assert concurrency.target == 90


async def test_the_cool_down_lasts_as_long_as_the_pause_that_was_asked_for() -> None:
    concurrency = after_a_refusal(pause=40.0, restarted=False)
    await asyncio.sleep(39.0)
    a_round(concurrency)
    before = concurrency.target
    await asyncio.sleep(1.0)
    for _ in range(5):  # four to come back to 90
        a_round(concurrency)
    assert (before, concurrency.target) == (90, 94)


async def test_other_failures_begin_a_new_round_and_cut_nothing() -> None:
    concurrency = AdaptiveConcurrency(1000, LoopClock())
    send(concurrency, 20)
    for _ in range(19):
        concurrency.answered(first=True)
    concurrency.failed()
    send(concurrency, 1)
    concurrency.answered(first=True)
    after_a_failure = concurrency.capacity
    a_round(concurrency)
    assert (after_a_failure, concurrency.capacity) == (20, 40)


async def test_answers_after_a_retry_do_not_count() -> None:
    concurrency = AdaptiveConcurrency(1000, LoopClock())
    for _ in range(20):
        concurrency.sent()
    for _ in range(20):
        concurrency.answered(first=False)
    assert concurrency.capacity == 20


async def test_it_never_closes_entirely() -> None:
    concurrency = AdaptiveConcurrency(1, LoopClock())
    concurrency.sent()
    concurrency.refused(0.0)
    assert concurrency.capacity == 1
