"""Comparison with a baseline answer: places, ties, weighted preference."""

from __future__ import annotations

import json
import math

import pytest

from bestarm_agent.domain.values import Example, Position, Reply, Request, Token
from bestarm_agent.errors import Blame, ConfigError
from bestarm_agent.judges.registry import check_examples
from tests.support.judge_answers import EXAMPLE, MARK, Script, failure, make, score


def winner(said: str) -> str:
    return json.dumps({"mark": MARK, "explanation": "so", "winner": said})


def prefers(answer: str) -> Script:
    """A judge that prefers a certain answer, wherever it stands."""

    def said(request: Request) -> str:
        prompt = request.messages[-1].text
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
    assert ["second" in vote.by for vote in found.votes] == [True, False]
    one_order = make("pairwise", both_orders=False)
    assert score(one_order, Script([winner(place)])).value == float(place == "second")
    assert len(one_order.longest_calls(EXAMPLE)) == 1


def test_ties_are_worth_one_half_where_they_are_allowed() -> None:
    assert score(make("pairwise"), Script([winner("tie")] * 2)).value == 0.5
    assert score(make("pairwise"), Script([winner("tie"), winner("first")])).value == 0.75
    no_ties = make("pairwise", ties=False)
    assert failure(no_ties, Script([winner("tie")] * 6), Reply("46")).blame is Blame.JUDGE


def test_the_baseline_is_no_part_of_the_task() -> None:
    script = Script([winner("tie")] * 2)
    score(make("pairwise"), script)
    prompt = script.requests[0].messages[-1].text
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
    assert script.requests[0].messages[-1].text.rstrip().endswith("M if the second is.")


def test_equal_tokens_are_refused() -> None:
    with pytest.raises(ConfigError, match="two different words"):
        make("pairwise", tokens=["m", " m"])
