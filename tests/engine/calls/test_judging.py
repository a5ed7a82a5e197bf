"""Judges that call models: what is sent, what it costs, what happens when they cannot be asked."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from bestarm_agent.domain.events import Told
from bestarm_agent.domain.spend import Budget, Spend, Usage
from bestarm_agent.domain.values import Example, Message, Reply, Request, Score
from bestarm_agent.engine.call import Model
from bestarm_agent.engine.judging import (
    JudgeCalls,
    JudgeClient,
    fitted,
    left_out,
)
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.loop import End
from bestarm_agent.engine.reply_cache import ReplyCache
from bestarm_agent.errors import Blame, ConfigError, FailureKind, ProviderError
from bestarm_agent.judges.base import Calls, Judge, JudgeCall, JudgeModel, JudgeOptions
from bestarm_agent.judges.groups import Group
from bestarm_agent.providers.base import Capabilities
from tests.support.runs import Actor, OwnScore, Scene, always, attempt_log, failing
from tests.support.virtual_time import run_virtual

BUSY = failing(FailureKind.OVERLOADED)
LOCKED = failing(FailureKind.AUTHENTICATION, fatal=True)


def answering(request: Request, _before: int) -> Reply:
    return Reply(f"{request.model} on {request.example}", usage=Usage(3, 0, 0, 2), usd_nanos=60)


def worth(value: float) -> Reply:
    return Reply(str(value), usage=Usage(5, 0, 0, 1), usd_nanos=40)


def candidate() -> Actor:
    return Actor("p", answering)


def judge(bound: int = 50, seconds: float = 1.0) -> Actor:
    upper = Spend(calls=1, tokens=10, usd_nanos=bound)
    return Actor("j", lambda *_: worth(0.75), lambda _request: seconds, bound_spend=upper)


# inside the run loop, in virtual time


def test_what_judging_cost_is_told_apart() -> None:
    asker = judge()
    scene = Scene({"a": candidate()}, n_examples=4, judge=asker)
    assert scene.run() is End.EXHAUSTED
    for outcome in scene.outcomes():
        assert outcome.score is not None
        assert outcome.score.value == 0.75
        assert outcome.score.votes[0].said == "0.75"
        assert outcome.usage.total == 5, "the usage is the candidate's"
        assert outcome.judge_spend == Spend(calls=1, tokens=6, usd_nanos=40)
        assert outcome.spend == Spend(answers=1, calls=2, tokens=11, usd_nanos=100)
    assert scene.loop.ledger.spent == scene.loop.record.state.spend
    assert scene.loop.ledger.spent == Spend(answers=4, calls=8, tokens=44, usd_nanos=400)
    assert {request.example for _, request in asker.sent} == {f"a/e{j}" for j in range(4)}
    assert {request.candidate for _, request in asker.sent} == {"a"}


@pytest.mark.parametrize("in_flight", [1, 3, 32])
def test_no_cap_is_passed_with_judges_in_flight(in_flight: int) -> None:
    models = {"a": candidate(), "b": candidate()}
    budget = Budget(usd_nanos=2500)
    scene = Scene(models, in_flight=in_flight, judge=judge(bound=900), budget=budget)
    assert scene.run() is End.BUDGET
    assert 1500 < scene.loop.ledger.spent.usd_nanos <= 2500
    assert scene.loop.ledger.outstanding == Spend()
    assert not scene.loop.record.state.pending, "no pair was begun that could not be judged"


def test_a_judge_that_fails_makes_a_pair_void_and_never_wrong() -> None:
    broken = failing(FailureKind.SERVER)
    asker = Actor("j", lambda r, _: broken if r.example == "a/e2" else worth(1.0))
    scene = Scene({"a": candidate()}, n_examples=5, judge=asker)
    scene.run()
    [outcome] = [outcome for outcome in scene.outcomes() if outcome.failure]
    failure = outcome.failure
    assert failure is not None
    assert (failure.kind, failure.blame) == (FailureKind.JUDGE_FAILED, Blame.JUDGE)
    assert "judge model j/judge-model gave no answer: scripted server" in failure.message
    assert outcome.judge_spend == Spend(calls=3), "three attempts"
    assert outcome.reply_key is not None, "the answer is paid for and kept"
    assert scene.loop.record.pairs.answer.estimates().mean[0] == 1.0


def test_only_the_judge_is_asked_again_after_a_bad_key() -> None:
    keys: list[ProviderError | Reply] = [LOCKED]
    asker = Actor("j", lambda *_: keys[-1])
    one, two = candidate(), candidate()
    first = Scene({"a": one}, n_examples=6, in_flight=3, judge=asker)
    assert first.run() is End.FAILURES
    assert len(one.sent) <= 4, "nothing more was bought once no reply could be scored"
    assert first.loop.record.state.pending
    assert "no reply can be judged" in first.loop.pool.broken()["a"]
    keys.append(worth(0.5))
    assert Scene({"a": two}, n_examples=6, judge=asker, store=first.store).run() is End.EXHAUSTED
    bought = {request.example for _, request in one.sent}
    assert {request.example for _, request in two.sent} == {f"e{j}" for j in range(6)} - bought


@pytest.mark.parametrize("use_cache", [True, False])
async def test_an_interrupted_judgement_does_not_buy_the_answer_again(use_cache: bool) -> None:
    one, asker = candidate(), judge(seconds=10.0)
    scene = Scene({"a": one}, n_examples=4, in_flight=4, judge=asker, use_cache=use_cache)
    loop = await scene.cut_off(5.0)
    assert (await loop.run()) is End.EXHAUSTED
    assert len(one.sent) == 4
    assert len(asker.sent) == 8, "what was in flight at the judge is sent again"
    assert loop.ledger.spent == loop.record.state.spend
    bill = 4 * (60 + 50 + 40)
    assert loop.ledger.spent.usd_nanos == bill, "a judge's call cut off counts with its bound"
    told = [event.outcome for event in await scene.events() if isinstance(event, Told)]
    assert [outcome.judge_spend.usd_nanos for outcome in told] == [90] * 4


def test_a_slow_judge_holds_places_and_nothing_locks_up() -> None:
    """Candidate and judge share one provider with one place."""
    both = Actor("p", lambda r, n: worth(1.0) if r.model == "judge-model" else answering(r, n))
    scene = Scene({"a": both}, n_examples=9, in_flight=4, provider_in_flight=1, judge=both)
    assert scene.run() is End.EXHAUSTED
    assert both.most == 1
    waiting = 0
    for _, request in both.sent:
        waiting += -1 if request.model == "judge-model" else 1
        assert waiting <= 4, "no more pairs wait for the judge than may be in flight"


async def test_a_slow_judge_leaves_the_candidates_provider_free_and_a_full_queue_says_so() -> None:
    one, asker = candidate(), judge(seconds=30.0)
    scene = Scene({"a": one}, n_examples=6, provider_in_flight=2, judge=asker)
    waits = await scene.waits_after(20.0)
    assert [(wait.provider, wait.reason, wait.count) for wait in waits] == [
        ("j/judge-model", "queue full", 4),
        ("j/judge-model", "has not answered yet, for 19 s", 0),
    ]
    assert scene.board.summary(0.0) == ()
    assert max(at for at, _ in one.sent) <= 4.0
    assert asker.most == 2, "the judge has a gate of its own"


def test_judgements_come_from_the_cache() -> None:
    asker = judge()
    scene = Scene({"a": candidate()}, n_examples=4, judge=asker)
    scene.run()
    again = Scene({"a": candidate()}, n_examples=4, judge=asker, store=scene.store)
    again.run()
    assert len(asker.sent) == 4
    assert again.loop.ledger.spent == Spend(answers=4)


async def test_a_judgement_that_the_budget_cannot_repeat_waits_for_more() -> None:
    one, asker = candidate(), Actor("j", lambda _, before: worth(1.0) if before else BUSY)
    scene = Scene({"a": one}, n_examples=2, in_flight=1, judge=asker, budget=Budget(calls=2))
    loop = await scene.open()
    first = await loop.run()
    assert loop.record.state.pending
    loop.set_budget(Budget(calls=100))
    assert (first, await loop.run()) == (End.BUDGET, End.EXHAUSTED)
    assert len(one.sent) == 2
    spent = loop.ledger.spent
    assert (spent.calls, spent.answers) == (len(one.sent) + len(asker.sent), 2)
    assert loop.record.state.spend == spent


@pytest.mark.parametrize("seed", [5, 8, 12, 14, 16])
async def test_retries_and_judgements_at_one_provider_do_not_block_each_other(seed: int) -> None:
    """Answered pairs wait for the line to be judged in, retried ones for the answered to end."""
    rng = np.random.default_rng(seed)

    def answer(request: Request, _before: int) -> Reply | Exception:
        return BUSY if request.model != "judge-model" and rng.random() < 0.4 else worth(1.0)

    busy = Actor("p", answer, latency=lambda _request: float(rng.choice([0.2, 1.0, 3.0])))
    quick = Actor("q", lambda *_: worth(1.0), latency=lambda _: float(rng.choice([0.2, 0.5])))
    scene = Scene(
        {"busy": busy, "quick": quick},
        n_examples=30,
        in_flight=2,
        provider_in_flight=1 + seed % 2,
        judge=busy,
        selector="uniform",
    )
    async with asyncio.timeout(1e5):
        assert await (await scene.open()).run() is End.EXHAUSTED


# a judge's models


class Online(Actor):
    """Is called over the network for one of its models."""

    def capabilities(self, model: str) -> Capabilities:
        return Capabilities(frozenset(), rate_limited=model == "online")


def panel(*names: str) -> JudgeClient:
    """A judge of some models, all at one provider."""
    client = Scene({}).client(Online("p", always(1.0)), Ledger(Budget()))
    asker = OwnScore()
    asker.models = tuple(JudgeModel("p", name) for name in names)
    return JudgeClient(asker, {one.key: Model(client, one.name, one.name) for one in asker.models})


@pytest.mark.parametrize(
    ("models", "limited"), [((), False), (("local",), False), (("local", "online"), True)]
)
def test_a_judge_is_rate_limited_if_one_of_its_models_is(
    models: tuple[str, ...], limited: bool
) -> None:
    found = panel(*models)
    assert found.rate_limited is limited
    assert [provider.name for provider in found.providers] == ["p"][: len(models)], "listed once"


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
    asker, asked = panel("local", "online"), JudgeCall(JudgeModel("p", model), Request(model))
    asker.call(asked).model.is_tried = answered
    log = attempt_log(*[asker.call(asked, "a").key] * resent)
    assert asker.call(asked, "a", log).is_first is is_first


def calls_of(asker: Actor) -> tuple[JudgeCalls, JudgeModel]:
    """The calls of a judge that asks one model, and that model."""
    scene, ledger = Scene({}, judge=asker), Ledger(Budget())
    client = scene.judge_client(scene.clients(ledger))
    replies = ReplyCache(scene.store, ledger)
    return JudgeCalls(client, replies, "a"), client.judge.models[0]


async def test_a_judge_that_answered_is_tried_and_its_calls_are_told_as_judging() -> None:
    calls, model = calls_of(Actor("j", lambda *_: Reply("yes")))
    client, asked = calls._judge_client, JudgeCall(model, Request("m"))
    assert not client.call(asked).model.is_tried
    await calls.ask(asked)
    assert client.call(asked).model.is_tried
    assert client.call(asked).is_judges, "else the log would take it for the candidate's"


async def test_a_judgement_in_the_cache_that_cannot_be_read_is_made_anew() -> None:
    asker = Actor("j", lambda request, _: Reply("no" if request.attempt == 2 else "yes"))
    calls, model = calls_of(asker)
    call = JudgeCall(model, Request("m", attempt=2), lambda reply: reply.text == "yes")
    assert [(await calls.ask(call)).text for _ in range(2)] == ["no", "yes"]
    first, again = (request.attempt for _, request in asker.sent)
    assert again >= first + 1000, "above the numbers of the judge's own attempts"


def test_a_judge_without_access_is_reported_with_the_providers_error() -> None:
    calls, _ = calls_of(Actor("j", lambda *_: LOCKED))
    with pytest.raises(ProviderError) as caught:
        run_virtual(calls.score(Example("e0", {}), Reply("42")))
    assert caught.value is LOCKED


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
    models = JudgeModel("p", "small"), JudgeModel("p", "large")

    def longest_calls(self, example: Example) -> list[JudgeCall]:
        return [JudgeCall(model, REQUEST) for model in self.models]


def able(*params: str, chat: bool = True, logprobs: bool = True) -> Capabilities:
    return Capabilities(frozenset(params), chat=chat, logprobs=logprobs)


def test_a_request_keeps_what_the_model_offers() -> None:
    everything = Capabilities(frozenset(REQUEST.params), response_schema=True, logprobs=True)
    assert fitted(REQUEST, everything) == REQUEST
    bare = fitted(REQUEST, Capabilities(frozenset({"seed"})))
    assert (bare.params, bare.response_schema, bare.top_logprobs) == ({"seed": 1}, None, None)


LEFT_OUT = [
    f"judge model p/{name} does not take seed, temperature: not sent" for name in ("small", "large")
]


@pytest.mark.parametrize(
    ("offers", "said"),
    [
        (able("temperature", "seed"), []),
        (able(), LEFT_OUT),
        # recordings depend on no parameter
        (Capabilities(frozenset(), logprobs=True, by_example=True), []),
        (able("temperature", "seed", chat=False), "judge `panel` needs a model that takes chat"),
        (able("temperature", "seed", logprobs=False), "weighs by log probabilities, which p/small"),
    ],
)
def test_what_is_not_sent_is_said_or_refused(offers: Capabilities, said: list[str] | str) -> None:
    if isinstance(said, list):
        assert left_out(Panel(), [Example("e", {})], lambda _: offers) == said
    else:
        with pytest.raises(ConfigError, match=said):
            left_out(Panel(), [Example("e", {})], lambda _: offers)


def test_what_checks_of_a_later_example_ask_of_the_same_model_is_seen() -> None:
    class Plain(Panel):
        def longest_calls(self, example: Example) -> list[JudgeCall]:
            plain = replace(REQUEST, top_logprobs=None)
            return [JudgeCall(model, plain) for model in self.models]

    class Rows(Group[JudgeOptions]):
        def _asked(self, example: Example) -> list[tuple[Judge, Example]]:
            return [(self.members[example.id == "late"], example)]

        async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
            return await self.members[0].score(example, reply, calls)

    rows = Rows("rows", JudgeOptions(), [Plain(), Panel()])
    examples = [Example(name, {}) for name in ("a", "b", "late", "c")]
    offers = able("temperature", "seed", logprobs=False)
    assert left_out(rows, examples[:2], lambda _: offers) == []
    with pytest.raises(ConfigError, match="judge `rows` weighs by log probabilities, which p/smal"):
        left_out(rows, examples, lambda _: offers)
