"""Prices from the table of the package genai-prices, read without any network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from bestarm_agent.domain.spend import nanos
from bestarm_agent.providers.price import Price, Rates, is_standard

if TYPE_CHECKING:
    from genai_prices import types as table

_Listed: TypeAlias = "Mapping[str, Decimal | table.TieredPrices]"
# Other units of text calls: a model billed by them has no price here, it would be too low.
_UNSUPPORTED = frozenset({"input_mchars", "input_text_messages_kcount", "output_citation_mtok"})


def table_price(provider: str, model: str, base_url: str | None) -> Price | None:
    """Return the price of a model by today's table; None if it is not in it.

    Prices that change over the day count with their most expensive hour. ``base_url`` decides the
    vendor if it is given.
    """
    return _table_price(provider, model, base_url, datetime.now(UTC).date())


@cache
def _table_price(provider: str, model: str, base_url: str | None, day: date) -> Price | None:
    from genai_prices import __version__

    found = _found(provider, model, base_url)
    if found is None:
        return None
    vendor, entry = found
    at = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    listed = _standard(entry, at)
    standard = _rates(listed)
    if standard is None:
        return None
    tiers = {}
    implicit_tiers = set()
    for name, variants in _tiers(entry, at).items():
        rates = _rates([{**prices, **variants} for prices in listed])
        if rates is not None and rates != standard:
            tiers[name] = rates
            if name in _service_tiers(entry):
                implicit_tiers.add(name)
    source = f"genai-prices {__version__} ({vendor.id}/{entry.id})"
    return Price(source, standard, tiers, frozenset(implicit_tiers))


def _found(
    provider: str, model: str, base_url: str | None
) -> tuple[table.Provider, table.ModelInfo] | None:
    """Return vendor and model; the vendor by its exact id, since the table accepts similar ones."""
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    vendor = next((entry for entry in snapshot.providers if entry.id == provider), None)
    if base_url is None and vendor is None:
        return None
    try:
        return snapshot.find_provider_model(
            model, vendor if base_url is None else None, None, base_url
        )
    except LookupError:
        return None


def _standard(entry: table.ModelInfo, at: datetime) -> list[_Listed]:
    """Return the unconditional prices that hold at some hour of the day, the latest rule first."""
    from genai_prices.types import ModelPrice, TimeOfDateConstraint

    if isinstance(entry.prices, ModelPrice):
        return [_listed(entry.prices)]
    found = []
    for rule in reversed(entry.prices):
        if isinstance(rule.constraint, TimeOfDateConstraint):
            found.append(_listed(rule.prices))
        elif rule.constraint is None or rule.constraint.active(at):
            return [*found, _listed(rule.prices)]
    return found or [_listed(entry.prices[0].prices)]


def _listed(prices: table.ModelPrice) -> _Listed:
    return {key: value for key, value in prices.__dict__.items() if value is not None}


def _tiers(entry: table.ModelInfo, at: datetime) -> dict[str, _Listed]:
    """Return the prices of each service tier; the first variant that holds wins, price by price."""
    tiers: dict[str, _Listed] = {}
    for variant in entry.price_variants or ():
        name = _tier_name(variant.when)
        if name is None or (variant.constraint is not None and not variant.constraint.active(at)):
            continue
        tiers[name] = {**_listed(variant.prices), **tiers.get(name, {})}
    return tiers


def _tier_name(when: Mapping[str, str]) -> str | None:
    if len(when) != 1:
        return None
    [(key, value)] = when.items()
    named = key in ("service_tier", "processing", "speed") and not is_standard(value)
    return value if named else None


def _service_tiers(entry: table.ModelInfo) -> frozenset[str]:
    return frozenset(
        variant.when["service_tier"]
        for variant in entry.price_variants or ()
        if "service_tier" in variant.when
    )


def _rates(listed: Iterable[_Listed]) -> tuple[Rates, ...] | None:
    """Return the highest rates by rising prompt length; None if tokens have no price."""
    listed = list(listed)
    if any(
        "input_mtok" not in prices or "output_mtok" not in prices or _UNSUPPORTED & set(prices)
        for prices in listed
    ):
        return None
    starts = {
        tier.start
        for prices in listed
        for value in prices.values()
        if not isinstance(value, Decimal)
        for tier in value.tiers
    }
    return tuple(_at(listed, above) for above in sorted({0, *starts}))


def _at(listed: Iterable[_Listed], above: int) -> Rates:
    def rate(*keys: str) -> int:
        return max(nanos(_first(prices, keys, above)) for prices in listed)

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


def _first(prices: _Listed, keys: Iterable[str], above: int) -> Decimal:
    """Return the first price among ``keys``, for prompts of more than ``above`` tokens."""
    value = next((prices[key] for key in keys if key in prices), Decimal(0))
    if isinstance(value, Decimal):
        return value
    price = value.base
    for tier in value.tiers:
        if above >= tier.start:
            price = tier.price
    return price
