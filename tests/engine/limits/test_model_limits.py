"""The limits of a model: order, timing, pauses for everybody, and counts that agree."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.domain.spend import Allowance, Resource, Spend, Usage
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.engine.limits.gates import Gate, Slot
from bestarm_agent.engine.limits.model_limits import ModelLimits, RateLimits
from bestarm_agent.engine.limits.pauses import Permit
from bestarm_agent.errors import FailureKind, ProviderError
from tests.support.runs import Actor
from tests.support.virtual_time import LoopClock, run_virtual

# 6,060 a minute: 100 come back in a second, and the bucket holds 60.6.
HUNDRED_A_SECOND = 6060.0
ASKED = Request("m", text="?")


class Told(Actor):
    """A provider whose answers say what is left of its limits."""

    said: Sequence[Allowance] = ()

    def allowances(self, model: str) -> tuple[Allowance, ...]:
        return tuple(self.said)


def limits_of(known: RateLimits, said: Sequence[Allowance] = ()) -> ModelLimits:
    provider = Told("p", lambda *_: Reply(""))
    provider.said = said
    return ModelLimits(provider, "m", known, LoopClock())


def by_tokens(per_minute: float = HUNDRED_A_SECOND) -> ModelLimits:
    return limits_of(RateLimits({Resource.TOKENS: per_minute}))


def by_requests(per_minute: float = HUNDRED_A_SECOND, *said: Allowance) -> ModelLimits:
    return limits_of(RateLimits({Resource.REQUESTS: per_minute}), said)


def tokens(most: float) -> Spend:
    """A bound on a call, at which it is counted before anything was answered."""
    return Spend(calls=1, tokens=round(most))


def sent(limits: ModelLimits, most: float = 1) -> Permit:
    """A permit that is there at once, for a call that leaves at once."""
    permit = limits.take(ASKED, tokens(most))
    assert permit is not None
    limits.send(permit)
    return permit


def refusal(seconds: float | None = None) -> ProviderError:
    """One that says so of the account."""
    kind = FailureKind.RATE_LIMITED
    return ProviderError("429", kind=kind, retry_after=seconds, of_account=True)


def answer(used: float = 1.0) -> Reply:
    return Reply("", usage=Usage(input=round(used)))


def now() -> float:
    return asyncio.get_running_loop().time()


async def permit_in_turn(limits: ModelLimits, most: float = 1) -> Permit:
    return await limits.acquire(ASKED, tokens(most), Slot())


async def sent_in_turn(limits: ModelLimits) -> Permit:
    permit = await permit_in_turn(limits)
    limits.send(permit)
    return permit


async def test_calls_leave_in_order_and_on_time_and_large_ones_are_not_starved() -> None:
    limits, left = by_tokens(), list[tuple[str, float]]()

    async def call(name: str, most: float) -> None:
        permit = await permit_in_turn(limits, most)
        limits.send(permit)
        left.append((name, round(now(), 3)))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(call("first", 60))
        tasks.create_task(call("large", 110))
        for k in range(3):
            tasks.create_task(call(f"small {k}", 5))
    assert left == [
        ("first", 0.0),
        ("large", 0.6),
        ("small 0", 1.144),
        ("small 1", 1.194),
        ("small 2", 1.244),
    ]


async def test_nobody_overtakes_the_queue_which_moves_up_once_somebody_leaves_it() -> None:
    limits = by_tokens()
    first = sent(limits, 60.0)
    large = asyncio.create_task(permit_in_turn(limits, 60.0))
    await asyncio.sleep(0.01)
    assert limits.take(ASKED, tokens(1)) is None, "1.6 are there, but somebody waits"
    assert limits.room == 0
    wait = limits.waits()
    assert wait is not None
    assert wait.count == 1
    small, middle = (asyncio.create_task(permit_in_turn(limits, most)) for most in (5.0, 30.0))
    await asyncio.sleep(0.09)
    large.cancel()
    await small
    assert now() == pytest.approx(0.1)
    limits.ended(first, answer(20))  # 40 come back
    await middle
    assert now() == pytest.approx(0.1)


async def test_what_was_not_sent_goes_back_once() -> None:
    limits = by_tokens()
    permit = limits.take(ASKED, tokens(60.0))
    assert permit is not None
    limits.refund(permit)
    limits.refund(permit)
    assert limits.room == 1
    with pytest.raises(ValueError, match="ended or refunded before"):
        limits.ended(permit, None)


async def test_a_refusal_stops_everybody_and_one_call_goes_first() -> None:
    limits = by_requests()
    limits.ended(sent(limits), refusal(30.0))
    left = list[float]()

    async def call() -> None:
        permit = await permit_in_turn(limits, 1.0)
        limits.send(permit)
        left.append(now())
        await asyncio.sleep(0.5)
        limits.ended(permit, answer())

    async with asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(call())
        await asyncio.sleep(1.0)
        assert limits.paused == pytest.approx(29.0)
    assert left == [30.0, 30.5, 30.5, 30.5]


async def test_a_slow_answer_to_the_first_call_after_a_pause_does_not_hold_the_others_up() -> None:
    limits = by_requests()
    limits.ended(sent(limits), refusal(5.0))
    limits.send(await permit_in_turn(limits, 1.0))
    await permit_in_turn(limits, 1.0)
    assert limits.take(ASKED, tokens(1.0)) is not None, "the door is taken to be open"
    assert now() == pytest.approx(7.0)


async def test_without_a_time_the_pauses_double_until_a_call_is_let_in() -> None:
    limits, pauses = by_requests(), list[float]()
    for _ in range(7):
        limits.ended(sent(limits), refusal())
        pauses.append(limits.paused)
        await asyncio.sleep(limits.paused)
    limits.ended(sent(limits), answer())
    limits.ended(sent(limits), refusal())
    assert [*pauses, limits.paused] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 16.0, 0.5]


async def test_refusals_of_calls_that_were_under_way_are_old_news() -> None:
    limits = by_requests()
    first, second, third = sent(limits), sent(limits), sent(limits)
    limits.ended(first, refusal())
    await asyncio.sleep(0.25)
    limits.ended(second, refusal())
    unchanged = limits.paused
    limits.ended(third, refusal(9.0))
    assert (unchanged, limits.paused) == (0.25, 9.0)


async def test_a_late_refusal_that_names_a_time_stops_everybody_again() -> None:
    limits = by_requests()
    first, late = sent(limits), sent(limits)
    limits.ended(first, refusal(1.0))
    limits.ended(await sent_in_turn(limits), answer())
    limits.ended(late, refusal(9.0))
    await permit_in_turn(limits)
    assert now() == pytest.approx(10.0)


async def test_a_refused_call_counts_as_a_request_but_takes_no_tokens() -> None:
    limits = limits_of(RateLimits({Resource.REQUESTS: 600.0, Resource.TOKENS: 6000.0}))
    limits.ended(sent(limits, 40), refusal(1.0))
    buckets = limits.buckets
    assert (buckets[Resource.REQUESTS].used(0.0), buckets[Resource.TOKENS].used(0.0)) == (1.0, 0.0)


async def test_limits_are_learned_from_answers() -> None:
    said = [Allowance(Resource.REQUESTS, 600.0, remaining=599.0)]
    limits = limits_of(RateLimits(), said)
    assert limits.room == float("inf")
    limits.ended(sent(limits), answer())
    assert limits.buckets[Resource.REQUESTS].per_minute == 600.0
    assert limits.room == 6
    said[:] = [Allowance(Resource.REQUESTS, limit=1200.0)]
    limits.ended(sent(limits), answer())
    assert limits.buckets[Resource.REQUESTS].per_minute == 1200.0


async def test_what_the_user_says_stands_and_what_the_catalogue_says_gives_way() -> None:
    known = RateLimits({Resource.REQUESTS: 600.0}, assumed={Resource.TOKENS: 6000.0})
    said = [Allowance(name, limit=99.0) for name in (Resource.REQUESTS, Resource.TOKENS)]
    limits = limits_of(known, said)
    limits.ended(sent(limits), answer())
    buckets = limits.buckets
    assert buckets[Resource.REQUESTS].per_minute == 600.0
    assert buckets[Resource.TOKENS].per_minute == 99.0
    assert [name for name in Resource if name in buckets] == [Resource.REQUESTS, Resource.TOKENS]


@pytest.mark.parametrize(
    "said",
    [
        *(Allowance(Resource.REQUESTS, limit) for limit in (0, -1, nan, inf)),
        *(Allowance(Resource.REQUESTS, remaining=left) for left in (-1, nan)),
        Allowance(Resource.REQUESTS, limit=100.0, remaining=101.0),
        Allowance(Resource.TOKENS, remaining=0.0),
    ],
)
async def test_nonsense_is_ignored(said: Allowance) -> None:
    limits = by_requests(HUNDRED_A_SECOND, said)
    limits.ended(sent(limits), answer())
    assert limits.buckets[Resource.REQUESTS].per_minute == HUNDRED_A_SECOND
    assert limits.buckets[Resource.REQUESTS].level(0.0) == pytest.approx(59.6)
    assert [name for name in Resource if name in limits.buckets] == [Resource.REQUESTS]


async def test_what_others_used_up_is_not_sent() -> None:
    limits = by_requests(6060.0, Allowance(Resource.REQUESTS, 6060.0, remaining=0.0))
    limits.ended(sent(limits), answer())
    await permit_in_turn(limits, 1.0)
    assert now() == pytest.approx(0.01)


async def test_halting_turns_everybody_away() -> None:
    limits = by_tokens()
    sent(limits, 60.0)
    waiting = [asyncio.create_task(permit_in_turn(limits, 60.0)) for _ in range(3)]
    await asyncio.sleep(0.1)
    limits.halt(ProviderError("bad key", kind=FailureKind.AUTHENTICATION, fatal=True))
    await asyncio.wait(waiting)
    assert limits.take(ASKED, tokens(1.0)) is None
    assert now() == pytest.approx(0.1)
    assert [str(task.exception()) for task in waiting] == ["bad key"] * 3


Plan = Sequence[tuple[int, float, str, float | None]]


async def _play(plan: Plan) -> tuple[ModelLimits, list[int], float]:
    """Send calls, all queued at once; tell the order they left in, and the tokens they took.

    A call has tokens, seconds, a fate, and what a refusal asks to wait.
    """
    known = RateLimits({Resource.REQUESTS: 120.0, Resource.TOKENS: 1000.0})
    limits, left, used = limits_of(known), list[int](), list[float]()

    async def call(k: int, most: int, seconds: float, fate: str, asked: float | None) -> None:
        permit = await permit_in_turn(limits, most)
        left.append(k)
        if fate == "unsent":
            limits.refund(permit)
            return
        limits.send(permit)
        await asyncio.sleep(seconds)
        if fate == "refused":
            limits.ended(permit, refusal(asked))
            assert 0 <= limits.paused <= 60.0 + 1e-9
        elif fate == "half":
            used.append(round(most / 2))
            limits.ended(permit, answer(used[-1]))
        else:
            used.append(permit.holds[Resource.TOKENS].amount)
            limits.ended(permit, None)

    async with asyncio.TaskGroup() as tasks:
        for k, one in enumerate(plan):
            tasks.create_task(call(k, *one))
    return limits, left, sum(used)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.integers(1, 300),
            st.floats(0.0, 20.0),
            st.sampled_from(["half", "all", "unsent", "refused"]),
            st.sampled_from([None, 0.0, 1e-9, 0.3, 20.0, 1e6]),
        ),
        max_size=25,
    )
)
def test_whatever_happens_the_order_holds_and_the_books_balance(plan: Plan) -> None:
    limits, left, used = run_virtual(_play(plan))
    assert left == list(range(len(plan)))
    requests = sum(fate != "unsent" for _, _, fate, _ in plan)
    assert limits.buckets[Resource.TOKENS].reserved == pytest.approx(used)
    assert limits.buckets[Resource.REQUESTS].reserved == pytest.approx(requests)


async def test_what_calls_wait_for_is_named_and_no_limit_where_none_holds_them() -> None:
    limits, gate = by_requests(6000.0), Gate(1)
    assert limits.waits() is None
    busy = Slot(gate)
    waiting = asyncio.create_task(limits.acquire(ASKED, tokens(1), Slot(gate, inside=False)))
    await asyncio.sleep(0)
    no_place = limits.waits()
    waiting.cancel()
    await asyncio.wait([waiting])
    busy.leave()
    for _ in range(60):
        sent(limits)
    at_limit = limits.waits()
    assert no_place is not None
    assert at_limit is not None
    assert (no_place.seconds or 0.0, no_place.reason) == (0.0, "waiting for a free place")
    assert at_limit.reason == "at its limit of 6,000 requests a minute"
    assert at_limit.seconds == pytest.approx(0.01, abs=0.005)


KNOWN = {
    "requests": RateLimits({Resource.REQUESTS: 60.0}),
    "tokens": RateLimits({Resource.TOKENS: 600.0, Resource.REQUESTS: 5.0}),
    "searched": RateLimits(searches=True),
    "free": RateLimits(),
}
ENDS: dict[str, Reply | ProviderError | None] = {
    "answer": answer(40),
    "refused": ProviderError("429", kind=FailureKind.RATE_LIMITED),
    "account": refusal(3.0),
    "down": ProviderError("503", kind=FailureKind.OVERLOADED, transient=True),
    "cut off": None,
}


def says(limits: ModelLimits) -> tuple[float, bool, float]:
    return limits.room, limits.may_answer, limits.opens_in


async def _watch(limits: ModelLimits, steps: Sequence[tuple[str, float]]) -> int:
    """Compare what was said last, while at rest, with what is said now; count the comparisons."""
    changes, under_way, at_rest, n = list[None](), list[Permit](), None, 0
    limits.watch(lambda: changes.append(None))
    for step, seconds in steps:
        if step == "send" and (permit := limits.take(ASKED, tokens(50))) is not None:
            limits.send(permit)
            under_way.append(permit)
        elif step == "unsent" and (permit := limits.take(ASKED, tokens(80))) is not None:
            limits.refund(permit)
        elif step in ENDS and under_way:
            limits.ended(under_way.pop(0), ENDS[step])
        else:
            await asyncio.sleep(seconds)
        if at_rest is not None and not changes:
            n += 1
            assert says(limits) == at_rest
        changes.clear()
        at_rest = says(limits) if limits.is_at_rest else None
    return n


@given(
    st.sampled_from(sorted(KNOWN)),
    st.lists(
        st.tuples(
            st.sampled_from(["send", "send", "unsent", "wait", *ENDS]),
            st.sampled_from([0.001, 0.3, 2.0, 61.0]),
        ),
        min_size=30,
        max_size=60,
    ),
)
def test_limits_at_rest_say_the_same_until_a_call_changes_them(
    known: str, steps: Sequence[tuple[str, float]]
) -> None:
    async def play() -> int:
        return await _watch(limits_of(KNOWN[known]), steps)

    run_virtual(play())


async def test_limits_come_to_rest_once_their_bucket_is_full() -> None:
    for known, seconds in (("free", 0.0), ("searched", 0.1), ("requests", 1.1), ("tokens", 61.0)):
        limits = limits_of(KNOWN[known])
        assert limits.is_at_rest
        limits.ended(sent(limits, 50), answer(50))
        assert limits.is_at_rest == (known == "free"), known
        await asyncio.sleep(seconds)
        assert limits.is_at_rest, known
    limits.ended(sent(limits, 50), ENDS["account"])
    assert not limits.is_at_rest
    await asyncio.sleep(1.0)
    limits.halt(refusal())
    assert limits.is_at_rest
