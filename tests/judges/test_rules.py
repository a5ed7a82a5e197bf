"""What every rule must do, whatever it compares."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import Example, Finish, Reply, Score
from bestarm_agent.errors import Blame, ConfigError, FailureKind, JudgeError
from bestarm_agent.judges.base import Calls, Judge, JudgeOptions
from bestarm_agent.judges.registry import check_examples, create_judge

Judged = Callable[..., float | str]
ScoreNow = Callable[[Judge, Example, Reply], Score]

OPTIONS: dict[str, dict[str, object]] = {
    "exact": {},
    "contains": {},
    "numeric": {},
    "regex": {"pattern": r"([\w+]+)", "group": 1},
    "multiple-choice": {},
}
CATALOG = Catalog()
RULES: dict[str, Judge] = {
    name: create_judge(name, options, CATALOG)  # type: ignore[arg-type]
    for name, options in OPTIONS.items()
}
EXAMPLE = Example("e1", {"options": ["London", "2"]}, "2")
EVERY_RULE = pytest.mark.parametrize("name", list(RULES))


def attempted(score_now: ScoreNow, name: str, text: str) -> Score | JudgeError:
    try:
        return score_now(RULES[name], EXAMPLE, Reply(text))
    except JudgeError as error:
        return error


@EVERY_RULE
@settings(max_examples=150)
@given(text=st.text(st.characters(exclude_categories=[])))
def test_any_text_is_scored_or_is_the_candidates_failure(
    score_now: ScoreNow, name: str, text: str
) -> None:
    outcome = attempted(score_now, name, text)
    if isinstance(outcome, JudgeError):
        assert outcome.kind is FailureKind.UNPARSABLE
        assert outcome.blame is Blame.CANDIDATE
        assert len(str(outcome).encode()) < 1000
    else:
        assert outcome.value in (0.0, 1.0)
        assert outcome.answer is not None
        assert len(outcome.answer.encode()) <= 800
        assert outcome.votes == ()


@pytest.mark.slow
@EVERY_RULE
@settings(max_examples=100)
@given(text=st.lists(st.sampled_from(["answer", " is ", "(", "B", ")", ".", "2", "\n", "or"])))
def test_texts_made_of_telling_pieces_are_scored_too(
    score_now: ScoreNow, name: str, text: list[str]
) -> None:
    outcome = attempted(score_now, name, "".join(text))
    if isinstance(outcome, JudgeError):
        assert outcome.kind is FailureKind.UNPARSABLE
    else:
        assert outcome.value in (0.0, 1.0)


@EVERY_RULE
def test_an_empty_reply_is_unparsable(score_now: ScoreNow, name: str) -> None:
    with pytest.raises(JudgeError, match="in an empty reply") as caught:
        score_now(RULES[name], EXAMPLE, Reply(""))
    assert caught.value.kind is FailureKind.UNPARSABLE


@EVERY_RULE
def test_declined_replies_are_the_candidates_failure(judged: Judged, name: str) -> None:
    options = OPTIONS[name]
    assert judged(name, "2", "2", finish=Finish.REFUSAL, **options) == "refused"
    assert judged(name, "2", "2", finish=Finish.CONTENT_FILTER, **options) == "content-filtered"


@EVERY_RULE
def test_a_reply_cut_off_at_the_limit_is_scored(score_now: ScoreNow, name: str) -> None:
    text = "Answer: B" if name == "multiple-choice" else "2"
    assert score_now(RULES[name], EXAMPLE, Reply(text, Finish.LENGTH)).value == 1.0


@EVERY_RULE
def test_long_replies_are_cut_in_the_middle(score_now: ScoreNow, name: str) -> None:
    text = f"Answer: B 1{'x ' * 100_000}\n2 Answer: B"
    outcome = attempted(score_now, name, text)
    expected = {"exact": 0.0, "contains": 1.0, "numeric": 1.0, "regex": 0.0, "multiple-choice": 1.0}
    assert isinstance(outcome, Score)
    assert outcome.value == expected[name]


@EVERY_RULE
def test_a_missing_reference_is_found_before_any_call(score_now: ScoreNow, name: str) -> None:
    judge, example = RULES[name], Example("e9", {})
    assert judge.needs_reference
    with pytest.raises(ConfigError, match=f"`e9` has no reference answer, which judge `{name}` n"):
        check_examples(judge, [EXAMPLE, example])
    with pytest.raises(JudgeError, match="`e9` has no reference answer") as caught:
        score_now(judge, example, Reply("2"))
    assert caught.value.blame is Blame.JUDGE


@EVERY_RULE
def test_a_blank_reference_is_found_before_any_call(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"example `e9`: judge `{name}` cannot compare with re"):
        check_examples(RULES[name], [Example("e9", {}, ("2", " "))])


@EVERY_RULE
def test_a_usable_reference_passes_the_check(name: str) -> None:
    check_examples(RULES[name], [EXAMPLE])
    assert not RULES[name].longest_calls(EXAMPLE)


def test_numeric_references_must_be_numbers() -> None:
    with pytest.raises(ConfigError, match="with reference 'forty-six': it holds no number"):
        check_examples(RULES["numeric"], [Example("e1", {}, "forty-six")])


def test_judges_of_other_kinds_are_checked_for_missing_references() -> None:
    class Other(Judge):
        needs_reference = True

        async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
            return Score(1.0)

    check_examples(Other("other", JudgeOptions()), [EXAMPLE])
    with pytest.raises(ConfigError, match="which judge `other` needs"):
        check_examples(Other("other", JudgeOptions()), [Example("e1", {})])


def test_the_answer_read_is_kept(score_now: ScoreNow) -> None:
    def answer(name: str, text: str, reference: str) -> str | None:
        return score_now(RULES[name], Example("e1", {}, reference), Reply(text)).answer

    assert answer("exact", " **Paris** ", "x") == "paris"
    assert answer("numeric", "it is 1,234.50", "1") == "1234.50"
    assert answer("numeric", "it is 2/6", "1") == "1/3"
    assert answer("regex", "it", "x") == "it"
    assert answer("multiple-choice", "(b)", "A") == "B"
    assert answer("exact", "x" * 1000, "x") == "x" * 200
