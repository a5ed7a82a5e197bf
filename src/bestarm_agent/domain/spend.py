"""Money, tokens, calls: what evaluating costs, in exact units.

Money is counted in integer nano-dollars, since sums of floats neither reconcile nor compare.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from decimal import ROUND_CEILING, Decimal

NANOS_PER_USD = 1_000_000_000


def nanos(usd: Decimal | float | str) -> int:
    """Convert dollars to nano-dollars, rounded up so that no cost is ever understated.

    Example:
        >>> nanos("0.25")
        250000000
    """
    return int((Decimal(str(usd)) * NANOS_PER_USD).to_integral_value(rounding=ROUND_CEILING))


def usd(amount_nanos: int) -> float:
    """Convert nano-dollars to dollars, for display."""
    return amount_nanos / NANOS_PER_USD


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call.

    Attributes:
        input: all prompt tokens, cached ones included.
        cached: those of ``input`` read from the provider's cache.
        cache_write: those of ``input`` written to the provider's cache.
        output: all generated tokens, reasoning included.
        reasoning: those of ``output`` spent on reasoning.
    """

    input: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        """Prompt plus generated tokens."""
        return self.input + self.output


@dataclass(frozen=True, slots=True)
class Spend:
    """What something cost, or may cost.

    Attributes:
        pulls: (candidate, example) pairs evaluated, cached replies included.
        calls: requests sent to providers, retries and judges included.
        tokens: prompt plus generated tokens.
        usd_nanos: nano-dollars.
        gpu_seconds: seconds of local accelerator or CPU worker time.
    """

    pulls: int = 0
    calls: int = 0
    tokens: int = 0
    usd_nanos: int = 0
    gpu_seconds: float = 0.0

    def __add__(self, other: Spend) -> Spend:
        return Spend(
            self.pulls + other.pulls,
            self.calls + other.calls,
            self.tokens + other.tokens,
            self.usd_nanos + other.usd_nanos,
            self.gpu_seconds + other.gpu_seconds,
        )

    def __sub__(self, other: Spend) -> Spend:
        return Spend(
            self.pulls - other.pulls,
            self.calls - other.calls,
            self.tokens - other.tokens,
            self.usd_nanos - other.usd_nanos,
            self.gpu_seconds - other.gpu_seconds,
        )

    def capped(self, cap: Spend) -> Spend:
        """Return the smaller of the two, amount by amount."""
        return Spend(
            min(self.pulls, cap.pulls),
            min(self.calls, cap.calls),
            min(self.tokens, cap.tokens),
            min(self.usd_nanos, cap.usd_nanos),
            min(self.gpu_seconds, cap.gpu_seconds),
        )


@dataclass(frozen=True, slots=True)
class Books:
    """Where the money set aside in a sitting went: ``reserved`` = ``settled`` + ``refunded``.

    Attributes:
        reserved: everything that was set aside before calls.
        settled: what those calls cost, as far as it was set aside.
        refunded: what was given back.
        overrun: what calls cost beyond what was set aside; 0 unless a provider's bound is wrong.
        charged: what was booked of calls that an earlier, killed process had sent.
    """

    reserved: Spend = field(default_factory=Spend)
    settled: Spend = field(default_factory=Spend)
    refunded: Spend = field(default_factory=Spend)
    overrun: Spend = field(default_factory=Spend)
    charged: Spend = field(default_factory=Spend)

    def __add__(self, other: Books) -> Books:
        return Books(
            self.reserved + other.reserved,
            self.settled + other.settled,
            self.refunded + other.refunded,
            self.overrun + other.overrun,
            self.charged + other.charged,
        )

    def __sub__(self, other: Books) -> Books:
        return Books(
            self.reserved - other.reserved,
            self.settled - other.settled,
            self.refunded - other.refunded,
            self.overrun - other.overrun,
            self.charged - other.charged,
        )

    @property
    def difference(self) -> Spend:
        """What of the reserved was neither settled nor refunded: nothing, once a sitting ended."""
        return self.reserved - self.settled - self.refunded

    @property
    def spent(self) -> Spend:
        """What the sitting spent."""
        return self.settled + self.overrun + self.charged


@dataclass(frozen=True, slots=True)
class Budget:
    """Hard caps of a run; None means no cap.

    Attributes:
        usd_nanos: nano-dollars, judges and retries included.
        pulls: (candidate, example) pairs.
        calls: requests sent to providers.
        tokens: prompt plus generated tokens.
        gpu_seconds: worker seconds.
        seconds: wall-clock seconds of this and earlier sittings of the run.
    """

    usd_nanos: int | None = None
    pulls: int | None = None
    calls: int | None = None
    tokens: int | None = None
    gpu_seconds: float | None = None
    seconds: float | None = None

    def with_room(self, spent: Spend, seconds: float, more: Budget) -> Budget:
        """Return these caps moved so that at most ``more`` can be spent beyond ``spent``.

        A cap that ``more`` leaves open stays as it is.
        """
        used = {**{f.name: getattr(spent, f.name) for f in fields(spent)}, "seconds": seconds}
        moved = {
            name: used[name] + extra for name in used if (extra := getattr(more, name)) is not None
        }
        return replace(self, **moved)
