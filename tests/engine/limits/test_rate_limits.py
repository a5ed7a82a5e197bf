"""Limits kept against servers that count in different ways, as the servers count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from bestarm_agent.domain.spend import Allowance, Resource
from bestarm_agent.engine.call import ProviderClient
from bestarm_agent.engine.limits.model_limits import RateLimits
from tests.support.fake_api.limits import Limiter, Rates
from tests.support.servers import Chance, Counted, Counter, SlidingMinute, fixed_minute, load, now
from tests.support.virtual_time import run_virtual


def played(
    server: Callable[[], Counter], rules: RateLimits, *, workers: int = 150, tokens: int = 60
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


@pytest.mark.slow
@pytest.mark.parametrize("server", [sliding, fixed, bucket, small_bucket])
def test_known_limits_are_used_and_never_broken(server: Callable[[], Counter]) -> None:
    limits = RateLimits({Resource.REQUESTS: RPM, Resource.INPUT_TOKENS: ITPM})
    provider = played(server, limits)
    assert provider.refused == []
    assert provider.between(60.0, 120.0) > 0.95 * RPM


@pytest.mark.slow
def test_long_prompts_meet_the_token_limit_first() -> None:
    """100 tokens a request: 800 requests a minute, and no token too many."""
    limits = RateLimits({Resource.REQUESTS: RPM, Resource.INPUT_TOKENS: ITPM})
    provider = played(sliding, limits, tokens=100)
    assert provider.refused == []
    assert provider.between(60.0, 120.0) > 0.95 * 800


@pytest.mark.slow
def test_replies_count_with_what_they_turn_out_to_need() -> None:
    """A bucket of tokens that is debited when a reply is complete; 82 tokens a call on average."""
    limits = RateLimits({Resource.TOKENS: 60_000.0})
    provider = played(lambda: Limiter(Rates(tpm=60_000), now), limits, workers=60)
    assert provider.refused == []
    assert provider.between(60.0, 120.0) > 0.95 * 60_000 / 82


@pytest.mark.slow
def test_limits_are_learned_from_what_answers_say() -> None:
    def told() -> tuple[Allowance, ...]:
        counter = provider.counter
        assert isinstance(counter, Limiter)
        headers = counter.headers("{told}-{of}")
        limit, left = (headers[f"{told}-requests"] for told in ("limit", "remaining"))
        return (Allowance(Resource.REQUESTS, float(limit), float(left)),)

    provider = Counted(lambda: Limiter(Rates(rpm=600), now), told=told)
    run_virtual(load(provider, RateLimits(searches=True), seconds=180.0, workers=100))
    assert provider.refused == []
    assert provider.between(60.0, 180.0) > 0.95 * 1200


HIDDEN_RPM = 600.0

COUNTS: dict[str, Callable[[], Counter]] = {
    "a bucket of a second": lambda: Limiter(Rates(rpm=HIDDEN_RPM, burst_seconds=1.0), now),
    "a bucket of ten": lambda: Limiter(Rates(rpm=HIDDEN_RPM, burst_seconds=10.0), now),
    "a bucket of a minute": lambda: Limiter(Rates(rpm=HIDDEN_RPM), now),
    "a sliding minute": lambda: SlidingMinute(HIDDEN_RPM, ITPM),
    "a fixed minute": lambda: fixed_minute(HIDDEN_RPM, ITPM),
}


@pytest.mark.slow
@pytest.mark.parametrize("server", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("retry_after", [True, False])
def test_a_hidden_rate_is_found(server: Callable[[], Counter], retry_after: bool) -> None:
    """From the first call on: less than 2 % are refused, and more than 90 % of the rate is used."""
    provider = Counted(server, delay=0.05, retry_after=retry_after)
    run_virtual(load(provider, RateLimits(searches=True), seconds=180.0, workers=200))
    let_in, refused = provider.between(0.0, 180.0), len(provider.refused)
    assert refused < 0.02 * (let_in + refused)
    assert let_in > 0.9 * 3 * HIDDEN_RPM


@pytest.mark.slow
def test_a_rate_that_is_raised_is_found_again() -> None:
    """Halfway through, the server lets four times as many in: the curve gets there in a minute."""
    limiter: list[Limiter] = []

    def server() -> Counter:
        limiter.append(Limiter(Rates(rpm=HIDDEN_RPM, burst_seconds=10.0), now))
        return limiter[0]

    async def raise_it(_: ProviderClient) -> None:
        await asyncio.sleep(120.0)
        for bucket in limiter[0]._buckets.values():
            bucket.per_minute *= 4

    provider = Counted(server, delay=0.05)
    rules = RateLimits(searches=True)
    run_virtual(load(provider, rules, seconds=240.0, workers=200, watch=raise_it))
    assert provider.between(180.0, 240.0) > 0.9 * 4 * HIDDEN_RPM


class _Even:
    """Draws as another does, but that all answers take the same time."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.integers, self.uniform = rng.integers, rng.uniform

    def lognormal(self, _mean: float, _sigma: float) -> float:
        return 1.0


async def look(provider: Counted, begin: float, end: float, inside: list[int]) -> None:
    """Note how many calls are being answered, twice a second."""
    await asyncio.sleep(begin - now())
    while now() < end:
        inside.append(provider.inside)
        await asyncio.sleep(0.5)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("is_even", [False, True])
@pytest.mark.parametrize("retry_after", [True, False])
def test_a_hidden_capacity_is_found(seconds: float, is_even: bool, retry_after: bool) -> None:
    """Nine tenths of the places are used, however long answers take, and however they differ."""
    provider = Counted(
        lambda: Limiter(Rates(capacity=60), now),
        seconds=seconds,
        delay=0.05,
        retry_after=retry_after,
    )
    if is_even:
        provider._rng = cast("np.random.Generator", _Even(provider._rng))
    inside: list[int] = []
    # it takes a number of calls to find, which short ones make sooner
    begin, end = {0.3: (40.0, 80.0), 1.0: (50.0, 100.0), 4.0: (100.0, 200.0)}[seconds]

    async def watch(_: ProviderClient) -> None:
        await look(provider, begin, end, inside)

    run_virtual(load(provider, RateLimits(searches=True), seconds=end, watch=watch))
    refused = len(provider.refused)
    assert 54 <= np.mean(inside) <= 60
    assert refused < 0.01 * (len(provider.admitted) + refused)


@pytest.mark.slow
@pytest.mark.parametrize("places", [20, 180])
def test_a_capacity_that_changes_is_found_again(places: int) -> None:
    """A server of 60 places has more, or fewer, after two minutes."""
    provider = Counted(lambda: Limiter(Rates(capacity=60), now), delay=0.05)
    inside: list[int] = []

    async def watch(_: ProviderClient) -> None:
        await asyncio.sleep(120.0)
        assert isinstance(provider.counter, Limiter)
        provider.counter.rates = replace(provider.counter.rates, capacity=places)
        await look(provider, 200.0, 240.0, inside)

    run_virtual(load(provider, RateLimits(searches=True), seconds=240.0, watch=watch))
    assert 0.9 * places < np.mean(inside) <= places
    refused = sum(at > 120.0 for at in provider.refused)
    assert refused < 0.03 * (provider.between(120.0, 240.0) + refused)


def answered(share: float, seed: int, *, rules: RateLimits, retry_after: bool) -> int:
    """Calls let in within 25 s, 20 of them under way at a time, of a server that has no limit."""
    chance = Counted(lambda: Chance(share, seed), seconds=0.05, delay=0.05, retry_after=retry_after)
    run_virtual(load(chance, rules, seconds=25.0, workers=300, in_flight=20))
    return chance.between(0.0, 25.0)


@pytest.fixture(scope="module")
def without_refusals() -> int:
    """Calls let in where none is refused."""
    return answered(0.0, 1, rules=RateLimits(searches=True), retry_after=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "on_average", "at_least"),
    [(0.01, 0.9, 0.6), (0.05, 0.8, 0.5), (0.2, 0.6, 0.35)],
)
def test_refusals_that_come_at_any_rate_do_not_slow_calls_down(
    share: float, on_average: float, at_least: float, without_refusals: int
) -> None:
    """Nor does it last where several come in a row by chance, or the first ones come early."""
    each = [
        answered(share, seed, rules=RateLimits(searches=True), retry_after=seed % 2 == 0)
        for seed in range(20, 24)
    ]
    assert np.mean(each) >= on_average * without_refusals
    assert min(each) >= at_least * without_refusals


@pytest.mark.slow
def test_where_a_limit_is_stated_bare_refusals_hold_nobody_else_up() -> None:
    """A fifth is refused: of the calls under way at most that share is lost."""
    stated = RateLimits({Resource.REQUESTS: 1e6})
    without = answered(0.0, 1, rules=stated, retry_after=False)
    assert answered(0.2, 1, rules=stated, retry_after=False) >= 0.75 * without
