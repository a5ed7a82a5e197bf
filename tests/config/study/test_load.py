from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.config.load import LoadedStudy, load_study, study_from
from bestarm_agent.config.study import StudyConfig
from bestarm_agent.config.yaml import parse_yaml
from bestarm_agent.domain.redaction import redacted
from bestarm_agent.domain.values import Json
from bestarm_agent.errors import ConfigError

Write = Callable[..., Path]

LEAST = """\
models:
  - hf/models/small
prompts:
  - plain: "{{ a }}+{{ b }}="
dataset: data.jsonl
scorer: numeric
"""

COMPLETE = """\
# yaml-language-server: $schema=study.schema.json
name: arithmetic
models:
  - hf/models/sum-llama-167k
  - model: openai/gpt-x
    label: gptx
    params: {reasoning_effort: low}
    options: {base_url: "${BASE_URL}", price: {input: 0.1, output: 0.5}}
prompts:
  - plain: "{{ a }}+{{ b }}="
  - name: chat
    messages: [{role: user, content: "{{ a }}+{{ b }}"}]
  - short-chat: [{role: user, content: "{{ a }}"}]
  - question-answer
  - file://prompts/qa.jinja
params:
  temperature: [0, 0.5, 1.0]
  max_tokens: 4
exclude:
  - {model: sum-llama-167k, temperature: 1.0}
candidates:
  - {model: hf/x, prompt: plain, params: {temperature: 0}, label: baseline}
dataset: {path: "${DATA}/d.jsonl", format: jsonl, id: id, target: answer, limit: 9, fields: [a]}
scorer: {name: regex, pattern: "[0-9]+"}
budget: {usd: $5, share: 10%, minutes: 3}
selector: {name: ucb-e, params: {eta: 1.0}, seed: 7, confidence: 0.9, stop_when_separated: false}
limits:
  in_flight: 32
  providers: {openai: {in_flight: 8}}
providers:
  hf: {threads: 2, memory_gb: 4}
output_dir: out
"""
ENVIRON = {"BASE_URL": "http://localhost:8000/v1", "DATA": "/data"}


def test_the_least_study_has_defaults(write: Write) -> None:
    config = load_study(write(LEAST, "sums.yaml")).config
    assert config.name == "sums"
    assert config.selector.name == "auto"
    assert (config.selector.seed, config.selector.confidence) == (0, None)
    assert config.selector.level == 0.95
    assert config.selector.stop_when_separated
    assert config.budget.caps(cells=100).answers is None
    assert config.dataset.path == "data.jsonl"
    assert config.limits.in_flight == 64
    assert config.output_dir == "runs"


def test_what_replaced_values_of_the_file_is_kept_as_options_write_it(write: Write) -> None:
    given = {"budget.usd": Decimal("1.5"), "budget.share": "20%", "slices": {"by": ["a"]}}
    study = load_study(write(LEAST), given)  # a Decimal is no JSON
    assert study.changes == ('budget.usd="1.5"', "budget.share=20%", 'slices={"by": ["a"]}')
    changes = dict(change.split("=", 1) for change in study.changes)
    again = load_study(write(LEAST), {key: parse_yaml(text)[0] for key, text in changes.items()})
    assert again.config == study.config


def test_every_key_is_read(write: Write) -> None:
    study = load_study(write(COMPLETE), environ=ENVIRON)
    config = study.config
    assert config.model_labels == ("sum-llama-167k", "gptx")
    assert config.models[0].provider == "hf"
    assert config.models[0].name == "models/sum-llama-167k"
    assert [prompt.label for prompt in config.prompts] == [
        "plain",
        "chat",
        "short-chat",
        "question-answer",
        "qa",
    ]
    assert config.prompts[3].catalog == "question-answer"
    assert config.prompts[4].file == "prompts/qa.jinja"
    assert config.dataset.path == "/data/d.jsonl"
    assert config.scorer.options == {"pattern": "[0-9]+"}
    assert (config.budget.usd, config.budget.share) == (5, 0.1)
    assert config.limits.providers["openai"].in_flight == 8
    assert config.model_options() == {
        ("hf", "models/sum-llama-167k"): {},
        ("openai", "gpt-x"): {
            "base_url": "http://localhost:8000/v1",
            "price": {"input": 0.1, "output": 0.5},
        },
        ("hf", "x"): {},
    }
    assert study.base_dir == Path()
    assert study.positions.lines["selector", "seed"] == 26
    assert study.positions.describe("candidates", 0, "label") == "study.yaml, line 22"


def test_the_record_keeps_variables_and_makes_the_same_study(write: Write) -> None:
    study = load_study(write(COMPLETE), environ=ENVIRON)
    record = study.record()
    assert isinstance(record, Mapping)
    assert "http://localhost" not in json.dumps(record)
    assert "${BASE_URL}" in json.dumps(record)
    again = study_from(json.loads(json.dumps(record)), environ=ENVIRON)
    assert again.config == study.config
    assert again.record() == record


def test_json_says_the_same_as_yaml(write: Write) -> None:
    expected = load_study(write(COMPLETE), environ=ENVIRON)
    assert isinstance(expected.source, Mapping)
    as_json = {"$schema": "study.schema.json", **expected.source}
    found = load_study(write(json.dumps(as_json, indent="\t"), "s.json"), environ=ENVIRON)
    assert found.config == expected.config
    assert found.positions.lines[("name",)] == 3


# Each case: text appended to LEAST (six lines), and what the message must hold.
APPENDED = [
    ("bugdet: {usd: 3}", "line 7: unknown key `bugdet`; did you mean `budget`?"),
    (
        "candidates: [{model: a/b, prompt: p, price: {input: 1}}]",
        "options of the provider in `options`, such as `options: {price: {input: 0.10",
    ),
    ("limits: {in_flite: 3}", "unknown key `limits.in_flite`; did you mean `in_flight`?"),
    (
        "limits:\n  providers:\n    openai: {rpn: 3}",
        "line 9: unknown key `limits.providers.openai.rpn`; did you mean `rpm`",
    ),
    (
        "limits:\n  models:\n    o9: {rpm: 3}",
        "line 9: `limits.models.o9` must be `provider/model`, such as openai/gpt-6-luna",
    ),
    (
        "limits:\n  providers:\n    openai: {tpm: 0}",
        "line 9: `limits.providers.openai.tpm` must be at least 1, got 0",
    ),
    ("budget: {usd: 0}", "line 7: `budget.usd` must be greater than 0, got 0; leave it out"),
    ("objective: nope", "must be 'best', 'best-under-usd', 'cheapest-within-epsilon' or"),
    ("budget:\n  calls: -4", "line 8: `budget.calls` must be at least 1, got -4"),
    ("budget: {usd: five}", '`budget.usd` must be an amount of dollars such as 5 or "$5", got "fi'),
    ("budget: {share: 150%}", "`budget.share` must be at most 1, got 1.5"),
    ("budget: {share: 10}", '`budget.share` must be at most 1, got 10; for 10 percent write "10%"'),
    ("budget: {calls: 2.5}", "`budget.calls` must be a whole number, got 2.5"),
    ("budget: {calls: yes}", '`budget.calls` must be a whole number, got "yes"'),
    ("budget: 5", "(`key: value`), got 5; keys that it takes: `usd`, `"),
    ("confirm: 20%", 'got "20%"; keys that it takes: `share`'),
    ("selector: {confidence: 1}", "`selector.confidence` must be less than 1, got 1"),
    ("selector: {seed: -1}", "`selector.seed` must be at least 0, got -1"),
    ("selector: [a]", '`selector` must be a text or a mapping (`key: value`), got ["a"]'),
    (
        "selector: {stop_when_separated: maybe}",
        '`selector.stop_when_separated` must be true or false, got "maybe"',
    ),
    ("name: 5", "line 7: `name` must be a text, got 5; put it in quotes"),
    ("name: a/b", "`name` must begin with a letter or digit and hold only"),
    ("params: {temperature: []}", "`params.temperature` is an axis without values"),
    ("params:\n  temperature: [0, 0.0, 1]", "line 8: `params.temperature` holds 0 more than once"),
    ("params: {temperature: .inf}", "`params.temperature` must be finite, got inf"),
    ("exclude: [{}]", "`exclude[0]` is empty and would leave out everything"),
    ("exclude: {temperature: 1}", "`exclude` must be a list (`- item` on lines of their own"),
    (
        "candidates: [{model: hf/q, prompt: plan}]",
        '`candidates[0].prompt` "plan" is not one of `prompts`; did you mean `plain`?',
    ),
    (
        "candidates: [{model: smal, prompt: plain}]",
        "is neither `provider/model` nor the label of one of `models`; did you mean `small`?",
    ),
    ("candidates: [{model: /q, prompt: plain}]", "`candidates[0].model` must be `provider/model`"),
    (
        "candidates:\n- {model: hf/x, prompt: plain, label: x}\n"
        "- {model: hf/y, prompt: plain, label: x}",
        'line 9: `candidates[1]` is the second candidate called "x", after candidates[0]',
    ),
    (
        "candidates: [{model: small, prompt: plain, options: {threads: 2}}]",
        "`candidates[0].options` belong to this model's entry in `models`",
    ),
    (
        "providers:\n  openai:\n    base_url: ${NOPE}/v1",
        "line 9: `providers.openai.base_url` needs the environment variable NOPE, which is not set",
    ),
    ("output_dir: '${A-b}'", "`output_dir` holds ${A-b}, which is not the name of an environment"),
    (
        "providers: {openai: {api_key: sk-123}}",
        "`providers.openai.api_key` holds a secret, which does not belong in a study file",
    ),
    (
        "providers: {command: {env: {MODE: fast, MY_KEY: sk-123}}}",
        "`providers.command.env.MY_KEY` holds a secret, which does not belong in a study file; put "
        "it into an environment variable and write ${NAME_OF_THE_VARIABLE}",
    ),
    (
        "providers: {openai: {headers: {X-Token: 'sk-123${USER}'}}}",
        "`providers.openai.headers.X-Token` holds a secret",
    ),
    (
        "providers: {openai: {api_key: '[redacted]'}}",
        "`providers.openai.api_key` held a secret when the run began, which its log leaves out; "
        "begin a new run with the secret in an environment variable",
    ),
    ("params: {hf_token: sk-123}", "`params.hf_token` is named like a secret, which the log of a"),
    (
        "providers: {my-token: {base_url: 'http://localhost'}}",
        "`providers.my-token` is named like a secret, and the log of a run leaves its value out",
    ),
    ("limits: {timeout_seconds: 0}", "`limits.timeout_seconds` must be greater than 0, got 0"),
    ("limits: {failed_score: 1.5}", "`limits.failed_score` must be at most 1, got 1.5"),
    ("models: [hf/a]", "line 7, column 1: malformed YAML: key `models` is written twice, first on"),
    ("budget: {usd: 3", "line 8, column 1: malformed YAML: expected ',' or '}'"),
    ("budget:\n\tusd: 3", "line 8, column 1: malformed YAML: "),
    ("name: 'x", "line 7, column 7: malformed YAML: the quote that opens here is never closed"),
]


def test_what_is_accepted_under_a_secrets_name_is_kept_in_the_log(write: Write) -> None:
    headers: Json = {"Authorization": "Bearer ${ONE}", "X-Api-Key": "${ONE}:${TWO}"}
    options: Json = {"api_key": "${ONE}", "headers": headers, "eos_token": "</s>", "token": 5}
    text = f"{LEAST}providers: {{openai: {json.dumps(options)}}}\n"
    study = load_study(write(text), environ={"ONE": "1", "TWO": "2"})
    assert redacted(study.record()) == study.record()


def test_settings_that_are_only_called_like_secrets_are_kept(write: Write) -> None:
    schema: Json = {"properties": {"token": {"type": "string"}, "password": {"type": "string"}}}
    params: Json = {
        "image_special_token": "IMG",
        "tool_call_token": "<|tool_call|>",
        "forced_token": [5, 6],
        "max_tokens": 7,
        "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
    }
    limits: Json = {"models": {"hf/next-token": {"rpm": 5}}}
    text = f"{LEAST}params: {json.dumps(params)}\nlimits: {json.dumps(limits)}\n"
    study = load_study(write(text), environ={})
    assert redacted(study.record()) == study.record()
    assert study.config.params == params


@pytest.mark.parametrize(("text", "message"), APPENDED)
def test_what_is_wrong_is_named(write: Write, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_study(write(LEAST + text + "\n"), environ={})
    assert str(caught.value).startswith("study.yaml, line ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "sk-123" not in str(caught.value)


# Each case: what to replace in LEAST, by what, and what the message must hold.
REPLACED = [
    ("hf/models/small", "small", "line 2: `models[0].model` must be `provider/model`, such as"),
    ("hf/models/small", "openai:gpt", "did you mean `openai/gpt`?"),
    ("  - hf/models/small", "  hf/models/small", "line 1: `models` must be a list"),
    ("hf/models/small", "5", "`models[0]` must be a text or a mapping (`key: value`), got 5"),
    ("hf/models/small", "{model: hf/m, lable: x}", "`models[0].lable`; did you mean `label`?"),
    ("hf/models/small", "hf/a\n  - hf/a", 'line 3: `models[1]` is the second model called "hf/a"'),
    (
        "- hf/models/small",
        "- {model: hf/a, label: x}\n  - {model: hf/a, label: y, options: {threads: 2}}",
        "line 3: `models[1].options` differ from those of another entry of hf/a",
    ),
    ("  - hf/models/small\n", "", "`models` is missing: `prompts` need at least one model"),
    ('  - plain: "{{ a }}+{{ b }}="\n', "", "`prompts` is missing: `models` need at least one"),
    ("plain: ", "", 'line 4: `prompts[0]` is a template without a name; write `- my-name: "..."`'),
    ('plain: "{{ a }}+{{ b }}="', "{text: a}", "`prompts[0]` needs a name"),
    ('plain: "{{ a }}+{{ b }}="', "{name: x, text: a, file: b}", "got `text` and `file`"),
    ('plain: "{{ a }}+{{ b }}="', "plain: 5", "`prompts[0].text` must be a text, got 5"),
    ('plain: "{{ a }}+{{ b }}="', "{name: x, file: p/*.txt}", "may match several files"),
    (
        'plain: "{{ a }}+{{ b }}="',
        "plain: [{role: usr, content: a}]",
        "`prompts[0].messages[0].role` must be 'system', 'user' or 'assistant', got \"usr\"; did",
    ),
    (
        'plain: "{{ a }}+{{ b }}="',
        "plain: a\n  - file://p/plain.jinja",
        'line 5: `prompts[1]` is the second prompt called "plain", after prompts[0]',
    ),
    ('"{{ a }}+{{ b }}="', "{{ a }}+{{ b }}=", 'put quotes around a template: "{{ a }}"'),
    ("dataset: data.jsonl", "dataset: {}", "line 5: `dataset` needs either `path` or `hugging"),
    ("dataset: data.jsonl\n", "", "study.yaml: `dataset` is missing (the examples, or just"),
    ("data.jsonl", "{path: x, format: jsnl}", "got \"jsnl\"; did you mean `jsonl`"),
    ("data.jsonl", "{huggingface: x, format: csv}", "`dataset.format` is the format of a file"),
    ("data.jsonl", "{path: x, fields: []}", "`dataset.fields` must not be empty, got []"),
    ("scorer: numeric", "scorer: {pattern: x}", "line 6: `scorer.name` is missing (name of a sco"),
    ("scorer: numeric", "scorer: ''", "`scorer.name` must not be empty"),
    (
        "scorer: numeric",
        "scorer: {name: regex, stop_secret: sk-123}",
        "`scorer.stop_secret` is named like a secret, which the log of a run leaves out",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), REPLACED)
def test_what_is_wrong_inside_is_named(write: Write, old: str, new: str, message: str) -> None:
    assert old in LEAST
    with pytest.raises(ConfigError) as caught:
        load_study(write(LEAST.replace(old, new)), environ={})
    assert str(caught.value).startswith("study.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("study.yaml", "", "study.yaml is empty; `bestarm-agent init` writes a study"),
        ("study.yaml", "# nothing\n", "study.yaml is empty"),
        ("study.yaml", "- a\n", 'a study must be a mapping (`key: value`), got ["a"]'),
        ("study.json", "{,}", "study.json, line 1, column 2: malformed JSON: "),
        ("study.json", '{"a": 1,\n "a": 2}', "study.json, line 2, column 2: malformed JSON: key"),
        ("study.json", '{"params": {"t": NaN}}', "`params.t` must be finite, got nan"),
        ("study.json", '{\n"bugdet": 1}', "study.json, line 2: unknown key `bugdet`"),
    ],
)
def test_files_that_hold_no_study_are_refused(
    write: Write, name: str, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_study(write(text, name))
    assert message in str(caught.value)


def test_missing_files_and_folders_are_named(write: Write, tmp_path: Path) -> None:
    write(LEAST)
    with pytest.raises(ConfigError, match=r"there is no study file x\.yaml; `bestarm-agent init`"):
        load_study(Path("x.yaml"))
    with pytest.raises(ConfigError, match="is a folder; name the study file in it"):
        load_study(tmp_path)


def test_several_errors_are_listed_in_the_order_of_the_file(write: Write) -> None:
    lines = [f"x{i:02}: {i}" for i in range(12)]
    with pytest.raises(ConfigError) as caught:
        load_study(write("\n".join(lines)))
    listed = str(caught.value).splitlines()
    assert listed[0] == "study.yaml has 14 errors:"
    assert listed[1].startswith("  study.yaml: `dataset` is missing")
    assert listed[3].startswith("  study.yaml, line 1: unknown key `x00`; there are `budget`")
    assert listed[-1] == "  and 4 more"
    assert len(listed) == 12


@pytest.mark.parametrize("section", ["budget", "selector", "limits", "params", "exclude", "name"])
def test_a_section_without_content_counts_as_left_out(write: Write, section: str) -> None:
    emptied = load_study(write(f"{LEAST}{section}:\n  # commented: out\n"))
    assert emptied.config == load_study(write(LEAST)).config


def test_overrides_win_and_spell_short_forms_out(write: Write) -> None:
    path = write(LEAST + "selector: uniform\nbudget: {usd: 5}\n")
    overrides: Mapping[str, Json] = {
        "selector.seed": 3,
        "budget.share": "0.2",
        "scorer.tolerance": 0.5,
        "dataset.limit": 7,
        "limits.providers.openai.in_flight": 2,
        "models": ("hf/other",),
    }
    config = load_study(path, overrides).config
    assert (config.selector.name, config.selector.seed) == ("uniform", 3)
    assert (config.budget.usd, config.budget.share) == (5, 0.2)
    assert (config.scorer.name, config.scorer.options) == ("numeric", {"tolerance": 0.5})
    assert (config.dataset.path, config.dataset.limit) == ("data.jsonl", 7)
    assert config.limits.providers["openai"].in_flight == 2
    assert [spec.model for spec in config.models] == ["hf/other"]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("budget.share", 2, "override budget.share: `budget.share` must be at most 1, got 2"),
        ("modles", 3, "override modles: unknown key `modles`; did you mean `models`?"),
        ("models.0", "hf/x", 'cannot override `models.0`: `models` is ["hf/models/small"], not a'),
    ],
)
def test_wrong_overrides_are_named(write: Write, key: str, value: Json, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_study(write(LEAST), {key: value})
    assert str(caught.value).startswith(message)


def test_variables_expand_only_where_declared(write: Write) -> None:
    text = LEAST.replace("data.jsonl", "${D}").replace("numeric", '{name: regex, pattern: "${D}$"}')
    text += "providers: {hf: {nested: [{url: '$${D}:${D}'}]}}\n"
    config = load_study(write(text), environ={"D": "x"}).config
    assert config.dataset.path == "x"
    assert config.scorer.options == {"pattern": "${D}$"}
    assert config.providers["hf"] == {"nested": [{"url": "${D}:x"}]}


def test_variables_come_from_the_environment_and_from_dotenv(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("BASE=file\nDATA=file\n", ".env")
    monkeypatch.setenv("DATA", "process")
    text = LEAST.replace("data.jsonl", "${DATA}") + "output_dir: ${BASE}\n"
    config = load_study(write(text)).config
    assert (config.dataset.path, config.output_dir) == ("process", "file")


def test_a_mapping_is_checked_like_a_file() -> None:
    content: dict[str, Json] = {**SMALL, "models": ("hf/a",)}
    study = study_from(content, Path("somewhere"), {"selector.seed": 4})
    assert (study.base_dir, study.path) == (Path("somewhere"), None)
    assert study.config.selector.seed == 4
    assert "selector" not in content
    with pytest.raises(ConfigError, match=r"^the study: unknown key `nam`; did you mean `name`"):
        study_from({**content, "nam": "x"})
    with pytest.raises(ConfigError, match=r"^the study: `params.t` must be finite, got nan"):
        study_from({**content, "params": {"t": float("nan")}})


SMALL: dict[str, Json] = {
    "models": ["hf/a", {"model": "openai/b", "label": "c"}],
    "prompts": [{"p": "{{ q }}"}, "qa"],
    "dataset": "d.jsonl",
    "scorer": "exact",
}


def read(content: Mapping[str, Json]) -> LoadedStudy | None:
    try:
        return study_from(content, environ={})
    except ConfigError:
        return None


scalars = st.sampled_from([None, True, 0, 3, -1, 0.5, 2.0, "", "a", "hf/a", "p", "c", "${x}", "5%"])
keys = st.sampled_from(["name", "model", "prompt", "params", "seed", "share", "path", "x"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from([*StudyConfig.model_fields, "other"]), values)
def test_any_section_is_refused_or_recorded_faithfully(section: str, value: Json) -> None:
    study = read({**SMALL, section: value})
    if study is not None:
        record = study.record()
        assert isinstance(record, Mapping)
        assert study_from(record, environ={}).config == study.config
