from __future__ import annotations

from collections.abc import Callable

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import Example
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.registry import check_examples, create_judge

Judged = Callable[..., float | str]

RIGHT, WRONG, UNPARSABLE = 1.0, 0.0, "unparsable"
CITIES = ["London", "Paris", "Paris, Texas", "New York"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("B", RIGHT),
        (" b \n", RIGHT),
        ("B.", RIGHT),
        ("(B)", RIGHT),
        ("[B]", RIGHT),
        ("**B**", RIGHT),
        ("`B`", RIGHT),
        ('"B"', RIGHT),
        ("Ｂ", RIGHT),
        ("$\\boxed{B}$", RIGHT),
        ("\\boxed{\\text{B}}", RIGHT),
        ("A", WRONG),
        ("E", UNPARSABLE),
        ("B) because it is", RIGHT),
        ("b) because", RIGHT),
        ("B. Paris", RIGHT),
        ("B: Paris", RIGHT),
        ("B - Paris", RIGHT),
        ("- (B) Paris", RIGHT),
        ("Option B: Paris", RIGHT),
        ("B\n\nBecause A is wrong.", RIGHT),
        ("Answer: B", RIGHT),
        ("answer: b", RIGHT),
        ("**Answer:** B", RIGHT),
        ("Answer:\n\n(B)", RIGHT),
        ("The answer is B.", RIGHT),
        ("The answer is therefore (B) Paris.", RIGHT),
        ("The correct option is B", RIGHT),
        ("So my final answer is option B, since A is in England.", RIGHT),
        ("Antwort: B", RIGHT),
        ("答案是B", RIGHT),
        ("答案：B", RIGHT),
        ("I think (A) is wrong, so the answer is (B).", RIGHT),
        ("The answer is not A but B", RIGHT),
        ("The answer is A or B", UNPARSABLE),
        ("The answer is A/B", UNPARSABLE),
        ("Answer: A, B", UNPARSABLE),
        ("Answer: A. No, wait. Answer: B", UNPARSABLE),
        ("A and B", UNPARSABLE),
        ("Both (A) and (B) are right", UNPARSABLE),
        ("I'd go with B", RIGHT),
        ("I would say B", RIGHT),
        ("A good guess is B", RIGHT),
        ("A is correct", WRONG),
        ("B because it is the capital", RIGHT),
        ("A dog", UNPARSABLE),
        ("Grade-B thinking", UNPARSABLE),
        ("ABBA", UNPARSABLE),
        ("E. coli", UNPARSABLE),
        ("It is not B", UNPARSABLE),
        ("Paris", RIGHT),
        ("paris.", RIGHT),
        ("It is Paris.", RIGHT),
        ("Paris, Texas", WRONG),
        ("It is Paris, Texas.", WRONG),
        ("new york", WRONG),
        ("Parisian", UNPARSABLE),
        ("London or Paris", UNPARSABLE),
        ("Not London; the answer is Paris.", RIGHT),
        ("I'd say B, not London", UNPARSABLE),
        ("A. London\nB. Paris\nC. Paris, Texas\nD. New York\n\nB", RIGHT),
        ("A. London\nB. Paris\nC. Paris, Texas\nD. New York\n\nAnswer: B", RIGHT),
        ("A. London\nB. Paris\nC. Paris, Texas\nD. New York", UNPARSABLE),
        ("a) London? b) Paris? I pick Paris", UNPARSABLE),
        ("A) London B) Paris C) Paris, Texas. I choose C", UNPARSABLE),
        ("B. Paris. It is not C.", RIGHT),
        ("I do not know", UNPARSABLE),
        ("", UNPARSABLE),
        ("...", UNPARSABLE),
        ("İ answer: B", RIGHT),
    ],
)
def test_with_options(judged: Judged, text: str, expected: float | str) -> None:
    inputs = {"options": CITIES}
    assert judged("multiple-choice", text, "B", inputs=inputs) == expected
    assert judged("multiple-choice", text, "Paris", inputs=inputs) == expected


@pytest.mark.parametrize(
    ("text", "reference", "expected"),
    [
        ("B", "B", RIGHT),
        ("J", "J", RIGHT),
        ("The answer is I.", "I", RIGHT),
        ("I think B", "B", RIGHT),
        ("I, too, think B", "B", RIGHT),
        ("I", "I", RIGHT),
        ("I am not sure", "I", UNPARSABLE),
        ("(C)", "(C)", RIGHT),
        ("B", ("A", "B"), RIGHT),
        ("C", ("A", "B"), WRONG),
        ("B", "Paris", "judge-failed"),
    ],
)
def test_by_letter_alone(
    judged: Judged, text: str, reference: str | tuple[str, ...], expected: float | str
) -> None:
    assert judged("multiple-choice", text, reference) == expected


@pytest.mark.parametrize(
    ("inputs", "options", "text", "reference", "expected"),
    [
        ({"options": {"A": "x", "C": "z"}}, {}, "C", "z", RIGHT),
        ({"options": {"a": "x", "c": "z"}}, {}, "B", "C", UNPARSABLE),
        ({"options": {"label": ["A", "B"], "text": ["x", "y"]}}, {}, "y", "B", RIGHT),
        ({"A": "x1", "B": "y1"}, {"options_field": ["A", "B"]}, "y1", "B", RIGHT),
        ({"options": [12, 46]}, {}, "46", "B", RIGHT),
        ({"options": ["Vitamin C", "Zinc", "Iron"]}, {}, "It's Vitamin C.", "A", RIGHT),
        ({"options": ["x", "y", "C. elegans"]}, {}, "C. elegans", "C", RIGHT),
        ({}, {"letters": "ABC"}, "D or B", "B", RIGHT),
        ({}, {"after": "</think>"}, "Answer: A</think>Answer: B", "B", RIGHT),
        ({"options": "x, y"}, {}, "B", "B", "judge-failed"),
        ({"options": ["x"]}, {}, "A", "A", "judge-failed"),
        ({"options": {"1": "x", "2": "y"}}, {}, "1", "1", "judge-failed"),
    ],
)
def test_options(
    judged: Judged,
    inputs: dict[str, object],
    options: dict[str, object],
    text: str,
    reference: str,
    expected: float | str,
) -> None:
    assert judged("multiple-choice", text, reference, inputs=inputs, **options) == expected


@pytest.mark.parametrize(
    ("inputs", "reference", "message"),
    [
        ({"options": ["x", "y"]}, "C", "neither one of the letters AB nor the text of an option"),
        ({"options": ["x", "y"]}, "1", "correct the dataset"),
        ({"options": "x"}, "A", "field `options` must hold a list of options, got 'x'"),
        ({"options": []}, "A", "there must be 2 to 26 options, got 0"),
        ({"options": {"1": "x", "2": "y"}}, "1", "labelled by letters A to Z, got 1, 2"),
        ({"options": {"label": ["A"], "text": ["x", "y"]}}, "A", "got 1 labels for 2 texts"),
        ({}, None, "has no reference answer, which judge `multiple-choice` needs"),
    ],
)
def test_useless_references_are_found_before_any_call(
    inputs: dict[str, object], reference: str | None, message: str
) -> None:
    judge = create_judge("multiple-choice", {}, Catalog())
    example = Example("e7", inputs, reference)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=message) as caught:
        check_examples(judge, [example])
    assert "example `e7`" in str(caught.value)
