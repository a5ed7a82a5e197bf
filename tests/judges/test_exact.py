from __future__ import annotations

from collections.abc import Callable

import pytest

Judged = Callable[..., float | str]

RIGHT, WRONG, UNPARSABLE = 1.0, 0.0, "unparsable"


@pytest.mark.parametrize(
    ("text", "reference", "expected"),
    [
        ("Paris", "Paris", RIGHT),
        ("paris", "Paris", RIGHT),
        ("  Paris\n", "Paris", RIGHT),
        ("Paris.", "Paris", RIGHT),
        ("**Paris**.", "Paris", RIGHT),
        ('"Paris"', "Paris", RIGHT),
        ("“Paris”", "Paris", RIGHT),
        ("`Paris`!", "Paris", RIGHT),
        ("New   York\tCity", "new york city", RIGHT),
        ("New\u00a0York", "New York", RIGHT),
        ("ＰＡＲＩＳ", "Paris", RIGHT),
        ("cafe\u0301", "café", RIGHT),
        ("don’t", "don't", RIGHT),
        ("twenty–one", "twenty-one", RIGHT),
        ("Par\u00adis\u200b", "Paris", RIGHT),
        ("STRASSE", "straße", RIGHT),
        ("ﬁnal", "final", RIGHT),
        ("46", "46", RIGHT),
        ("46.", "46", RIGHT),
        ("46.0", "46", WRONG),
        (".5", "5", WRONG),
        ("-5", "5", WRONG),
        ("−5", "-5", RIGHT),
        ("C++", "C", WRONG),
        ("(a, b]", "(a, b)", WRONG),
        ("$5", "5", WRONG),
        ("Paris is the capital", "Paris", WRONG),
        ("London", ("Paris", "London"), RIGHT),
        ("Rome", ("Paris", "London"), WRONG),
        ("?", "?", RIGHT),
        ("...", "?", WRONG),
        ("", "Paris", UNPARSABLE),
        (" \n\t ", "Paris", UNPARSABLE),
        ("\u200b", "Paris", UNPARSABLE),
        ("naïve", "naive", WRONG),
        ("İstanbul", "i̇stanbul", RIGHT),
        ("\ud800", "Paris", WRONG),
    ],
)
def test_default_normalisation(
    judged: Judged, text: str, reference: str | tuple[str, ...], expected: float | str
) -> None:
    assert judged("exact", text, reference) == expected


@pytest.mark.parametrize(
    ("options", "text", "reference", "expected"),
    [
        ({"normalise": []}, "Paris", "Paris", RIGHT),
        ({"normalise": []}, "paris", "Paris", WRONG),
        ({"normalise": []}, "Paris ", "Paris", WRONG),
        ({"normalise": []}, " ", "Paris", UNPARSABLE),
        ({"normalise": ["strip"]}, " a  b ", "a  b", RIGHT),
        ({"normalise": ["strip"]}, "a b", "a  b", WRONG),
        ({"normalise": ["case"]}, "PARIS", "paris", RIGHT),
        ({"normalise": ["whitespace", "case"]}, "New \n YORK", "new york", RIGHT),
        ({"after": "Answer:"}, "I think.\n**Answer:** Paris.", "Paris", RIGHT),
        ({"after": "Answer:"}, "answer: Lyon. No, ANSWER: Paris", "Paris", RIGHT),
        ({"after": "Answer:"}, "Paris", "Paris", UNPARSABLE),
        ({"after": "Answer:"}, "Paris\nAnswer:", "Paris", UNPARSABLE),
        ({"after": "Answer:", "after_required": False}, "Paris", "Paris", RIGHT),
        ({"after": "the answer is"}, "So the\nanswer  is Paris.", "Paris", RIGHT),
        ({"after": "####"}, "12 + 34 is 46\n#### 46", "46", RIGHT),
        ({"after": "</think>"}, "<think>Lyon?</think>\nParis", "Paris", RIGHT),
        ({"after": ".*"}, "anything Paris", "Paris", UNPARSABLE),
    ],
)
def test_options(
    judged: Judged,
    options: dict[str, object],
    text: str,
    reference: str,
    expected: float | str,
) -> None:
    assert judged("exact", text, reference, **options) == expected
