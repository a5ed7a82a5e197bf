"""Rate limits as providers enforce them: token buckets, refilled continuously; a hidden gate."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from tests.support.fake_api.calls import chance

_MINUTE = 60.0


@dataclass(frozen=True)
class Rates:
    """What one model allows; None for no limit.

    Attributes:
        rpm: requests per minute.
        tpm: tokens per minute, prompt and generated together.
        itpm: prompt tokens per minute.
        otpm: generated tokens per minute.
        burst_seconds: how much of a minute's allowance may be used at once; a bucket holds so many
            seconds of its rate.
        capacity: requests that are answered at the same time; more are turned away, and no header
            tells.
        headers: whether responses tell what is left.
        retry_after: whether refusals tell when to come back.
        minute: how the requests of a minute are counted: by a bucket that refills, in the last
            60 s, or in minutes of the server's clock.
        chance: the share of requests that is turned away at any rate.
    """

    rpm: float | None = None
    tpm: float | None = None
    itpm: float | None = None
    otpm: float | None = None
    burst_seconds: float = 60.0
    capacity: int | None = None
    headers: bool = True
    retry_after: bool = True
    minute: Literal["bucket", "sliding", "fixed"] = "bucket"
    chance: float = 0.0


class Bucket:
    """Holds up to ``size`` tokens and gains ``per_minute`` of them in a minute."""

    def __init__(self, per_minute: float, burst_seconds: float, now: float) -> None:
        self.per_minute = per_minute
        self.size = max(1.0, per_minute * burst_seconds / _MINUTE)
        self.level = self.size
        self._at = now

    def refill(self, now: float) -> None:
        gained = (now - self._at) * self.per_minute / _MINUTE
        self.level = min(self.size, self.level + gained)
        self._at = now

    def has(self, amount: float) -> bool:
        """Whether ``amount`` may be taken; more than fits may be taken when the bucket is full."""
        return self.level >= min(amount, self.size) - 1e-9

    def until(self, amount: float) -> float:
        """Seconds until ``amount`` may be taken."""
        missing = min(amount, self.size) - self.level
        return max(0.0, missing) / self.per_minute * _MINUTE


@dataclass
class Limiter:
    """Enforces the rates of one model and counts who exceeds them.

    Attributes:
        rates: what is allowed.
        now: tells the time in seconds.
        violations: requests turned away, by resource ("requests", "tokens", "input-tokens",
            "output-tokens", "capacity"), or by "chance".
        granted: requests let in.
        tokens: tokens of the requests let in.
        inside: requests being answered now.
        peak: the most there were at once.
    """

    rates: Rates
    now: Callable[[], float]
    violations: Counter[str] = field(default_factory=Counter)
    granted: int = 0
    tokens: float = 0.0
    inside: int = 0
    peak: int = 0
    _buckets: dict[str, Bucket] = field(default_factory=dict)
    _minute: deque[float] = field(default_factory=deque)  # when requests of a minute were let in

    def __post_init__(self) -> None:
        for name, rate in (
            ("requests", self.rates.rpm if self.rates.minute == "bucket" else None),
            ("tokens", self.rates.tpm),
            ("input-tokens", self.rates.itpm),
            ("output-tokens", self.rates.otpm),
        ):
            if rate is not None:
                self._buckets[name] = Bucket(rate, self.rates.burst_seconds, self.now())

    def enter(self, prompt_tokens: int) -> tuple[str, float] | None:
        """Let a request in, or say which resource is used up and in how many seconds it is not."""
        if self.rates.capacity is not None and self.inside >= self.rates.capacity:
            self.violations["capacity"] += 1
            return "capacity", 0.0
        if chance("refused", self.granted, self.violations.total()) < self.rates.chance:
            self.violations["chance"] += 1
            return "chance", 1.0
        if self.rates.rpm is not None and self.rates.minute != "bucket":
            now = self.now()
            fixed = self.rates.minute == "fixed"
            start = now // _MINUTE * _MINUTE if fixed else now - _MINUTE
            while self._minute and self._minute[0] <= start:
                self._minute.popleft()
            if len(self._minute) >= self.rates.rpm:
                self.violations["requests"] += 1
                return "requests", (start if fixed else self._minute[0]) + _MINUTE - now
            self._minute.append(now)
        # tokens of the answer are debited when they are known
        need = {"requests": 1, "tokens": prompt_tokens, "input-tokens": prompt_tokens}
        for name, bucket in self._buckets.items():
            bucket.refill(self.now())
            if not bucket.has(need.get(name, 0)):
                self.violations[name] += 1
                return name, bucket.until(need.get(name, 0))
        for name, bucket in self._buckets.items():
            bucket.level -= need.get(name, 0)
        self.granted += 1
        self.tokens += prompt_tokens
        self.inside += 1
        self.peak = max(self.peak, self.inside)
        return None

    def leave(self, output_tokens: int) -> None:
        """Let a request out that generated so many tokens."""
        self.inside -= 1
        self.tokens += output_tokens
        for name in ("tokens", "output-tokens"):
            if name in self._buckets:
                self._buckets[name].level -= output_tokens

    def headers(self, form: str) -> dict[str, str]:
        """What is allowed and what is left, under names such as ``x-ratelimit-{told}-{of}``."""
        told = {}
        for name, bucket in self._buckets.items() if self.rates.headers else ():
            bucket.refill(self.now())
            told[form.format(told="limit", of=name)] = f"{bucket.per_minute:.0f}"
            told[form.format(told="remaining", of=name)] = f"{max(0.0, bucket.level):.0f}"
        return told
