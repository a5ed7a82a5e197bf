"""What tokens cost: a price given by the user, else the offline table of genai-prices, else none.

An unknown price is None, never 0. All sums are integers: rates are nano-dollars for a million
tokens, so a cost is exact and rounded up once, at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from bestarm_agent.domain.spend import Usage, nanos

_MILLION = 1_000_000
STANDARD = "standard"
_LEFT_OPEN = (None, "auto")  # then the account's settings decide
_STANDARD_NAMES = frozenset({STANDARD, "default", "auto", "standard_only"})


Amount: TypeAlias = Annotated[Decimal, Field(ge=0, allow_inf_nan=False)]


class PriceOverride(BaseModel):
    """A price in dollars, where the table knows none or a wrong one.

    Attributes:
        input: dollars for a million prompt tokens.
        output: dollars for a million generated tokens, reasoning included.
        cached: for a million prompt tokens read from the provider's cache; ``input`` if left out.
        cache_write: for a million prompt tokens written to it; ``input`` if left out.
        request: dollars for each call, on top of its tokens.
        tiers: factors of service tiers, such as ``{flex: 0.5, batch: 0.5, priority: 2}``; 1 for one
            that is not named.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: Amount
    output: Amount
    cached: Amount | None = None
    cache_write: Amount | None = None
    request: Amount = Decimal(0)
    tiers: dict[str, Amount] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rates:
    """Nano-dollars for a million tokens of each kind; ``request`` nano-dollars for a call.

    Attributes:
        above: prompt tokens above which these rates hold, for all tokens of the call.
        input: prompt tokens that no cache was involved in.
        cached: prompt tokens read from the provider's cache.
        cache_write: prompt tokens written to it, to stay for minutes.
        dearest_write: prompt tokens written to it, to stay as long as it may.
        output: generated tokens, but for reasoning.
        reasoning: generated tokens of reasoning.
        request: each call.
    """

    above: int
    input: int
    cached: int
    cache_write: int
    dearest_write: int
    output: int
    reasoning: int
    request: int = 0

    def cost(self, usage: Usage) -> int:
        """Nano-dollars for one call, rounded up."""
        fresh = max(0, usage.input - usage.cached - usage.cache_write)
        parts = (
            fresh * self.input
            + usage.cached * self.cached
            + usage.cache_write * self.cache_write
            + max(0, usage.output - usage.reasoning) * self.output
            + usage.reasoning * self.reasoning
        )
        return -(-parts // _MILLION) + self.request

    def most(self, input_tokens: int, output_tokens: int) -> int:
        """The most that this many tokens can cost, whatever kinds they are of, rounded up."""
        dearest_input = max(self.input, self.cached, self.cache_write, self.dearest_write)
        dearest_output = max(self.output, self.reasoning)
        parts = input_tokens * dearest_input + output_tokens * dearest_output
        return -(-parts // _MILLION) + self.request


@dataclass(frozen=True, slots=True)
class Price:
    """What one model costs.

    Attributes:
        source: where the price comes from, for people: "study", "catalogue", or the table with its
            version and the model that it was found under.
        standard: rates by rising ``above``, the first from 0.
        tiers: the same for the service tiers that cost otherwise.
        unasked: the service tiers that a provider may serve a call in that names none.

    Example:
        >>> own = PriceOverride(input=Decimal("0.1"), output=Decimal("0.5"))
        >>> price = find_price("any", "any", own)
        >>> price.cost(Usage(input=1000, output=100)), price.source
        (150000, 'study')
    """

    source: str
    standard: tuple[Rates, ...]
    tiers: Mapping[str, tuple[Rates, ...]] = field(default_factory=dict)
    unasked: frozenset[str] = frozenset()

    def cost(self, usage: Usage, *, tier: str | None = None) -> int:
        """Nano-dollars of one call, rounded up.

        Args:
            usage: its tokens.
            tier: the service tier that the reply says it was served in, or None. One without rates
                of its own costs the standard rates.
        """
        rates = self._of(tier)
        step = rates[0]
        for later in rates[1:]:
            if usage.input > later.above:
                step = later
        return step.cost(usage)

    def bound(self, input_tokens: int, output_tokens: int, *, tier: str | None = None) -> int:
        """The most that a call can cost, in nano-dollars.

        Args:
            input_tokens: no fewer than the prompt has.
            output_tokens: no fewer than can be generated.
            tier: the service tier that the request names, "default" included. None or "auto": the
                request leaves it open, and the dearest in which it may be served counts.
        """
        names = self.unasked if tier in _LEFT_OPEN else {tier or STANDARD}
        choices = [self.standard, *(self._of(name) for name in sorted(names))]
        return max(
            step.most(input_tokens, output_tokens)
            for rates in choices
            for step in rates
            if step.above == 0 or input_tokens > step.above
        )

    def _of(self, tier: str | None) -> tuple[Rates, ...]:
        return self.standard if tier is None else self.tiers.get(tier, self.standard)


def find_price(
    provider: str,
    model: str,
    override: PriceOverride | None = None,
    *,
    base_url: str | None = None,
    origin: str = "study",
) -> Price | None:
    """Look up what a model costs today.

    Args:
        provider: the vendor's name in the table ("openai", "anthropic", ...).
        model: the model's name as it is sent; dated names and aliases are understood.
        override: the user's own price; it comes first.
        base_url: address of the endpoint, if it is not the vendor's own: the table is then searched
            by the address, so that a local server is not charged as the vendor.
        origin: who gave ``override``: "study" or "catalogue".

    Returns:
        The price, or None if it is not known.
    """
    if override is not None:
        return _overridden(override, origin)
    from bestarm_agent.providers.price_table import table_price

    return table_price(provider.lower(), model, base_url)


def is_standard(tier: str | None) -> bool:
    """Whether a service tier's name stands for the standard rates."""
    return tier is None or tier in _STANDARD_NAMES


def _overridden(price: PriceOverride, origin: str) -> Price:
    standard = (_scaled(price, Decimal(1)),)
    tiers = {name: (_scaled(price, factor),) for name, factor in price.tiers.items()}
    return Price(origin, standard, tiers, unasked=frozenset(tiers))


def _scaled(price: PriceOverride, factor: Decimal) -> Rates:
    cached = price.input if price.cached is None else price.cached
    write = price.input if price.cache_write is None else price.cache_write
    return Rates(
        above=0,
        input=nanos(price.input * factor),
        cached=nanos(cached * factor),
        cache_write=nanos(write * factor),
        dearest_write=nanos(write * factor),
        output=nanos(price.output * factor),
        reasoning=nanos(price.output * factor),
        request=nanos(price.request * factor),
    )
