from __future__ import annotations

from collections.abc import Callable

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import Example
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.choice import chosen_letter
from bestarm_agent.judges.registry import check_examples, create_judge

Judged = Callable[..., float | str]

RIGHT, WRONG, UNPARSABLE = 1.0, 0.0, "unparsable"
CITIES = ["London", "Paris", "Paris, Texas", "New York"]


# what answers say of the options CITIES where B is right
ANSWERS: dict[float | str, list[str]] = {
    RIGHT: [
        *("B", " b \n", "B.", "(B)", "[B]", "**B**", "`B`", '"B"', "Ｂ", "$\\boxed{B}$"),
        *("\\boxed{\\text{B}}", "B) because it is", "b) because", "B. Paris", "B: Paris"),
        *("B - Paris", "- (B) Paris", "Option B: Paris", "B\n\nBecause A is wrong.", "Answer: B"),
        *("answer: b", "**Answer:** B", "Answer:\n\n(B)", "The answer is B."),
        *("The answer is therefore (B) Paris.", "The correct option is B"),
        *(
            "So my final answer is option B, since A is in England.",
            "Antwort: B",
            "答案是B",
            "答案：B",
        ),
        *("I think (A) is wrong, so the answer is (B).", "The answer is not A but B"),
        *("I'd go with B", "I would say B", "A good guess is B", "B because it is the capital"),
        *("Paris", "paris.", "It is Paris.", "Not London; the answer is Paris."),
        "A. London\nB. Paris\nC. Paris, Texas\nD. New York\n\nB",
        "A. London\nB. Paris\nC. Paris, Texas\nD. New York\n\nAnswer: B",
        *("B. Paris. It is not C.", "İ answer: B"),
        *("I'd say B, not London", "a) London? b) Paris? I pick Paris", "It is not A, C or D."),
        # the last statement counts
        "Answer: A. No, wait. Answer: B",
        "Answer: A\nWait, that is not right.\nAnswer: B",
        "I first thought A, but it's B.",
        "The answer is A. Correction: B.",
        # what is rejected is not chosen
        *("A is wrong, C is wrong, D is wrong. So B.", "A is wrong, C is wrong, D is wrong."),
        *("Option B is correct. Option A is not.", "I choose option B because A is wrong."),
        "The best answer is Paris (B), rather than London (A).",
        "B is the right one; A, C and D are not.",
        *("After eliminating A, C and D, B remains.", "All options except B are wrong."),
        *("Between A and B, B is stronger.", "Everything but B can be ruled out."),
        "Had the question asked for the second city, A would be right. Here it is B.",
        # the option that a reply begins with, by letter and text
        *("(B) Paris is the capital, while London is not.", "B. Paris is larger than A (London)."),
        "A ❌\nB ✅\nC ❌\nD ❌",
        # a doubt takes nothing back, and a last word is a statement
        *("I would say B, but it could be C.", "The answer is B, though it might also be C."),
        *("It is not A, but it could be B.", "It could be B.", "A seems fine. Final: B"),
        *("A or C seem plausible.\nVerdict: B", "A is near. B is nearer. Conclusion: B"),
        *("Die richtige Antwort ist B, nicht A.", "应该选择B，而不是A。", "정답은 B입니다"),
        # an option that is only talked about
        "The correct answer is B. Option A would be correct for England.",
        "B is correct. Option C might be the best in Texas.",
        *(
            "B would be right.",
            "Between A and B, B would be better.",
            "A is wrong, so B may be right.",
        ),
        *("My first choice is B, my second choice is A.", "Answer: B; second best: A"),
        "**B** – Paris. (A is London, D is New York.)",
        *("It is B, since it is Paris that is the capital.", "It is B, as the English one is A."),
        # "A:" for "answer"
        *(
            "A: Paris",
            "**A:** B",
            "A:\nParis",
            "Q: Which?\nA: Paris",
            "Q: A or D?\n\nA: It is Paris.",
        ),
        # a lower-case letter, in a box, in tags or stated
        *("\\boxed{b}", "$\\boxed{\\text{b}}$", "\\fbox{b}", "<answer>b</answer>", "<b>b</b>"),
        *("<answer>b.</answer>", "<choice> b </choice>", "it is b", "It's b.", "it has to be b"),
        *(
            "i choose b",
            "I'd go with b.",
            "i think b\nthe rest is not",
            "it is b, because a is wrong",
        ),
        *("the answer would be b.", "the answer is b!", "my pick is b"),
    ],
    WRONG: [
        "A",
        "A) London B) Paris C) Paris, Texas. I choose C",
        "A is correct",
        "Paris, Texas",
        "It is Paris, Texas.",
        "new york",
        *(
            "Q: Which?\nA: London",
            "A: London",
            "A: for it is the largest",
            "\\boxed{a}",
            "it is a.",
        ),
    ],
    UNPARSABLE: [
        *("E", "The answer is A or B", "The answer is A/B", "Answer: A, B"),
        *("A and B", "Both (A) and (B) are right", "A dog", "It could be Paris or New York."),
        *("Answer: B. Hmm, A is a capital too.", "None of the above", "A, B, C and D are wrong"),
        "A. London\nB. Paris\nC. Paris, Texas\nD. New York",
        *("Grade-B thinking", "ABBA", "E. coli", "It is not B", "Parisian", "London or Paris"),
        "All options except B are right.",
        *("I do not know", "", "..."),
        *("A: 10%, B: 80%, C: 5%, D: 5%", "A) 10% B) 80%", "A - F, B - T, C - F, D - F"),
        *("A. Paris", "A is London. B is Paris.", "A is London, B is Paris."),
        *(
            "Q: Which?\nA: I do not know",
            "it is a dog",
            "i choose a large one",
            "it is a\nlarge one",
        ),
    ],
}


@pytest.mark.parametrize(
    ("text", "expected"), [(text, said) for said, texts in ANSWERS.items() for text in texts]
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
        ({"options": list("pqrstuvwx")}, {}, "ANSWER: I don't know", "I", UNPARSABLE),
        ({"options": ["Yes", "No"]}, {}, "No, because it is not so.", "B", RIGHT),
        ({"options": '["x1", "y1"]'}, {}, "y1", "B", RIGHT),  # as a CSV holds a list
        ({"options": "['x1', \"it's y1\"]"}, {}, "It's y1", "B", RIGHT),
        (
            {"options": [{"label": "A", "text": "x1"}, {"label": "B", "text": "y1"}]},
            {},
            "y1",
            "B",
            RIGHT,
        ),
        ({"options": ["x1", "y1"]}, {}, "y1", "B. y1", RIGHT),
        ({"options": ["x1", "y1"]}, {}, "B", "Answer: B", RIGHT),
        ({"options": ["3", "0"]}, {"numbered_from": 0}, "A", "0", RIGHT),
        ({"options": ["3", "1"]}, {"numbered_from": 1}, "3", "1", RIGHT),
        ({"options": ["3", "1"]}, {"numbered_from": 1}, "A", "3", RIGHT),
        ({"options": ["B", "A", "C"]}, {}, "(A)", "(A)", RIGHT),
        ({}, {"after": "</think>"}, "Answer: A</think>Answer: B", "B", RIGHT),
        ({"options": "x, y"}, {}, "B", "B", "judge-failed"),
        ({"options": ["x"]}, {}, "A", "A", "judge-failed"),
        ({"options": {"1": "x", "3": "y"}}, {}, "1", "1", "judge-failed"),
        ({"options": {"1": "x1", "2": "y1"}}, {}, "2", "2", RIGHT),
        ({"options": {"0": "x1", "1": "y1"}}, {}, "The answer is 1.", "1", RIGHT),
        ({"options": {"label": ["1", "2"], "text": ["x1", "y1"]}}, {}, "B) y1", "2", RIGHT),
        ({"options": {"label": ["1", "2"], "text": ["x1", "y1"]}}, {}, "Not 1, but 2", "2", RIGHT),
        ({"options": {1: "3", 2: "1"}}, {}, "1", "2", WRONG),  # its number, and no text
        ({"options": {"1": "x1", "2": "y1"}}, {}, "In 2 hours 1 turns, so 2.", "y1", RIGHT),
        ({"options": {"A": "x1", "B": "y1"}}, {}, "2", "B", UNPARSABLE),
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
        ({"options": ["x", "y"]}, "1", "correct the dataset, or say `numbered_from` if it"),
        ({"options": ["x", "y"]}, "A or B", "neither one of the letters"),
        ({"options": "x"}, "A", "field `options` must hold a list of options, got 'x'"),
        ({"options": []}, "A", "there must be 2 to 26 options, got 0"),
        ({"options": {"1": "x", "3": "y"}}, "1", "A to Z, or numbers from 0 or 1, got 1, 3"),
        ({"options": {"label": ["A"], "text": ["x", "y"]}}, "A", "got 1 labels for 2 texts"),
        ({"options": ["B", "A", "C"]}, "A", r"ambiguous: .* of option B; write `\(A\)` or `\(B\)`"),
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


def test_the_text_of_an_option_may_begin_with_its_letter(judged: Judged) -> None:
    for listed in (["A. Lyon", "B. Paris"], {"A": "(A) Lyon", "B": "B) Paris"}):
        for reply in ("B", "Paris", "B. Paris"):
            assert judged("multiple-choice", reply, "B", inputs={"options": listed}) == RIGHT
        assert judged("multiple-choice", "Lyon", "B", inputs={"options": listed}) == WRONG


def test_what_is_rejected_by_its_letter_is_not_chosen_by_its_text(judged: Judged) -> None:
    listed = ["Lyon", "Paris", "Nice"]
    said = "A is wrong because Lyon is smaller."
    assert judged("multiple-choice", said, "A", inputs={"options": listed}) == UNPARSABLE


def test_what_is_left_is_chosen_only_where_it_is_one_option() -> None:
    options = dict(zip("ABCD", CITIES, strict=True))
    assert chosen_letter("A, C and D are wrong.", options) == "B"
    assert chosen_letter("A is wrong.", options) is None
    assert chosen_letter("All are fine.", options) is None


@pytest.mark.parametrize(
    ("listed", "text", "target"),
    [
        *(
            ("True False", text, "False")
            for text in (
                "False. While it is true that Paris is large, it is not in Italy.",
                "**False**\n\nIt is true that the sun is a star, but it orbits nothing here.",
                *("False. The converse is true.", "False - it's true only at sea level."),
                *("False, that is true of Lyon.", "(B) False. It is true that it was so once."),
                "The claim is false because its converse is true.",
                "The claim is false. It is true that Lyon is large.",
                "Let me think. It is true that birds fly. The answer is False.",
                "It is true.\n\nWait, no. It is false.",
            )
        ),
        *(
            ("True False", text, "True")
            for text in (
                *("True. It is false that all birds fly.", "True, the opposite claim is false."),
                *(
                    "It is true that Paris is in France.",
                    "It's true that 2 is prime. So it is true.",
                ),
                "The claim is true, as its negation is false.",
            )
        ),
        ("Yes No", "No. Yes would need a permit.", "No"),
        ("Yes No", "No. It is yes only if they are asked.", "No"),
        ("Yes No", "Yes, no problem.", "Yes"),
        ("Yes No", "Yes. It is no secret.", "Yes"),
        ("positive negative", "Negative. It is positive that they smiled.", "negative"),
    ],
)
def test_what_explains_an_answer_is_no_other_answer(
    judged: Judged, listed: str, text: str, target: str
) -> None:
    assert judged("multiple-choice", text, target, inputs={"options": listed.split()}) == RIGHT


@pytest.mark.parametrize("text", ["True, False", "True. False.", "True/False"])
def test_two_answers_at_once_are_none(judged: Judged, text: str) -> None:
    inputs = {"options": ["True", "False"]}
    assert judged("multiple-choice", text, "True", inputs=inputs) == UNPARSABLE


def test_i_is_no_letter_in_lower_case(judged: Judged) -> None:
    inputs = {"options": [f"{name}1" for name in "pqrstuvwx"]}
    for text in ("what would i choose? i know not", "i think i", "i choose"):
        assert judged("multiple-choice", text, "I", inputs=inputs) == UNPARSABLE
    assert judged("multiple-choice", "i choose c", "C", inputs=inputs) == RIGHT
