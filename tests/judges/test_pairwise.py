"""Comparison with a baseline answer: places, ties, weighted preference."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.domain.example import Example
from bestarm_agent.domain.request_reply import Position, Reply, Request, Token
from bestarm_agent.errors import Blame, ConfigError
from bestarm_agent.judges.pairwise import position_of
from bestarm_agent.judges.registry import check_examples
from bestarm_agent.judges.verdicts import UnreadableError
from bestarm_agent.judges.weighted import weighted_worth
from tests.support.judge_answers import EXAMPLE, Script, failure, make, score

WORTH = {"m": 1.0, "M": 0.0}


def winner(said: str) -> str:
    return json.dumps({"explanation": "so", "winner": said})


def prefers(answer: str) -> Script:
    """A judge that prefers a certain answer, wherever it stands."""

    def said(request: Request) -> str:
        prompt = request.messages[-1].content
        first = prompt.partition("<<<first_answer")[2].partition("<<<end of first_answer")[0]
        return winner("first" if answer in first else "second")

    return Script(said)


def token_reply(m: float, big_m: float, chosen: str = "m") -> Reply:
    """A reply of one token, with the probabilities of the two."""
    tokens = (Token("m", math.log(m)), Token("M", math.log(big_m)), Token(" the", -9.0))
    return Reply(chosen, logprobs=(Position(Token(chosen, -0.1), tokens),))


def test_the_better_answer_wins_wherever_it_stands() -> None:
    script = prefers("It is 46.")
    assert score(make("pairwise"), script, "It is 46.").value == 1.0
    assert [request.example for request in script.requests] == ["e1/second", "e1/first"]
    assert score(make("pairwise"), prefers("It is 45."), "It is 46.").value == 0.0


@pytest.mark.parametrize("place", ["first", "second"])
def test_a_constant_preference_for_a_place_cancels(place: str) -> None:
    found = score(make("pairwise"), Script([winner(place)] * 2))
    assert found.value == 0.5
    assert sorted(vote.value for vote in found.votes) == [0.0, 1.0]
    assert [position_of(vote) for vote in found.votes] == ["second", "first"]
    one_order = make("pairwise", both_orders=False)
    assert score(one_order, Script([winner(place)])).value == float(place == "second")
    assert len(one_order.longest_calls(EXAMPLE)) == 1


def test_ties_are_worth_one_half_where_they_are_allowed() -> None:
    assert score(make("pairwise"), Script([winner("tie")] * 2)).value == 0.5
    assert score(make("pairwise"), Script([winner("tie"), winner("first")])).value == 0.75
    no_ties = make("pairwise", ties=False)
    assert failure(no_ties, Script([winner("tie")] * 6), Reply("46")).blame is Blame.JUDGE


@pytest.mark.parametrize(
    ("said", "value"),
    [("[[A]]", 0.0), ("Better: see below.\n\nMy verdict is **B**.", 1.0), ("[[C]]", 0.5)],
)
def test_letters_name_the_answers_in_their_order(said: str, value: float) -> None:
    """The baseline comes first."""
    assert score(make("pairwise", both_orders=False), Script([said])).value == value


def test_a_letter_and_a_word_that_differ_are_void() -> None:
    judge = make("pairwise", both_orders=False)
    text = '[[A]]\nThe answer asks for {"winner": "second"}.'
    assert failure(judge, Script([text] * 3), Reply("46")).blame is Blame.JUDGE


def test_the_baseline_is_no_part_of_the_task() -> None:
    script = Script([winner("tie")] * 2)
    score(make("pairwise"), script)
    prompt = script.requests[0].messages[-1].content
    assert prompt.count("It is 45.") == 1
    with pytest.raises(ConfigError, match="has no text in field `baseline_output`"):
        check_examples(make("pairwise"), [Example("e1", {"question": "?"})])


def test_the_weighted_preference_by_hand() -> None:
    """AlpacaEval: exp(logprob) of one token over the sum of both, per order."""
    judge = make("pairwise", logprobs=True, max_tokens=1)
    script = Script([token_reply(0.3, 0.6), token_reply(0.8, 0.1)])
    found = score(judge, script)
    assert found.value == pytest.approx(((1 - 0.3 / 0.9) + 0.8 / 0.9) / 2)
    assert [request.top_logprobs for request in script.requests] == [20, 20]
    assert script.requests[0].response_schema is None
    assert script.requests[0].messages[-1].content.rstrip().endswith("M if the second is.")


@given(st.floats(0.001, 0.999), st.floats(0.001, 0.999))
def test_the_weights_are_shares(m: float, big_m: float) -> None:
    value, _ = weighted_worth(token_reply(m, big_m), WORTH)
    assert value == pytest.approx(m / (m + big_m))


def test_an_unlisted_token_counts_as_impossible_and_prose_is_unreadable() -> None:
    only = Reply("M", logprobs=(Position(Token("M", -0.5), (Token("M", -0.5),)),))
    assert weighted_worth(only, WORTH) == (0.0, "M")
    assert weighted_worth(Reply("**m**"), WORTH) == (1.0, "m")
    for reply in (Reply("first"), Reply("Mm"), Reply("hm", logprobs=(Position(Token("hm", -1)),))):
        with pytest.raises(UnreadableError):
            weighted_worth(reply, WORTH)


def test_tokens_that_a_tokenizer_joins_with_white_space_are_the_same() -> None:
    both = (Token(" m", math.log(0.2)), Token("m", math.log(0.2)), Token(" M", math.log(0.4)))
    reply = Reply("\n m", logprobs=(Position(Token("\n", -0.1)), Position(both[0], both)))
    assert weighted_worth(reply, WORTH)[0] == pytest.approx(0.5)


def test_equal_tokens_are_refused() -> None:
    with pytest.raises(ConfigError, match="two different words"):
        make("pairwise", tokens=["m", " m"])
