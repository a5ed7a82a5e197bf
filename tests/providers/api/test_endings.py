"""An answer, cut off, refused or filtered, or no answer: every response is one of these."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest

from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Finish, Json, Message, Reply, Request
from bestarm_agent.errors import Blame, FailureKind, ProviderError
from bestarm_agent.providers.api.transport import Connection, Response
from bestarm_agent.providers.failures import BilledError, failed_spend
from tests.support.api_cases import provider_of
from tests.support.fake_api import Call, FakeApi, Said, in_thread
from tests.support.provider_calls import answers

Body: TypeAlias = dict[str, Any]
FORMS: Mapping[str, tuple[str, dict[str, Json]]] = {
    "chat": ("openai", {}),
    "responses": ("openai", {"api": "responses"}),
    "completions": ("openai", {"completion": True}),
    "messages": ("anthropic", {}),
}
GOOD = "the answer"
_TOOL: Json = {"name": "add", "description": "", "parameters": {"type": "object"}}


@pytest.fixture(scope="module")
def api() -> Iterator[FakeApi]:
    with in_thread(FakeApi(answer=said)) as server:
        yield server


def said(call: Call) -> Said:
    if call.tools:
        return Said("", calls=(("add", {"a": 1}),))
    return Said(GOOD, reasoning=3)


def question(form: str, number: int = 0, *, tools: bool = False) -> Request:
    words = f"question {number}"
    if form == "completions":
        return Request("good", text=words)
    given = (_TOOL,) if tools else ()
    return Request("good", messages=(Message("user", words),), tools=given)  # type: ignore[arg-type]


def read(
    api: FakeApi,
    form: str,
    *changes: Callable[[Body], object],
    tools: bool = False,
    **options: Json,
) -> list[Reply | ProviderError]:
    """Ask once for each change of a good body, and return what comes of it."""

    def reshape(call: Call, body: Body) -> Body:
        number = int(call.question.rpartition(" ")[2])
        changed = changes[number](body)
        return changed if isinstance(changed, dict) else body

    api.reshape = reshape
    vendor, more = FORMS[form]
    provider = provider_of(vendor, api, **{**more, **options})
    numbers = range(len(changes))
    return answers(provider, *(question(form, i, tools=tools) for i in numbers))


def ended(form: str, reason: Json) -> Callable[[Body], object]:
    """Let a good body give another reason to stop."""

    def change(body: Body) -> None:
        if form == "messages":
            body["stop_reason"] = reason
        elif form != "responses":
            body["choices"][0]["finish_reason"] = reason
        elif reason in ("max_output_tokens", "content_filter"):
            body |= {"status": "incomplete", "incomplete_details": {"reason": reason}}
        else:
            body["status"] = reason

    return change


def emptied(form: str, text: Json) -> Callable[[Body], object]:
    """Let a good body say something else, or nothing."""

    def change(body: Body) -> None:
        match form:
            case "chat":
                body["choices"][0]["message"]["content"] = text
            case "completions":
                body["choices"][0]["text"] = text
            case "responses":
                body["output"] = [one for one in body["output"] if one["type"] == "message"]
                body["output"][0]["content"][0]["text"] = text
            case _:
                body["content"] = [] if text in (None, "") else [{"type": "text", "text": text}]

    return change


def both(*changes: Callable[[Body], object]) -> Callable[[Body], object]:
    def change(body: Body) -> None:
        for one in changes:
            one(body)

    return change


def choice(**fields: Json) -> Callable[[Body], object]:
    return lambda body: body["choices"][0].update(fields)


STOPS = {
    "chat": ["stop", "eos", "STOP", "end_turn", "tool_calls", "COMPLETE", "finish_reason_stop"],
    "completions": ["stop", "eos_token", "stop_sequence"],
    "responses": ["completed"],
    "messages": ["end_turn", "stop_sequence", "EndTurn"],
}
CUTS = {
    "chat": ["length", "MAX_TOKENS", "maxTokens", "FinishReason.MAX_TOKENS", "model_length"],
    "completions": ["length", "max_tokens", "repetition"],
    "responses": ["max_output_tokens"],
    "messages": ["max_tokens", "model_context_window_exceeded"],
}
FILTERED = {
    "chat": [
        *("content_filter", "content_filter: PROHIBITED_CONTENT", "SAFETY"),
        *("guardrail_intervened", "sensitive", "content-filter"),
    ],
    "completions": ["content_filter"],
    "responses": ["content_filter"],
    "messages": [],
}
FAILED: Mapping[str, list[Json]] = {
    "chat": [
        *("error", "abort", "load", "insufficient_system_resource", "network_error", "aborted"),
        *("something_new", "tool_calls_failed", 7, False, ["stop"], {"reason": "stop"}),
    ],
    "completions": ["abort", "error", "whatever"],
    "responses": ["failed", "in_progress", "queued", "cancelled", "incomplete", "new", 3],
    "messages": ["pause_turn", "error", "anything"],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_reason_of_the_table_is_what_it_is(api: FakeApi, form: str) -> None:
    rows = [
        *((reason, Finish.STOP) for reason in STOPS[form]),
        *((reason, Finish.LENGTH) for reason in CUTS[form]),
        *((reason, Finish.CONTENT_FILTER) for reason in FILTERED[form]),
        (None, Finish.STOP),  # some servers give no reason: what says something is finished
    ]
    if form == "messages":
        rows.append(("refusal", Finish.REFUSAL))
    found = read(api, form, *(ended(form, reason) for reason, _ in rows))
    kinds = [one.finish if isinstance(one, Reply) else one for one in found]
    assert dict(zip([str(reason) for reason, _ in rows], kinds, strict=True)) == {
        str(reason): finish for reason, finish in rows
    }
    assert {one.text for one in found if isinstance(one, Reply)} == {GOOD}


@pytest.mark.parametrize("form", FORMS)
def test_what_the_table_does_not_know_is_no_answer(api: FakeApi, form: str) -> None:
    """With or without a text: it is repeated as an outage is, and charged as its usage says."""
    changes = [ended(form, reason) for reason in FAILED[form]]
    changes += [both(one, emptied(form, "")) for one in changes]
    for one in read(api, form, *changes):
        assert isinstance(one, BilledError), one
        assert (one.transient, one.blame) == (True, Blame.PROVIDER)
        assert "the response is no answer" in str(one)
        assert 0 < one.spend.tokens < 100
        assert one.spend.usd_nanos > 0


@pytest.mark.parametrize("form", FORMS)
def test_nothing_said_and_nothing_called_is_no_answer(api: FakeApi, form: str) -> None:
    rows = [both(ended(form, None), emptied(form, text)) for text in ("", None)]
    if form != "messages":  # Claude may answer without a word
        rows += [emptied(form, None), emptied(form, 5), emptied(form, {"text": GOOD})]
    found = read(api, form, *rows)
    assert [type(one) for one in found] == [BilledError] * len(rows)
    (empty,) = read(api, form, emptied(form, ""))
    assert isinstance(empty, Reply), "an empty text is an answer where it ended as it should"
    assert (empty.finish, empty.text) == (Finish.STOP, "")


OPENROUTER: Body = {"code": 502, "message": "Provider returned error"}


def test_a_call_that_the_server_could_not_read_is_no_answer(api: FakeApi) -> None:
    change = both(ended("chat", "tool_calls"), emptied("chat", ""))
    (found,) = read(api, "chat", change)
    assert isinstance(found, ProviderError)
    assert (found.kind, found.transient) == (FailureKind.MALFORMED_REPLY, True)


def test_filters_by_other_names_are_filters(api: FakeApi) -> None:
    found = read(api, "chat", ended("chat", "IMAGE_SAFETY"), ended("chat", "safety_violation"))
    assert [one.finish for one in found if isinstance(one, Reply)] == [Finish.CONTENT_FILTER] * 2


def test_a_refusal_may_be_a_part_of_what_is_said(api: FakeApi) -> None:
    parts: Json = [{"type": "refusal", "refusal": "I cannot "}, {"type": "refusal", "refusal": "."}]
    (found,) = read(api, "chat", emptied("chat", parts))
    assert isinstance(found, Reply)
    assert (found.finish, found.text) == (Finish.REFUSAL, "I cannot .")


def test_thoughts_that_come_encrypted_are_thoughts(api: FakeApi) -> None:
    def change(body: Body) -> None:
        body["choices"][0]["message"] |= {"content": None, "reasoning_details": [{"data": "x"}]}

    (found,) = read(api, "chat", change)
    assert isinstance(found, Reply)
    assert found.finish is Finish.LENGTH


def test_remarks_before_the_answer_are_no_part_of_it(api: FakeApi) -> None:
    def change(body: Body) -> None:
        (message,) = [one for one in body["output"] if one["type"] == "message"]
        part = {"type": "output_text", "text": "Let me see: A?"}
        remark = {"type": "message", "phase": "commentary", "content": [part]}
        body["output"] = [remark, {**message, "phase": "final_answer"}]

    (found,) = read(api, "responses", change)
    assert isinstance(found, Reply)
    assert found.text == GOOD


def test_each_of_several_messages_is_a_text_of_its_own(api: FakeApi) -> None:
    """ "42" behind "Let me check 6 * 7." is no 7.42."""

    def change(body: Body) -> None:
        (message,) = [one for one in body["output"] if one["type"] == "message"]
        first = {"type": "output_text", "text": "Let me check 6 * 7."}
        body["output"] = [{"type": "message", "content": [first]}, {"type": "reasoning"}, message]

    (found,) = read(api, "responses", change)
    assert isinstance(found, Reply)
    assert found.text == f"Let me check 6 * 7.\n{GOOD}"


def test_errors_within_a_choice_are_errors(api: FakeApi) -> None:
    litellm: Json = {"error": OPENROUTER, "native_finish_reason": "error"}
    rows = [
        both(choice(error=OPENROUTER, finish_reason="error"), emptied("chat", "")),
        both(choice(error=OPENROUTER, finish_reason="stop"), emptied("chat", "")),
        both(choice(provider_specific_fields=litellm), emptied("chat", "")),
        choice(provider_specific_fields={"native_finish_reason": "insufficient_system_resource"}),
        choice(native_finish_reason="error"),
        lambda body: body["choices"][0]["message"].update(provider_specific_fields=litellm),
        choice(error="upstream went away"),
        choice(error={"code": 401, "message": "the key of the gateway"}),
        choice(error={"code": 400, "message": "temperature is too high"}),
    ]
    found = read(api, "chat", *rows)
    assert [type(one) for one in found] == [BilledError] * len(rows)
    for one in found:
        assert isinstance(one, BilledError)
        assert (one.transient, one.fatal) == (True, False)
    assert "Provider returned error" in str(found[0])
    limited, filtered = read(
        api,
        "chat",
        choice(error={"code": 429, "message": "try again in 3s"}),
        choice(error={"code": 403, "message": "Input was flagged by moderation"}),
    )
    assert isinstance(limited, ProviderError)
    assert (limited.kind, limited.retry_after) == (FailureKind.RATE_LIMITED, 3.0)
    assert isinstance(filtered, ProviderError)
    assert filtered.kind is FailureKind.CONTENT_FILTERED


@pytest.mark.parametrize("form", FORMS)
def test_a_failed_body_costs_what_its_usage_says(api: FakeApi, form: str) -> None:
    def failed(body: Body, **usage: Json) -> Body:
        return {"error": {"message": "broken"}, **usage}

    rows = [
        lambda body: failed(body, usage=body["usage"]),
        lambda body: failed(body, usage=dict.fromkeys(body["usage"], 0)),
        failed,
    ]
    bound = Spend(calls=1, tokens=5000, usd_nanos=7)
    spends = []
    for one in read(api, form, *rows):
        assert isinstance(one, ProviderError)
        assert "broken" in str(one)
        spends.append(failed_spend(one, bound))
    assert 0 < spends[0].tokens < 100
    assert spends[0].usd_nanos > 0
    assert spends[1:] == [Spend(calls=1), Spend(calls=1)]


def test_an_error_beside_counts_of_nothing_is_the_servers_own_and_costs_nothing(
    api: FakeApi,
) -> None:
    """As MiniMax answers a wrong key; with counts, what was generated is charged."""

    def failed(code: int, n: int) -> Callable[[Body], object]:
        told = {"status_code": code, "status_msg": "output new_sensitive"}
        usage = {"prompt_tokens": n, "completion_tokens": n, "total_tokens": 2 * n}
        return lambda body: {**body, "choices": None, "usage": usage, "base_resp": told}

    key, output = read(api, "chat", failed(2049, 0), failed(1027, 5))
    bound = Spend(calls=1, tokens=5000, usd_nanos=7)
    for one, kind, tokens in (
        (key, FailureKind.AUTHENTICATION, 0),
        (output, FailureKind.CONTENT_FILTERED, 10),
    ):
        assert isinstance(one, ProviderError)
        assert (one.kind, failed_spend(one, bound).tokens) == (kind, tokens)


def test_a_word_of_the_servers_own_is_told_and_can_be_declared(api: FakeApi) -> None:
    change = ended("chat", "fin: all said")
    (unknown,) = read(api, "chat", change)
    assert isinstance(unknown, ProviderError)
    assert "say `providers: {openai: {finish: {fin: all said: stop}}}`" in unknown.notice
    (known,) = read(api, "chat", change, finish={"FIN": "stop"})
    assert isinstance(known, Reply)
    assert (known.finish, known.text) == (Finish.STOP, GOOD)
    (cut,) = read(api, "chat", change, models={"go*": {"finish": {"fin": "length"}}})
    assert isinstance(cut, Reply)
    assert cut.finish is Finish.LENGTH
    (failed,) = read(api, "chat", ended("chat", "abort"))
    assert isinstance(failed, ProviderError)
    assert not failed.notice, "nobody is asked to declare a failure as an answer"


def test_thoughts_without_a_word_after_them_are_cut_off(api: FakeApi) -> None:
    def thought(name: str, content: Json = None) -> Callable[[Body], object]:
        def change(body: Body) -> None:
            body["choices"][0]["message"] |= {"content": content, name: "Hmm."}

        return change

    names, blank = ("reasoning_content", "reasoning", "thinking"), ("", "\n\n")
    found = read(api, "chat", *map(thought, names), *(thought("reasoning", t) for t in blank))
    for one in found:
        assert isinstance(one, Reply)
        assert (one.text.strip(), one.reasoning, one.finish) == ("", "Hmm.", Finish.LENGTH)
        assert "ended with its reasoning, and gave no answer" in one.notices
        assert not any("default_max_tokens" in notice for notice in one.notices)


# The random test: no mutation of a good body becomes a wrong answer without a word.

_ODD: tuple[Json, ...] = (None, 0, 7, True, -1.5, [], {}, ["x"], {"text": 5}, [[]])
_WORDS = ("error", "abort", "failed", "in_progress", "load", "xyz", "", "stopped?", "null")
_ERRORS = (OPENROUTER, "it broke", [OPENROUTER])
_SWITCHES = {"finish_reason", "stop_reason", "status", "type", "native_finish_reason"}
_LIST_IS_AN_ANSWER = ("messages", "content")  # Claude's empty list of blocks


class Draw:
    """Draws one after the other, the same in every run."""

    def __init__(self, *seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def share(self) -> float:
        return float(self._rng.random())

    def one_of(self, values: Sequence[Any]) -> Any:  # noqa: ANN401
        return copy.deepcopy(values[int(self._rng.integers(len(values)))])


def mutate(body: Body, draw: Draw, form: str) -> None:
    """Change one place of a body: remove it, break its type, or another reason, or an error."""
    places = [*_places(body)]
    if not places:
        return
    number = int(draw.share() * len(places))
    holder, key = places[number]
    how = draw.share()
    if how < 0.25:
        del holder[key]
    elif how < 0.65:
        holder[key] = draw.one_of(_ODD)
        if (form, key) == _LIST_IS_AN_ANSWER and holder[key] == []:
            holder[key] = None
    elif how < 0.85:
        switches = [(one, name) for one, name in places if name in _SWITCHES]
        for one, name in switches[int(draw.share() * len(switches)) :][:1]:
            one[name] = draw.one_of(_WORDS)
    else:
        holders = [one for one, name in places if isinstance(name, str)]
        holders[int(draw.share() * len(holders))]["error"] = draw.one_of(_ERRORS)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401
    if isinstance(value, dict | list):
        keys = value if isinstance(value, dict) else range(len(value))
        for key in list(keys):
            yield value, key
            yield from _places(value[key])


@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_no_mutation_of_a_good_body_becomes_a_silent_zero(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, form: str, tools: bool
) -> None:
    if tools and form == "completions":
        pytest.skip("they know no tools")
    good: list[Body] = []
    read(api, form, lambda body: good.append(body), tools=tools)
    draw, bodies = Draw(4, [*FORMS].index(form), tools), list[Body]()
    for _ in range(300):
        bodies.append(copy.deepcopy(good[0]))
        for _ in range(draw.one_of([1, 1, 2, 3])):
            mutate(bodies[-1], draw, form)
    sent = iter(bodies)

    async def send(_self: Connection, *_request: object) -> Response:
        return Response(200, {}, json.dumps(next(sent)).encode())

    monkeypatch.setattr(Connection, "send", send)
    vendor, options = FORMS[form]
    asked = [question(form, tools=tools)] * len(bodies)
    found = answers(provider_of(vendor, api, **options), *asked)
    n_answers = 0
    for body, one in zip(bodies, found, strict=True):
        if isinstance(one, ProviderError):
            assert one.blame is not Blame.HARNESS, (one, body)
        elif one.finish is Finish.STOP:
            n_answers += 1
            assert one.tool_calls if tools else one.text == GOOD, body
    assert 30 < n_answers < 270, "some mutations matter, and some do not"


@pytest.mark.parametrize("form", ["chat", "messages"])
def test_an_error_without_content_beside_an_answer_is_none(api: FakeApi, form: str) -> None:
    """As one-api writes it into every answer."""
    nothing = {"error": {"message": "", "type": "", "param": "", "code": None}}
    (found,) = read(api, form, lambda body: {**body, **nothing})
    assert isinstance(found, Reply)
    assert found.text == GOOD
