"""Providers that count what they are sent in a minute, each in another way, in virtual time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from bestarm_agent.domain.spend import Allowance, Budget, Spend, Usage
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.engine.call import Call, Model, ProviderClient, RetryPolicy
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.limits.gates import Gate
from bestarm_agent.engine.limits.model_limits import RateLimits
from bestarm_agent.engine.limits.waits import WaitBoard
from bestarm_agent.errors import FailureKind, ProviderError
from tests.support.runs import Actor
from tests.support.virtual_time import LoopClock


class Counter(Protocol):
    """Decides who is let in; ``tests.support.fake_api.limits.Limiter`` is one too."""

    def enter(self, prompt_tokens: int) -> tuple[str, float] | None:
        """Let a request in, or say what is used up and in how many seconds it is not."""
        ...

    def leave(self, output_tokens: int) -> None:
        """Let a request out that generated so many tokens."""
        ...


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class SlidingMinute:
    """Lets in what keeps requests and prompt tokens of the last 60 s within the limits.

    Attributes:
        rpm: requests.
        itpm: prompt tokens.
        start: where a window begins, by the time; None: 60 s ago, else a minute by the clock.
    """

    rpm: float
    itpm: float
    start: Callable[[float], float] = lambda at: at - 60.0
    _seen: deque[tuple[float, int]] = field(default_factory=deque)
    _tokens: int = 0

    def enter(self, prompt_tokens: int) -> tuple[str, float] | None:
        while self._seen and self._seen[0][0] <= self.start(now()):
            self._tokens -= self._seen.popleft()[1]
        if len(self._seen) + 1 > self.rpm or self._tokens + prompt_tokens > self.itpm:
            return "requests", self._seen[0][0] - self.start(now())
        self._seen.append((now(), prompt_tokens))
        self._tokens += prompt_tokens
        return None

    def leave(self, output_tokens: int) -> None:
        return None


def fixed_minute(rpm: float, itpm: float) -> SlidingMinute:
    """A server whose minutes begin by its own clock, 17 s after the run."""
    return SlidingMinute(rpm, itpm, start=lambda at: (at - 17.0) // 60.0 * 60.0 + 17.0)


@dataclass
class Chance:
    """Turns away a share of the requests, whatever their rate."""

    share: float
    seed: int = 1

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def enter(self, prompt_tokens: int) -> tuple[str, float] | None:
        return ("chance", 1.0) if self._rng.random() < self.share else None

    def leave(self, output_tokens: int) -> None:
        return None


class Counted(Actor):
    """A provider behind a counter: requests arrive late, prompts and replies differ in length.

    Attributes:
        admitted: when each request was let in.
        refused: when each was turned away.
        inside: how many are being answered now.
        tokens: prompt tokens let in.
    """

    def __init__(
        self,
        count: Callable[[], Counter],
        *,
        seconds: float = 1.0,
        delay: float = 0.3,
        retry_after: bool = True,
        told: Callable[[], tuple[Allowance, ...]] = tuple,
    ) -> None:
        super().__init__("counted", lambda *_: Reply(""), bound_spend=Spend(calls=1, tokens=20_000))
        self.counter: Counter | None = None
        self._count = count
        self.admitted: list[float] = []
        self.refused: list[float] = []
        self.inside = 0
        self.tokens = 0
        self._rng = np.random.default_rng(7)
        self._seconds = seconds
        self._delay = delay
        self._retry_after = retry_after
        self._told = told

    def allowances(self, model: str) -> tuple[Allowance, ...]:
        return self._told()

    async def generate(self, request: Request) -> Reply:
        assert request.text is not None
        self.counter = self.counter or self._count()
        prompt = len(request.text) // 4
        output = int(self._rng.integers(5, 40))
        await asyncio.sleep(self._rng.uniform(0.01, self._delay))
        refusal = self.counter.enter(prompt)
        if refusal is not None:
            self.refused.append(now())
            seconds = refusal[1] if self._retry_after else None
            raise ProviderError(
                "429", kind=FailureKind.RATE_LIMITED, transient=True, retry_after=seconds
            )
        self.admitted.append(now())
        self.tokens += prompt
        self.inside += 1
        await asyncio.sleep(self._seconds * self._rng.lognormal(0.0, 0.3))
        self.inside -= 1
        self.counter.leave(output)
        return Reply("", usage=Usage(input=prompt, output=output))

    def between(self, begin: float, end: float) -> int:
        """How many requests were let in from ``begin`` to ``end``."""
        return sum(begin <= at < end for at in self.admitted)


async def load(
    provider: Counted,
    rules: RateLimits,
    *,
    seconds: float,
    workers: int = 400,
    tokens: int = 60,
    in_flight: int | None = None,
    watch: Callable[[ProviderClient], Coroutine[None, None, None]] | None = None,
) -> None:
    """Send calls as fast as the limiter lets them go.

    Args:
        provider: answers.
        rules: what is known of its limits.
        seconds: for how long.
        workers: the most calls, with those that wait to be repeated.
        in_flight: the most of them that are under way; None: all.
        tokens: prompt tokens of a call, on average.
        watch: runs beside it.
    """
    gate = Gate(in_flight or workers)
    client = ProviderClient(
        provider,
        Ledger(Budget()),
        RetryPolicy(),
        LoopClock(),
        WaitBoard(),
        gate,
        rules=lambda _model: rules,
    )
    rng = np.random.default_rng(11)

    async def work() -> None:
        while now() < seconds:
            text = "x" * 4 * int(rng.integers(tokens // 2, tokens * 3 // 2 + 1))
            call = Call(Model(client, "m"), Request("m", text=text))
            async with call.in_turn():
                await client.send(call)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(workers):
            tasks.create_task(work())
        if watch is not None:
            tasks.create_task(watch(client))
