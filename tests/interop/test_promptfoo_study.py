"""A study from a promptfoo config: what is taken over, and what stands in comments."""

from __future__ import annotations

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
  - vars: {topic: avocado toast}
    assert:
      - {type: icontains, value: avocado}
      - {type: javascript, value: 1 / (output.length + 1)}
  - vars: {topic: new york city}
    assert: [{type: llm-rubric, value: ensure that the output is funny}]
"""


Translated = tuple[dict[str, Any], list[dict[str, Any]], str]


def translated(folder: Path, config: str = "", **keys: str) -> Translated:
    """Return the study, its rows, and the comments of both; ``keys`` are YAML by key."""
    usual = {"prompts": "['{{x}}']", "providers": "[openai:a]"}
    lines = [f"{key}: {text}" for key, text in {**usual, **keys}.items()]
    (folder / "promptfooconfig.yaml").write_text(config or "\n".join(lines))
    (study, dataset), said = write_study(folder / "promptfooconfig.yaml", folder / "study.yaml")
    both = f"{study.read_text()}\n{dataset.read_text()}"
    comments = "\n".join(line for line in both.splitlines() if line.startswith("#"))
    load_study(study, environ={"KEY": "k"})  # it is a study
    return (
        yaml.safe_load(study.read_text()),
        yaml.safe_load(dataset.read_text()),
        f"{said}\n{comments}",
    )


def test_the_config_that_promptfoo_writes_becomes_a_study_that_plan_accepts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "fake")
    (tmp_path / "promptfooconfig.yaml").write_text(INIT)
    written = invoke(capsys, "init", "--from", "promptfooconfig.yaml", folder=tmp_path)
    planned = invoke(capsys, "plan", "study.yaml", folder=tmp_path)

    assert (written.code, planned.code) == (0, 0), written.err + planned.err
    assert "written: study.yaml, study-tests.yaml" in written.out
    assert (
        "3 tests written; 1 check in JavaScript left out, as comments say at the tests; "
        "1 test without a check: a model grades"
    ) in written.out
    study = yaml.safe_load((tmp_path / "study.yaml").read_text())
    assert study["models"] == [{"model": "openai/gpt-5-mini"}, {"model": "openai/gpt-5"}]
    assert [prompt["name"] for prompt in study["prompts"]] == ["prompt-1", "prompt-2"]
    assert study["scorer"] == {
        "name": "checks",
        "field": "checks",
        "all": True,
        "model": "openai/gpt-5.6-sol",
    }
    text = (tmp_path / "study-tests.yaml").read_text()
    assert yaml.safe_load(text) == [
        {"topic": "bananas", "checks": ["rubric"]},
        {
            "topic": "avocado toast",
            "checks": [{"contains": "avocado", "normalise": ["case"], "words": False}],
        },
        {
            "topic": "new york city",
            "checks": [{"llm-rubric": "ensure that the output is funny"}],
        },
    ]
    assert "# Left out: javascript: 1 / (output.length + 1)\n- topic: avocado toast" in text
    assert "description" not in (tmp_path / "study.yaml").read_text()


# Configurations in the forms of the examples in promptfoo's repository; the number of tests, of
# checks in the rows, and of checks in the study
FORMS: dict[str, tuple[str, int, int, int]] = {
    "templates and semantic checks": (
        """
assertionTemplates: {noise: {type: icontains, value: arrr}}
tests:
  - {description: exact, vars: {x: Yes}, assert: [{type: equals, value: Yarr}]}
  - {vars: {x: story}, assert: [{type: is-json}]}
  - {vars: {x: hi}, assert: [{type: similar, value: Ahoy}, {type: python, value: len(output)}]}
  - vars: {x: fox}
    assert: [{type: llm-rubric, value: a pirate}, {$ref: '#/assertionTemplates/noise'}]
""",
        4,
        5,
        0,
    ),
    "one rubric for all": (
        """
defaultTest: {assert: [{type: llm-rubric, value: no apology}, {type: javascript, value: 'x'}]}
tests: [{vars: {x: a}}, {vars: {x: b}}]
""",
        2,
        0,
        1,
    ),
    "a conversation": (
        """
defaultTest: {vars: {system: You help}}
tests: [{vars: {x: "who?"}, metadata: {conversationId: a}}, {vars: {x: "where?"}}]
""",
        2,
        2,
        0,
    ),
    "its own prompt of the grader": (
        """
defaultTest: {options: {rubricPrompt: [{role: system, content: 'about {{y}}'}]}}
tests: [{vars: {x: a, y: b}, assert: [{type: llm-rubric}]}]
""",
        1,
        1,
        0,
    ),
    "riddles, by cost and speed": (
        """
defaultTest: {assert: [{type: cost, threshold: 0.01}, {type: latency, threshold: 3000}]}
tests:
  - {vars: {x: mouth}, assert: [{type: icontains, value: echo}, {type: llm-rubric, value: calm}]}
  - {vars: {x: air}, assert: [{type: icontains-any, value: [fire, flame]}]}
  - {vars: {x: corner}}
""",
        3,
        4,
        0,
    ),
    "prompts with labels": (
        """
prompts: {a.txt: first, b.txt: second}
tests: [{vars: {x: hello}}, {vars: {x: hippos}, assert: [{type: llm-rubric, value: swims}]}]
""",
        2,
        2,
        0,
    ),
    "metrics by name": (
        """
derivedMetrics: [{name: all, value: Valid / 2}]
tests:
  - vars: {x: refund}
    assert:
      - {type: is-json, metric: Valid}
      - {type: javascript, value: output.a === 1, metric: Category}
      - {type: llm-rubric, value: 'is about {{x}}', metric: Summary}
""",
        1,
        2,
        0,
    ),
    "another grader, and a number": (
        """
defaultTest: {options: {provider: {text: {id: 'google:gemini-2.5-flash'}}}}
tests:
  - {vars: {x: train}, assert: [{type: contains, value: 52.5}, {type: llm-rubric, value: 52 mph}]}
""",
        1,
        2,
        0,
    ),
    "retrieval": (
        """
tests:
  - vars: {x: "max?", context: 'file://doc.md'}
    assert:
      - {type: contains, value: $500}
      - {type: factuality, value: managers approve}
      - {type: context-recall, threshold: 0.9, value: max}
""",
        1,
        2,
        0,
    ),
    "a folder of articles": (
        """
tests:
  - vars: {x: 'file://articles/*'}
    assert: [{type: not-starts-with, value: Sure (}, {type: not-contains, value: AI language}]
""",
        2,
        4,
        0,
    ),
    "no assertion at all": ("tests: [{vars: {x: a, y: b}}, {vars: {x: c}}]", 2, 2, 0),
    "a table": ("tests: file://tests.csv", 2, 2, 0),
    "JSON after a transform": (
        """
tests:
  - {vars: {x: banana}, assert: [{type: is-json}, {type: javascript, value: JSON.parse(output)}]}
  - vars: {x: fruit}
    options: {transform: JSON.parse(output)}
    assert:
      - {type: is-json, value: {required: [color], type: object}}
      - {type: contains-any, transform: output.countries, value: [India, Brazil]}
""",
        2,
        2,
        0,
    ),
    "calls of tools": (
        """
tests:
  - {vars: {x: Boston}, assert: [is-json, {type: is-valid-openai-tools-call}]}
  - {vars: {x: Mars}}
""",
        2,
        2,
        0,
    ),
    "sets, weights, thresholds": (
        """
tests:
  - vars: {x: a}
    threshold: 0.5
    assert:
      - type: assert-set
        weight: 2
        assert: [{type: regex, value: 'a+'}, {type: cost, threshold: 1}]
      - {type: rouge-n, value: a cat sat, threshold: 0.6, weight: 0}
""",
        1,
        2,
        0,
    ),
    "scenarios": (
        """
scenarios:
  - config: [{vars: {x: a}}, {vars: {x: b}}]
    tests: [{vars: {y: 1}, assert: [{type: contains, value: '{{x}}{{y}}'}]}, {vars: {y: 2}}]
""",
        4,
        4,
        0,
    ),
    "a variable by a program": ("tests: [{vars: {x: q, context: 'file://context.py'}}]", 1, 1, 0),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_test_of_usual_configurations_is_kept_and_plan_accepts_them(
    form: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "fake")
    monkeypatch.setenv("GEMINI_API_KEY", "fake")
    (tmp_path / "articles").mkdir()
    files = {"articles/1.txt": "one", "articles/2.txt": "two", "doc.md": "At most $500."}
    files |= {
        "a.txt": "A {{x}}",
        "b.txt": "B {{x}}",
        "tests.csv": "x,__expected\na,icontains: b\nc,\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    config, n_tests, n_checks, n_for_all = FORMS[form]
    begin = "" if config.lstrip().startswith("prompts") else "prompts: ['{{x}}']\n"
    study, rows, comments = translated(
        tmp_path, f"{begin}providers: [openai:gpt-5-mini]\n{config.strip()}\n"
    )

    assert len(rows) == n_tests, comments
    assert sum(len(row["checks"]) for row in rows) == n_checks, comments
    assert len(study["scorer"].get("checks", [])) == n_for_all
    planned = invoke(capsys, "plan", "study.yaml", folder=tmp_path)
    assert planned.code == 0, planned.err


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


def test_equal_providers_are_one_and_others_of_a_model_have_names(tmp_path: Path) -> None:
    study, _, comments = translated(
        tmp_path,
        providers="[{id: openai:a, label: x, config: {tools: []}}, {id: openai:a, label: y}, "
        "{id: openai:a, config: {temperature: 1}}, {'openai:a': {config: {temperature: 0}}}]",
        tests="[{vars: {x: 1}, assert: [{type: javascript}, {type: javascript}]}]",
    )
    assert [model.get("label") for model in study["models"]] == ["x", None, "openai_a-2"]
    assert "the provider openai:a y: equal to another" in comments
    assert "2 checks in JavaScript left out" in comments


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
    assert "the prompt code.py: texts, JSON and YAML are read, code is not run" in comments


def test_tests_come_from_tables_and_defaults_and_lists_are_expanded(tmp_path: Path) -> None:
    (tmp_path / "tests.csv").write_text(
        "x,__expected,__metric\nParis,icontains: Paris,m\nRome,icontains: Rome,m\n"
    )
    (tmp_path / "long.txt").write_text("a long text\n")
    study, rows, comments = translated(
        tmp_path,
        "prompts: ['{{x}} {{y}}']\n"
        "providers: [openai:a]\n"
        "defaultTest: {vars: {y: 'file://long.txt'}, assert: [{type: latency, threshold: 9}]}\n"
        "tests:\n"
        "  - file://tests.csv\n"
        "  - {vars: {x: [Oslo, Bern]}, assert: [{type: icontains, value: '{{x}}'}], threshold: 1}\n"
        "  - {vars: {x: Kyiv}}\n",
    )

    assert [row["x"] for row in rows] == ["Paris", "Rome", "Oslo", "Bern", "Kyiv"]
    assert [row["checks"][0].get("contains") for row in rows[:4]] == [row["x"] for row in rows[:4]]
    assert rows[4]["checks"] == ["rubric"]
    assert {row["y"] for row in rows} == {"a long text"}
    assert "all" not in study["scorer"], "a test passes by a share of its checks"
    assert "1 check `latency` left out" in comments
    assert "# - Left out: latency: 9" in comments
    assert "the column __metric of the tests" in comments
    assert "threshold: 1; the score is the weighted mean" in comments


@pytest.mark.parametrize(
    ("assertion", "check"),
    [
        ("{type: equals, value: Rome}", {"exact": "Rome"}),
        ("{type: contains-any, value: 'a, b'}", {"contains": ["a", "b"]}),
        ("{type: icontains-all, value: [a, b]}", {"contains": ["a", "b"], "require": "all"}),
        ("{type: not-icontains, value: a}", {"contains": "a", "not": True}),
        ("{type: starts-with, value: 'a+'}", {"regex": r"\Aa\+"}),
        ("{type: contains-json, value: '{type: object}'}", {"json-schema": {"type": "object"}}),
        ("{type: llm-rubric, value: is polite, threshold: 0.8}", {"at_least": 0.8}),
        ("{type: factuality, value: '2 is even'}", {"factuality": "2 is even"}),
        ("{type: g-eval, value: brief}", {"g-eval": "brief", "logprobs": False}),
        (
            "{type: llm-rubric, value: '{{x}}?', provider: 'groq:a', metric: 'Is it {{x}}?'}",
            {"llm-rubric": "q?", "model": "groq/a", "name": "Is it q"},
        ),
        (
            "{type: assert-set, threshold: 0.5, assert: [{type: regex, value: a}]}",
            {"checks": [{"regex": "a"}], "at_least": 0.5},
        ),
    ],
)
def test_assertions_become_checks(tmp_path: Path, assertion: str, check: dict[str, object]) -> None:
    study, rows, comments = translated(
        tmp_path,
        tests=f"[{{vars: {{x: q}}, assert: [{assertion}]}}]",
        defaultTest="{description: a case}",
    )

    [[found]] = [row["checks"] for row in rows]
    assert found | check == found
    assert study["scorer"].get("model", "openai/gpt-5.6-sol") == "openai/gpt-5.6-sol"
    assert rows[0]["x"] == "q"
    assert "eft out" not in comments
    assert "Not taken over" not in comments


@pytest.mark.parametrize(
    ("assertion", "why"),
    [
        ("{type: regex, value: '('}", "malformed"),
        ("{type: is-json, value: {type: 3}}", "not a JSON schema"),
        ("{type: contains, value: ''}", "target is empty"),
        ("{type: equals, value: '{{ x | nothing }}'}", "nothing"),
        ("{type: rouge-n, value: '!!!'}", "itself scores 0"),
        ("{type: ruby, value: 'true'}", "1 check in Ruby left out"),
        ("{type: contains, value: a, transform: 'output.b'}", "after the transform output.b"),
        ("{type: equals, value: 'file://a.js'}", "code is not run"),
    ],
)
def test_what_cannot_be_checked_here_is_a_comment_with_the_reason(
    tmp_path: Path, assertion: str, why: str
) -> None:
    _, rows, comments = translated(
        tmp_path, tests=f"[{{vars: {{x: q}}, assert: [{assertion}]}}, {{vars: {{x: r}}}}]"
    )
    assert why in comments
    assert "1 check" in comments
    assert [row["checks"] for row in rows] == [["rubric"], ["rubric"]]


def test_files_by_pattern_references_and_shorthands_of_cells(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.yaml").write_text(
        "- {vars: {x: 1}, assert: [{type: equals, value: 1}]}"
    )
    (tmp_path / "more" / "b.yaml").write_text("vars: {x: [2, 3]}\nassert: {type: equals, value: 2}")
    (tmp_path / "tests.csv").write_text("x,__expected,__metadata:tags\n4,fn:f(),a\n5,is-json,b\n")
    tests = "[file://more/*, tests.csv, {vars: {x: 6}, assert: [{$ref: '#/gone'}]}]"
    _, rows, comments = translated(tmp_path, tests=tests)

    assert [row["x"] for row in rows] == [1, 2, 3, "4", "5", 6]
    names = [
        next(iter(check)) if isinstance(check, dict) else check
        for r in rows
        for check in r["checks"]
    ]
    assert names == ["exact", "exact", "exact", "rubric", "json-schema", "rubric"]
    assert "1 check in JavaScript, 1 check `$ref` left out" in comments
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
    assert study["scorer"]["model"] == "openai/gpt-5.6-sol"
    assert study["dataset"] == "study-tests.yaml"
    assert rows == [{"x": 1, "y": 2, "checks": ["rubric"]}]
    for note in (
        "the provider echo",
        "the prompt file://code.js",
        "the prompt {'label': 'a', 'messages': []}: write its messages to a .json file",
        "1 test without a check: a model grades",
    ):
        assert note in comments


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("- a", "not a promptfoo config"),
        ("prompts: ['{{x}}']\nproviders: [openai:a]\n", "has no test"),
        ("prompts: [gone.txt]\nproviders: [openai:a]\ntests: [{vars: {x: 1}}]", "gone.txt"),
        ("providers: [openai:a]\ntests: [7]", "a test of a promptfoo config is a mapping, got 7"),
        ("providers: [openai:a]\ndefaultTest: [a]", "write .* defaultTest into it"),
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
