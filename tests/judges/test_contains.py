from __future__ import annotations

from collections.abc import Callable

import pytest

Judged = Callable[..., float | str]

RIGHT, WRONG, UNPARSABLE = 1.0, 0.0, "unparsable"


@pytest.mark.parametrize(
    ("text", "reference", "expected"),
    [
        ("The capital is Paris.", "Paris", RIGHT),
        ("PARIS", "Paris", RIGHT),
        ("(Paris)", "Paris", RIGHT),
        ("Parisian", "Paris", WRONG),
        ("comParis", "Paris", WRONG),
        ("Parisian, from Paris", "Paris", RIGHT),
        ("new\nyork", "New York", RIGHT),
        ("New\u00a0York", "New York", RIGHT),
        ("12+34=46", "46", RIGHT),
        ("1463", "46", WRONG),
        ("46.5", "46", WRONG),
        ("46.", "46", RIGHT),
        ("1,046", "046", WRONG),
        ("$46", "46", RIGHT),
        ("I like C++.", "C++", RIGHT),
        ("C++", "C#", WRONG),
        ("can't", "can", WRONG),
        ("don’t know", "don't", RIGHT),
        ("答案是东京", "东京", RIGHT),
        ("答案是京都", "东京", WRONG),
        ("snake_case", "case", WRONG),
        ("the cafe\u0301", "café", RIGHT),
        ("A and B", ("B", "Z"), RIGHT),
        ("A and B", ("X", "Z"), WRONG),
        ("Paris", "Paris, France", WRONG),
        ("", "Paris", UNPARSABLE),
        ("\n \t", "Paris", UNPARSABLE),
        ("...", "Paris", WRONG),
        ("anything", "   ", WRONG),
        ("aaaa aaaa", "aaa", WRONG),
    ],
)
def test_whole_words_of_any_reference(
    judged: Judged, text: str, reference: str | tuple[str, ...], expected: float | str
) -> None:
    assert judged("contains", text, reference) == expected


@pytest.mark.parametrize(
    ("options", "text", "reference", "expected"),
    [
        ({"words": False}, "1463", "46", RIGHT),
        ({"words": False}, "Parisian", "Paris", RIGHT),
        ({"require": "all"}, "red and blue", ("red", "blue"), RIGHT),
        ({"require": "all"}, "red", ("red", "blue"), WRONG),
        ({"normalise": []}, "paris", "Paris", WRONG),
        ({"after": "Answer:"}, "Not Paris. Answer: Lyon", "Paris", WRONG),
    ],
)
def test_options(
    judged: Judged,
    options: dict[str, object],
    text: str,
    reference: str | tuple[str, ...],
    expected: float | str,
) -> None:
    assert judged("contains", text, reference, **options) == expected
