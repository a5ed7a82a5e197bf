"""Traces as examples, in the forms that the SDKs of OpenTelemetry, Phoenix and Langfuse write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from bestarm_agent.config.datasets import load_rows, read_examples
from bestarm_agent.config.input_specs import DatasetSpec
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.replay import read_recording
from tests.support.commands import invoke
from tests.support.fake_api import Call, FakeApi, in_thread
from tests.support.judge_answers import mark_in

SYSTEM = "You help customers of a shop."
SCHEMA = {"type": "object", "properties": {"number": {"type": "string"}}}
TOOL = {"name": "find_order", "description": "Find an order", "parameters": SCHEMA}
CALL = {"name": "find_order", "arguments": {"number": "17"}}
AS_TEXT = {"name": "find_order", "arguments": json.dumps(CALL["arguments"])}
OPENAI_CALL = {"id": "c1", "type": "function", "function": AS_TEXT}
N = 40
Row = dict[str, Any]


def otel(number: int, turns: list[Row], answer: Row, *, tools: bool) -> Row:
    """A span by opentelemetry-util-genai 1.3b0, as its attributes."""

    def parts(turn: Row) -> Row:
        if turn["role"] == "tool":
            said = [{"type": "tool_call_response", "id": "c1", "response": turn["content"]}]
        elif "tool_calls" in turn:
            said = [
                {"type": "reasoning", "content": "hm"},
                {"type": "tool_call", "id": "c1", **CALL},
            ]
        else:
            said = [{"type": "text", "content": turn["content"]}]
        return {"role": turn["role"], "parts": said, "name": None}

    system = [{"type": "text", "content": SYSTEM}]
    more = {"gen_ai.tool.definitions": json.dumps([{**TOOL, "type": "function"}])}
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4.1",
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 100,
        "gen_ai.system_instructions": json.dumps(system),
        "gen_ai.input.messages": json.dumps([parts(turn) for turn in turns]),
        "gen_ai.output.messages": json.dumps([{**parts(answer), "finish_reason": "stop"}]),
        **(more if tools else {}),
    }


def otlp(rows: Iterable[Row]) -> list[Row]:
    """One line of OTLP JSON, as the collector's file exporter writes it."""

    def value(one: object) -> Row:
        return {"intValue": str(one)} if isinstance(one, int) else {"stringValue": one}

    spans = [
        {"spanId": f"s{n}", "attributes": [{"key": k, "value": value(v)} for k, v in row.items()]}
        for n, row in enumerate(rows)
    ]
    agent = {"key": "gen_ai.operation.name", "value": {"stringValue": "invoke_agent"}}
    spans.append({"spanId": "agent", "attributes": [agent]})
    return [{"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": spans}]}]}]


def flat(rows: Iterable[Row]) -> list[Row]:
    """Spans as the SDK's ``to_json`` writes them."""
    return [
        {"name": "chat", "context": {"span_id": f"s{n}"}, "attributes": row}
        for n, row in enumerate(rows)
    ]


def openinference(number: int, turns: list[Row], answer: Row, *, tools: bool) -> Row:
    """A span by openinference-instrumentation-openai 0.1.66, as its attributes."""

    def message(at: str, turn: Row) -> Row:
        said = {f"{at}.message.role": turn["role"], f"{at}.message.content": turn.get("content")}
        if turn["role"] == "tool":
            said[f"{at}.message.tool_call_id"] = "c1"
        if "tool_calls" in turn:
            call = f"{at}.message.tool_calls.0.tool_call"
            said |= {f"{call}.id": "c1", f"{call}.function.name": CALL["name"]}
            said[f"{call}.function.arguments"] = AS_TEXT["arguments"]
        return {key: one for key, one in said.items() if one is not None}

    found: Row = {"openinference.span.kind": "LLM", "llm.model_name": "gpt-4.1"}
    for n, turn in enumerate([{"role": "system", "content": SYSTEM}, *turns]):
        found |= message(f"llm.input_messages.{n}", turn)
    found |= message("llm.output_messages.0", answer)
    found |= {"llm.token_count.prompt": 1000, "llm.token_count.completion": 100}
    if tools:
        definition = json.dumps({"type": "function", "function": TOOL})
        found["llm.tools.0.tool.json_schema"] = definition
    return found


def phoenix(rows: Iterable[Row]) -> list[Row]:
    """Spans of Phoenix's API (``Client().spans.get_spans``), and a chain that is around them."""
    chain = {
        "name": "chain",
        "span_kind": "CHAIN",
        "attributes": {"openinference.span.kind": "CHAIN"},
    }
    spans = [
        {"context": {"trace_id": "t", "span_id": f"s{n}"}, "span_kind": "LLM", "attributes": row}
        for n, row in enumerate(rows)
    ]
    return [chain, *spans]


def columns(rows: Iterable[Row]) -> list[Row]:
    """Rows of ``get_spans_dataframe`` as JSON lines: messages are lists of dotted names."""
    found = []
    for n, row in enumerate(rows):
        lists: dict[str, list[Row]] = {"llm.input_messages": [], "llm.output_messages": []}
        plain: Row = {}
        for key, one in row.items():
            for name, items in lists.items():
                if key.startswith(f"{name}.") and "tool_calls" not in key:
                    number, _, rest = key.removeprefix(f"{name}.").partition(".")
                    items.extend({} for _ in range(int(number) + 1 - len(items)))
                    items[int(number)][rest] = one
                    break
            else:
                plain[f"attributes.{key}"] = one
        for key in [key for key in plain if "tool_calls" in key]:
            _, side, at, *last = key.removeprefix("attributes.").split(".")
            items = lists[f"llm.{side}"]
            items.extend({} for _ in range(int(at) + 1 - len(items)))
            items[int(at)][".".join(last)] = plain.pop(key)
        named = {f"attributes.{name}": items for name, items in lists.items()}
        found.append({"context.span_id": f"s{n}", "span_kind": "LLM", **plain, **named})
    return found


def langfuse(number: int, turns: list[Row], answer: Row, *, tools: bool) -> Row:
    """An observation of Langfuse's API (``ObservationV2`` of langfuse 5.0.4)."""
    asked: Any = [{"role": "system", "content": SYSTEM}, *turns]
    if tools:
        asked = {"tools": [{"type": "function", "function": TOOL}], "messages": asked}
    return {
        "id": f"s{number}",
        "traceId": "t",
        "type": "GENERATION",
        "userId": "jane@example.org",
        "input": asked,
        "output": answer,
        "model": "gpt-4.1",
        "usageDetails": {"input": 600, "input_cached_tokens": 400, "output": 100, "total": 1100},
        "totalCost": 0.0021,
    }


def api_page(rows: Iterable[Row]) -> list[Row]:
    span = {"id": "a", "traceId": "t", "type": "SPAN", "input": "x", "output": "y"}
    return [{"data": [span, *rows], "meta": {}}]


def exported(rows: Iterable[Row]) -> list[Row]:
    """Rows of Langfuse's files in a bucket: other names, and texts that hold JSON."""
    names = {"traceId": "trace_id", "model": "provided_model_name", "totalCost": "total_cost",
             "usageDetails": "usage_details"}  # fmt: skip
    texts = ("input", "output")
    return [
        {names.get(k, k): json.dumps(v) if k in texts else v for k, v in row.items()}
        for row in rows
    ]


Span = Callable[..., Row]
File = Callable[[Iterable[Row]], list[Row]]
FORMS: list[tuple[Span, File]] = [
    (otel, otlp),
    (otel, flat),
    (openinference, phoenix),
    (openinference, columns),
    (openinference, otlp),
    (langfuse, list),
    (langfuse, api_page),
    (langfuse, exported),
]
IDS = [f"{span.__name__}-{file.__name__}" for span, file in FORMS]


def write(folder: Path, span: Span, file: File, *, plain: bool = False) -> Path:
    """Write calls: a question, one that calls a tool, one after its answer; or only questions."""
    asked = {"role": "user", "content": "Where is order 17?"}
    calls = {"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]}
    found = {"role": "tool", "tool_call_id": "c1", "content": '{"city": "Bern", "mail": "j@x.org"}'}
    told = {"role": "assistant", "content": "It is in Bern."}
    spans = [
        span(0, [asked], told, tools=False),
        span(1, [asked], calls, tools=True),
        span(2, [asked, calls, found], told, tools=True),
    ]
    if plain:
        spans = [
            span(n, [{"role": "user", "content": f"What is {n} + 1?"}],
                 {"role": "assistant", "content": f"It is {n + 1}."}, tools=False)
            for n in range(N)
        ]  # fmt: skip
    path = folder / "traces.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in file(spans)))
    return path


@pytest.mark.parametrize(("span", "file"), FORMS, ids=IDS)
def test_all_forms_are_the_same_rows(tmp_path: Path, span: Span, file: File) -> None:
    path = write(tmp_path, span, file)
    rows: list[Row] = [dict(row.values) for row in load_rows(path)]
    one, two, three = rows
    assert [row["id"] for row in (one, two, three)] == ["s0", "s1", "s2"]
    assert (one["system"], one["question"], one["tools"]) == (SYSTEM, "Where is order 17?", [])
    assert [turn["role"] for turn in one["messages"]] == ["system", "user"]
    assert one["baseline_output"] == three["baseline_output"] == "It is in Bern."
    assert one["baseline_model"] == "gpt-4.1"
    assert (one["baseline_input_tokens"], one["baseline_output_tokens"]) == (1000, 100)
    assert two["baseline_calls"] == [CALL]
    assert two["baseline_output"] == 'find_order(number="17")'
    assert {**two["tools"][0], "type": "function"} == {**TOOL, "type": "function"}
    assert [turn["role"] for turn in three["messages"]] == ["system", "user", "assistant", "tool"]
    assert three["messages"][2]["tool_calls"] == [OPENAI_CALL]
    assert three["messages"][3]["tool_call_id"] == "c1"
    recorded = read_recording(path, path.name)["recorded"]["s0"][0].reply
    # gpt-4.1: 1,000 tokens at $2 and 100 at $8 a million, unless the trace says what it cost
    assert recorded.usd_nanos == (2_100_000 if span is langfuse else 2_800_000)
    assert recorded.text == "It is in Bern."


@pytest.mark.parametrize(("span", "file"), FORMS, ids=IDS)
def test_fields_are_dropped_by_name_wherever_they_are(
    tmp_path: Path, span: Span, file: File
) -> None:
    path = write(tmp_path, span, file)
    spec = DatasetSpec(path=path.name, drop=("mail", "number"))
    text = json.dumps([dict(one.inputs) for one in read_examples(spec, tmp_path)])
    assert "j@x.org" not in text
    assert "jane@" not in text
    assert '\\"17\\"' not in text
    assert "Bern" in text


@pytest.mark.parametrize(
    ("span", "file"), [(otel, otlp), (openinference, phoenix), (langfuse, list)]
)
def test_init_writes_a_gate_against_what_was_answered(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    span: Span,
    file: File,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "fake-key-3f9a")
    write(tmp_path, span, file, plain=True)
    models = ("--models", "openai/gpt-6-luna")
    done = invoke(capsys, "init", "--data", "traces.jsonl", *models, folder=tmp_path)
    assert done.code == 0, done.err
    study = yaml.safe_load((tmp_path / "study.yaml").read_text())

    def say(call: Call) -> str:
        if mark := mark_in(call.prompt):  # the judge: it finds what the new model says as good
            return json.dumps({"mark": mark, "explanation": "same", "winner": "tie"})
        return "It is that."

    with in_thread(FakeApi(answer=say)) as api:
        study["providers"]["openai"] = {"base_url": api.openai_url, "key": "OPENAI_API_KEY"}
        (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
        ran = invoke(capsys, "gate", "study.yaml", "--json", "--quiet", folder=tmp_path)
        sent = [one.body for one in api.received]
    assert ran.code in (0, 3), ran.err
    assert ran.json["baseline"] == "recorded"
    (verdict,) = ran.json["challengers"]
    assert verdict["difference"] == pytest.approx(0)
    asked = [body["messages"] for body in sent if "<<<" not in str(body)]
    assert asked
    assert all(turns[0] == {"role": "system", "content": SYSTEM} for turns in asked)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"output": None}, "1 have no answer"),
        ({"input": []}, "1 have no prompt"),
        ({"type": "SPAN"}, "1 are no call of a model"),
        (
            {"input": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "1 hold parts of the type image_url",
        ),
    ],
)
def test_what_is_no_example_is_counted(
    tmp_path: Path, changes: Mapping[str, Any], reason: str
) -> None:
    asked = [{"role": "user", "content": "Hi"}]
    row = langfuse(0, asked, {"role": "assistant", "content": "Hello"}, tools=False)
    path = tmp_path / "traces.jsonl"
    path.write_text(json.dumps({**row, **changes}))
    with pytest.raises(ConfigError, match=reason):
        list(load_rows(path))


def test_texts_and_other_forms_of_messages(tmp_path: Path) -> None:
    shared = {"traceId": "t", "type": "GENERATION"}
    blocks = [{"type": "text", "text": "Let me see."},
              {"type": "tool_use", "id": "c1", "name": "find_order",
               "input": {"number": "17"}}]  # fmt: skip
    rows = [
        {**shared, "id": "a", "input": "2 + 2?", "output": "4"},
        {**shared, "id": "b", "input": [{"type": "human", "content": "2 + 3?"}],
         "output": {"type": "ai", "content": "5"}},
        {**shared, "id": "c", "input": [{"role": "user", "content": "Where?"}],
         "output": {"role": "assistant", "content": blocks}},
        {"spanId": "d", "attributes": {"gen_ai.prompt.0.role": "user",
         "gen_ai.prompt.0.content": "2?",
         "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "two"}},
    ]  # fmt: skip
    path = tmp_path / "traces.json"
    path.write_text(json.dumps(rows))
    found = [row.values for row in load_rows(path)]
    assert [row["question"] for row in found] == ["2 + 2?", "2 + 3?", "Where?", "2?"]
    assert [row["baseline_output"] for row in found] == ["4", "5", "Let me see.", "two"]
    assert found[2]["baseline_calls"] == [CALL]
    assert found[0]["baseline_usd"] is None


def test_a_dataset_that_is_no_trace_stays_as_it_is(tmp_path: Path) -> None:
    row = {"id": 7, "type": "easy", "input": "2 + 2?", "attributes": {"a": 1}, "data": [1]}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row))
    assert [dict(one.values) for one in load_rows(path)] == [row]
