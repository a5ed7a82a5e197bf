"""Amounts: what a budget and a usage may say."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from bestarm_agent.domain.spend import Budget, Spend, Usage


@pytest.mark.parametrize(
    "cap", ["usd_nanos", "answers", "calls", "tokens", "gpu_seconds", "seconds"]
)
@pytest.mark.parametrize("amount", [-1, -0.5, math.nan, math.inf, -math.inf, "5", True])
def test_what_is_no_amount_is_refused(cap: str, amount: object) -> None:
    with pytest.raises(ValueError, match=f"{cap} of a budget must be at least 0.*{amount!r}"):
        Budget(**{cap: amount})  # type: ignore[arg-type]


@pytest.mark.parametrize("amount", [-1, math.nan, math.inf, Decimal("inf"), "5"])
def test_dollars_that_are_no_amount_are_refused(amount: object) -> None:
    with pytest.raises(ValueError, match="usd of a budget must be at least 0"):
        Budget(usd=amount)  # type: ignore[arg-type]


@pytest.mark.parametrize("cap", ["usd_nanos", "answers", "calls", "tokens"])
def test_what_is_counted_comes_in_whole_numbers(cap: str) -> None:
    with pytest.raises(ValueError, match=f"{cap} of a budget must be at least 0, .*whole, got 2.5"):
        Budget(**{cap: 2.5})  # type: ignore[arg-type]
    assert isinstance(getattr(Budget(**{cap: 2.0}), cap), int)  # type: ignore[arg-type]
    assert Budget(seconds=2.5, gpu_seconds=0.5, usd=0.25).seconds == 2.5


@pytest.mark.parametrize("cached", [-1, 11])
def test_cached_tokens_are_part_of_the_input(cached: int) -> None:
    assert Usage(input=10, cached=10).total == 10
    with pytest.raises(ValueError, match=r"cached must be in 0\.\.10"):
        Usage(input=10, cached=cached)


def test_amounts_are_taken_one_by_one() -> None:
    one, two = Spend(1, 2, 3, 4, 0.5), Spend(5, 1, 3, 0, 2.0)
    assert one + two == Spend(6, 3, 6, 4, 2.5)
    assert one - two == Spend(-4, 1, 0, 4, -1.5)
    assert one * 3 == Spend(3, 6, 9, 12, 1.5)
    assert one.capped(two) == Spend(1, 1, 3, 0, 0.5)
    assert one.highest(two) == Spend(5, 2, 3, 4, 2.0)
