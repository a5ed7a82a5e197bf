from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.judges.numbers import last_number


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6))
def test_decimals_are_read_back_exactly(number: Decimal) -> None:
    assert last_number(f"It is {number:f}.") == number
    assert last_number(f"{number:,f} it is") == number


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30))
def test_scientific_notation_is_read_back_exactly(number: Decimal) -> None:
    written = f"{number:E}"
    exponent = int(written.partition("E")[2])
    if abs(exponent) <= 1000:
        assert last_number(written) == number


@given(st.integers(), st.integers(min_value=1))
def test_fractions_are_read_back_exactly(over: int, under: int) -> None:
    assert last_number(f"{over}/{under}") == Fraction(over, under)


@pytest.mark.parametrize("text", ["1" * 1001, "1e1001", "10^-1001", "1" * 999 + "/3"])
def test_oversized_numbers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="more than 1,000 digits"):
        last_number(text)


def test_a_zero_denominator_is_refused() -> None:
    with pytest.raises(ValueError, match="a fraction over zero"):
        last_number("3/0")
