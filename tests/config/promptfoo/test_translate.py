"""A promptfoo config as a study; what promptfoo itself says of it is in the golden file."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from bestarm_agent import Study
from bestarm_agent.config.promptfoo.assertions import from_cell
from bestarm_agent.config.study.load import load_study
from bestarm_agent.engine.results.pair_outcomes import PairOutcome
from bestarm_agent.engine.setup.open_run import Options
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.rules.assertion_checks import json_objects
from tests.support.commands import invoke
from tests.support.fake_api.server import FakeApi
from tests.support.fake_api.threads import in_thread
from tests.support.promptfoo_answers import say

pytest.importorskip("jsonschema", reason="`is-json` with a schema needs the extra metrics")

GOLDEN = Path(__file__).parents[2] / "interop" / "golden" / "promptfoo"


async def outcomes_of(
    config: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> list[PairOutcome]:
    """Run the whole grid of a config on the fake server."""
    async with FakeApi(answer=say, key=None) as api:
        monkeypatch.setenv("OPENAI_BASE_URL", api.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "fake")
        overrides = {"selector.stop_when_separated": False}
        async with Study.open(config, overrides=overrides, options=Options(store=store)) as study:
            await study.run()
            return [pair async for pair in study.outcomes()]


@pytest.mark.slow
def test_every_test_passes_and_fails_as_in_promptfoo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = GOLDEN / "promptfooconfig.yaml"
    outcomes = asyncio.run(outcomes_of(config, tmp_path / "runs.db", monkeypatch))
    ours = sorted(
        (
            str(pair.reply),
            pair.score == 1,
            [
                (vote.by, vote.said == "pass", round(vote.value, 4))
                for vote in pair.votes
                if vote.said in ("pass", "fail")
            ],
            {v.by: round(v.value, 9) for v in pair.votes if v.said not in ("pass", "fail")},
        )
        for pair in outcomes
    )
    theirs = sorted(
        (
            row["answer"],
            row["success"],
            [tuple(one) for one in row["assertions"]],
            row["named"],
        )
        for row in json.loads((GOLDEN / "verdicts.json").read_text())
    )
    assert ours == theirs


QUICK_START = """\
description: Capitals
prompts: ["Answer in one word: {{question}}", file://long.txt]
providers: [openai:small, {id: "openai:chat:large", config: {temperature: 0.7}}]
tests:
  - vars: {question: "The capital of France?"}
    assert: [{type: icontains, value: france}, {type: latency, threshold: 60000}]
  - vars: {question: Rome}
    assert: [{type: starts-with, value: Answer}]
"""


@pytest.fixture
def quick_start(tmp_path: Path) -> Path:
    (tmp_path / "long.txt").write_text("Think first, then answer: {{question}}\n")
    (tmp_path / "promptfooconfig.yaml").write_text(QUICK_START)
    return tmp_path


def test_the_commands_take_a_config_as_it_is(
    quick_start: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_thread(FakeApi(key=None)) as api:
        monkeypatch.setenv("OPENAI_BASE_URL", api.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "fake")
        config = "promptfooconfig.yaml"
        validated = invoke(capsys, "validate", config, folder=quick_start)
        selected = invoke(capsys, "select", config, "--quiet", folder=quick_start)

    assert (validated.code, selected.code) == (0, 0), validated.err + selected.err
    assert "4 candidates x 2 examples, scorer assertions" in validated.out
    assert "prompt-1" in selected.out
    prompts = {row.body["messages"][-1]["content"] for row in api.received}
    assert "Think first, then answer: Rome" in prompts
    assert {row.body["temperature"] for row in api.received} == {0, 0.7}


def test_an_assertion_about_the_cost_needs_a_price_before_anything_is_asked(
    quick_start: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = quick_start / "promptfooconfig.yaml"
    cheap = "{type: cost, threshold: 0.01}"
    config.write_text(QUICK_START.replace("{type: latency, threshold: 60000}", cheap))
    with in_thread(FakeApi(key=None)) as api:
        monkeypatch.setenv("OPENAI_BASE_URL", api.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "fake")
        selected = invoke(capsys, "select", config, "--quiet", folder=quick_start)
        planned = invoke(capsys, "plan", config, folder=quick_start)

    assert (selected.code, planned.code, api.received) == (2, 2, [])
    for said in (selected.err, planned.err):
        assert "scores by what an answer costs, but the prices of openai/small and" in said


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("starts-with", "javascript", r"line 8: `tests\[1\].assert\[0\]` is .*get_assert"),
        ("starts-with", "webhook", "line 8: .* has no counterpart here; there are equals, "),
        ("starts-with", "not-factuality", "line 8: .*promptfoo ignores the `not-`"),
        ("type: starts-with", "type: python", "line 8: .*is code in the config"),
        ("value: Answer", "value: ''", "line 8: .* needs a `value`"),
        ("value: Answer", "value: file://gone.txt", "gone.txt does not exist"),
        ("value: Answer", "value: a, transform: x", r"`tests\[1\].assert\[0\].transform` has no"),
        ("openai:small", "exec:run.sh", r"line 3: `providers\[0\]` is .*`command/...`"),
        ("temperature", "tools", r"line 3: `providers\[1\].config.tools` has no counterpart"),
        ("file://long.txt", "file://long.py", r"line 2: `prompts\[1\]` is .*are read from .txt"),
        ("assert:", "metadata:", r"line 4: `tests` assert nothing"),
        ("Answer in one word: {{question}}", '[{\\"role\\": {% for x in y %}', "by a template"),
        ("temperature: 0.7", "cost: free", r"line 3: .*\.cost` must be a number, got \"free\""),
        ("threshold: 60000", "weight: x", r"line 6: .*\.weight` must be a number"),
        ("[{type: starts-with, value: Answer}]", "7", r"line 8: .*\.assert` must be a list, got 7"),
        ("{question: Rome}", "7", r"line 7: `tests\[1\].vars` must be a mapping, got 7"),
        (
            "question: Rome",
            "question: '{{'",
            r"line 7: `tests\[1\].vars.question` cannot be filled",
        ),
        ("starts-with, value: Answer", "contains-any", r"line 8: .* needs a `value`, got \[\]"),
        ("value: france", "value: file://gone.txt", "line 6: .*gone.txt does not exist"),
        ("description:", "scenarios:", "line 1: `scenarios` has no counterpart"),
        (
            "description: Capitals",
            "evaluateOptions: {delay: 3}",
            "`evaluateOptions.delay` has no",
        ),
    ],
)
def test_what_has_no_counterpart_is_refused_with_its_line(
    quick_start: Path, old: str, new: str, message: str
) -> None:
    config = quick_start / "promptfooconfig.yaml"
    config.write_text(QUICK_START.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        load_study(config, environ={})


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("{type: regex, value: '[a-'}", r"`000002`: .* of `regex` is malformed: unterminated"),
        ("{type: contains, value: [a, b]}", r"`contains` compares with a text, got \["),
        ("{type: is-json, value: {type: 7}}", r"`000002`: .*not a JSON schema"),
    ],
)
def test_values_that_no_reply_can_be_compared_with_are_refused_before_a_call(
    quick_start: Path, capsys: pytest.CaptureFixture[str], new: str, message: str
) -> None:
    config = quick_start / "promptfooconfig.yaml"
    config.write_text(QUICK_START.replace("{type: starts-with, value: Answer}", new))
    done = invoke(capsys, "validate", config.name, folder=quick_start)
    assert done.code == 2
    assert re.search(message, " ".join(done.err.split()))


def test_a_row_of_a_table_is_a_test() -> None:
    cells = [
        "Paris",
        "not-icontains: a, b",
        "similar(0.8): x",
        "latency(9)",
        "python:f()",
        "is-json",
    ]
    assert [from_cell(cell) for cell in cells] == [
        {"type": "equals", "value": "Paris"},
        {"type": "not-icontains", "value": "a, b"},
        {"type": "similar", "value": "x", "threshold": 0.8},
        {"type": "latency", "threshold": 9.0},
        {"type": "python", "value": "f()"},
        {"type": "is-json"},
    ]
    assert from_cell("webhook: http://a")["type"] == "webhook"  # which is refused


def test_settings_and_labels_are_translated(tmp_path: Path) -> None:
    config = tmp_path / "promptfooconfig.yaml"
    config.write_text(
        "prompts: [{label: a, raw: 'A {{x}}'}, {label: b, raw: 'B {{x | dump}}'}]\n"
        "targets:\n"
        "  - id: groq:llama\n"
        "    config: {apiKey: '{{env.MY_KEY}}', inputCost: 0.000001, stop: [END]}\n"
        "    prompts: [a]\n"
        "  - openai:responses:gpt-5: {label: Five}\n"
        "evaluateOptions: {maxConcurrency: 3, repeat: 2}\n"
        "tests: [{vars: {x: 1}, assert: [{type: equals, value: 1}]}]\n"
    )
    found = load_study(config, environ={"MY_KEY": "k"}).config
    first, second = found.models
    assert (first.model, first.params) == ("groq/llama", {"stop": [["END"]]})
    assert first.options == {"api_key": "k", "price": {"input": 1}}
    assert (second.model, second.label, second.options) == (
        "openai/gpt-5",
        "Five",
        {"api": "responses"},
    )
    assert list(found.exclude) == [{"model": "groq/llama", "prompt": ["b"]}]
    assert [prompt.text for prompt in found.prompts] == ["A {{x}}", "B {{x | tojson}}"]
    assert (found.limits.in_flight, found.repeats.draws) == (3, 2)


def test_prompts_are_read_from_files_as_promptfoo_reads_them(tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text(
        "# two\n- {role: system, content: Be brief.}\n- role: user\n  content: '{{x}}'\n"
    )
    (tmp_path / "two.txt").write_text("One {{x}}\n---\nTwo {{x}}\n")
    config = tmp_path / "promptfooconfig.yaml"
    config.write_text(
        "prompts: {chat.yaml: talk, two.txt: list}\n"
        "providers: [{id: 'ollama:llama', prompts: [list], config: {num_predict: 9}}]\n"
        "tests: [{vars: {x: a}, assert: [{type: equals, value: b}]}]\n"
    )
    found = load_study(config, environ={}).config
    assert [prompt.name for prompt in found.prompts] == ["talk", "list", "list-3"]
    assert [message.role for message in found.prompts[0].messages or ()] == ["system", "user"]
    assert [prompt.text for prompt in found.prompts[1:]] == ["One {{x}}", "Two {{x}}"]
    assert list(found.exclude) == [{"model": "ollama/llama", "prompt": ["talk"]}]
    assert found.models[0].params == {"max_tokens": 9}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('a {"b": {"c": 1}} d', [{"b": {"c": 1}}]),
        ("{a: 1", [{"a": 1}]),
        ("{[} and {b: 2}", [{"b": 2}]),
        ("none", []),
    ],
)
def test_objects_are_found_in_a_text(text: str, found: list[object]) -> None:
    assert list(json_objects(text)) == found
