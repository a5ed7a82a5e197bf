"""What is sent and recorded, what it costs, and what a response shows about it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.domain.values import Json, Message, Request
from bestarm_agent.errors import ConfigError, FailureKind
from bestarm_agent.providers.api.anthropic import MESSAGES, AnthropicProvider
from bestarm_agent.providers.api.openai import OpenAIProvider
from bestarm_agent.providers.api.protocol import Wire, is_same_model, max_prompt_tokens
from bestarm_agent.providers.api.provider import ApiProvider, _model_names
from bestarm_agent.providers.catalog_entry import ModelFacts
from tests.support.api_cases import VENDORS, asked, provider_of
from tests.support.fake_api import Call, FakeApi, FakeModel, Fault, Said, in_thread
from tests.support.provider_calls import error, reply

SCHEMA: dict[str, Json] = {
    "title": "verdict",
    "type": "object",
    "properties": {"score": {"type": "integer"}},
    "required": ["score"],
    "additionalProperties": False,
}
DIALOGUE = (
    Message("system", "Be brief."),
    Message("user", "Hello"),
    Message("assistant", "Hello."),
    Message("user", "2+3"),
)


def answer(call: Call) -> Said:
    said = {"json": '{"score": 4}', "long": "x" * 400}.get(call.question, "a b")
    if call.model == "boundless":
        return Said("a b" * 1000)
    if call.question == "count":
        return Said(said, cached=2, cache_write=1, reasoning=3)
    return Said(said, alternatives={"a": 0.75, "A": 0.25})


def script(call: Call) -> Fault | None:
    faults = {"none": Fault.NO_USAGE, "zero": Fault.ZERO_USAGE, "wrong": Fault.WRONG_USAGE}
    return faults.get(call.question)


@pytest.fixture(scope="module")
def api() -> Iterator[FakeApi]:
    deaf = FakeModel(ignores=frozenset({"logprobs"}), lenient=True)
    old = FakeModel(max_tokens_fields=frozenset({"max_tokens"}))
    boundless = FakeModel(ignores=frozenset({"max_tokens"}))
    models = {"deaf": deaf, "old": old, "boundless": boundless, "good": FakeModel()}
    with in_thread(FakeApi(answer, script, models)) as server:
        yield server


def sent(api: FakeApi) -> dict[str, Json]:
    """The body of the latest request."""
    body = api.received[-1].body
    assert isinstance(body, dict)
    return body


def turns(*messages: Message) -> Json:
    return [{"role": message.role, "content": message.content} for message in messages]


def test_chat_completions_send_what_was_asked_and_nothing_else(api: FakeApi) -> None:
    before = len(api.received)
    request = Request("good", messages=DIALOGUE, params={"temperature": 0.5, "max_tokens": 20})
    found = reply(provider_of("openai", api), request)
    assert len(api.received) == before + 1, "one attempt is one request"
    assert api.received[-1].path == "/v1/chat/completions"
    limits: dict[str, Json] = {"temperature": 0.5, "max_completion_tokens": 20}
    assert sent(api) == {"model": "good", "messages": turns(*DIALOGUE), **limits}
    assert found.sent == limits
    assert found.request_id == f"req_{api.received[-1].number}"
    assert (found.model, found.service_tier) == ("good", "default")


class NamedInPath(AnthropicProvider):
    """Speaks a protocol whose path names the model."""

    @staticmethod
    def wire(facts: ModelFacts, *, chat: bool) -> Wire:
        return replace(MESSAGES, path="{model}/messages")


def test_a_path_may_name_the_model() -> None:
    with in_thread(FakeApi()) as api:
        options: dict[str, Json] = {"base_url": api.url, "api_key": api.key}
        assert reply(NamedInPath.create("x", options, Path()), asked("2+3", "v1")).text
        assert [received.path for received in api.received] == ["/v1/messages"]


def test_responses_send_the_same_under_their_own_names(api: FakeApi) -> None:
    params: dict[str, Json] = {"effort": "low", "verbosity": "low"}
    provider = provider_of("openai", api, api="responses", default_max_tokens=99)
    reply(provider, Request("good", None, DIALOGUE[:2], params, response_schema=SCHEMA))
    assert api.received[-1].path == "/v1/responses"
    form: Json = {"type": "json_schema", "name": "verdict", "schema": SCHEMA, "strict": True}
    assert sent(api) == {
        "model": "good",
        "input": turns(*DIALOGUE[:2]),
        "store": False,
        "reasoning": {"effort": "low"},
        "text": {"verbosity": "low", "format": form},
        "max_output_tokens": 99,
    }


def test_messages_send_the_system_prompt_apart(api: FakeApi) -> None:
    params: dict[str, Json] = {"stop": "END", "effort": "low", "max_tokens": 9}
    request = Request("good", None, DIALOGUE, params, response_schema=SCHEMA)
    reply(provider_of("anthropic", api), request)
    assert sent(api) == {
        "model": "good",
        "system": "Be brief.",
        "messages": turns(*DIALOGUE[1:]),
        "max_tokens": 9,
        "stop_sequences": ["END"],
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    }


def test_temperature_goes_to_old_messages_only(api: FakeApi) -> None:
    request = asked("2+3", temperature=0.5)
    found = reply(provider_of("anthropic", api, legacy_sampling=True), request)
    assert sent(api)["temperature"] == 0.5
    assert api.received[-1].headers["anthropic-version"] == "2023-06-01"
    assert found.sent == {"temperature": 0.5, "max_tokens": 4096}


def test_plain_prompts_are_one_message_or_completed(api: FakeApi) -> None:
    request = Request("good", text="2+3=", params={"max_tokens": 5})
    reply(provider_of("openai", api), request)
    assert sent(api)["messages"] == [{"role": "user", "content": "2+3="}]
    reply(provider_of("openai", api, completion=True), request)
    assert api.received[-1].path == "/v1/completions"
    assert sent(api) == {"model": "good", "prompt": "2+3=", "max_tokens": 5}
    reply(provider_of("anthropic", api), request)
    assert sent(api)["messages"] == [{"role": "user", "content": "2+3="}]


def test_the_name_of_the_limit_and_further_fields_are_options(api: FakeApi) -> None:
    options: dict[str, Json] = {"max_tokens_field": "max_tokens", "extra_body": {"user": "study"}}
    found = reply(provider_of("openai", api, **options), asked("2+3", "old"))
    assert found.sent == {"max_tokens": 4096, "user": "study"}
    assert sent(api).items() >= found.sent.items()


@pytest.mark.parametrize(
    ("vendor", "options"),
    [("openai", {}), ("openai", {"api": "responses"}), ("anthropic", {})],
    ids=["chat", "responses", "messages"],
)
def test_tokens_and_dollars_are_counted_in_one_way(
    api: FakeApi, vendor: str, options: dict[str, Json]
) -> None:
    found = reply(provider_of(vendor, api, **options), asked("count"))
    assert found.usage == Usage(input=6, cached=2, cache_write=1, output=4, reasoning=3)
    # dollars for a million: 3 fresh at 1, 2 cached at .1, 1 written at 1.25, 4 generated at 5
    assert found.usd_nanos == 3000 + 200 + 1250 + 20000


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("question", ["none", "wrong", "zero"])
def test_counts_that_cannot_be_are_replaced_by_the_bound(
    api: FakeApi, vendor: str, question: str
) -> None:
    """Or by more, if the text is longer than that."""
    provider = provider_of(vendor, api, context=8192)
    request = asked(question, max_tokens=50)
    bound, found = provider.bound(request), reply(provider, request)
    assert (found.usage.total, found.usd_nanos) == (bound.tokens, bound.usd_nanos)
    assert "the upper bound is charged" in found.notices[0]
    if question != "wrong":
        long = asked(question, "boundless", max_tokens=4)
        bound, found = provider.bound(long), reply(provider, long)
        assert found.usage.output == len("a b" * 1000) // 3
        assert (found.usd_nanos or 0) > bound.usd_nanos


def test_log_probabilities_come_back_where_they_are_asked_for(api: FakeApi) -> None:
    request = Request("good", messages=DIALOGUE[3:], top_logprobs=2)
    for options in ({}, {"api": "responses"}):
        found = reply(provider_of("openai", api, **options), request)
        assert [p.chosen.text for p in found.logprobs] == ["a", " b"]
        assert [t.text for t in found.logprobs[0].alternatives] == ["a", "A"]
        assert found.logprobs[0].alternatives[1].logprob == pytest.approx(-1.386, abs=1e-3)
        assert found.notices == ()


def test_a_server_that_ignores_what_it_is_asked_is_noticed(api: FakeApi) -> None:
    provider = provider_of("openai", api)
    request = Request("deaf", messages=DIALOGUE[3:], top_logprobs=2, response_schema=SCHEMA)
    assert reply(provider, request).notices == (
        "gave no log probabilities although they were asked for",
        "answered without regard to the JSON schema",
    )
    cut = reply(provider_of("openai", api, default_max_tokens=10), asked("long"))
    assert cut.notices == ("was cut off at default_max_tokens; raise it, or set max_tokens",)
    good = Request("good", messages=(Message("user", "json"),), response_schema=SCHEMA)
    assert json.loads(reply(provider, good).text) == {"score": 4}
    assert reply(provider, good).notices == ()


@pytest.mark.parametrize("text", ["", "2+3", "Grüße aus Łódź", "日本語", "🙂🙃", "\x00\x01"])
def test_no_tokenizer_makes_more_tokens_than_bytes(text: str) -> None:
    """The dearest one conceivable makes a token of every byte."""
    assert max_prompt_tokens(Request("m", text=text), overhead=0) >= len(text.encode())


@pytest.mark.parametrize("vendor", VENDORS)
def test_bounds_rise_with_the_first_answer_that_exceeds_its_limit(
    api: FakeApi, vendor: str
) -> None:
    provider = provider_of(vendor, api)
    request = asked("endless", "boundless", max_tokens=16)
    before, other = provider.bound(request), provider.bound(asked("2+3", max_tokens=16))
    found = reply(provider, request)
    assert found.usage.output == 750
    assert "generated more than max_tokens" in found.notices
    after = provider.bound(request)
    assert after.tokens >= found.usage.total
    assert after.usd_nanos >= (found.usd_nanos or 0) > before.usd_nanos
    assert provider.bound(asked("2+3", max_tokens=16)) == other, "other models keep theirs"
    assert reply(provider, request).notices == found.notices, "the limit is still the request's"


def test_the_bound_counts_schema_limit_tier_and_what_is_sent_besides(api: FakeApi) -> None:
    def bound(request: Request, **options: Json) -> Spend:
        price: Json = {"input": 1, "output": 5, "tiers": {"priority": 2}}
        return provider_of("openai", api, price=price, overhead_tokens=0, **options).bound(request)

    plain, fast = (
        bound(asked("2+3", max_tokens=100, service_tier=tier)) for tier in ("default", "priority")
    )
    assert plain.tokens == len("user2+3") + 16 + 100
    assert plain.usd_nanos == (plain.tokens - 100) * 1000 + 100 * 5000
    assert fast.usd_nanos == 2 * plain.usd_nanos
    free = bound(asked("2+3")).tokens
    schema = Request("good", messages=DIALOGUE[3:], response_schema=SCHEMA)
    assert bound(schema).tokens > free + 100
    tools: Json = [{"type": "function", "function": {"name": "f" * 500}}]
    assert bound(asked("2+3"), extra_body={"tools": tools}).tokens >= free + 500


AMONG = "cannot be among these"
LATE = Request("good", messages=(DIALOGUE[1], DIALOGUE[0], DIALOGUE[3]))


@pytest.mark.parametrize(
    ("vendor", "options", "request_", "complaint"),
    [
        ("openai", {"extra_body": {"max_tokens": 9}}, LATE, f"`max_tokens` {AMONG}; set it in"),
        ("openai", {"extra_body": {"service_tier": "flex"}}, LATE, f"`service_tier` {AMONG}"),
        ("openai", {"extra_body": {"n": 2}}, LATE, f"`n` {AMONG}; leave it out"),
        *(
            ("openai", {}, asked("2+3", max_tokens=most), "max_tokens")
            for most in (0, -1, 1.5, "many", True)
        ),
        ("anthropic", {}, LATE, "at the beginning"),
        (
            *("anthropic", {"without": ["temperature"]}),
            *(asked("2+3", temperature=0.5), "does not take the parameter"),
        ),
    ],
)
def test_what_has_no_bound_or_cannot_be_sent_is_refused(
    api: FakeApi, vendor: str, options: dict[str, Json], request_: Request, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        provider_of(vendor, api, **options).bound(request_)


@pytest.mark.parametrize("kind", [OpenAIProvider, AnthropicProvider])
def test_a_missing_key_is_an_error_before_any_call(
    kind: type[ApiProvider], monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = kind.vendor.key_variable
    for name in (variable, "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)

    def check(model: str = "m", **options: Json) -> None:
        made = kind.create("mine", options, Path())
        made.check(model)
        made.check_machine(model)  # not asked by a plan, which calls nothing

    for options, model, message in (
        ({}, "m", f"{variable} is not set; set it"),
        ({"key": "OTHER_KEY"}, "m", "OTHER_KEY is not set"),
        ({"key": "none"}, "//models", "cannot be the name of a model of mine"),
    ):
        with pytest.raises(ConfigError, match=message):
            check(model, **options)
    check(key="none")
    check(base_url="http://127.0.0.1:9")
    check("/models/llama", key="none")  # a server's name by its path
    monkeypatch.setenv(variable, "k")
    check()


def mine(**options: Json) -> OpenAIProvider:
    return OpenAIProvider.create("mine", options, Path())


def test_the_vendors_key_goes_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the-real-one")
    with pytest.raises(ConfigError, match=r"OPENAI_API_KEY is set, but .* does not send") as told:
        mine(base_url="https://elsewhere.example/v1").check_machine("m")
    assert "say `providers: {mine: {key: OPENAI_API_KEY}}`" in str(told.value)
    mine(base_url="https://elsewhere.example/v1", key="OPENAI_API_KEY").check_machine("m")
    mine(base_url="https://api.openai.com/v1/").check_machine(
        "m"
    )  # a slash more is the same address
    with in_thread(FakeApi(key=None)) as open_server:
        reply(mine(base_url=open_server.openai_url), asked("2+3"))
        assert "the-real-one" not in str(open_server.received[-1].headers)


def test_no_message_shows_what_an_address_or_a_header_hides() -> None:
    hidden: dict[str, Json] = {"key": "NO_SUCH_KEY", "headers": {"X-Pass": "open-sesame"}}
    found = error(mine(**hidden, base_url="http://127.0.0.1:9/v1?token=t0k3n"), asked("2+3"))
    assert found.kind is FailureKind.UNREACHABLE
    assert "t0k3n" not in str(found)
    assert "open-sesame" not in str(found)
    with pytest.raises(ConfigError, match=r"if https://api.example/v1 needs none"):
        mine(**hidden, base_url="https://api.example/v1?token=t0k3n").check_machine("m")
    with pytest.raises(ConfigError, match="holds a user name or a password") as caught:
        mine(base_url="http://me:pass-word@127.0.0.1:9/v1")
    assert "pass-word" not in str(caught.value)


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_model_that_is_to_be_shut_down_says_when(vendor: str) -> None:
    with in_thread(FakeApi()) as api:
        api.more_headers = {"Sunset": "Wed, 11 Nov 2026 23:59:59 GMT", "Deprecation": "@1793491200"}
        (notice,) = reply(provider_of(vendor, api), asked("2+3")).notices
        assert notice == "is to be shut down on 2026-11-11, as its server says"
        api.more_headers = {"Sunset": "soon"}
        assert not reply(provider_of(vendor, api), asked("2+3")).notices


def test_the_vendors_own_variables_are_read(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    assert api.key is not None
    monkeypatch.setenv("OPENAI_API_KEY", api.key)
    monkeypatch.setenv("OPENAI_BASE_URL", api.openai_url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", api.key)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
    assert reply(OpenAIProvider.create("openai", {}, Path()), asked("2+3")).text == "a b"
    assert reply(AnthropicProvider.create("anthropic", {}, Path()), asked("2+3")).text == "a b"


def test_prices_come_from_the_table_for_the_vendors_own_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert mine(key="none").capabilities("gpt-4o-mini").priced
    assert not mine(base_url="http://127.0.0.1:9/v1").capabilities("gpt-4o-mini").priced


def test_what_decides_replies_decides_the_fingerprint() -> None:
    def made(**options: Json) -> str:
        return mine(**{"key": "none", **options}).fingerprint("m")

    assert made(context=9, price={"input": 1, "output": 1}) == made()
    others: list[dict[str, Json]] = [
        {"base_url": "http://127.0.0.1:9/v1"},
        {"api": "responses"},
        {"default_max_tokens": 9},
        {"extra_body": {"user": "u"}},
        {"headers": {"x-model-version": "1"}},
        {"headers": {"X-Model-Version": "2"}},
    ]
    assert len({made(), *(made(**other) for other in others)}) == 7
    one, two = ({"headers": {"X-Api-Key": key}} for key in ("first-key-1", "second-key-2"))
    assert made(**one) == made(**two) == made()  # a key asks the same model
    lower = made(headers={"x-model-version": "2"})
    assert lower == made(headers={"X-Model-Version": "2"})


@pytest.mark.parametrize(
    ("asked_for", "answered", "is_same"),
    [
        ("gpt-6-luna", "gpt-6-luna", True),
        ("gpt-6-luna", "gpt-6-luna-2026-08-01", True),
        ("claude-opus-5", "claude-opus-5-20260401", True),
        ("gpt-4", "gpt-4-0613", True),
        ("mistral-large-latest", "mistral-large-2611", False),
        ("mistral-large", "mistral-large-latest", True),
        ("models/gemini-4-pro", "gemini-4-pro", True),
        ("Meta-Llama/Llama-4-8B", "meta-llama/llama-4-8b", True),
        ("deepseek/deepseek-r2:free", "deepseek/deepseek-r2", True),
        ("/models/small/", "small", True),
        ("grok-4", "grok-4.3", False),
        ("grok-3", "grok-4.3", False),
        ("gpt-6", "gpt-6-mini", False),
        ("gpt-6-mini", "gpt-6", False),
    ],
)
def test_a_model_that_answers_under_another_name_is_told(
    asked_for: str, answered: str, is_same: bool
) -> None:
    assert is_same_model(asked_for, answered) is is_same


def test_a_server_that_redirects_silently_is_told() -> None:
    models = {"grok-3": FakeModel(), "grok-4": FakeModel()}
    with in_thread(FakeApi(lambda _: "5", models=models)) as server:
        provider = provider_of("openai", server)
        plain = reply(provider, asked("2+3", "grok-3", max_tokens=9))
        assert plain.notices == ()
        server.redirects |= {"grok-3": "grok-4.3", "grok-4": "grok-4.3"}
        found = reply(provider, asked("2+3", "grok-3", max_tokens=9))
        other = reply(provider, asked("2+3", "grok-4", max_tokens=9))
    assert found.model == "grok-4.3"
    assert found.notices == ("was answered by grok-4.3, which is not the name asked for",)
    assert other.notices == ("was answered by grok-4.3, as grok-3 was: the two are one model",)


def test_an_address_without_the_usual_path_is_told(api: FakeApi) -> None:
    found = error(provider_of("openai", api, base_url=api.url), asked("2+3"))
    assert f"base_url ({api.url}), which most servers want to end in /v1" in str(found)
    for vendor in VENDORS:
        found = error(provider_of(vendor, api), asked("2+3", "absent"))
        assert "most servers" not in str(found)


@pytest.mark.parametrize("vendor", VENDORS)
def test_the_models_are_listed(api: FakeApi, vendor: str) -> None:
    async def main() -> tuple[str, ...]:
        async with provider_of(vendor, api) as provider:
            return await provider.list_models()

    assert set(asyncio.run(main())) >= {"good", "deaf"}


@pytest.mark.parametrize("vendor", VENDORS)
def test_requests_take_the_proxy_that_the_environment_names(
    api: FakeApi, vendor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", api.url)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    base = f"http://models.invalid{'/v1' if vendor == 'openai' else ''}"
    provider = provider_of(vendor, api, base_url=base)
    assert reply(provider, asked("2+3")).text == "a b"
    assert api.received[-1].headers["host"] == "models.invalid"


@pytest.mark.parametrize("vendor", VENDORS)
def test_the_query_of_an_address_stays_behind_the_path(api: FakeApi, vendor: str) -> None:
    base = api.openai_url if vendor == "openai" else api.url
    provider = provider_of(vendor, api, base_url=f"{base}?api-version=2026-11-01")
    assert reply(provider, asked("2+3")).text == "a b"


def test_models_that_will_be_shut_down_come_first_with_their_day() -> None:
    listed: list[Json] = [
        {"id": "a"},
        {"id": "b", "shutdown_date": "2027-01-14"},
        {"id": "c", "shutdown_date": 1_806_537_600},
    ]
    assert _model_names({"data": listed}) == (
        "b (shut down on 2027-01-14)",
        "c (shut down on 2027-04-01)",
        "a",
    )
