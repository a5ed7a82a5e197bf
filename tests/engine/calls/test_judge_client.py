"""A judge's models, what its replies wait for, and what happens when it cannot be asked."""

from __future__ import annotations

import pytest

from bestarm_agent.domain.spend import Budget
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.engine.call import AttemptLog, Model, ReplyCache
from bestarm_agent.engine.judging import (
    JudgeCalls,
    JudgeClient,
    JudgeUnavailableError,
)
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.judges.base import JudgeCall, JudgeModel
from bestarm_agent.providers.base import Capabilities
from tests.support.runs import Actor, OwnScore, Scene, logged_nowhere, scored
from tests.support.virtual_time import run_virtual


class Online(Actor):
    """Is called over the network for one of its models."""

    def capabilities(self, model: str) -> Capabilities:
        return Capabilities(frozenset(), rate_limited=model == "online")


def panel(*names: str) -> JudgeClient:
    """A judge of some models, all at one provider."""
    scene = Scene({})
    client = scene.client(Online("p", lambda *_: scored(1.0)), Ledger(Budget()))
    judge = OwnScore()
    judge.models = tuple(JudgeModel("p", name) for name in names)
    models = {one.key: Model(client, one.name, one.name) for one in judge.models}
    return JudgeClient(judge, models)


@pytest.mark.parametrize(
    ("models", "limited"), [((), False), (("local",), False), (("local", "online"), True)]
)
def test_a_judge_is_rate_limited_if_one_of_its_models_is(
    models: tuple[str, ...], limited: bool
) -> None:
    assert panel(*models).rate_limited is limited


@pytest.mark.parametrize(
    ("model", "resent", "answered", "is_first"),
    [
        ("online", False, False, True),
        ("online", False, True, False),
        ("online", True, False, False),
        ("local", False, False, False),
    ],
)
def test_a_time_out_is_not_repeated_at_a_server_that_never_answered(
    model: str, resent: bool, answered: bool, is_first: bool
) -> None:
    judge, asked = panel("local", "online"), JudgeCall(JudgeModel("p", model), Request(model))
    judge.call(asked).model.is_tried = answered
    log = AttemptLog(logged_nowhere, resent=resent)
    assert judge.call(asked, "a", log).is_first is is_first


async def test_a_judgement_in_the_cache_that_cannot_be_read_is_made_anew() -> None:
    asker = Actor("j", lambda request, _: Reply("no" if request.attempt == 2 else "yes"))
    scene = Scene({}, judge=asker)
    ledger = Ledger(Budget())
    replies = ReplyCache(scene.store, ledger, use_cache=True)
    client = scene.judge_client(scene.clients(ledger))
    calls = JudgeCalls(client, replies, "a")
    call = JudgeCall(
        client.judge.models[0], Request("m", attempt=2), lambda reply: reply.text == "yes"
    )

    assert [(await calls.ask(call)).text for _ in range(2)] == ["no", "yes"]
    first, again = (request.attempt for _, request in asker.sent)
    assert again >= first + 1000, "above the numbers of the judge's own attempts"


def test_the_provider_of_two_models_is_listed_once() -> None:
    assert [provider.name for provider in panel("local", "online").providers] == ["p"]


def test_a_judge_without_access_is_reported_with_the_providers_error() -> None:
    refused = ProviderError("no such key", kind=FailureKind.AUTHENTICATION, fatal=True)
    asker = Actor("j", lambda *_: refused)
    scene = Scene({}, n_examples=1, judge=asker)
    ledger = Ledger(Budget())
    client = scene.judge_client(scene.clients(ledger))
    replies = ReplyCache(scene.store, ledger, use_cache=True)
    calls = JudgeCalls(client, replies, "a")
    with pytest.raises(JudgeUnavailableError, match=r"^no such key$") as caught:
        run_virtual(calls.score(scene.examples[0], Reply("42")))
    assert caught.value.error is refused
