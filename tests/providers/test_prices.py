"""Prices: the user's own, those of the table, and the bounds that budgets rest on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from decimal import Decimal

import pytest
from genai_prices import Usage as TableUsage
from genai_prices import calc_price
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bestarm_agent.domain.spend import Usage, nanos
from bestarm_agent.providers.prices import Price, PriceOverride, find_price
from bestarm_agent.stats.keyed_random import KeyedRandom

VENDORS = ("openai", "anthropic", "google", "mistral", "groq", "x-ai", "perplexity", "together")
CONTEXTS: Mapping[str | None, dict[str, str] | None] = {
    None: None,
    "flex": {"service_tier": "flex"},
    "priority": {"service_tier": "priority"},
    "batch": {"processing": "batch"},
}


def own(**fields: str) -> PriceOverride:
    return PriceOverride.model_validate(fields)


def priced(provider: str, model: str, override: PriceOverride | None = None) -> Price:
    price = find_price(provider, model, override)
    assert price is not None
    return price


def usages(seed: int, count: int) -> Iterator[Usage]:
    """Token counts on both sides of the lengths at which prices change."""
    rng = KeyedRandom(seed, "usages").at(0)
    for _ in range(count):
        total = int(rng.choice([7, 1_000, 100_000, 100_001, 200_001, 272_001, 400_000]))
        cached = int(rng.integers(total + 1))
        written = int(rng.integers(total - cached + 1))
        output = int(rng.integers(5_000))
        yield Usage(total, cached, written, output, int(rng.integers(output + 1)))


def by_table(vendor: str, model: str, usage: Usage, context: dict[str, str] | None) -> Decimal:
    return calc_price(
        TableUsage(
            input_tokens=usage.input,
            cache_read_tokens=usage.cached,
            cache_write_tokens=usage.cache_write,
            output_tokens=usage.output,
            output_reasoning_tokens=usage.reasoning,
        ),
        model,
        provider_id=vendor,
        price_context=context,
    ).total_price


def test_a_users_price_by_hand() -> None:
    price = priced("x", "y", own(input="0.1", output="0.5", cached="0.01", cache_write="0.125"))
    usage = Usage(input=1_000, cached=600, cache_write=300, output=50, reasoning=20)
    # 100 x 100 + 600 x 10 + 300 x 125 + 50 x 500 nano-dollars
    assert price.cost(usage) == 10_000 + 6_000 + 37_500 + 25_000
    assert price.source == "the option price"
    # all of the prompt may be written to the cache, nothing read from it
    assert price.bound(1_000, 50) == 1_000 * 125 + 50 * 500


def test_what_a_users_price_leaves_out_costs_what_plain_tokens_cost() -> None:
    price = priced("x", "y", own(input="2", output="4", request="0.001"))
    assert price.cost(Usage(input=10, cached=4, cache_write=5, output=1)) == 24_000 + 1_000_000


def test_a_cost_is_rounded_up_once() -> None:
    price = priced("x", "y", own(input="0.0001", output="0.0001"))
    usages = (Usage(input=1), Usage(input=10, output=10), Usage())
    assert [price.cost(usage) for usage in usages] == [1, 2, 0]  # 1: a tenth of a nano-dollar


@pytest.mark.parametrize(
    ("tier", "cost", "bound"),
    [
        (None, 300_000, 600_000),  # the request names no tier: it may be the dearest
        ("auto", 300_000, 600_000),
        ("default", 300_000, 300_000),
        ("flex", 150_000, 300_000),  # one that is served as a standard one is billed as one
        ("priority", 600_000, 600_000),
    ],
)
def test_service_tiers_of_a_users_price(tier: str | None, cost: int, bound: int) -> None:
    given = {"input": 1, "output": 2, "tiers": {"flex": "0.5", "priority": 2}}
    price = priced("x", "y", PriceOverride.model_validate(given))
    assert price.cost(Usage(input=100, output=100), tier=tier) == cost
    assert price.bound(100, 100, tier=tier) == bound


@pytest.mark.parametrize(
    "fields", [{"input": "-1", "output": "1"}, {"input": "1"}, {"input": "1", "ouput": "1"}]
)
def test_a_wrong_price_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        PriceOverride.model_validate(fields)


def test_a_users_price_comes_before_the_table() -> None:
    assert priced("openai", "gpt-4o", own(input="7", output="7")).source == "the option price"
    free = find_price("openai", "gpt-4o", own(input="0", output="0"))
    assert free is not None
    assert free.source == "free", "as the catalogue says of models on this machine"


@pytest.mark.parametrize(
    ("provider", "model", "base_url"),
    [
        ("openai", "no-such-model", None),
        ("my-openai-proxy", "gpt-4o", None),  # a likeness is not the vendor
        ("openai", "gpt-4o", "http://127.0.0.1:8000/v1"),  # a server that calls its model so
        ("openai", "text-embedding-3-small", None),  # has no price for generated tokens
    ],
)
def test_an_unknown_price_is_none_and_not_zero(
    provider: str, model: str, base_url: str | None
) -> None:
    assert find_price(provider, model, base_url=base_url) is None


def test_aliases_dated_names_and_addresses_find_the_same_price() -> None:
    price = priced("openai", "gpt-4o")
    assert priced("OpenAI", "GPT-4o") == price
    assert priced("openai", "gpt-4o-2024-08-06").source == price.source
    by_address = find_price("anything", "gpt-4o", base_url="https://api.openai.com/v1")
    assert by_address == price
    assert price.source.startswith("genai-prices ")
    assert price.source.endswith("(openai/gpt-4o)")


@pytest.mark.parametrize("vendor", VENDORS)
def test_costs_are_those_of_the_table(vendor: str) -> None:
    """Every model of the vendor, every tier it has, with caches, reasoning and long prompts."""
    [entry] = [found for found in get_snapshot().providers if found.id == vendor]
    n_checked = 0
    for model in entry.models:
        price = find_price(vendor, model.id)
        if price is None:
            continue
        for tier, context in CONTEXTS.items():
            for usage in usages(n_checked, 3):
                expected = nanos(by_table(vendor, model.id, usage, context))
                # rates are kept to a nano-dollar for a million tokens, hence the one
                assert expected <= price.cost(usage, tier=tier) <= expected + 1, model.id
                assert price.cost(usage, tier=tier) <= price.bound(
                    usage.input, usage.output, tier=tier
                )
                n_checked += 1
    assert n_checked >= 24


def test_a_price_that_changes_over_the_day_counts_with_its_dearest_hour() -> None:
    usage = Usage(input=1_000_000, output=1_000_000)
    [entry] = [found for found in get_snapshot().providers if found.id == "deepseek"]
    daily = [model for model in entry.models if isinstance(model.prices, list)]
    assert daily
    for model in daily:
        price = priced("deepseek", model.id)
        assert price.cost(usage) >= nanos(by_table("deepseek", model.id, usage, None))


@given(
    st.integers(0, 500_000),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 100_000),
    st.floats(0, 1),
    st.sampled_from([None, "default", "flex", "batch", "priority", "fast", "unheard-of"]),
    st.sampled_from(["claude-haiku-5-5", "claude-sonnet-5-5"]),
)
def test_no_call_costs_more_than_its_bound(
    prompt: int,
    cached: float,
    written: float,
    output: int,
    thought: float,
    tier: str | None,
    model: str,
) -> None:
    n_cached = int(cached * prompt)
    usage = Usage(
        prompt, n_cached, int(written * (prompt - n_cached)), output, int(thought * output)
    )
    price = priced("anthropic", model)
    assert price.cost(usage, tier=tier) <= price.bound(prompt, output, tier=tier)
    # the prompt was shorter and the answer ended sooner than they might have
    assert price.cost(usage, tier=tier) <= price.bound(2 * prompt, output + 1, tier=tier)


@pytest.mark.slow
def test_the_table_is_not_read_before_it_is_needed() -> None:
    program = (
        "import sys, bestarm_agent.providers.prices as p; assert 'genai_prices' not in sys.modules;"
        "p.find_price('openai', 'gpt-4o'); assert 'genai_prices' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
