"""Search for hidden limits with both controllers, and with each of them alone.

The rate of calls (CUBIC) and their number in flight (adaptive concurrency) are searched at the
same time, though they are the same unknown for most servers. This shows what each alone would
do, in virtual time, against servers that count in different ways: three minutes of load from
200 workers, no limit known beforehand.

Run: ``python -m benchmarks.engine.one_controller`` (about two minutes).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from unittest import mock

import numpy as np

from bestarm_agent.engine.calls.retrying import ProviderClient
from bestarm_agent.engine.clock import Clock
from bestarm_agent.engine.limits import model_limiter, rate_limiter
from bestarm_agent.engine.limits.adaptive_concurrency import AdaptiveConcurrency
from bestarm_agent.engine.limits.concurrency_gates import Gate
from bestarm_agent.engine.limits.model_limiter import LimiterRules
from bestarm_agent.engine.limits.rate_search import Departure, RateSearch
from bestarm_agent.testing.virtual_time import run_virtual
from tests.support.fake_api.limits import Limiter, Rates
from tests.support.servers import Counted, Counter, SlidingMinute, fixed_minute, load, now

RPM, CAPACITY, WORKERS, SECONDS = 600.0, 40, 200, 180.0
SERVERS: dict[str, Callable[[], Counter]] = {
    "bucket of 1 s": lambda: Limiter(Rates(rpm=RPM, burst_seconds=1.0), now),
    "bucket of 10 s": lambda: Limiter(Rates(rpm=RPM, burst_seconds=10.0), now),
    "bucket of 60 s": lambda: Limiter(Rates(rpm=RPM), now),
    "sliding minute": lambda: SlidingMinute(RPM, math.inf),
    "fixed minute": lambda: fixed_minute(RPM, math.inf),
}
CALL_SECONDS = (0.2, 1.0, 4.0, 15.0)


class AnyNumber(AdaptiveConcurrency):
    """Adaptive concurrency that adapts nothing: the rate alone is searched."""

    def __init__(self, most: int, clock: Clock) -> None:
        super().__init__(most, clock)
        self.gate = Gate(most)

    def answered(self, *, first: bool) -> None:
        """Ignore an answer."""

    def refused(self, pause: float, *, news: bool = True, probe: bool = False) -> None:
        """Ignore a refusal."""

    def failed(self) -> None:
        """Ignore a failure."""


class AnyRate(RateSearch):
    """A rate search that never limits: the number in flight alone is searched."""

    def __init__(self, now: float, *, searching: bool) -> None:
        super().__init__(now, searching=False)

    def refused(
        self, departure: Departure, now: float, pause: float, *, news: bool, probe: bool
    ) -> None:
        """Ignore a refusal."""


def hidden_rate(server: Callable[[], Counter]) -> str:
    """Return the share of calls that were refused, and the share of the rate that was used."""
    provider = Counted(server, delay=0.05)
    rules = LimiterRules(adaptive=WORKERS)
    run_virtual(load(provider, rules, seconds=SECONDS, workers=WORKERS))
    let_in, refused = provider.between(0.0, SECONDS), len(provider.refused)
    return f"{refused / (let_in + refused):6.2%} {let_in / (SECONDS / 60 * RPM):6.1%}"


def hidden_capacity(call_seconds: float) -> str:
    """Return the share of calls that were refused, and the share of the places in use."""
    inside: list[int] = []

    async def watch(_: ProviderClient) -> None:
        await asyncio.sleep(60.0)
        while now() < SECONDS:
            inside.append(provider.inside)
            await asyncio.sleep(1.0)

    limiter = lambda: Limiter(Rates(capacity=CAPACITY), now)  # noqa: E731
    provider = Counted(limiter, seconds=call_seconds, delay=0.05)
    rules = LimiterRules(adaptive=WORKERS)
    run_virtual(load(provider, rules, seconds=SECONDS, workers=WORKERS, watch=watch))
    refused = len(provider.refused)
    return f"{refused / (len(provider.admitted) + refused):6.2%} {np.mean(inside) / CAPACITY:6.1%}"


def main() -> None:
    """Print refused and used shares of each server under each choice of controllers."""
    choices = {
        "both": (AdaptiveConcurrency, RateSearch),
        "rate alone": (AnyNumber, RateSearch),
        "number alone": (AdaptiveConcurrency, AnyRate),
    }
    for choice, (concurrency, search) in choices.items():
        with (
            mock.patch.object(model_limiter, "AdaptiveConcurrency", concurrency),
            mock.patch.object(rate_limiter, "RateSearch", search),
        ):
            for name, server in SERVERS.items():
                print(f"{choice:13} {name:20} {hidden_rate(server)}", flush=True)
            for seconds in CALL_SECONDS:
                name = f"{CAPACITY} calls of {seconds:g} s"
                print(f"{choice:13} {name:20} {hidden_capacity(seconds)}", flush=True)


if __name__ == "__main__":
    main()
