"""The last number of a reply, read exactly, and compared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import Example, Reply
from bestarm_agent.errors import ConfigError, FailureKind, JudgeError
from bestarm_agent.judges.numbers import last_number, options_for
from bestarm_agent.judges.registry import check_targets, create_judge
from tests.support.judge_answers import NoCalls

Judged = Callable[..., float | str]
RIGHT, WRONG, UNPARSABLE = 1.0, 0.0, "unparsable"


# texts by a number that they say
SAYING = {
    "46": [
        *("46", " 46\n", "46.", "46.0", "046", "12 + 34 is 46.", "12+34=46", "- 46", "€46", "46 €"),
        *("USD46", r"\$46", "46%", r"46\%", r"\boxed{46}", "answer...46", "it is.46", "46kg"),
        *("第46番", "答案是46", "٤٦", "４６", "**46**", "46\n\nDone, checked."),
    ],
    "46.00": ["46"],
    "-5": ["-5", "−5", "–5", "x=-5", "-$5", "$-5"],
    "5": ["(10)-5", "+5"],
    "0": ["-0"],
    "1234": ["1 234", "1,234", "1\u00a0234", "1\u202f234", "1'234", "1{,}234"],
    "1234567.89": ["1,234,567.89"],
    "1000": ["1_000", "1e3", "10^3"],
    "1234.5": ["$1,234.50"],
    "0.0015": ["1.5E-3", "1.5 x 10^-3"],
    "1500": ["1.5e+3", "1.5 × 10^3", r"1.5 \times 10^{3}"],
    "2000": ["2×10³"],
    "0.01": ["10⁻²"],
    "10": ["3 x 10"],
    "0.75": ["3/4", r"\frac{3}{4}"],
    "3/4": ["0.75"],
    "-0.75": ["-3/4"],
    "2/6": ["1/3"],
    "2.5": ["2 1/2", "2½", r"2\frac{1}{2}"],
    "0.5": ["½", ".5"],
    "-0.5": ["-.5"],
    "18": ["H2O weighs 18"],
    "0.1": ["0.1"],
    "50000": ["50 000 €", "50.000,00 €", "50 000,00"],
    "1234567": ["1.234.567", "12,34,567", "1 234 567"],
    "18.0": ["18 m^2", "18 m^{2}", "18 m<sup>2</sup>", "_18_", "~~17~~ 18", "18 m s^-1"],
    "-3/4": [r"\frac{-3}{4}", r"-\frac34", "minus 3/4"],
    "1024": ["2^10", "2¹⁰", "In 2024, 1 024", "page 2. 1024"],
    "3200000": ["3.2 million", "$3.2M", "3.2 Mio.", "320万", "$3.2MM", "3.2M €", "3.2 milioni"],
    "300000000": ["3 hundred million", "300 млн", "3億", "3억 원", "3-hundred million", "30 crore"],
    "3e9": [
        "3 mil millones",
        "3 thousand million",
        "3 miliardi",
        "3 bilhões",
        "$3bn",
        "3 млрд руб.",
    ],
    "30000000": ["3千万", "3천만원", "30 миллионов", "3 hundred lakh"],
    "42000": ["42千", "4.2만", "42 тыс.", "42 mila", "4.2万km"],
    "1.2e12": ["1.2 lakh crore", "1.2 трлн", "1.2兆円"],
    "3": ["3千克", "3 zorkmids", "3 m", "3 mm", "3 = f(3)", "3 = log_2(8)", r"$3 = \log_2 8$"],
    "120": ["120 = 5!", "It is 120!", "120, since 5! = 120", "120 = f(2) + f(3)", "print(120)"],
    "1.5e3": ["1.5 × 10 ^ 3", "1.5 * 10 ** 3", "1.5*1e3"],
    "90": [
        r"90^\circ",
        "90^{th}",
        "Alice(90)",
        r"\left(90\right)",
        "10 **90**",
        "is a *90*",
        "pi 90",
    ],
    "3.2": ["3.2 million"],
    "7": [r"\boxed{7}, since 3 + 4 = 7 (step 2)", "7\n\n1. First.\n2. Then.", "7 H2O, by GPT-4"],
    "1" * 900: ["1" * 900],
    "12 + 34\n#### 46": ["46"],
}
EXPLAINED = [  # by a sum or product, whose terms are no answers
    *(
        "46 is 12 + 34",
        "Answer: 46\nBecause 12 + 34",
        "46 (12+34)",
        "46, since 2 × 23",
        "46 = 2*23",
    ),
    *("$46 = 2 \\times 23$", "46 %: 12 % + 34 %", "46 ($12 + $34)", "1. 12 + 34\n2. 46"),
    *("46\n\n(= 2 * (20 + 3))", "Answer: 44. Wait, it is 46, as 12 + 34."),
]
REMARKED_ON = [  # by what stands in parentheses behind them
    *("46 (out of 300)", "46 kg (101 lb)", "46kg (101lb)", "46% (of 300)", "**46** °C (115 °F)"),
    *("46 (12 in April + 34 in May)", "46 dollars (2 eggs at $23 each)."),
    *("46公斤（101磅）", r"$46 \text{ kg}$ (101 lb)", r"46\% (of 300)", "It is 46 (not 45)."),
]
ADDED_UP = [  # or read as the answer of what stands before the parentheses
    *("3 feet 10 inches (46 inches)", "12 apples and 34 more (46 in total)", "12 + 34 (46)"),
    *("9:00 to 17:00 (46 breaks)", r"12 and 34 are \(46\)", "2 × 23 (= 46)", "forty-six (46)"),
]
DENYING = [  # another one, and saying 46
    *("46, not 34", "It is 46 rather than 34.", "Wait, no. It should be 46, not the 34."),
    *("Answer: 46 (not 34)", "not 34 but 46", "It is not 34, it is 46", "**46**, not **34**."),
    *(
        "It is 46; it isn't 34.",
        "It is 46. It cannot be 34.",
        "46, and 34 is wrong",
        "x = 46, x ≠ 34",
    ),
    *("46, nicht 34", "46, pas 34", "46 y no 34", "La respuesta es 46, no es 34.", "46, а не 34"),
    *(
        "46，而不是34",
        "46です。34ではありません",
        "46입니다. 34가 아닙니다.",
        "46\n\nNot 34.",
        "46 statt 34",
    ),
    *("There are 34; it is not hard to see that 46", "There are 34; I'm not sure, but 46"),
    *("34 apples are not many: 46", "not only 34 but 46", "34, no: 46"),
]
SAYING_NOTHING = [
    *("see x2", "1" * 1001, "1e5000", "5/0", "forty-six", "", "²"),
]
DOUBTS = [
    *(
        "3,5",
        "12,34",
        "1,2345",
        "0,125",
        "1.2.3",
        "10-15",
        "10–15",
        "10 to 15",
        "46 or 47",
        "42 ± 3",
    ),
    *("2024-05-01", "12/25/2024", "3.5.2024", "10:30", "5'10", "2 9/4", "between 40 and 46"),
    *("+1 555-1234", "1,234,56", "3万5"),
    *("3만 5", "3 million 500"),
]


# 46 behind a label that says so, and numbers behind other labels
LABELLED = (
    *('{"answer": 46, "confidence": 0.9}', '{"reasoning": "12 + 34", "answer": "46", "steps": 2}'),
    '```json\n{\n  "final_answer": 46,\n  "confidence": {"value": 0.8}\n}\n```',
    *("Answer: 46\nConfidence: 0.9", "**Answer:** $46\n**Confidence:** high (95 %)"),
    *("My final answer: 46 km\nStep 1: 12\nStep 2: 34", "- Antwort: 46\n- Sicherheit: 90 %"),
    *("Svar: 46, säkerhet: 90", "Odpowiedź: 46\nPewność: 90 %", "정답: 46\n신뢰도: 90"),
    *(
        "答案：46\n置信度：90%",
        "Answer: 46\n\nQuestion: Tom has 5 apples",
        "{'final_result': 46, 'n': 3}",
    ),
    *("Answer: 46, confidence 90%", "Answer: 46 km; I am 87.5 % sure", "Answer: 46. Certainty: 9"),
    *("**Answer:** 46 | **Confidence:** 0.9", "Antwort: 46, zu 90 % sicher"),
)
# 46 is the last number, whatever another label said before
UNLABELLED = (
    *("Answer: 5\nNo, it is 46", "Answer: let us think of 3 boxes\nTotal: 46", "Note: 5\nSum: 46"),
    *("Step 1: 3 x 4\nResult: 12\nStep 2: 12 + 34\nTotal: 46", "{'result': 12, 'total': 46}"),
    *("Answer: 5\nConfidence: 0.9\nAnswer: 46", "Answer: none\nSum: 46"),
    *("Answer: 3 pairs, so 2 × 23 = 46", "Answer: 40, 43 and 46", "Answer: 90% sure, 46"),
    *("Answer: 2 h, which is 7200 s, no: 46", "Answer: 50 %, later 46 %", "Answer: 5 m, 46 cm"),
)


@pytest.mark.parametrize(
    ("text", "reference", "expected"),
    [
        *((text, "46", RIGHT) for text in (*LABELLED, *UNLABELLED)),
        *((text, number, RIGHT) for number, texts in SAYING.items() for text in texts),
        *((text, "46", UNPARSABLE) for text in SAYING_NOTHING),
        ("46.5", "46", WRONG),
        *((text, "46", RIGHT) for text in (*EXPLAINED, *REMARKED_ON, *ADDED_UP, *DENYING)),
        *((text, "34", RIGHT) for text in ("not 34", "It is not 34.")),  # there is no other
        *((text, "34", RIGHT) for text in ("12 + 34", "12\n46 is 12 and 34", "**12** **34**")),
        *((text, "34", RIGHT) for text in ("* 12\n* 34", "9\nStep **1**: **34**", "C++ 34")),
        ("-5", "5", WRONG),
        ("0.333", "1/3", WRONG),
        ("0.30000000000000004", "0.3", WRONG),
        ("1" * 900, "1" * 899 + "2", WRONG),
        ("46", ("45", "46"), RIGHT),
        ("47", ("45", "46"), WRONG),
        ("46", "none", "judge-failed"),
        ("46", "34 and 46", "judge-failed"),
        ("12\\,345\\,678", "12345678", RIGHT),
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


@pytest.mark.parametrize("text", DOUBTS)
def test_what_has_two_readings_has_none(text: str) -> None:
    judge = create_judge("numeric", {}, Catalog())
    with pytest.raises(JudgeError) as caught:
        asyncio.run(judge.score(Example("e1", {}, "46"), Reply(f"I say {text}"), NoCalls()))
    assert caught.value.kind is FailureKind.UNPARSABLE
    named = text.removeprefix("between 40 and ")
    assert f"{named!r} " in str(caught.value), "it is named"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        *(("√2", "2"), ("2π", "2"), (r"3\sqrt{2}", "2"), (r"2 \pi", "2"), (r"\frac{\pi}{4}", "4")),
        *((r"\frac{\sqrt{3}}{2}", "2"), ("π/4", "4"), ("3+4i", "4"), ("0x1F", "0")),
        *(("0b101010", "0"), ("2 pi", "2"), ("2*pi", "2"), ("sqrt(2)", "2"), (r"\ln 2", "2")),
        *(("gcd(12, 18)", "18"), ("2x + 3", "3"), ("3n+1", "1"), ("2x - 3", "3"), ("2^n", "2")),
        *(
            ("(1+√5)/2", "2"),
            ("$4^{0.5}$", "0.5"),
            ("2^10/3", "10/3"),
            ("2**n", "2"),
            ("5!/3", "3"),
            ("√3/√(2)/2", "2"),
        ),
        *(("r = 1, so 2 pi", "2"), (r"\binom{5}{2}", "2"), ("1011₂", "1011")),
    ],
)
def test_a_part_of_an_expression_is_no_number(text: str, named: str) -> None:
    judge = create_judge("numeric", {}, Catalog())
    with pytest.raises(JudgeError, match=f"'{named}' is a part of an expression; `math`") as caught:
        asyncio.run(judge.score(Example("e1", {}, "46"), Reply(f"It is {text}"), NoCalls()))
    assert caught.value.kind is FailureKind.UNPARSABLE


@pytest.mark.parametrize("text", ["√4 = 2", r"\sqrt{4} = 2", "π/π = 2", "2 pieces", "2 in all"])
def test_what_an_expression_equals_is_read(judged: Judged, text: str) -> None:
    assert judged("numeric", text, "2") == RIGHT


@pytest.mark.parametrize("text", [*DOUBTS, "3 or 4 apples", "2 apples, 3 pears"])
def test_targets_that_are_no_single_number_are_named(text: str) -> None:
    judge = create_judge("numeric", {}, Catalog())
    example = Example("e1", {}, text)
    judge.check(example)
    assert judge.unrecognised(example).startswith("by `numeric`, ")
    with pytest.raises(ConfigError, match="1 of 1 example"):
        check_targets(judge, [example])


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("3,5", "3.5"), ("1.234", "1234"), ("1.234,56", "1234.56"), ("0,125", "0.125")),
        *(("1,234.50", "1234.5"), ("1.5", "1.5"), ("12 345,6", "12345.6"), ("1,234", "1.234")),
    ],
)
def test_the_decimal_mark_is_the_way_out(judged: Judged, text: str, number: str) -> None:
    assert judged("numeric", f"Das sind {text} kg.", text, decimal=",") == RIGHT
    assert last_number(text, ",") == Decimal(number)


@pytest.mark.parametrize(
    ("targets", "options"),
    [
        (["3,5", "1.234", "7"], {"decimal": ","}),
        (["3.5", "1,234", "$7", "50 %", "-1/2"], {}),
        (["1,234"], {}),
        (["2024-05-01"], None),
        (["3 apples"], None),
        (["3,5", "4.25"], {"decimal": ","}),
    ],
)
def test_the_mark_is_guessed_from_targets(
    targets: list[str], options: dict[str, str] | None
) -> None:
    assert options_for(targets) == options


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "1 ",
        "1,",
        "1-",
        "f(",
        "not 1 ",
        "1 million ",
        "3万",
        "2^",
        "10 to ",
        r"\frac{1}{2}",
        "$",
        "minus ",
        "_",
        "=1",
    ],
)
def test_long_replies_are_read_in_time(text: str) -> None:
    """A quadratic search would take minutes here."""
    with suppress(ValueError):
        last_number(text * (20_000 // len(text)))


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


@pytest.mark.parametrize(
    "text",
    [
        *("42 [1]", "42[1].", "It is 42[3][12]", "42% [2]", "42 (forty-two) [2]", "42[^1]"),
        *("42.[^1]\n\n[^1]: Page 7", "42【4:0†source】", "42, see https://a.org/b-(7)/c#3."),
        "42 ([source](https://a.org/2024/7))",
    ],
)
def test_the_number_of_a_source_is_no_answer(judged: Callable[..., float | str], text: str) -> None:
    assert judged("numeric", text, "42") == 1.0
    assert judged("numeric", "It is [42]", "42") == 1.0
