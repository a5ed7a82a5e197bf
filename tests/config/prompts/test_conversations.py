"""Prompts whose messages or tools are in the example, and what is wrong with these."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bestarm_agent.config.load import study_from
from bestarm_agent.config.prompts import CompiledPrompt, check_prompt
from bestarm_agent.domain.values import Example, Json, Message, PromptTemplate, tool_call
from bestarm_agent.errors import ConfigError

USER: dict[str, Json] = {"role": "user", "content": "Hi"}
FUNCTION: dict[str, Json] = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
CALLING: dict[str, Any] = {"role": "assistant", "tool_calls": [{"id": "a", "function": FUNCTION}]}
ANSWER: dict[str, Json] = {"role": "tool", "tool_call_id": "a", "content": "18"}
WEATHER: dict[str, Json] = {"name": "get_weather"}


def template(**prompt: Any) -> PromptTemplate:  # noqa: ANN401
    """The prompt ``p`` of a study."""
    rest: dict[str, Any] = {"models": ["openai/m"], "dataset": "d.jsonl", "scorer": "exact"}
    spec = study_from({**rest, "prompts": [{"name": "p", **prompt}]}).config.prompts[0]
    return spec.template("p")


def rendered(value: Json, *before: Any) -> Any:  # noqa: ANN401
    prompt = CompiledPrompt(template(messages=[*before, "{{ talk }}"]))
    return prompt.render({"talk": value, "q": 1})


def test_a_field_stands_for_its_messages() -> None:
    talk: Any = [USER, CALLING, ANSWER]
    called = tool_call("get_weather", {"city": "Paris"}, "a")
    messages = (
        Message("user", "Hi"),
        Message("assistant", "", (called,)),
        Message("tool", "18", tool_call_id="a"),
    )
    assert rendered(talk) == messages
    assert rendered(json.dumps(talk)) == messages, "as a cell of a CSV file"
    assert template(messages="{{ talk }}") == template(messages=["{{ talk }}"])
    system = {"role": "system", "content": "Be brief, {{ q }}."}
    assert rendered(talk, system) == (Message("system", "Be brief, 1."), *messages)
    assert messages[1].text == 'get_weather(city="Paris")'


def test_fields_of_any_name_hold_messages_and_tools() -> None:
    template_ = template(messages=['{{ row["Chat log"] }}'], tools=["{{ row['My tools'] }}"])
    prompt = CompiledPrompt(template_)
    inputs: dict[str, Json] = {"Chat log": [USER], "My tools": [WEATHER]}
    assert prompt.render(inputs) == (Message("user", "Hi"),)
    assert [tool["name"] for tool in prompt.tools(inputs)[0]] == ["get_weather"]
    with pytest.raises(ConfigError, match="there is no field `Chat log`"):
        prompt.render({"My tools": [WEATHER]})


@pytest.mark.parametrize("key", ["refusal", "annotations", "audio"])
def test_keys_without_a_value_are_left_out(key: str) -> None:
    assert rendered([{**USER, key: None}, {**USER, key: []}]) == (Message("user", "Hi"),) * 2


def test_texts_in_parts_are_joined() -> None:
    text: Json = {"type": "text", "text": "Hi"}
    (message,) = rendered([{"role": "user", "content": [text, text]}])
    assert message.content == "Hi\nHi"


@pytest.mark.parametrize(
    ("talk", "complaint"),
    [
        (None, "must be a list of objects, got None"),
        ("Hi", "must be a list of objects, got 'Hi'"),
        ([], "lacks messages"),
        (["Hi"], "must be a list of objects"),
        ([{"role": "bot", "content": "Hi"}], "message 1: `role` must be"),
        ([USER, {"content": "Hi"}], "message 2: `role` is missing"),
        ([{"role": "user"}], "message 1 is empty"),
        ([{"role": "user", "content": 5}], "message 1: `content"),
        ([{**USER, "function_call": {"name": "f"}}], "unknown field `function_call`"),
        ([{**USER, "tool_calls": CALLING["tool_calls"]}], "message 1 calls tools, and its role"),
        (
            [{"role": "assistant", "tool_calls": [{"id": "a"}]}],
            r"`tool_calls\[0\].function` is mis",
        ),
        ([{"role": "assistant", "tool_calls": [{"function": FUNCTION}]}], "id` is missing"),
        (
            [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "x"}}],
                }
            ],
            "arguments` must be a mapping",
        ),
        ([USER, CALLING], "lacks an answer to the call 'a'"),
        ([CALLING, USER, ANSWER], "message 2 comes before an answer to the call 'a'"),
        ([USER, ANSWER], "message 2 answers no open call: 'a'"),
        ([CALLING, {**ANSWER, "tool_call_id": "b"}], "message 2 answers no open call: 'b'"),
        ([CALLING, ANSWER, ANSWER], "message 3 answers no open call"),
        ([CALLING, {"role": "tool", "content": "18"}], "message 2 answers no open call: None"),
        (
            [{"role": "user", "content": [{"type": "text"}, {"type": "image_url"}]}],
            "message 1 holds parts other than texts",
        ),
        (
            [{"role": "user", "content": [{"type": "input_audio"}]}],
            "message 1 holds parts other than texts",
        ),
    ],
)
def test_a_malformed_conversation_is_named_with_its_example(talk: Json, complaint: str) -> None:
    prompt = CompiledPrompt(template(messages=["{{ talk }}"]))
    good = [Example(f"e{i}", {"talk": [USER]}) for i in range(3)]
    with pytest.raises(ConfigError, match=complaint) as caught:
        check_prompt(prompt, [*good, Example("odd", {"talk": talk}), *good])
    said = str(caught.value)
    assert said.startswith("prompt `p`: field `talk`: ")
    assert said.endswith("(example `odd`)")


def test_a_field_that_is_not_there_is_told() -> None:
    prompt = CompiledPrompt(template(messages=["{{ tlk }}"]))
    with pytest.raises(ConfigError, match="no example has the field `tlk`; did you mean `talk`"):
        check_prompt(prompt, [Example("e", {"talk": [USER]})])
    with pytest.raises(ConfigError, match=r"no field `tlk`.*\(example `e`\)"):
        check_prompt(prompt, [Example("e", {"talk": 1}), Example("f", {"tlk": [USER]})])


@pytest.mark.parametrize("tools", [[WEATHER], [{"type": "function", "function": WEATHER}]])
def test_tools_are_the_studys_or_the_examples(tools: Json) -> None:
    empty: Json = {"type": "object", "properties": {}}
    found = (({"name": "get_weather", "parameters": empty},), "required")
    fixed = CompiledPrompt(template(text="{{ q }}", tools=tools, tool_choice="required"))
    assert fixed.tools({"q": 1}) == found
    own = CompiledPrompt(template(text="{{ q }}", tools="{{ t }}", tool_choice="required"))
    for value in (tools, json.dumps(tools)):
        assert own.tools({"q": 1, "t": value}) == found
    assert own.tools({"q": 1, "t": []}) == ((), None), "nothing to choose from"
    assert own.fields == {"q", "t"}


@pytest.mark.parametrize(
    ("tools", "choice", "complaint"),
    [
        (None, None, "must be a list of objects, got None"),
        ([{"name": ""}], None, "tool 1: `name` must not be empty"),
        ([WEATHER, {}], None, "tool 2: `name` is missing"),
        ([{"type": "web_search"}], None, "unknown field `type`"),
        ([{"name": "f", "input_schema": {}}], None, "unknown field `input_schema`"),
        ([WEATHER, WEATHER], None, "two tools are called `get_weather`"),
        ([WEATHER], "get_wether", "names no tool; did you mean `get_weather`"),
    ],
)
def test_malformed_tools_of_an_example_are_named_with_it(
    tools: Json, choice: str | None, complaint: str
) -> None:
    prompt = CompiledPrompt(template(text="{{ q }}", tools=["{{ t }}"], tool_choice=choice))
    good = Example("good", {"q": 1, "t": [WEATHER]})
    with pytest.raises(ConfigError, match=complaint) as caught:
        check_prompt(prompt, [good, Example("odd", {"q": 1, "t": tools})])
    assert choice or "(example `odd`)" in str(caught.value)


def test_worked_examples_are_refused_beside_tools() -> None:
    shots = (Example("s", {"q": 1}, "none"),)
    with_tools = template(text="{{ q }}", tools=[WEATHER])
    with pytest.raises(ConfigError, match="worked examples show no calls"):
        CompiledPrompt(replace(with_tools, n_shots=1, shots=shots))
    assert CompiledPrompt(replace(with_tools, n_shots=0, shots=shots)).render({"q": 2}) == "2"


@pytest.mark.parametrize(
    ("prompt", "complaint"),
    [
        ({"text": "a", "tools": "tools"}, 'must be a function, or a field such as "{{ tools }}"'),
        ({"text": "a", "tools": [{"name": 5}]}, "tools[0].name"),
        ({"text": "a", "tools": [{"nam": "f"}]}, "tools[0].nam"),
        ({"text": "a", "tool_choice": "auto"}, "chooses among `tools`, and there are none"),
        ({"file": "p.txt", "tools": [WEATHER]}, "write them into that of `file`"),
        ({"messages": "Hi {{ q }}"}, "must be a message with a `role`"),
        ({"messages": [{"content": "Hi"}]}, "must be a message with a `role`"),
        ({"messages": []}, "messages"),
    ],
)
def test_a_malformed_prompt_is_an_error_of_the_study(
    prompt: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        template(**prompt)
    assert complaint in str(caught.value)
    assert "`prompts[0]" in str(caught.value)
