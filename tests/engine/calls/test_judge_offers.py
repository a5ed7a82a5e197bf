"""What a judge's call is sent with, by what its model offers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bestarm_agent.domain.values import Example, Message, Request
from bestarm_agent.engine.judging import fitted, left_out
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.base import JudgeCall, JudgeModel
from bestarm_agent.providers.base import Capabilities
from tests.support.runs import OwnScore

MODELS = (JudgeModel("p", "small"), JudgeModel("p", "large"))
REQUEST = Request(
    "m",
    messages=(Message("user", "?"),),
    params={"temperature": 0, "seed": 1},
    response_schema={"a": 1},
    top_logprobs=5,
)


class Panel(OwnScore):
    """Asks two models with the same request."""

    name = "panel"

    def __init__(self, request: Request) -> None:
        self.request = request

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        return [JudgeCall(model, self.request) for model in MODELS]


def notices(able: Capabilities, request: Request = REQUEST) -> list[str]:
    return left_out(Panel(request), [Example("e", {})], lambda _: able)


def able(*params: str, chat: bool = True, logprobs: bool = True) -> Capabilities:
    return Capabilities(frozenset(params), chat=chat, logprobs=logprobs)


def test_a_request_keeps_what_the_model_offers() -> None:
    everything = Capabilities(frozenset(REQUEST.params), response_schema=True, logprobs=True)
    assert fitted(REQUEST, everything) == REQUEST
    bare = fitted(REQUEST, Capabilities(frozenset({"seed"})))
    assert (bare.params, bare.response_schema, bare.top_logprobs) == ({"seed": 1}, None, None)


def test_what_is_not_sent_is_said_once_for_every_model() -> None:
    assert notices(able("temperature", "seed")) == []
    assert notices(able()) == [
        f"judge model p/{name} does not take seed, temperature: not sent"
        for name in ("small", "large")
    ]
    recorded = Capabilities(frozenset(), logprobs=True, by_example=True)
    assert notices(recorded) == [], "recordings depend on no parameter"


@pytest.mark.parametrize(
    ("offers", "message"),
    [
        (able("temperature", "seed", chat=False), "judge `panel` needs a model that takes chat"),
        (able("temperature", "seed", logprobs=False), "weighs by log probabilities, which p/small"),
    ],
)
def test_a_judge_that_cannot_do_without_is_refused(offers: Capabilities, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        notices(offers)
