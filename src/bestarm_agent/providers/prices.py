"""Prices of models: the user's own, a proxy's, that of genai-prices, or none. Sums are integers.

An unknown price is None, never 0. Rates are nano-dollars for a million tokens, so a cost is exact
and rounded up once, at the end. They are read from the table once: its own way to price a call
takes .24 ms each time, a quarter of all that a call takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import BaseModel, Field, JsonValue, TypeAdapter

from bestarm_agent.config.fields import StrictModel
from bestarm_agent.domain.spend import Usage, nanos

if TYPE_CHECKING:
    from genai_prices import types as table

_MILLION = 1_000_000
_LIST_SECONDS = 10.0  # for a proxy's list of prices
_UNSPECIFIED = (None, "auto")  # the account's settings decide
_STANDARD = frozenset({"standard", "default", "auto", "standard_only"})  # names of usual tiers
_TIER_KEYS = ("service_tier", "processing", "speed")  # by which the table tells tiers apart
# Other units of text calls: a model billed by them has no price here, it would be too low.
_UNSUPPORTED = frozenset({"input_mchars", "input_text_messages_kcount", "output_citation_mtok"})
# Prices by the table's names, such as "input_mtok", in dollars for a million tokens.
_Listed: TypeAlias = "Mapping[str, Decimal | table.TieredPrices]"


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
        >>> Price("the option price", (rates,)).cost(Usage(input=1000, output=100))
        150000
    """

    source: str  # for people: an option, a file, "free", or the table with its version and name
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
        names = self.implicit_tiers if tier in _UNSPECIFIED else {tier}
        choices = [self.standard, *map(self._of, names)]
        return max(
            step.max_cost(input_tokens, output_tokens)
            for rates in choices
            for step in rates
            if step.above == 0 or input_tokens > step.above
        )

    def _of(self, tier: str | None) -> tuple[Rates, ...]:
        return self.standard if tier is None else self.tiers.get(tier, self.standard)


@cache
def _table_price(provider: str, model: str, base_url: str | None, day: date) -> Price | None:
    from genai_prices import __version__

    vendor_and_entry = _table_entry(provider, model, base_url)
    if vendor_and_entry is None:
        return None
    vendor, entry = vendor_and_entry
    # Some vendors charge less at night. A run may go on for hours, so the highest price of the day
    # counts.
    hours = [datetime(day.year, day.month, day.day, hour, tzinfo=UTC) for hour in range(24)]

    def rates(context: dict[str, str] | None = None) -> tuple[Rates, ...] | None:
        every = (vars(entry.get_prices(hour, context)).items() for hour in hours)
        return _rates([{key: value for key, value in row if value is not None} for row in every])

    standard = rates()
    if standard is None:
        return None
    tiers, implicit_tiers = {}, set()
    # Variants whose only condition is a tier are kept. A request does not show other conditions,
    # and the names of the usual tier have the usual price.
    for variant in entry.price_variants or ():
        [(key, name), *others] = variant.when.items()
        if others or key not in _TIER_KEYS or name in _STANDARD:
            continue
        priced = rates({key: name})
        if priced is not None and priced != standard:
            tiers[name] = priced
            # A call that names no tier may get one that the account is set to; of the other keys
            # that are tiers ("processing", "speed"), the default is the usual price.
            if key == "service_tier":
                implicit_tiers.add(name)
    source = f"genai-prices {__version__} ({vendor.id}/{entry.id})"
    return Price(source, standard, tiers, frozenset(implicit_tiers))


def _table_entry(
    provider: str, model: str, base_url: str | None
) -> tuple[table.Provider, table.ModelInfo] | None:
    """Return vendor and model; the vendor by its exact id, since the table accepts similar ones.

    Without one, it is the vendor to whose models the name belongs.
    """
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    vendor = next((entry for entry in snapshot.providers if entry.id == provider), None)
    if base_url is None and vendor is None and provider:
        return None
    try:
        return snapshot.find_provider_model(
            model, vendor if base_url is None else None, None, base_url
        )
    except LookupError:
        return None


def _rates(listed: Sequence[_Listed]) -> tuple[Rates, ...] | None:
    """Return the highest rates by rising prompt length; None if tokens have no price."""
    for prices in listed:
        if not {"input_mtok", "output_mtok"} <= prices.keys() or _UNSUPPORTED & prices.keys():
            return None
    # A price may rise above some prompt length. Each length at which any price changes starts a
    # step.
    values = [value for prices in listed for value in prices.values()]
    starts = {
        tier.start for value in values if not isinstance(value, Decimal) for tier in value.tiers
    }
    return tuple(_rates_above(listed, above) for above in sorted({0, *starts}))


def _rates_above(listed: Sequence[_Listed], above: int) -> Rates:
    def rate(*keys: str) -> int:
        return max(nanos(_first_price(prices, keys, above)) for prices in listed)

    write = ("cache_write_mtok", "input_mtok")
    return Rates(
        above=above,
        input=rate("input_mtok"),
        cached=rate("cache_read_mtok", "input_mtok"),
        cache_write=rate(*write),
        cache_write_long=rate("cache_write_1h_mtok", *write),
        output=rate("output_mtok"),
        reasoning=rate("output_reasoning_mtok", "output_mtok"),
        request=-(-rate("requests_kcount") // 1000),
    )


def _first_price(prices: _Listed, keys: Iterable[str], above: int) -> Decimal:
    """Return the first price among ``keys``, for prompts of more than ``above`` tokens."""
    value = next((prices[key] for key in keys if key in prices), Decimal(0))
    if isinstance(value, Decimal):
        return value
    return [value.base, *(tier.price for tier in value.tiers if above >= tier.start)][-1]


Amount: TypeAlias = Annotated[Decimal, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


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
    source: str = "the option price"  # where it is from, for people


def find_price(
    provider: str,  # the vendor's name in the table; empty: the one that makes the model
    model: str,  # as it is sent; dated names and aliases are understood
    override: PriceOverride | None = None,
    *,
    base_url: str | None = None,
) -> Price | None:
    """Look up the price of a model today; None if it is not known.

    With ``base_url``, the table is searched by the address, so that a local server is not charged
    as the vendor.
    """
    if override is not None:
        return _overridden(override)
    return _table_price(provider.lower(), model, base_url, datetime.now(UTC).date())


def _overridden(price: PriceOverride) -> Price:
    listed = {
        "input_mtok": price.input,
        "output_mtok": price.output,
        "cache_read_mtok": price.input if price.cached is None else price.cached,
        "cache_write_mtok": price.input if price.cache_write is None else price.cache_write,
        "requests_kcount": 1000 * price.request,
    }
    tiers = {
        name: (_rates_above([{key: factor * value for key, value in listed.items()}], 0),)
        for name, factor in price.tiers.items()
    }
    source = price.source if any(listed.values()) else "free"  # such as on one's own machine
    return Price(source, (_rates_above([listed], 0),), tiers, implicit_tiers=frozenset(tiers))


class _Deployment(BaseModel):
    model_name: str
    model_info: dict[str, JsonValue]

    def highest(self, *beginnings: str) -> Decimal | None:
        """Return the highest price of those whose names begin so; None if there is none."""
        prices = (price for key, price in self.model_info.items() if key.startswith(beginnings))
        amounts = (Decimal(str(price)) for price in prices if isinstance(price, int | float))
        return max(amounts, default=None)


def proxy_prices(url: str, headers: Mapping[str, str]) -> dict[str, PriceOverride]:
    """Ask a LiteLLM proxy for the prices of its models; raises ConnectionError if it is down.

    Several deployments may answer for a model, and some prices hold for long prompts or some tiers:
    the highest counts. What a call cost in fact is in a header of its response.
    """
    import httpx2

    try:
        listed = httpx2.get(url, headers=dict(headers), timeout=_LIST_SECONDS).raise_for_status()
        rows = TypeAdapter(list[_Deployment]).validate_python(listed.json()["data"])
    except httpx2.TransportError as error:
        raise ConnectionError(str(error) or type(error).__name__) from error
    except (httpx2.HTTPError, ValueError, KeyError, TypeError):
        return {}
    prices: dict[str, PriceOverride] = {}
    for row in rows:
        sent = row.highest("input_cost_per_token", "cache_creation_input_token_cost")
        answered = row.highest("output_cost_per_token", "output_cost_per_reasoning_token")
        if sent is not None and answered is not None:
            known = prices.get(row.model_name, PriceOverride(input=0, output=0))
            prices[row.model_name] = PriceOverride(
                input=max(known.input, _MILLION * sent),
                output=max(known.output, _MILLION * answered),
                source="the proxy's list of prices",
            )
    return prices
