"""Rules that compare texts: exact, contains, regex, recorded scores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import Example, Finish, Reply, Score
from bestarm_agent.errors import Blame, ConfigError, FailureKind, JudgeError
from bestarm_agent.judges.base import Judge, excerpt
from bestarm_agent.judges.registry import check_examples, create_judge
from bestarm_agent.judges.rule import Step, clipped, contains, normaliser
from tests.support.judge_answers import NoCalls

Judged = Callable[..., float | str]
ScoreNow = Callable[[Judge, Example, Reply], Score]
Reference = str | tuple[str, ...] | None
Outcome = float | str  # a score, or the kind of failure
RIGHT, WRONG, UNPARSABLE = 1.0, 0.0, "unparsable"


EXACT: list[tuple[Reference, Outcome, list[str]]] = [
    (
        "Paris",
        RIGHT,
        [
            *("Paris", "paris", "  Paris\n", "Paris.", "**Paris**.", '"Paris"', "“Paris”"),
            *("`Paris`!", "ＰＡＲＩＳ", "Par\u00adis\u200b"),
        ],
    ),
    ("Paris", RIGHT, ["_Paris_", "__Paris__", "_Paris._", "**_Paris_**", "_**Paris**_."]),
    ("snake_case", RIGHT, ["snake_case", "_snake_case_"]),
    ("snake_case", WRONG, ["snakecase", "snake case"]),
    ("__init__", RIGHT, ["__init__", "`__init__`"]),
    ("__init__", WRONG, ["init"]),
    ("new york city", RIGHT, ["New   York\tCity"]),
    ("New York", RIGHT, ["New\u00a0York"]),
    ("café", RIGHT, ["cafe\u0301"]),
    ("don't", RIGHT, ["don’t"]),
    ("twenty-one", RIGHT, ["twenty–one"]),
    ("straße", RIGHT, ["STRASSE"]),
    ("final", RIGHT, ["ﬁnal"]),
    ("46", RIGHT, ["46", "46."]),
    ("46", WRONG, ["46.0"]),
    ("5", WRONG, [".5", "-5", "$5"]),
    ("-5", RIGHT, ["−5"]),
    ("C", WRONG, ["C++"]),
    ("(a, b)", WRONG, ["(a, b]"]),
    ("Paris", WRONG, ["Paris is the capital", "\ud800"]),
    (("Paris", "London"), RIGHT, ["London"]),
    (("Paris", "London"), WRONG, ["Rome"]),
    ("?", RIGHT, ["?"]),
    ("?", WRONG, ["..."]),
    ("Paris", UNPARSABLE, ["", " \n\t ", "\u200b"]),
    ("naive", WRONG, ["naïve"]),
    ("i̇stanbul", RIGHT, ["İstanbul"]),
]


EXACT_OPTIONS: list[tuple[dict[str, object], str, Reference, Outcome]] = [
    ({"normalise": []}, "Paris", "Paris", RIGHT),
    ({"normalise": []}, "paris", "Paris", WRONG),
    ({"normalise": []}, "Paris ", "Paris", WRONG),
    ({"normalise": ["case"]}, "_Paris_", "Paris", WRONG),
    ({"normalise": []}, " ", "Paris", UNPARSABLE),
    ({"normalise": ["strip"]}, " a  b ", "a  b", RIGHT),
    ({"normalise": ["strip"]}, "a b", "a  b", WRONG),
    ({"normalise": ["case"]}, "PARIS", "paris", RIGHT),
    ({"normalise": ["whitespace", "case"]}, "New \n YORK", "new york", RIGHT),
    ({"after": "Answer:"}, "I think.\n**Answer:** Paris.", "Paris", RIGHT),
    ({"after": "Answer:"}, "answer: Lyon. No, ANSWER: Paris", "Paris", RIGHT),
    ({"after": "Answer:"}, "Paris", "Paris", UNPARSABLE),
    ({"after": "<answer>"}, "<answer> Paris </answer>, not Lyon", "Paris", RIGHT),
    ({"after": "<answer>"}, "It is <answer>Paris", "Paris", RIGHT),
    ({"after": "Answer:"}, "Paris\nAnswer:", "Paris", UNPARSABLE),
    ({"after": "Answer:", "after_required": False}, "Paris", "Paris", RIGHT),
    ({"after": "the answer is"}, "So the\nanswer  is Paris.", "Paris", RIGHT),
    ({"after": "####"}, "12 + 34 is 46\n#### 46", "46", RIGHT),
    ({"after": "</think>"}, "<think>Lyon?</think>\nParis", "Paris", RIGHT),
    ({"after": ".*"}, "anything Paris", "Paris", UNPARSABLE),
]


CONTAINS: list[tuple[Reference, Outcome, list[str]]] = [
    ("Paris", RIGHT, ["The capital is Paris.", "PARIS", "(Paris)", "Parisian, from Paris"]),
    ("Paris", WRONG, ["Parisian", "comParis", "..."]),
    ("Paris", RIGHT, ["It is _Paris_.", "It is __Paris__", "_It is Paris_", "(_Paris_)"]),
    ("Paris", WRONG, ["a_Paris_b", "_Paris", "my_Paris"]),
    ("__init__", RIGHT, ["Call __init__ and __new__."]),
    ("__init__", WRONG, ["init"]),
    ("New York", RIGHT, ["new\nyork", "New\u00a0York"]),
    ("46", RIGHT, ["12+34=46", "46.", "$46"]),
    ("46", WRONG, ["1463", "46.5"]),
    ("046", WRONG, ["1,046"]),
    ("C++", RIGHT, ["I like C++."]),
    ("C#", WRONG, ["C++"]),
    ("can", WRONG, ["can't"]),
    ("don't", RIGHT, ["don’t know"]),
    ("东京", RIGHT, ["答案是东京"]),
    ("东京", WRONG, ["答案是京都"]),
    ("case", WRONG, ["snake_case"]),
    ("서울", RIGHT, ["수도는 서울입니다.", "서울은 크다", "서울에서", "서울"]),
    ("서울", WRONG, ["서울역", "신서울은"]),
    ("café", RIGHT, ["the cafe\u0301"]),
    (("B", "Z"), RIGHT, ["A and B"]),
    (("X", "Z"), WRONG, ["A and B"]),
    ("Paris, France", WRONG, ["Paris"]),
    ("Paris", UNPARSABLE, ["", "\n \t"]),
    ("   ", WRONG, ["anything"]),
    ("aaa", WRONG, ["aaaa aaaa"]),
]


CONTAINS_OPTIONS: list[tuple[dict[str, object], str, Reference, Outcome]] = [
    ({"words": False}, "1463", "46", RIGHT),
    ({"words": False}, "Parisian", "Paris", RIGHT),
    ({"require": "all"}, "red and blue", ("red", "blue"), RIGHT),
    ({"require": "all"}, "red", ("red", "blue"), WRONG),
    ({"normalise": []}, "paris", "Paris", WRONG),
    ({"after": "Answer:"}, "Not Paris. Answer: Lyon", "Paris", WRONG),
]


REGEX_OPTIONS: list[tuple[dict[str, object], str, Reference, Outcome]] = [
    ({"pattern": r"\d+"}, "it is 46", None, RIGHT),
    ({"pattern": r"\d+"}, "none", None, WRONG),
    ({"pattern": r"\d+"}, "", None, WRONG),
    ({"pattern": r"^$"}, "", None, RIGHT),
    ({"pattern": r"^\d+$"}, "46", None, RIGHT),
    ({"pattern": r"^\d+$"}, "it is 46", None, WRONG),
    ({"pattern": r"\A\{.*\}\Z"}, '{"a": 1}', None, RIGHT),
    ({"pattern": "paris"}, "Paris", None, WRONG),
    ({"pattern": "paris", "flags": ["ignore-case"]}, "Paris", None, RIGHT),
    ({"pattern": "^b$"}, "a\nb\nc", None, WRONG),
    ({"pattern": "^b$", "flags": ["multi-line"]}, "a\nb\nc", None, RIGHT),
    ({"pattern": "a.b"}, "a\nb", None, WRONG),
    ({"pattern": "a.b", "flags": ["dot-all"]}, "a\nb", None, RIGHT),
    ({"pattern": r"^\w+$"}, "café", None, RIGHT),
    ({"pattern": r"^\w+$", "flags": ["ascii"]}, "café", None, WRONG),
    ({"pattern": r"\p{Han}"}, "答", None, RIGHT),
    ({"pattern": r"is (\w+)", "group": 1}, "It is __Paris__.", "Paris", RIGHT),
    ({"pattern": r"(\d+)", "group": 1}, "46 or 47", "46", RIGHT),
    ({"pattern": r"(\d+)", "group": 1}, "47", "46", WRONG),
    ({"pattern": r"(\d+)", "group": 1}, "none", "46", UNPARSABLE),
    ({"pattern": r"(\d+)", "group": 0}, "x46", "46", RIGHT),
    ({"pattern": r"is (?P<city>\w+)", "group": "city"}, "It is PARIS", "Paris", RIGHT),
    ({"pattern": r"is (\w+)", "group": 1, "normalise": []}, "is PARIS", "Paris", WRONG),
    ({"pattern": r"a|(b)", "group": 1}, "a", "b", UNPARSABLE),
    ({"pattern": r"(\w*)", "group": 1}, "", "b", UNPARSABLE),
    ({"pattern": r"(\d+)", "group": 1}, "46", ("45", "46"), RIGHT),
    ({"pattern": r"(\d+)", "group": 1, "after": "####"}, "12 #### 46", "46", RIGHT),
    ({"pattern": r"^end$", "flags": ["multi-line"]}, "x" * 50_000 + "\nend", None, RIGHT),
    ({"pattern": "middle"}, "x" * 15_000 + "middle" + "x" * 15_000, None, WRONG),
    ({"pattern": r"(\d+)", "group": 1}, "46", None, "judge-failed"),
]


@pytest.mark.parametrize(
    ("name", "options", "text", "reference", "expected"),
    [
        *(("exact", {}, text, *row) for *row, texts in EXACT for text in texts),
        *(("exact", *row) for row in EXACT_OPTIONS),
        *(("contains", {}, text, *row) for *row, texts in CONTAINS for text in texts),
        *(("contains", *row) for row in CONTAINS_OPTIONS),
        *(("regex", *row) for row in REGEX_OPTIONS),
    ],
)
def test_texts_are_scored(
    judged: Judged,
    name: str,
    options: dict[str, object],
    text: str,
    reference: Reference,
    expected: Outcome,
) -> None:
    assert judged(name, text, reference, **options) == expected


def test_a_catastrophic_pattern_is_given_up_and_blamed_on_the_judge() -> None:
    options = {"pattern": "(a|aa)+$", "timeout_seconds": 0.01}
    judge = create_judge("regex", options, Catalog())  # type: ignore[arg-type]
    reply = Reply("a" * 60 + "!")
    with pytest.raises(JudgeError) as caught:
        asyncio.run(judge.score(Example("e1", {}), reply, NoCalls()))
    assert caught.value.kind is FailureKind.JUDGE_FAILED
    assert caught.value.blame is Blame.JUDGE
    assert "took more than 0.01 s on a reply of 61 characters" in str(caught.value)
    assert "possessive" in str(caught.value)


def test_only_a_group_needs_a_reference() -> None:
    catalog = Catalog()
    assert not create_judge("regex", {"pattern": "a"}, catalog).needs_reference
    assert create_judge("regex", {"pattern": "(a)", "group": 1}, catalog).needs_reference
    check_examples(create_judge("regex", {"pattern": "a"}, catalog), [Example("e1", {}, " ")])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "judge `regex`: `pattern` is missing"),
        ({"pattern": "(a"}, "judge `regex`: `pattern` is malformed: missing \\) at position 2"),
        ({"pattern": ""}, "`pattern` must not be empty, got"),
        ({"pattern": "a" * 2001}, "`pattern` must have at most 2,000 characters"),
        ({"pattern": "a", "group": 1}, r"`group` must be in \[0, 0\] for this `pattern`, got 1"),
        ({"pattern": "(a)", "group": "b"}, "`pattern` has no group named 'b'"),
        ({"pattern": "a", "flags": ["i"]}, r"`flags\[0\]` must be 'ignore-case', 'multi-l"),
        ({"pattern": "a", "timeout_seconds": 0}, "`timeout_seconds` must be greater than 0, got 0"),
        ({"pattern": "a", "timeout": 1}, "unknown option `timeout`; did you mean `timeout_secon"),
    ],
)
def test_wrong_options_are_explained(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create_judge("regex", options, Catalog())  # type: ignore[arg-type]


@pytest.mark.parametrize("score", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("finish", list(Finish))
def test_the_recorded_score_passes_through(
    score_now: ScoreNow, score: float, finish: Finish
) -> None:
    judge = create_judge("recorded", {}, Catalog())
    assert score_now(judge, Example("e1", {}), Reply("", finish, score=score)).value == score
    assert not judge.longest_calls(Example("e1", {}))
    assert not judge.needs_reference


def test_a_missing_score_is_the_judges_failure(score_now: ScoreNow) -> None:
    judge = create_judge("recorded", {}, Catalog())
    with pytest.raises(JudgeError, match="no score is recorded for example `e1`") as caught:
        score_now(judge, Example("e1", {}), Reply("46"))
    assert (caught.value.kind, caught.value.blame) == (FailureKind.JUDGE_FAILED, Blame.JUDGE)


STEPS: tuple[Step, ...] = ("unicode", "case", "punctuation", "whitespace", "strip")


@given(st.text(), st.lists(st.sampled_from(STEPS), unique=True))
def test_normalising_never_fails_and_never_empties_what_is_written(
    text: str, steps: list[Step]
) -> None:
    normalised = normaliser(steps)(text)
    if any(letter.isalnum() for letter in text):
        assert normalised.strip()


def test_long_text_keeps_its_beginning_and_its_end() -> None:
    assert clipped("a" * 100, 100) == "a" * 100
    assert clipped("a" * 50 + "b" * 51, 100) == "a" * 50 + "\n" + "b" * 50
    assert clipped("abcdef", 5) == "ab\nef"


@given(st.text(max_size=30), st.text(min_size=1, max_size=5))
def test_whole_words_are_a_subset_of_plain_occurrences(text: str, part: str) -> None:
    assert contains(text, part, words=False) == (part in text)
    assert not contains(text, part, words=True) or part in text
    assert contains(f"{text} {part}", f" {part}", words=False)
    assert not contains(text, "", words=False)


def test_what_is_shown_is_short_and_can_be_stored() -> None:
    assert excerpt("x" * 1000) == "x" * 200
    assert excerpt("a\ud800b") == "a?b"
    assert excerpt("é😀") == "é😀"
