"""The price of one model. All sums are integers.

An unknown price is None, never 0. Rates are nano-dollars for a million tokens, so a cost is exact
and rounded up once, at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bestarm_agent.domain.spend import Usage

_MILLION = 1_000_000
STANDARD = "standard"
_UNSPECIFIED = (None, "auto")  # the account's settings decide
_STANDARD_NAMES = frozenset({STANDARD, "default", "auto", "standard_only"})


@dataclass(frozen=True, slots=True)
class Rates:
    """Nano-dollars for a million tokens of each kind, and ``request`` for each call."""

    above: int  # number of prompt tokens above which these rates apply to all tokens of the call
    input: int  # prompt tokens without a cache
    cached: int  # prompt tokens read from the provider's cache
    cache_write: int  # prompt tokens written to it for minutes
    cache_write_long: int  # prompt tokens written to it for the longest time
    output: int  # generated tokens, without reasoning
    reasoning: int  # generated tokens of reasoning
    request: int = 0

    def cost(self, usage: Usage) -> int:
        """Return the nano-dollars of one call, rounded up."""
        fresh = max(0, usage.input - usage.cached - usage.cache_write)
        parts = (
            fresh * self.input
            + usage.cached * self.cached
            + usage.cache_write * self.cache_write
            + max(0, usage.output - usage.reasoning) * self.output
            + usage.reasoning * self.reasoning
        )
        return -(-parts // _MILLION) + self.request

    def max_cost(self, input_tokens: int, output_tokens: int) -> int:
        """Return the most nano-dollars for this many tokens of any kind, rounded up."""
        input_rate = max(self.input, self.cached, self.cache_write, self.cache_write_long)
        output_rate = max(self.output, self.reasoning)
        parts = input_tokens * input_rate + output_tokens * output_rate
        return -(-parts // _MILLION) + self.request


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one model.

    Example:
        >>> rates = Rates(0, 10**8, 10**8, 10**8, 10**8, 5 * 10**8, 5 * 10**8)
        >>> Price("study", (rates,)).cost(Usage(input=1000, output=100))
        150000
    """

    # origin of the price, for people: "study", "catalogue", or the table with its version and the
    # model's name in it
    source: str
    standard: tuple[Rates, ...]  # rates by rising ``above``, the first from 0
    # rates of the service tiers with prices of their own
    tiers: Mapping[str, tuple[Rates, ...]] = field(default_factory=dict)
    # the service tiers that may serve a call that names none
    implicit_tiers: frozenset[str] = frozenset()

    def cost(self, usage: Usage, *, tier: str | None = None) -> int:
        """Return the nano-dollars of one call, rounded up, in the reply's service tier."""
        rates = self._of(tier)
        step = rates[0]
        for later in rates[1:]:
            if usage.input > later.above:
                step = later
        return step.cost(usage)

    def bound(self, input_tokens: int, output_tokens: int, *, tier: str | None = None) -> int:
        """Return the most that a call can cost, in nano-dollars, given upper bounds of its tokens.

        If the request's service tier is None or "auto", the most expensive one counts.
        """
        names = self.implicit_tiers if tier in _UNSPECIFIED else {tier or STANDARD}
        choices = [self.standard, *(self._of(name) for name in sorted(names))]
        return max(
            step.max_cost(input_tokens, output_tokens)
            for rates in choices
            for step in rates
            if step.above == 0 or input_tokens > step.above
        )

    def _of(self, tier: str | None) -> tuple[Rates, ...]:
        return self.standard if tier is None else self.tiers.get(tier, self.standard)


def is_standard(tier: str | None) -> bool:
    """Return True if a service tier's name stands for the standard rates."""
    return tier is None or tier in _STANDARD_NAMES
