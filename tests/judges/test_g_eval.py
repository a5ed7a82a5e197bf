from __future__ import annotations

import math

import pytest

from bestarm_agent.domain.request_reply import Position, Reply, Token
from bestarm_agent.errors import Blame, ConfigError
from tests.support.judge_answers import Script, failure, make, score


def rated(chosen: str, **chances: float) -> Reply:
    """A reply of one token; keys are "s4" for the token "4"."""
    tokens = tuple(Token(key[1:], math.log(share)) for key, share in chances.items())
    return Reply(chosen, logprobs=(Position(Token(chosen, -0.1), tokens),))


def test_the_score_is_the_mean_by_probability() -> None:
    """By hand: (0.6 * 4 + 0.3 * 5 + 0.05 * 2) / 0.95 = 4 / 0.95 on a scale from 1 to 5."""
    script = Script([rated("4", s4=0.6, s5=0.3, s2=0.05, s9=0.04)])
    found = score(make("g-eval"), script)
    assert found.value == pytest.approx((4 / 0.95 - 1) / 4)
    assert (found.votes[0].said, script.requests[0].top_logprobs) == ("4", 20)
    assert script.requests[0].response_schema is None


def test_without_probabilities_the_written_score_counts() -> None:
    script = Script(["<think>2 or 3?</think> **2**"])
    assert score(make("g-eval", logprobs=False, scale=[5, 1]), script).value == 0.75
    assert script.requests[0].top_logprobs is None


def test_the_steps_stand_in_the_prompt() -> None:
    script = Script(["3"])
    score(make("g-eval", rubric="Brevity.", steps=["Count words.", "Compare."]), script)
    prompt = script.requests[0].messages[-1].content
    assert "Rate the answer on this criterion alone: Brevity." in prompt
    assert "1. Count words.\n2. Compare.\n" in prompt
    assert prompt.rstrip().endswith("a whole number from 1 (worst) to 5 (best).")


@pytest.mark.parametrize("said", ["6", "4 out of 5", "good", "45"])
def test_anything_but_a_score_is_asked_again_and_then_void(said: str) -> None:
    assert score(make("g-eval", attempts=2), Script([said, "5"])).value == 1.0
    error = failure(make("g-eval", attempts=1), Script([said]), Reply("46"))
    assert error.blame is Blame.JUDGE
    assert "is not one of the scores" in str(error)


@pytest.mark.parametrize("scale", [[1, 10], [3, 3], [-1, 2]])
def test_a_scale_has_two_digits(scale: list[int]) -> None:
    with pytest.raises(ConfigError, match="two digits that differ"):
        make("g-eval", scale=scale)
