"""Limits kept against servers that count in different ways, by the servers' own books."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from bestarm_agent.domain.allowance import Allowance, RateLimits, Resource
from bestarm_agent.schedule.caller import Caller
from bestarm_agent.schedule.lane import LaneRules
from bestarm_agent.testing.virtual_time import run_virtual
from tests.fake_api.limits import Limiter, Rates
from tests.servers import Counted, Counter, SlidingMinute, fixed_minute, load, now


def played(
    server: Callable[[], Counter], rules: LaneRules, *, workers: int = 150, tokens: int = 60
) -> Counted:
    """A provider after two minutes of load."""
    provider = Counted(server)
    run_virtual(load(provider, rules, seconds=120.0, workers=workers, tokens=tokens))
    return provider


RPM, ITPM = 1200.0, 80_000.0


def sliding() -> Counter:
    return SlidingMinute(RPM, ITPM)


def fixed() -> Counter:
    return fixed_minute(RPM, ITPM)


def bucket() -> Counter:
    return Limiter(Rates(rpm=RPM, itpm=ITPM), now)


def small_bucket() -> Counter:
    """Enforces the minute's allowance by five seconds."""
    return Limiter(Rates(rpm=RPM, itpm=ITPM, burst_seconds=5.0), now)


@pytest.mark.parametrize("server", [sliding, fixed, bucket, small_bucket])
def test_known_limits_are_used_and_never_broken(server: Callable[[], Counter]) -> None:
    limits = RateLimits({Resource.REQUESTS: RPM, Resource.INPUT_TOKENS: ITPM})
    provider = played(server, LaneRules(limits))
    assert provider.refused == []
    assert provider.between(60.0, 120.0) > 0.95 * RPM


def test_long_prompts_meet_the_token_limit_first() -> None:
    """100 tokens a request: 800 requests a minute, and no token too many."""
    limits = RateLimits({Resource.REQUESTS: RPM, Resource.INPUT_TOKENS: ITPM})
    provider = played(sliding, LaneRules(limits), tokens=100)
    assert provider.refused == []
    assert provider.between(60.0, 120.0) > 0.95 * 800


def test_replies_count_with_what_they_turn_out_to_need() -> None:
    """A bucket of tokens that is debited when a reply is complete; 82 tokens a call on average."""
    limits = LaneRules(RateLimits({Resource.TOKENS: 60_000.0}))
    provider = played(lambda: Limiter(Rates(tpm=60_000), now), limits, workers=60)
    assert provider.refused == []
    assert provider.between(60.0, 120.0) > 0.95 * 60_000 / 82


def test_limits_are_learned_from_what_answers_say() -> None:
    def told() -> tuple[Allowance, ...]:
        counter = provider.counter
        assert isinstance(counter, Limiter)
        headers = counter.openai_headers()
        limit, left = (headers[f"x-ratelimit-{w}-requests"] for w in ("limit", "remaining"))
        return (Allowance(Resource.REQUESTS, float(limit), float(left)),)

    provider = Counted(lambda: Limiter(Rates(rpm=600), now), told=told)
    run_virtual(load(provider, LaneRules(adaptive=100), seconds=180.0, workers=100))
    assert provider.refused == []
    assert provider.between(60.0, 180.0) > 0.95 * 1200


@dataclass(frozen=True)
class Settled:
    """What a server saw of a load on average, from the third minute to the fifth.

    Attributes:
        per_minute: requests let in.
        refused: share of requests turned away.
        capacity: calls that the adaptive gate let be in flight.
    """

    per_minute: float
    refused: float
    capacity: float


async def settled(provider: Counted) -> Settled:
    capacities: list[int] = []

    async def watch(caller: Caller) -> None:
        await asyncio.sleep(120.0)
        concurrency = caller.lane("m").concurrency
        assert concurrency is not None
        while now() < 300.0:
            capacities.append(concurrency.capacity)
            await asyncio.sleep(1.0)

    rules = LaneRules(adaptive=200)
    await load(provider, rules, seconds=300.0, workers=200, watch=watch)
    let_in = provider.between(120.0, 300.0)
    refused = sum(at >= 120.0 for at in provider.refused)
    return Settled(let_in / 3, refused / (let_in + refused), float(np.mean(capacities)))


def bucket_of_ten_seconds() -> Counter:
    return Limiter(Rates(rpm=600, burst_seconds=10.0), now)


def sliding_minute() -> Counter:
    return SlidingMinute(1200, ITPM)


@pytest.mark.parametrize(("server", "rpm"), [(bucket_of_ten_seconds, 600), (sliding_minute, 1200)])
@pytest.mark.parametrize("retry_after", [True, False])
def test_a_hidden_rate_is_found(
    server: Callable[[], Counter], rpm: float, retry_after: bool
) -> None:
    provider = Counted(server, delay=0.05, retry_after=retry_after)
    found = run_virtual(settled(provider))
    assert 0.8 * rpm < found.per_minute <= rpm * 1.02  # 1.02: the burst that was saved up
    assert found.refused < 0.02


@pytest.mark.parametrize("retry_after", [True, False])
def test_a_hidden_capacity_is_found(retry_after: bool) -> None:
    provider = Counted(
        lambda: Limiter(Rates(capacity=40), now), delay=0.05, retry_after=retry_after
    )
    found = run_virtual(settled(provider))
    assert 0.8 * 40 < found.capacity < 1.2 * 40
    assert found.refused < 0.01
