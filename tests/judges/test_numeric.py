"""The last number of a reply, read exactly, and compared."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.judges.numbers import last_number

Judged = Callable[..., float | str]
RIGHT, WRONG, UNPARSABLE = 1.0, 0.0, "unparsable"


@pytest.mark.parametrize(
    ("text", "reference", "expected"),
    [
        ("46", "46", RIGHT),
        (" 46\n", "46", RIGHT),
        ("46.", "46", RIGHT),
        ("46.0", "46", RIGHT),
        ("46", "46.00", RIGHT),
        ("046", "46", RIGHT),
        ("46.5", "46", WRONG),
        ("12 + 34 is 46.", "46", RIGHT),
        ("46 is 12 + 34", "46", WRONG),
        ("12+34=46", "46", RIGHT),
        ("-5", "-5", RIGHT),
        ("−5", "-5", RIGHT),
        ("–5", "-5", RIGHT),
        ("-5", "5", WRONG),
        ("10-15", "15", RIGHT),
        ("(10)-5", "5", RIGHT),
        ("- 46", "46", RIGHT),
        ("x=-5", "-5", RIGHT),
        ("+5", "5", RIGHT),
        ("-0", "0", RIGHT),
        ("1,234", "1234", RIGHT),
        ("1,234,567.89", "1234567.89", RIGHT),
        ("1 234", "234", RIGHT),
        ("1\u00a0234", "1234", RIGHT),
        ("1\u202f234", "1234", RIGHT),
        ("1'234", "1234", RIGHT),
        ("1_000", "1000", RIGHT),
        ("1{,}234", "1234", RIGHT),
        ("12,34", "34", RIGHT),
        ("1,2345", "2345", RIGHT),
        ("$1,234.50", "1234.5", RIGHT),
        ("-$5", "-5", RIGHT),
        ("$-5", "-5", RIGHT),
        ("€46", "46", RIGHT),
        ("46 €", "46", RIGHT),
        ("USD46", "46", RIGHT),
        (r"\$46", "46", RIGHT),
        ("46%", "46", RIGHT),
        (r"46\%", "46", RIGHT),
        ("1e3", "1000", RIGHT),
        ("1.5E-3", "0.0015", RIGHT),
        ("1.5e+3", "1500", RIGHT),
        ("1.5 × 10^3", "1500", RIGHT),
        ("1.5 x 10^-3", "0.0015", RIGHT),
        (r"1.5 \times 10^{3}", "1500", RIGHT),
        ("2×10³", "2000", RIGHT),
        ("10^3", "1000", RIGHT),
        ("10⁻²", "0.01", RIGHT),
        ("3 x 10", "10", RIGHT),
        ("3/4", "0.75", RIGHT),
        ("0.75", "3/4", RIGHT),
        ("-3/4", "-0.75", RIGHT),
        ("1/3", "2/6", RIGHT),
        ("0.333", "1/3", WRONG),
        ("2 1/2", "2.5", RIGHT),
        ("½", "0.5", RIGHT),
        ("2½", "2.5", RIGHT),
        (r"\frac{3}{4}", "0.75", RIGHT),
        (r"2\frac{1}{2}", "2.5", RIGHT),
        (r"\boxed{46}", "46", RIGHT),
        ("12/25/2024", "2024", RIGHT),
        (".5", "0.5", RIGHT),
        ("-.5", "-0.5", RIGHT),
        ("answer...46", "46", RIGHT),
        ("it is.46", "46", RIGHT),
        ("1.2.3", "1.2", RIGHT),
        ("H2O weighs 18", "18", RIGHT),
        ("see x2", "2", UNPARSABLE),
        ("46kg", "46", RIGHT),
        ("第46番", "46", RIGHT),
        ("答案是46", "46", RIGHT),
        ("٤٦", "46", RIGHT),
        ("４６", "46", RIGHT),
        ("**46**", "46", RIGHT),
        ("46\n\nDone, checked.", "46", RIGHT),
        ("0.1", "0.1", RIGHT),
        ("0.30000000000000004", "0.3", WRONG),
        ("1" * 900, "1" * 900, RIGHT),
        ("1" * 900, "1" * 899 + "2", WRONG),
        ("1" * 1001, "1", UNPARSABLE),
        ("1e5000", "1", UNPARSABLE),
        ("5/0", "5", UNPARSABLE),
        ("forty-six", "46", UNPARSABLE),
        ("", "46", UNPARSABLE),
        ("²", "2", UNPARSABLE),
        ("46", ("45", "46"), RIGHT),
        ("47", ("45", "46"), WRONG),
        ("46", "12 + 34\n#### 46", RIGHT),
        ("46", "none", "judge-failed"),
    ],
)
def test_the_last_number_counts(
    judged: Judged, text: str, reference: str | tuple[str, ...], expected: float | str
) -> None:
    assert judged("numeric", text, reference) == expected


@pytest.mark.parametrize(
    ("options", "text", "reference", "expected"),
    [
        ({"after": "Answer:"}, "Answer: 46", "46", RIGHT),
        ({"after": "Answer:"}, "46", "46", UNPARSABLE),
        ({"absolute_tolerance": 0.1}, "46.1", "46", RIGHT),
        ({"absolute_tolerance": 0.1}, "46.1000001", "46", WRONG),
        ({"absolute_tolerance": "0.1"}, "45.9", "46", RIGHT),
        ({"relative_tolerance": 0.01}, "-101", "-100", RIGHT),
        ({"relative_tolerance": 0.01}, "101.1", "100", WRONG),
        ({"relative_tolerance": 0.01}, "0.001", "0", WRONG),
        ({"relative_tolerance": 0.01, "absolute_tolerance": 0.001}, "0.001", "0", RIGHT),
        ({"absolute_tolerance": 0.001}, "0.333", "1/3", RIGHT),
        ({"absolute_tolerance": 1}, "1e900", "1e900", RIGHT),
        ({"absolute_tolerance": 1}, "1e900", "1e-900", WRONG),
    ],
)
def test_options(
    judged: Judged,
    options: dict[str, object],
    text: str,
    reference: str,
    expected: float | str,
) -> None:
    assert judged("numeric", text, reference, **options) == expected


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
