"""A study from a promptfoo config: what is taken over, and what stands in comments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bestarm_agent.config.load import load_study
from bestarm_agent.errors import ConfigError
from bestarm_agent.interop.promptfoo_study import write_study
from tests.support.commands import invoke

# what `promptfoo init` writes
INIT = """\
# yaml-language-server: $schema=https://promptfoo.dev/config-schema.json
description: "My eval"
prompts:
  - "Write a tweet about {{topic}}"
  - "Write a concise, funny tweet about {{topic}}"
providers:
  - "openai:gpt-5-mini"
  - "openai:gpt-5"
tests:
  - vars: {topic: bananas}
    assert: [{type: icontains, value: banana}]
  - vars: {topic: avocado toast}
    assert:
      - {type: icontains, value: avocado}
      - {type: javascript, value: 1 / (output.length + 1)}
  - vars: {topic: new york city}
    assert: [{type: llm-rubric, value: ensure that the output is funny}]
"""


Translated = tuple[dict[str, Any], list[dict[str, Any]], str]


def translated(folder: Path, config: str = "", **keys: str) -> Translated:
    """Return the study, its rows, and its comments; ``keys`` are YAML by key of the config."""
    usual = {"prompts": "['{{x}}']", "providers": "[openai:a]"}
    lines = [f"{key}: {text}" for key, text in {**usual, **keys}.items()]
    (folder / "promptfooconfig.yaml").write_text(config or "\n".join(lines))
    study, dataset = write_study(folder / "promptfooconfig.yaml", folder / "study.yaml")
    text = study.read_text()
    comments = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    load_study(study, environ={"KEY": "k"})  # it is a study
    rows = [json.loads(line) for line in dataset.read_text().splitlines()]
    return yaml.safe_load(text), rows, comments


def test_the_config_that_promptfoo_writes_becomes_a_study_that_plan_accepts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "fake")
    (tmp_path / "promptfooconfig.yaml").write_text(INIT)
    written = invoke(capsys, "init", "--from", "promptfooconfig.yaml", folder=tmp_path)
    planned = invoke(capsys, "plan", "study.yaml", folder=tmp_path)

    assert (written.code, planned.code) == (0, 0), written.err + planned.err
    assert "written: study.yaml, study.jsonl" in written.out
    study = yaml.safe_load((tmp_path / "study.yaml").read_text())
    assert study["models"] == [{"model": "openai/gpt-5-mini"}, {"model": "openai/gpt-5"}]
    assert [prompt["name"] for prompt in study["prompts"]] == ["prompt-1", "prompt-2"]
    assert (study["scorer"]["name"], study["scorer"]["normalise"]) == ("contains", ["case"])
    rows = (tmp_path / "study.jsonl").read_text().splitlines()
    assert [json.loads(row) for row in rows] == [
        {"topic": "bananas", "expected": "banana"},
        {"topic": "avocado toast", "expected": "avocado"},
    ]
    comments = (tmp_path / "study.yaml").read_text()
    assert "# - assertions of type `javascript` (in 1 of 3 tests)" in comments
    assert "# - assertions of type `llm-rubric` (in 1 of 3 tests)" in comments
    assert "description" not in comments


def test_models_take_over_their_settings(tmp_path: Path) -> None:
    study, _, comments = translated(
        tmp_path,
        "prompts: ['{{x}}']\n"
        "targets:\n"
        "  - {id: 'openai:chat:large', label: Large, config: {temperature: 0.7, stop: [END]}}\n"
        "  - {id: 'groq:llama', config: {apiKeyEnvar: KEY, apiBaseUrl: 'http://a', tools: []}}\n"
        "  - {id: openai:responses:gpt-5, config: {max_output_tokens: 9}}\n"
        "  - exec:run.sh\n"
        "evaluateOptions: {maxConcurrency: 3, delay: 5}\n"
        "tests: [{vars: {x: 1}, assert: [{type: equals, value: 1}]}]\n",
    )

    large, llama, gpt = study["models"]
    params = {"temperature": 0.7, "stop": [["END"]]}
    options = {"base_url": "http://a", "api_key": "${KEY}"}
    responses = {"params": {"max_tokens": 9}, "options": {"api": "responses"}}
    assert large == {"model": "openai/large", "params": params, "label": "Large"}
    assert llama == {"model": "groq/llama", "options": options}
    assert gpt == {"model": "openai/gpt-5", **responses}
    assert "the provider exec:run.sh: write it as `python/module:function`" in comments
    assert "`groq:llama: config.tools`" in comments
    assert "`evaluateOptions.delay`" in comments
    assert "maxConcurrency" not in comments


def test_prompts_are_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "chat.json").write_text(
        '[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "{{x | dump}}"}]'
    )
    (tmp_path / "two.txt").write_text("One {{x}}\n---\nTwo {{x}}\n")
    study, _, comments = translated(
        tmp_path,
        prompts="[{id: chat.json, label: talk}, {id: two.txt, label: list}, code.py]",
        providers="ollama:llama",
        tests="[{vars: {x: a}, assert: [{type: equals, value: b}]}]",
    )

    assert [prompt["name"] for prompt in study["prompts"]] == ["talk", "list", "list-3"]
    assert study["prompts"][0]["messages"][1] == {"role": "user", "content": "{{x | tojson}}"}
    assert [prompt["text"] for prompt in study["prompts"][1:]] == ["One {{x}}", "Two {{x}}"]
    assert "the prompt code.py: a text or JSON is read, code is not run" in comments


def test_tests_come_from_tables_and_defaults_and_lists_are_expanded(tmp_path: Path) -> None:
    (tmp_path / "tests.csv").write_text(
        "x,__expected,__metric\nParis,icontains: Paris,m\nRome,icontains: Rome,m\n"
    )
    (tmp_path / "long.txt").write_text("a long text\n")
    _, rows, comments = translated(
        tmp_path,
        "prompts: ['{{x}} {{y}}']\n"
        "providers: [openai:a]\n"
        "defaultTest: {vars: {y: 'file://long.txt'}, assert: [{type: latency, threshold: 9}]}\n"
        "tests:\n"
        "  - file://tests.csv\n"
        "  - {vars: {x: [Oslo, Bern]}, assert: [{type: icontains, value: '{{x}}'}], threshold: 1}\n"
        "  - {vars: {x: Kyiv}}\n",
    )

    assert [row["x"] for row in rows] == ["Paris", "Rome", "Oslo", "Bern"]
    assert all(row["expected"] == row["x"] for row in rows)
    assert {row["y"] for row in rows} == {"a long text"}
    assert "assertions of type `latency` (in 4 of 4 tests)" in comments
    assert "tests without an assertion of type `icontains`" in comments
    assert "the column __metric of the tests" in comments
    assert "`tests: threshold`" in comments


@pytest.mark.parametrize(
    ("assertion", "name", "target"),
    [
        ("{type: equals, value: Rome}", "exact", "Rome"),
        ("{type: contains-any, value: 'a, b'}", "contains", ["a", "b"]),
        ("{type: icontains-all, value: [a, b]}", "contains", ["a", "b"]),
        ("{type: llm-rubric, value: is polite}", "llm-rubric", "is polite"),
        ("{type: factuality, value: '2 is even'}", "factuality", "2 is even"),
    ],
)
def test_the_commonest_assertion_becomes_the_scorer(
    tmp_path: Path, assertion: str, name: str, target: object
) -> None:
    study, rows, comments = translated(
        tmp_path,
        tests=f"[{{vars: {{x: q}}, assert: [{assertion}]}}]",
        defaultTest="{description: a case}",
    )

    assert study["scorer"]["name"] == name
    assert study["scorer"].get("model", "openai/gpt-5.6-sol") == "openai/gpt-5.6-sol"
    assert rows == [{"x": "q", "expected": target}]
    assert "Not taken over" not in comments


def test_files_by_pattern_references_and_shorthands_of_cells(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.yaml").write_text(
        "- {vars: {x: 1}, assert: [{type: equals, value: 1}]}"
    )
    (tmp_path / "more" / "b.yaml").write_text("vars: {x: [2, 3]}\nassert: {type: equals, value: 2}")
    (tmp_path / "tests.csv").write_text("x,__expected,__metadata:tags\n4,fn:f(),a\n5,is-json,b\n")
    tests = "[file://more/*, tests.csv, {vars: {x: 6}, assert: [{$ref: '#/gone'}]}]"
    _, rows, comments = translated(tmp_path, tests=tests)

    assert rows == [{"x": x, "expected": y} for x, y in ((1, 1), (2, 2), (3, 2))]
    for kind in ("javascript", "is-json", "$ref"):
        assert f"assertions of type `{kind}` (in 1 of 5 tests)" in comments
    assert "metadata" not in comments


def test_what_cannot_be_translated_has_a_stand_in(tmp_path: Path) -> None:
    study, rows, comments = translated(
        tmp_path,
        prompts="[file://code.js, {label: a, messages: []}]",
        providers="[echo]",
        tests="[{vars: {x: 1, y: 2}}]",
    )

    assert study["models"] == [{"model": "openai/NAME-A-MODEL"}]
    assert study["prompts"] == [{"name": "stand-in", "text": "{{ x }}\n{{ y }}"}]
    assert study["scorer"] == {"name": "rubric", "model": "openai/gpt-5.6-sol"}
    assert study["dataset"] == {"path": "study.jsonl"}
    assert rows == [{"x": 1, "y": 2}]
    for note in (
        "the provider echo",
        "the prompt file://code.js",
        "the prompt {'label': 'a', 'messages': []}: write its messages to a .json file",
        "any assertion",
    ):
        assert note in comments


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("- a", "not a promptfoo config"),
        ("prompts: ['{{x}}']\nproviders: [openai:a]\n", "has no test"),
        ("prompts: [gone.txt]\nproviders: [openai:a]\ntests: [{vars: {x: 1}}]", "gone.txt"),
        ("providers: [openai:a]\ntests: [7]", "a test of a promptfoo config is a mapping, got 7"),
        ("providers: [openai:a]\ndefaultTest: file://a.yaml", "write .* defaultTest into it"),
        ("providers: [openai:a\n", "malformed YAML"),
    ],
)
def test_a_config_that_makes_no_study_is_refused(tmp_path: Path, config: str, message: str) -> None:
    (tmp_path / "promptfooconfig.yaml").write_text(config)
    with pytest.raises(ConfigError, match=message):
        write_study(tmp_path / "promptfooconfig.yaml", tmp_path / "study.yaml")
    assert not (tmp_path / "study.yaml").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        translated(tmp_path, INIT)
    assert (tmp_path / "study.yaml").read_text() == "mine"
