"""Gates keep their capacity through waiting, handing over and cancellation."""

from __future__ import annotations

import asyncio

import pytest

from bestarm_agent.engine.limits.gates import Gate, Slot


def test_capacity_must_be_positive() -> None:
    with pytest.raises(ValueError, match="in_flight must be at least 1, got 0"):
        Gate(0)


async def test_returning_work_goes_before_new_work() -> None:
    gate = Gate(1)
    first, waiting = Slot(gate), asyncio.create_task(Slot(gate, inside=False).reenter())
    await asyncio.sleep(0)
    assert gate.free == 0
    first.leave()
    await waiting
    assert gate.inside == 1


async def test_returning_work_is_served_in_order() -> None:
    gate, order = Gate(1), list[str]()
    gate.enter()

    async def come_back(name: str) -> None:
        await Slot(gate, inside=False).reenter()
        order.append(name)
        gate.leave()

    async with asyncio.TaskGroup() as tasks:
        for name in "abc":
            tasks.create_task(come_back(name))
        await asyncio.sleep(0)
        gate.leave()
    assert (gate.inside, order) == (0, ["a", "b", "c"])


@pytest.mark.parametrize("handed_over_first", [False, True])
async def test_a_cancelled_wait_loses_no_place(handed_over_first: bool) -> None:
    gate = Gate(1)
    gate.enter()
    waiting = asyncio.create_task(Slot(gate, inside=False).reenter())
    await asyncio.sleep(0)
    if handed_over_first:
        gate.leave()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not handed_over_first:
        gate.leave()
    assert gate.inside == 0


def test_a_slot_leaves_every_gate_once() -> None:
    one, other = Gate(2), Gate(2)
    slot = Slot(one, other)
    slot.leave()
    slot.leave()
    assert (one.inside, other.inside) == (0, 0)


async def test_a_slot_can_keep_its_last_place_or_begin_outside() -> None:
    line, pairs = Gate(1), Gate(1)
    slot = Slot(line, pairs)
    for _ in range(2):
        slot.keep_last()
        assert (line.inside, pairs.inside) == (0, 1)
    slot.leave()
    assert (line.inside, pairs.inside) == (0, 0)
    waiting = Slot(line, inside=False)
    assert line.inside == 0
    await waiting.reenter()
    assert line.inside == 1
    waiting.leave()
    assert line.inside == 0


async def test_nobody_holds_a_place_while_waiting_for_another() -> None:
    """A judgement keeps its pair's place and waits for the line that a retried call waits for."""
    line, pairs = Gate(1), Gate(1)
    answered, retried, judging = (
        Slot(line, pairs),
        Slot(line, pairs, inside=False),
        Slot(line, inside=False),
    )
    waiting = asyncio.create_task(retried.reenter())
    await asyncio.sleep(0)
    answered.keep_last()
    async with asyncio.timeout(1):
        await judging.reenter()
        assert (line.inside, pairs.inside) == (1, 1)
        judging.leave()
        answered.leave()
        await waiting
    assert (line.inside, pairs.inside) == (1, 1)
    retried.leave()
    assert (line.inside, pairs.inside) == (0, 0)


async def test_those_that_return_stand_still_while_another_gate_is_full() -> None:
    line, pairs = Gate(1), Gate(1)
    in_line, in_pairs = Slot(line), Slot(pairs)
    returning = [Slot(line, pairs, inside=False) for _ in range(2)]
    waits = [asyncio.create_task(slot.reenter()) for slot in returning]
    await asyncio.sleep(0)
    in_line.leave()
    for _ in range(5):
        assert (line.inside, pairs.inside) == (0, 1), "nobody holds a place in the line"
        await asyncio.sleep(0)
    for slot, wait in zip((in_pairs, *returning[:1]), waits, strict=True):
        slot.leave()
        await wait
        assert (line.inside, pairs.inside) == (1, 1)
    returning[1].leave()
    assert (line.inside, pairs.inside) == (0, 0)
