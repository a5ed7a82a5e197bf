"""Tools, their calls and results, and forms of answers, on the way out and in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bestarm_agent.config.conversations import read_conversation, read_tools
from bestarm_agent.domain.values import Finish, Json, Message, Reply, Request, tool_call
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.store.codec import dump_reply, load_reply
from tests.support.api_cases import provider_of
from tests.support.fake_api import Call, FakeApi, Said, in_thread
from tests.support.provider_calls import reply

CITY: dict[str, Json] = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER: dict[str, Json] = {"name": "get_weather", "description": "Forecast.", "parameters": CITY}
NOTHING: dict[str, Json] = {"type": "object", "properties": {}}
TOOLS = read_tools([{"type": "function", "function": WEATHER}, {"name": "now", "strict": True}])
CALL: dict[str, Json] = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
CONVERSATION = read_conversation(
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Paris and Rome?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": CALL},
                {"id": "b", "function": {"name": "now"}},
            ],
        },
        {"role": "tool", "tool_call_id": "b", "content": "noon", "name": "now"},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "18 C"}]},
        {"role": "assistant", "content": "18 C."},
        {"role": "user", "content": "And Oslo?"},
    ]
)
FORMS = ("chat", "responses", "messages")


def answer(call: Call) -> Said:
    match call.question:
        case "both":
            return Said("Let me see.", calls=(("get_weather", {"city": "Oslo"}), ("now", {})))
        case "broken":
            return Said("", calls=(("get_weather", "city=Oslo"),))
        case "key":
            return Said("", calls=(("now", {"key": call.question + "-of-fakes-123"}),))
    return Said("", calls=(("get_weather", {"city": "Oslo"}),))


@pytest.fixture(scope="module")
def api() -> Iterator[FakeApi]:
    with in_thread(FakeApi(answer, key="key-of-fakes-123")) as server:
        yield server


def provider(api: FakeApi, form: str) -> ApiProvider:
    options: dict[str, Json] = {"api": "responses"} if form == "responses" else {}
    return provider_of("anthropic" if form == "messages" else "openai", api, **options)


def asked(text: str = "And Oslo?", **more: Any) -> Request:  # noqa: ANN401
    return Request("m", messages=(Message("user", text),), **{"tools": TOOLS, **more})


def sent(api: FakeApi, form: str, request: Request) -> dict[str, Any]:
    reply(provider(api, form), request)
    return dict(api.received[-1].body)


def test_chat_completions_carry_tools_calls_and_results(api: FakeApi) -> None:
    body = sent(api, "chat", replace(asked(), messages=CONVERSATION, tool_choice="get_weather"))
    assert body["tools"] == [
        {"type": "function", "function": WEATHER},
        {"type": "function", "function": {"name": "now", "parameters": NOTHING, "strict": True}},
    ]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "get_weather"}}
    now = {"name": "now", "arguments": "{}"}
    assert body["messages"][2:5] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "a", "type": "function", "function": CALL},
                {"id": "b", "type": "function", "function": now},
            ],
        },
        {"role": "tool", "content": "noon", "tool_call_id": "b"},
        {"role": "tool", "content": "18 C", "tool_call_id": "a"},
    ]


def test_responses_carry_them_as_items(api: FakeApi) -> None:
    body = sent(api, "responses", replace(asked(), messages=CONVERSATION, tool_choice="now"))
    assert body["tools"] == [
        {"type": "function", "strict": False, **WEATHER},
        {"type": "function", "strict": True, "name": "now", "parameters": NOTHING},
    ]
    assert body["tool_choice"] == {"type": "function", "name": "now"}
    assert body["input"][2:] == [
        {"type": "function_call", "call_id": "a", **CALL},
        {"type": "function_call", "call_id": "b", "name": "now", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "b", "output": "noon"},
        {"type": "function_call_output", "call_id": "a", "output": "18 C"},
        {"role": "assistant", "content": "18 C."},
        {"role": "user", "content": "And Oslo?"},
    ]


def test_messages_carry_them_as_blocks(api: FakeApi) -> None:
    body = sent(api, "messages", replace(asked(), messages=CONVERSATION, tool_choice="now"))
    assert body["tools"] == [
        {"name": "get_weather", "description": "Forecast.", "input_schema": CITY},
        {"name": "now", "input_schema": NOTHING, "strict": True},
    ]
    assert body["tool_choice"] == {"type": "tool", "name": "now"}
    used = {"type": "tool_use", "id": "a", "name": "get_weather", "input": {"city": "Paris"}}
    assert body["messages"][1:3] == [
        {
            "role": "assistant",
            "content": [used, {"type": "tool_use", "id": "b", "name": "now", "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "b", "content": "noon"},
                {"type": "tool_result", "tool_use_id": "a", "content": "18 C"},
            ],
        },
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_choices_have_the_names_of_each_protocol(api: FakeApi, form: str, choice: str) -> None:
    found = sent(api, form, asked(tool_choice=choice))["tool_choice"]
    named = {"auto": "auto", "none": "none", "required": "any"}[choice]
    assert found == ({"type": named} if form == "messages" else choice)


@pytest.mark.parametrize("form", FORMS)
def test_a_reply_with_calls_and_no_text_is_one(api: FakeApi, form: str) -> None:
    found = reply(provider(api, form), asked())
    assert (found.text, found.finish, found.notices) == ("", Finish.STOP, ())
    (call,) = found.tool_calls
    assert call == tool_call("get_weather", {"city": "Oslo"}, call["id"])
    assert call["id"]
    assert found.said == 'get_weather(city="Oslo")'
    assert load_reply(dump_reply(found)) == found
    assert "tools" not in found.sent


@pytest.mark.parametrize("form", FORMS)
def test_text_and_several_calls_come_together(api: FakeApi, form: str) -> None:
    found = reply(provider(api, form), asked("both"))
    assert found.said == 'Let me see.\nget_weather(city="Oslo")\nnow()'


@pytest.mark.parametrize("form", ["chat", "responses"])
def test_arguments_that_are_no_json_stay_a_text(api: FakeApi, form: str) -> None:
    assert reply(provider(api, form), asked("broken")).said == "get_weather(city=Oslo)"


@pytest.mark.parametrize("form", FORMS)
def test_our_own_key_is_removed_from_calls_too(api: FakeApi, form: str) -> None:
    assert reply(provider(api, form), asked("key")).said == 'now(key="[redacted]")'


@pytest.mark.parametrize(("text", "kept"), [("NaN", "NaN"), ("[1e999]", "[1e999]"), ("", {})])
def test_numbers_that_are_no_json_cannot_get_into_the_store(text: str, kept: Json) -> None:
    found = Reply("", tool_calls=(tool_call("f", text),))
    assert found.tool_calls[0]["function"] == {"name": "f", "arguments": kept}
    assert load_reply(dump_reply(found)) == found


@pytest.mark.parametrize("form", FORMS)
def test_bounds_count_tools_calls_and_results(api: FakeApi, form: str) -> None:
    def bound(request: Request) -> int:
        return provider(api, form).bound(request).tokens

    plain, tools = bound(asked(tools=())), bound(asked())
    assert tools >= plain + len(json.dumps(TOOLS)) + 804  # of the system prompt of some models
    talk = Request("m", messages=CONVERSATION, tools=TOOLS)
    assert bound(talk) >= sum(len(json.dumps(one.as_json())) for one in CONVERSATION)


SCHEMA: dict[str, Json] = {"type": "object", "properties": {"n": {"type": "integer"}}}
NAMED: Json = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
OBJECT: Json = {"type": "json_object"}


def test_the_form_of_an_answer_is_a_parameter(api: FakeApi) -> None:
    def body(form: str, wanted: Json, **more: Any) -> dict[str, Any]:  # noqa: ANN401
        return sent(api, form, asked(params={"response_format": wanted}, **more))

    assert body("chat", NAMED)["response_format"] == NAMED
    assert body("chat", OBJECT)["response_format"] == OBJECT
    found = {"type": "json_schema", "name": "n", "schema": SCHEMA}
    assert body("responses", NAMED)["text"] == {"format": found}
    assert body("responses", OBJECT)["text"] == {"format": OBJECT}
    config = {"format": {"type": "json_schema", "schema": SCHEMA}}
    assert body("messages", NAMED)["output_config"] == config
    judged = body("chat", OBJECT, response_schema={"title": "verdict", **SCHEMA})
    assert judged["response_format"]["json_schema"]["name"] == "verdict", "a judge's comes first"


@pytest.mark.parametrize(
    ("form", "wanted", "complaint"),
    [
        ("messages", OBJECT, "only with `type: json_schema`, got `json_object`"),
        ("chat", "json_object", "parameter `response_format` of m must be"),
        ("chat", {"type": "json_schema"}, "must be"),
        ("responses", {"type": "grammar"}, "must be"),
        ("messages", {"type": "json_schema", "json_schema": {"name": "n"}}, "must be"),
    ],
)
def test_a_form_that_cannot_be_asked_for_is_refused_before_a_call(
    api: FakeApi, form: str, wanted: Json, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        provider(api, form).bound(asked(params={"response_format": wanted}))


def test_claude_needs_the_tools_that_a_conversation_calls(api: FakeApi) -> None:
    with pytest.raises(ConfigError, match="where the prompt has no `tools`"):
        provider(api, "messages").bound(Request("m", messages=CONVERSATION))
    provider(api, "chat").bound(Request("m", messages=CONVERSATION))


def test_completions_know_no_tools(api: FakeApi) -> None:
    plain = provider_of("openai", api, completion=True)
    with pytest.raises(ConfigError, match="completions, which know no tools"):
        plain.bound(Request("m", text="2+3", tools=TOOLS))
    assert sent(api, "chat", Request("m", text="2+3", tools=TOOLS))["tools"]
