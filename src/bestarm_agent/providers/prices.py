"""Finds a model's price: the user's own, else that of genai-prices, else none."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, TypeAlias

from pydantic import Field

from bestarm_agent.config.fields import StrictModel
from bestarm_agent.domain.spend import nanos
from bestarm_agent.providers.price import Price, Rates
from bestarm_agent.providers.price_table import table_price

Amount: TypeAlias = Annotated[Decimal, Field(ge=0, allow_inf_nan=False)]


class PriceOverride(StrictModel):
    """A price in dollars, where the table has none or a wrong one.

    ``tiers`` holds factors of service tiers, such as ``{flex: 0.5, priority: 2}``; others have 1.
    """

    input: Amount  # dollars for a million prompt tokens
    output: Amount  # dollars for a million generated tokens, reasoning included
    cached: Amount | None = None  # for those read from the provider's cache; ``input`` if left out
    cache_write: Amount | None = None  # for those written to the cache; ``input`` if left out
    request: Amount = Decimal(0)  # dollars for each call, in addition to its tokens
    tiers: dict[str, Amount] = Field(default_factory=dict)


def find_price(
    provider: str,  # the vendor's name in the table
    model: str,  # as it is sent; dated names and aliases are understood
    override: PriceOverride | None = None,
    *,
    base_url: str | None = None,
    origin: str = "study",  # source of ``override``, or "catalogue"
) -> Price | None:
    """Look up the price of a model today; None if it is not known.

    With ``base_url``, the table is searched by the address, so that a local server is not charged
    as the vendor.
    """
    if override is not None:
        return _overridden(override, origin)
    return table_price(provider.lower(), model, base_url)


def _overridden(price: PriceOverride, origin: str) -> Price:
    standard = (_scaled(price, Decimal(1)),)
    tiers = {name: (_scaled(price, factor),) for name, factor in price.tiers.items()}
    return Price(origin, standard, tiers, implicit_tiers=frozenset(tiers))


def _scaled(price: PriceOverride, factor: Decimal) -> Rates:
    cached = price.input if price.cached is None else price.cached
    write = price.input if price.cache_write is None else price.cache_write
    return Rates(
        above=0,
        input=nanos(price.input * factor),
        cached=nanos(cached * factor),
        cache_write=nanos(write * factor),
        cache_write_long=nanos(write * factor),
        output=nanos(price.output * factor),
        reasoning=nanos(price.output * factor),
        request=nanos(price.request * factor),
    )
