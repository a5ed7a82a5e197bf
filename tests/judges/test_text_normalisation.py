from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.judges.base import shown
from bestarm_agent.judges.rule import Step, clipped, contains, normaliser

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
    assert shown("x" * 1000) == "x" * 200
    assert shown("a\ud800b") == "a?b"
    assert shown("é😀") == "é😀"
