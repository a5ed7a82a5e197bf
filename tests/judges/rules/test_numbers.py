from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.judges.rules.numbers import NumberReader, _plain

READER = NumberReader()


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6))
def test_decimals_are_read_back_exactly(number: Decimal) -> None:
    assert READER.last(f"It is {number:f}.") == number
    assert READER.first(f"{number:,f} it is") == number


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30))
def test_scientific_notation_is_read_back_exactly(number: Decimal) -> None:
    written = f"{number:E}"
    exponent = int(written.partition("E")[2])
    if abs(exponent) <= 1000:
        assert READER.last(written) == number


@given(st.integers(), st.integers(min_value=1))
def test_fractions_are_read_back_exactly(over: int, under: int) -> None:
    assert READER.last(f"{over}/{under}") == Fraction(over, under)


@given(st.text(alphabet="0123456789.,-+/^eE%$ x×10\\frac{}½³\n"))
def test_reading_forwards_and_backwards_find_the_same_single_number(text: str) -> None:
    try:
        first, last = READER.first(text), READER.last(text)
    except ValueError:
        return
    assert (first is None) == (last is None)


@given(st.text(alphabet="0123456789.,-+/^eE%$ x×\\½³"))
def test_trying_only_where_a_number_can_begin_misses_none(line: str) -> None:
    pattern = READER._pattern
    found = [match.span() for match in READER._found(line)]
    assert found == [match.span() for match in pattern.finditer(_plain(line))]


@pytest.mark.parametrize("text", ["1" * 1001, "1e1001", "10^-1001", "1" * 999 + "/3"])
def test_oversized_numbers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="more than 1,000 digits"):
        READER.last(text)


def test_a_zero_denominator_is_refused() -> None:
    with pytest.raises(ValueError, match="a fraction over zero"):
        READER.last("3/0")
