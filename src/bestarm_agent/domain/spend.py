"""Money, tokens and calls, and what limits them; dollars are counted in integer nano-dollars."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import InitVar, dataclass, fields, replace
from decimal import ROUND_CEILING, Decimal
from enum import StrEnum
from numbers import Real
from operator import attrgetter

from bestarm_agent.domain.value_class import value_class

NANOS_PER_USD = 1_000_000_000


def nanos(usd: Decimal | float | str) -> int:
    """Convert dollars to nano-dollars, rounded up so that no cost is ever understated.

    Examples:
        >>> nanos("0.25")
        250000000
    """
    # Through the text of a float: Decimal(0.1) would carry its binary error, and 0.1 would become
    # 100,000,001 nano-dollars.
    return int((Decimal(str(usd)) * NANOS_PER_USD).to_integral_value(rounding=ROUND_CEILING))


def usd(amount_nanos: int) -> float:
    """Convert nano-dollars to dollars, for display."""
    return amount_nanos / NANOS_PER_USD


def check_range(least: float, most: float, **values: float | None) -> None:
    """Raise ValueError for a number outside of a range, or NaN; None is left out.

    Example:
        >>> check_range(0, 1, score=1.5)
        Traceback (most recent call last):
        ValueError: score must be in 0..1, got 1.5
    """
    for name, value in values.items():
        if value is not None and not least <= value <= most:
            raise ValueError(f"{name} must be in {least:g}..{most:g}, got {value!r:.40}")


MOST = 1e15  # of anything that one call is said to cost: a million dollars, more than any does


@value_class
class Usage:
    """Tokens of one call."""

    input: int = 0  # all prompt tokens, cached ones included
    cached: int = 0  # part of ``input`` read from the provider's cache
    cache_write: int = 0  # part of ``input`` written to the provider's cache
    output: int = 0  # all generated tokens, reasoning included
    reasoning: int = 0  # part of ``output``

    def __post_init__(self) -> None:
        if not 0 <= self.cached <= self.input:
            check_range(0, self.input, cached=self.cached)  # a part of it
        # Compared at once, as each call makes seven of these; the rest only says which is wrong.
        write, out, think = self.cache_write, self.output, self.reasoning
        if not 0 <= self.input <= MOST >= write >= 0 <= out <= MOST >= think >= 0:
            check_range(0, MOST, input=self.input, cache_write=write, output=out, reasoning=think)

    @property
    def total(self) -> int:
        """Prompt plus generated tokens."""
        return self.input + self.output


@value_class
class Spend:
    """Amounts that something cost, or may cost."""

    answers: int = 0  # of a candidate to an example each, replies from the cache included
    calls: int = 0  # requests sent to providers, retries and judges included
    tokens: int = 0  # prompt plus generated
    usd_nanos: int = 0
    gpu_seconds: float = 0.0  # of local accelerator or CPU worker time

    # the five, in order
    amounts = property(attrgetter("answers", "calls", "tokens", "usd_nanos", "gpu_seconds"))

    @property
    def is_possible(self) -> bool:
        """Return whether each amount can be what one call costs: from 0 to ``MOST``."""
        return all(0 <= amount <= MOST for amount in self.amounts)

    def __add__(self, other: Spend) -> Spend:
        if other is NOTHING:
            return self
        # Written out, as below: each call takes twenty of these, and a loop twice the time.
        return Spend(
            self.answers + other.answers,
            self.calls + other.calls,
            self.tokens + other.tokens,
            self.usd_nanos + other.usd_nanos,
            self.gpu_seconds + other.gpu_seconds,
        )

    def __sub__(self, other: Spend) -> Spend:
        if other is NOTHING:
            return self
        return Spend(
            self.answers - other.answers,
            self.calls - other.calls,
            self.tokens - other.tokens,
            self.usd_nanos - other.usd_nanos,
            self.gpu_seconds - other.gpu_seconds,
        )

    def __mul__(self, n: int) -> Spend:
        return Spend(*(n * amount for amount in self.amounts))

    def capped(self, cap: Spend) -> Spend:
        """Return the smaller of the two, amount by amount."""
        return Spend(*map(min, self.amounts, cap.amounts))

    def highest(self, other: Spend) -> Spend:
        """Return the larger of the two, amount by amount."""
        return Spend(*map(max, self.amounts, other.amounts))


NOTHING = Spend()  # what most things cost: told by its identity


def sum_of(spends: Iterable[Spend]) -> Spend:
    """Return the sum of many, in a tenth of the time that adding them one by one takes."""
    each = [spend.amounts for spend in spends if spend is not NOTHING]
    return Spend(*map(sum, zip(*each, strict=True)))


@dataclass(frozen=True, slots=True)
class Budget:
    """Hard caps of a run, in the units of ``Spend``; None means no cap.

    ``usd`` is another way to write ``usd_nanos``.

    Example:
        >>> Budget(usd=2).usd_nanos
        2000000000
    """

    usd_nanos: int | None = None
    answers: int | None = None
    calls: int | None = None
    tokens: int | None = None
    gpu_seconds: float | None = None
    seconds: float | None = None  # wall-clock, over all sessions of the run

    usd: InitVar[float | Decimal | None] = None  # not kept

    def __post_init__(self, usd: float | Decimal | None) -> None:
        if usd is not None:
            _check_cap("usd", usd)
            object.__setattr__(self, "usd_nanos", nanos(usd))
        for cap in fields(self):
            amount = getattr(self, cap.name)
            if amount is not None:
                whole = str(cap.type).startswith("int")
                _check_cap(cap.name, amount, whole=whole)
                object.__setattr__(self, cap.name, int(amount) if whole else amount)

    def within(self, other: Budget) -> Budget:
        """Return the tighter of two caps for each amount."""
        pairs = ((getattr(self, cap.name), getattr(other, cap.name)) for cap in fields(self))
        return Budget(
            *(min((cap for cap in pair if cap is not None), default=None) for pair in pairs)
        )

    def raised(self, to: Budget) -> Budget:
        """Return the looser of two caps for each amount; no cap is the loosest."""
        pairs = ((getattr(self, cap.name), getattr(to, cap.name)) for cap in fields(self))
        return Budget(*(None if None in pair else max(pair) for pair in pairs))

    def covering(self, taken: Spend) -> Budget:
        """Return the caps, but none below what is taken."""
        caps = {cap.name: getattr(self, cap.name) for cap in fields(taken)}
        # A cap below what is spent would be passed already, and the books would say so for ever.
        least = {
            name: max(cap, getattr(taken, name)) for name, cap in caps.items() if cap is not None
        }
        return replace(self, **least)

    def with_room(self, spent: Spend, seconds: float, more: Budget) -> Budget:
        """Return caps that allow ``more`` beyond ``spent``; caps open in ``more`` stay."""
        used = {**{f.name: getattr(spent, f.name) for f in fields(spent)}, "seconds": seconds}
        moved = {
            name: used[name] + extra for name in used if (extra := getattr(more, name)) is not None
        }
        return replace(self, **moved)


def _check_cap(name: str, amount: float | Decimal, *, whole: bool = False) -> None:
    """Raise ValueError for what is no amount; ``whole``: of what comes in whole numbers only."""
    is_number = isinstance(amount, Real | Decimal) and not isinstance(amount, bool)
    if not is_number or not math.isfinite(amount) or amount < 0 or (whole and amount % 1):
        rule = "at least 0, finite and whole" if whole else "at least 0 and finite"
        raise ValueError(f"{name} of a budget must be {rule}, got {amount!r:.40}")


class Resource(StrEnum):
    """Amounts that providers limit per minute."""

    REQUESTS = "requests"
    TOKENS = "tokens"  # prompt and generated together
    INPUT_TOKENS = "input-tokens"
    OUTPUT_TOKENS = "output-tokens"


@dataclass(frozen=True, slots=True)
class Allowance:
    """One resource's limit, as the headers of a response report it; None where they do not."""

    resource: Resource
    limit: float | None = None  # > 0, per window
    remaining: float | None = None  # >= 0, now
