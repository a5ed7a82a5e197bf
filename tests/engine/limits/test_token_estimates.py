"""What a call is expected to need, before it is sent."""

from __future__ import annotations

import pytest

from bestarm_agent.domain.spend import Resource, Usage
from bestarm_agent.domain.values import Message, Request
from bestarm_agent.engine.limits.model_limits import TokenEstimate, amounts_used

PROMPT = Request("m", text="x" * 100, candidate="a")


def test_at_first_a_guess_within_the_bounds() -> None:
    need = TokenEstimate().need(PROMPT, bound=0)
    assert {name: need[name] for name in Resource} == {
        Resource.REQUESTS: 1.0,
        Resource.TOKENS: 530.0,  # 100 characters at 0.3, and 500
        Resource.INPUT_TOKENS: 30.0,
        Resource.OUTPUT_TOKENS: 500.0,
    }
    assert TokenEstimate().need(PROMPT, bound=80)[Resource.OUTPUT_TOKENS] == 50.0
    assert TokenEstimate().need(PROMPT, bound=20)[Resource.TOKENS] == 20.0


def test_prompts_are_measured_by_the_tokens_that_characters_took() -> None:
    expected = TokenEstimate()
    expected.observe(PROMPT, Usage(input=50))
    messages = Request("m", messages=(Message("system", "12345"), Message("user", "67890")))
    assert expected.need(messages, bound=0)[Resource.INPUT_TOKENS] == 5.0


def test_replies_are_averaged_by_candidate_and_by_model_for_new_ones() -> None:
    expected = TokenEstimate()
    expected.observe(PROMPT, Usage(input=30, output=10))
    expected.observe(PROMPT, Usage(input=30, output=20))
    other = Request("m", text="?", candidate="b")
    expected.observe(other, Usage(input=1, output=300))

    def output(candidate: str) -> float:
        need = expected.need(Request("m", text="?", candidate=candidate), bound=0)
        return need[Resource.OUTPUT_TOKENS]

    assert (output("a"), output("b"), output("new")) == (15.0, 300.0, 110.0)


def test_no_reply_is_expected_to_pass_its_maximum() -> None:
    expected = TokenEstimate()
    expected.observe(PROMPT, Usage(input=30, output=900))
    short = Request("m", text="?", params={"max_tokens": 7}, candidate="a")
    assert expected.need(short, bound=8)[Resource.OUTPUT_TOKENS] == 7.0


def test_cached_prompt_tokens_are_no_input_tokens() -> None:
    used = amounts_used(Usage(input=100, cached=80, output=5))
    assert (used[Resource.INPUT_TOKENS], used[Resource.TOKENS]) == (20.0, 105.0)


def test_an_average_forgets() -> None:
    expected = TokenEstimate()
    for output in [0] * 50 + [1000] * 20:
        expected.observe(PROMPT, Usage(input=30, output=output))
    need = expected.need(PROMPT, bound=0)
    assert need[Resource.OUTPUT_TOKENS] == pytest.approx(1000 * (1 - 0.9**20))
