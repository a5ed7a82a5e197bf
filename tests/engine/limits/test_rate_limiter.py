"""The limiter: order, timing, pauses for everybody, and counts that agree."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.domain.rate_limits import Allowance, RateLimits, Resource
from bestarm_agent.engine.limits.concurrency_gates import Gate, Slot
from bestarm_agent.engine.limits.rate_limiter import Permit, RateLimiter
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.testing.virtual_time import LoopClock, run_virtual

# 6,060 a minute: 100 come back in a second, and the bucket holds 60.6.
HUNDRED_A_SECOND = 6060.0


def need(tokens: float) -> dict[Resource, float]:
    return {Resource.REQUESTS: 1.0, Resource.TOKENS: tokens}


def by_tokens(per_minute: float = HUNDRED_A_SECOND) -> RateLimiter:
    return RateLimiter(RateLimits({Resource.TOKENS: per_minute}), LoopClock())


def by_requests(per_minute: float = HUNDRED_A_SECOND) -> RateLimiter:
    return RateLimiter(RateLimits({Resource.REQUESTS: per_minute}), LoopClock())


def sent(limiter: RateLimiter, tokens: float = 1.0) -> Permit:
    """A permit that is there at once, for a call that leaves at once."""
    permit = limiter.take(need(tokens))
    assert permit is not None
    limiter.send(permit)
    return permit


def test_calls_leave_in_order_and_on_time_and_large_ones_are_not_starved() -> None:
    async def scene() -> list[tuple[str, float]]:
        limiter, left = by_tokens(), list[tuple[str, float]]()

        async def call(name: str, tokens: float) -> None:
            permit = await limiter.acquire(need(tokens))
            limiter.send(permit)
            left.append((name, round(asyncio.get_running_loop().time(), 3)))

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(call("first", 60.6))
            tasks.create_task(call("large", 110.0))
            for k in range(3):
                tasks.create_task(call(f"small {k}", 5.0))
        return left

    # The first empties the bucket of 60.6; the large one needs it full: 0.606 s; its debt of 49.4
    # and 5 more are back after 0.544 s; the rest follow every 0.05 s.
    assert run_virtual(scene()) == [
        ("first", 0.0),
        ("large", 0.606),
        ("small 0", 1.15),
        ("small 1", 1.2),
        ("small 2", 1.25),
    ]


def test_nobody_overtakes_the_queue() -> None:
    async def scene() -> None:
        limiter = by_tokens()
        sent(limiter, 60.0)
        waiting = asyncio.create_task(limiter.acquire(need(50.0)))
        await asyncio.sleep(0.01)
        assert limiter.take(need(0.5)) is None, "1.6 are there, but somebody waits"
        assert limiter.room(need(0.5)) == 0
        assert limiter.queued == 1
        await waiting

    run_virtual(scene())


def test_a_call_that_gives_up_lets_the_next_one_through() -> None:
    async def scene() -> float:
        limiter = by_tokens()
        sent(limiter, 60.0)
        large = asyncio.create_task(limiter.acquire(need(60.0)))
        small = asyncio.create_task(limiter.acquire(need(5.0)))
        await asyncio.sleep(0.1)
        large.cancel()
        await small
        return asyncio.get_running_loop().time()

    assert run_virtual(scene()) == pytest.approx(0.1)


def test_tokens_that_come_back_let_the_next_call_leave_earlier() -> None:
    async def scene() -> float:
        limiter = by_tokens()
        first = sent(limiter, 60.0)
        waiting = asyncio.create_task(limiter.acquire(need(50.0)))
        await asyncio.sleep(0.1)
        limiter.settle(first, need(20.0))  # 40 come back
        await waiting
        return asyncio.get_running_loop().time()

    assert run_virtual(scene()) == pytest.approx(0.1)


def test_what_was_not_sent_goes_back_once() -> None:
    async def scene() -> None:
        limiter = by_tokens()
        permit = limiter.take(need(60.0))
        assert permit is not None
        limiter.refund(permit)
        limiter.refund(permit)
        assert limiter.room(need(60.0)) == 1
        with pytest.raises(ValueError, match="settled or refunded before"):
            limiter.settle(permit, None)

    run_virtual(scene())


def test_a_refusal_stops_everybody_and_one_call_goes_first() -> None:
    async def scene() -> list[float]:
        limiter = by_requests()
        refused = sent(limiter)
        limiter.refuse(refused, 30.0, at_most=60.0)
        left = list[float]()

        async def call() -> None:
            permit = await limiter.acquire(need(1.0))
            limiter.send(permit)
            left.append(asyncio.get_running_loop().time())
            await asyncio.sleep(0.5)
            limiter.settle(permit, need(1.0))

        async with asyncio.TaskGroup() as tasks:
            for _ in range(4):
                tasks.create_task(call())
            await asyncio.sleep(1.0)
            assert limiter.paused == pytest.approx(29.0)
        return left

    assert run_virtual(scene()) == [30.0, 30.5, 30.5, 30.5]


def test_a_slow_answer_to_the_first_call_after_a_pause_does_not_hold_the_others_up() -> None:
    async def scene() -> float:
        limiter = by_requests()
        limiter.refuse(sent(limiter), 5.0, at_most=60.0)
        limiter.send(await limiter.acquire(need(1.0)))
        await limiter.acquire(need(1.0))
        assert limiter.take(need(1.0)) is not None, "the door is taken to be open"
        return asyncio.get_running_loop().time()

    assert run_virtual(scene()) == pytest.approx(7.0)


def test_without_a_time_the_pauses_double_until_a_call_is_let_in() -> None:
    async def scene() -> list[float]:
        limiter, pauses = by_requests(), list[float]()
        for _ in range(7):
            limiter.refuse(sent(limiter), None, at_most=60.0)
            pauses.append(limiter.paused)
            await asyncio.sleep(limiter.paused)
        limiter.settle(sent(limiter), need(1.0))
        limiter.refuse(sent(limiter), None, at_most=60.0)
        return [*pauses, limiter.paused]

    assert run_virtual(scene()) == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 16.0, 0.5]


def test_refusals_of_calls_that_were_under_way_are_old_news() -> None:
    async def scene() -> tuple[float, float]:
        limiter = by_requests()
        first, second, third = sent(limiter), sent(limiter), sent(limiter)
        limiter.refuse(first, None, at_most=60.0)
        await asyncio.sleep(0.25)
        limiter.refuse(second, None, at_most=60.0)
        unchanged = limiter.paused
        limiter.refuse(third, 9.0, at_most=60.0)
        return unchanged, limiter.paused

    assert run_virtual(scene()) == (0.25, 9.0)


def test_a_refused_call_counts_as_a_request_but_takes_no_tokens() -> None:
    async def scene() -> tuple[float, float]:
        both = RateLimits({Resource.REQUESTS: 600.0, Resource.TOKENS: 6000.0})
        limiter = RateLimiter(both, LoopClock())
        limiter.refuse(sent(limiter, 40.0), 1.0, at_most=60.0)
        buckets = limiter.buckets
        return buckets[Resource.REQUESTS].used(0.0), buckets[Resource.TOKENS].used(0.0)

    assert run_virtual(scene()) == (1.0, 0.0)


def test_limits_are_learned_from_answers() -> None:
    async def scene() -> None:
        limiter = RateLimiter(RateLimits(), LoopClock())
        assert limiter.room(need(5.0)) == float("inf")
        permit = sent(limiter)
        limiter.observe(permit, [Allowance(Resource.REQUESTS, limit=600.0, remaining=599.0)])
        assert limiter.buckets[Resource.REQUESTS].per_minute == 600.0
        assert limiter.room(need(5.0)) == 6
        limiter.observe(sent(limiter), [Allowance(Resource.REQUESTS, limit=1200.0)])
        assert limiter.buckets[Resource.REQUESTS].per_minute == 1200.0

    run_virtual(scene())


def test_what_the_user_says_stands_and_what_the_catalogue_says_gives_way() -> None:
    async def scene() -> dict[Resource, float]:
        limits = RateLimits({Resource.REQUESTS: 600.0}, assumed={Resource.TOKENS: 6000.0})
        limiter = RateLimiter(limits, LoopClock())
        said = [Allowance(name, limit=99.0) for name in (Resource.REQUESTS, Resource.TOKENS)]
        limiter.observe(sent(limiter), said)
        return {name: bucket.per_minute for name, bucket in limiter.buckets.items()}

    assert run_virtual(scene()) == {Resource.REQUESTS: 600.0, Resource.TOKENS: 99.0}


@pytest.mark.parametrize(
    "said",
    [
        Allowance(Resource.REQUESTS, limit=0.0),
        Allowance(Resource.REQUESTS, limit=-1.0),
        Allowance(Resource.REQUESTS, limit=float("nan")),
        Allowance(Resource.REQUESTS, limit=float("inf")),
        Allowance(Resource.REQUESTS, remaining=-1.0),
        Allowance(Resource.REQUESTS, remaining=float("nan")),
        Allowance(Resource.REQUESTS, limit=100.0, remaining=101.0),
        Allowance(Resource.TOKENS, remaining=0.0),
    ],
)
def test_nonsense_is_ignored(said: Allowance) -> None:
    async def scene() -> None:
        limiter = by_requests()
        limiter.observe(sent(limiter), [said])
        assert limiter.buckets[Resource.REQUESTS].per_minute == HUNDRED_A_SECOND
        assert limiter.buckets[Resource.REQUESTS].level(0.0) == pytest.approx(59.6)
        assert set(limiter.buckets) == {Resource.REQUESTS}

    run_virtual(scene())


def test_what_others_used_up_is_not_sent() -> None:
    async def scene() -> float:
        limiter = by_requests()
        limiter.observe(sent(limiter), [Allowance(Resource.REQUESTS, 6060.0, remaining=0.0)])
        await limiter.acquire(need(1.0))
        return asyncio.get_running_loop().time()

    assert run_virtual(scene()) == pytest.approx(0.01)


def test_halting_turns_everybody_away() -> None:
    async def scene() -> list[str]:
        limiter = by_tokens()
        sent(limiter, 60.0)
        waiting = [asyncio.create_task(limiter.acquire(need(60.0))) for _ in range(3)]
        await asyncio.sleep(0.1)
        limiter.halt(ProviderError("bad key", kind=FailureKind.AUTHENTICATION, fatal=True))
        await asyncio.wait(waiting)
        assert limiter.take(need(1.0)) is None
        assert asyncio.get_running_loop().time() == pytest.approx(0.1)
        return [str(task.exception()) for task in waiting]

    assert run_virtual(scene()) == ["bad key"] * 3


Plan = Sequence[tuple[float, float, str, float | None]]


async def _play(plan: Plan, limits: Mapping[Resource, float]) -> tuple[RateLimiter, list[int]]:
    """Send calls, all queued at once; tell the order they left in.

    A call has tokens, seconds, a fate, and what a refusal asks to wait.
    """
    limiter, left = RateLimiter(RateLimits(limits), LoopClock()), list[int]()

    async def call(k: int, tokens: float, seconds: float, fate: str, asked: float | None) -> None:
        permit = await limiter.acquire(need(tokens))
        left.append(k)
        if fate == "unsent":
            limiter.refund(permit)
            return
        limiter.send(permit)
        await asyncio.sleep(seconds)
        if fate == "refused":
            limiter.refuse(permit, asked, at_most=60.0)
            assert 0 <= limiter.paused <= 60.0 + 1e-9
        else:
            limiter.settle(permit, need(tokens / 2) if fate == "half" else None)

    async with asyncio.TaskGroup() as tasks:
        for k, one in enumerate(plan):
            tasks.create_task(call(k, *one))
    return limiter, left


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.floats(1.0, 300.0),
            st.floats(0.0, 20.0),
            st.sampled_from(["half", "all", "unsent", "refused"]),
            st.sampled_from([None, 0.0, 1e-9, 0.3, 20.0, 1e6]),
        ),
        max_size=25,
    )
)
def test_whatever_happens_the_order_holds_and_the_books_balance(plan: Plan) -> None:
    limits = {Resource.REQUESTS: 120.0, Resource.TOKENS: 1000.0}
    limiter, left = run_virtual(_play(plan, limits))
    assert left == list(range(len(plan)))
    tokens = {"half": 0.5, "all": 1.0, "unsent": 0.0, "refused": 0.0}
    used = sum(tokens[fate] * amount for amount, _, fate, _ in plan)
    requests = sum(fate != "unsent" for _, _, fate, _ in plan)
    assert limiter.buckets[Resource.TOKENS].reserved == pytest.approx(used)
    assert limiter.buckets[Resource.REQUESTS].reserved == pytest.approx(requests)
    assert limiter.queued == 0


def test_what_calls_wait_for_is_named_and_no_limit_where_none_holds_them() -> None:
    async def scene() -> list[tuple[float, str]]:
        limiter, gate = by_requests(6000.0), Gate(1)
        said = [limiter.held_by(None)]
        busy = Slot(gate)
        waiting = asyncio.create_task(limiter.acquire(need(1.0), Slot.outside(gate)))
        await asyncio.sleep(0)
        said.append(limiter.held_by(None))
        waiting.cancel()
        await asyncio.wait([waiting])
        busy.leave()
        for _ in range(60):
            sent(limiter)
        said.append(limiter.held_by(need(1.0)))
        limiter.refuse(await limiter.acquire(need(1.0)), 3.0, at_most=60.0)
        said.append(limiter.held_by(need(1.0)))
        return [(round(seconds, 2), reason) for seconds, reason in said]

    free, no_place, limited, paused = run_virtual(scene())
    assert free == no_place == (0.0, "waiting for a free place")
    assert limited == (0.01, "at its limit of 6,000 requests a minute")
    assert paused[0] == 3.0
