"""Write a study from a promptfoo config.

Providers become models, prompts prompts, the tests a dataset in YAML with the checks of each, and
the default test's assertions the checks of all. What has no counterpart, such as code and
transforms, stands as a comment at its test, or at the top of the study if it is of no test.

A check is taken over only if it can be made here and recognises its own value, so that the study is
one that ``plan`` accepts.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.datasets import load_rows
from bestarm_agent.config.fields import replaced
from bestarm_agent.config.files import check_file, parsed_yaml, read_text
from bestarm_agent.config.prompts import ROW, CompiledPrompt, prompt_files
from bestarm_agent.config.starter import write_new
from bestarm_agent.config.yaml import YamlProblem, parse_yaml
from bestarm_agent.domain.values import Example, Message, PromptTemplate
from bestarm_agent.errors import ConfigError, counted
from bestarm_agent.judges.registry import create_judge

Found: TypeAlias = Any  # what stands in a file that somebody else wrote

FIELD = "checks"  # of the dataset
_FILE = "file://"
_TEXTS = (".txt", ".md", ".j2")
_DATA = (".json", ".yaml", ".yml")
_SAME = """anthropic azure bedrock cerebras cohere databricks deepinfra deepseek fireworks google
groq litellm mistral moonshot nvidia ollama openai openrouter sambanova vertex xai"""
# promptfoo's names, and the catalogue's
_PROVIDERS = {name: name for name in _SAME.split()} | {"togetherai": "together"}
_KINDS = ("chat", "messages", "responses")
_SAMPLING = """frequency_penalty max_tokens presence_penalty seed service_tier stop
temperature top_k top_p verbosity"""
_PARAMS = {name: name for name in _SAMPLING.split()} | {
    "reasoning_effort": "effort",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
}
_GRADER = "openai/gpt-5.6-sol"  # promptfoo's default model
_ASKING = {"model": None}  # that of the test or assertion, if it names one
# the scorer, and its options, for a kind of assertion
_CHECKS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "equals": ("exact", {"normalise": ["strip"]}),
    **{
        f"{case}contains{which}": (
            "contains",
            {
                "normalise": ["case" if case else "strip"],
                "words": False,
                **({"require": "all"} if which == "-all" else {}),
            },
        )
        for case in ("", "i")
        for which in ("", "-any", "-all")
    },
    "starts-with": ("regex", {}),
    "regex": ("regex", {}),
    "is-json": ("json-schema", {"fences": False}),
    "contains-json": ("json-schema", {}),
    "llm-rubric": ("llm-rubric", _ASKING),
    "model-graded-closedqa": ("model-graded-qa", _ASKING),
    "factuality": ("factuality", _ASKING),
    "model-graded-factuality": ("factuality", _ASKING),
    "g-eval": ("g-eval", {"logprobs": False, "at_least": 0.7, **_ASKING}),
    "rouge-n": ("rouge", {"variant": "rouge1", "at_least": 0.75}),
    "bleu": ("bleu", {"at_least": 0.5}),
}
_CODE = {"javascript": "JavaScript", "python": "Python", "ruby": "Ruby", "webhook": "a web hook"}
_TRANSFORMS = ("transform", "postprocess")
_KNOWN = (
    *("prompts", "providers", "targets", "tests", "scenarios"),
    *("defaultTest", "evaluateOptions", "assertionTemplates"),
)
_TEST = ("vars", "assert", "options", "threshold")
_ASSERTION = (
    *("$ref", "type", "value", "threshold", "weight", "metric"),
    *("provider", "transform", "assert"),
)
# keys that change nothing about which candidate is best
_HARMLESS = """$schema cache cache_control description metadata outputPath
outputs sharing tags writeLatestResults commandLineOptions maxConcurrency showProgressBar
generateSuggestions label apiKey"""
_CELLS = {"grade": "llm-rubric", "fn": "javascript", "eval": "javascript"}
_DELIMITER = re.compile(r"^[ \t]*---[ \t]*$", re.MULTILINE)  # between the prompts of a .txt
_WIDTH = 300  # characters of a comment
_ODD = re.compile(r"[^\w .:@+()-]+")


def write_study(config: Path, study: Path) -> tuple[tuple[Path, Path], str]:
    """Write a study and its dataset beside it; return both paths, and what was taken over.

    Raises:
        ConfigError: the config cannot be read, has no test, or a file exists already.
    """
    data = _parsed(config)
    if not isinstance(data, dict) or not ({"providers", "targets"} & data.keys()):
        raise ConfigError(f"{config}: not a promptfoo config: it has no `providers`")
    dataset = study.with_name(f"{study.stem}-tests.yaml")
    for path in (study, dataset):
        if path.exists():  # said before the config is read, which may take functions
            raise ConfigError(
                f"{path} exists already and is not overwritten; choose another name, or move it"
            )
    content, rows, summary = _Translation(config.parent, data).study(dataset.name)
    write_new({dataset: rows, study: content})
    return (study, dataset), summary


@dataclass
class _Test:
    """An example, its checks, and what of its test has no counterpart."""

    inputs: dict[str, Found]
    checks: list[Found]
    comments: list[str]

    def text(self, field: str) -> str:
        """Return its row of the dataset, with the checks in a field, under its comments."""
        lines = [f"# {' '.join(comment.split())[:_WIDTH]}" for comment in self.comments]
        return "\n".join([*lines, _yaml([{**self.inputs, field: self.checks}])])


@dataclass
class _Config:
    """A promptfoo config as it is read; ``notes`` say what of it has no counterpart."""

    folder: Path
    data: Mapping[str, Found]
    notes: list[str] = field(default_factory=list)

    def drop(self, keys: Iterable[str], known: tuple[str, ...], where: str) -> None:
        """Note the keys that nothing is made of."""
        for key in keys:
            if key not in known and key not in _HARMLESS.split():
                self.notes.append(f"`{where}{key}`")

    def content(self, value: Found) -> Found:
        """Return what a `file://` holds, parsed if it is data; any other value as it is."""
        if not isinstance(value, str) or not value.startswith(_FILE):
            return value
        path = self.folder / value.removeprefix(_FILE)
        if "*" in path.name:
            return [_text(file).strip() for file in sorted(path.parent.glob(path.name))]
        if path.suffix not in _TEXTS + _DATA:
            self.notes.append(f"{value}: code is not run")
            return None
        return _text(path).strip() if path.suffix in _TEXTS else _parsed(path)

    def files(self, name: str) -> Sequence[Path]:
        """Return the files of a name, which may be a pattern."""
        return prompt_files(name, self.folder) if set(name) & set("*?[") else [self.folder / name]

    def model(self, name: str, config: Mapping[str, Any]) -> dict[str, Any] | None:
        provider, _, model = name.partition(":")
        kind, colon, rest = model.partition(":")
        options: dict[str, Any] = {"api": kind} if kind == "responses" else {}
        if kind in _KINDS and colon:
            model = rest
        if provider not in _PROVIDERS or not model:
            return None
        params = {}
        for key, value in config.items():
            if key in _PARAMS:
                # A list is an axis of the grid here, and a single value there: so it is wrapped in
                # a list.
                params[_PARAMS[key]] = [value] if isinstance(value, list) else value
            elif key == "apiBaseUrl":
                options["base_url"] = value
            elif key == "apiKeyEnvar":
                options["api_key"] = f"${{{value}}}"
            else:
                self.drop([key], (), f"{name}: config.")
        entry = {"model": f"{_PROVIDERS[provider]}/{model}"}
        return entry | {k: v for k, v in (("params", params), ("options", options)) if v}


@dataclass
class _Checks:
    """The checks that the assertions of a config become."""

    config: _Config
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)  # by noun and kind
    weighs: bool = False  # whether a test passes by a mean, and not by all of its assertions
    asks: bool = False  # whether a check asks a model

    def assertions(self, test: Mapping[str, Found]) -> list[dict[str, Any]]:
        templates = self.config.data.get("assertionTemplates") or {}
        assertions = []
        for each in _each(self.config.content(test.get("assert"))):
            entry = each if isinstance(each, dict) else {"type": str(each)}
            template = templates.get(str(entry.get("$ref")).rpartition("/")[2]) or {}
            assertions.append({"type": "$ref", **template, **entry})
        return assertions

    def leave_out(self, noun: str, kind: str, text: str) -> None:
        self.left_out[noun, kind] += 1
        self.config.notes.append(f"Left out: {text}")

    def grader(self, options: Mapping[str, Found]) -> str | None:
        """Return the model that options name for grading, as it is called here; None if none is."""
        given = options.get("provider")
        given = given.get("text", given) if isinstance(given, dict) else given
        name = given.get("id") if isinstance(given, dict) else given
        model = self.config.model(name, {}) if isinstance(name, str) else None
        return None if model is None else str(model["model"])

    def check(self, assertion: Found, inputs: Found, grader: str | None) -> list[Found]:
        """Return the check for an assertion; none, with a comment, if there is none."""
        kind = str(assertion["type"])
        bare, after = kind.removeprefix("not-"), assertion.get("transform")
        what = f"in {_CODE[bare]}" if bare in _CODE else f"`{kind}`"
        description = f"{kind}: {assertion.get('value', assertion.get('threshold', ''))}"
        check, why = None, f" after the transform {after}" if after else ""
        try:
            check = None if after else self._translated(bare, assertion, inputs, grader)
            if check is not None:
                check |= {"not": True} if bare != kind else {}
                # The check is tried out by the scorer itself, with its own target as the reply:
                # what it does not recognise would fail every candidate. It weighs 1 here, since a
                # weight of 0 alone would be refused.
                given: Any = {"checks": [{**check, "weight": 1}], "model": _GRADER}
                judge, example = create_judge("checks", given, Catalog()), Example("test", inputs)
                judge.check(example)
                why = judge.unrecognised(example)
                self.asks |= bool(judge.models)
        except (ConfigError, YamlProblem) as error:
            why = f" ({error})"
        if check is None or why:
            self.leave_out("check", what, f"{description} {why}")
            return []
        return [check]

    def _translated(self, kind: str, given: Found, inputs: Found, grader: str | None) -> Found:
        """Return the check of a kind of assertion, or None, without `not`; raises ConfigError."""
        self.config.drop(given, _ASSERTION, f"assertions: {kind}.")
        weight, threshold = given.get("weight", 1), given.get("threshold")
        common = {} if weight == 1 else {"weight": weight}
        common |= {} if threshold is None else {"at_least": threshold}
        if metric := given.get("metric"):
            common["name"] = _name(_filled(metric, inputs))
        self.weighs |= weight not in (0, 1)
        if kind == "assert-set":
            parts = [self.check(each, inputs, grader) for each in self.assertions(given)]
            checks = [check for part in parts for check in part]
            return {"checks": checks, "all": threshold is None, **common} if checks else None
        value = _filled(self.config.content(given.get("value")), inputs)
        name, options = _CHECKS.get(kind, ("", {}))
        if name == "json-schema":
            value = parse_yaml(value)[0] if isinstance(value, str) else value or {}
        elif not name or value is None:
            return None
        elif kind == "starts-with":
            value = rf"\A{re.escape(str(value))}"
        else:
            parts = _parts(value, kind)
            value = parts[0] if len(parts) == 1 else parts
        if "model" in options and (model := self.grader(given) or grader):
            common["model"] = model
        own = {key: each for key, each in options.items() if each is not None}
        return {name: value, **own, **common}


class _Translation:
    """The translation of one config."""

    def __init__(self, folder: Path, data: Mapping[str, Found]) -> None:
        self.config = _Config(folder, data)
        self.checks = _Checks(self.config)

    def study(self, dataset: str) -> tuple[str, str, str]:
        """Return the study and its dataset as YAML, and what was taken over, in one line."""
        data = self.config.data
        self.config.drop(data, _KNOWN, "")
        self.config.drop(data.get("evaluateOptions") or {}, (), "evaluateOptions.")
        default = self.config.content(data.get("defaultTest") or {})
        if not isinstance(default, dict):
            raise ConfigError(f"write the promptfoo config's defaultTest into it, got {default!r}")
        self.config.drop(default, _TEST, "defaultTest.")
        # An assertion that shows no variable is the same check for every test, and stands once in
        # the study. One that does has another text in each, so it goes into the rows.
        shared: list[Found] = []
        for assertion in self.checks.assertions(default):
            shared += [] if "{{" in str(assertion) else self.checks.check(assertion, {}, None)
        own = [assertion for assertion in self.checks.assertions(default) if "{{" in str(assertion)]
        tests = [
            row for test in self._tests({**default, "assert": own}) for row in self._rows(test)
        ]
        if not tests:
            raise ConfigError("the promptfoo config has no test; a study needs examples")
        unchecked = [test for test in tests if not (test.checks or shared)]
        for test in unchecked:
            self.checks.asks, test.checks = True, ["rubric"]
        models = [*self._models(data.get("providers", data.get("targets")))]
        prompts = [*self._prompts(data.get("prompts", "{{prompt}}"))]
        self._complete([test.inputs for test in tests], prompts)
        stand_in = "\n".join(f"{{{{ {name} }}}}" for name in tests[0].inputs)
        grader = self.checks.grader(default.get("options") or {}) or _GRADER
        field = FIELD if FIELD not in tests[0].inputs else f"{FIELD}_of_test"
        study: dict[str, Any] = {
            "models": models or [{"model": "openai/NAME-A-MODEL"}],
            "prompts": prompts or [{"name": "stand-in", "text": stand_in}],
            "dataset": dataset,
            "scorer": {
                "name": "checks",
                "field": field,
                **({} if self.checks.weighs else {"all": True}),
                **({"model": grader} if self.checks.asks else {}),
                **({"checks": shared} if shared else {}),
            },
        }
        head = ["# Written from a promptfoo config; check it with `bestarm-agent plan`."]
        if self.config.notes:
            head += ["# Not taken over, since it has no counterpart here:"]
            head += [f"# - {' '.join(note.split())}" for note in dict.fromkeys(self.config.notes)]
        summary = [f"{counted(len(tests), 'test')} written"]
        if self.checks.left_out:
            few = [
                f"{counted(n, name)} {kind}".strip()
                for (name, kind), n in self.checks.left_out.items()
            ]
            summary.append(f"{', '.join(few)} left out, as comments say at the tests")
        if unchecked:
            summary.append(f"{counted(len(unchecked), 'test')} without a check: a model grades")
        rows = "\n".join(test.text(field) for test in tests)
        return "\n".join([*head, "", _yaml(study)]), rows, "; ".join(summary)

    def _complete(self, rows: list[dict[str, Found]], prompts: list[dict[str, Any]]) -> None:
        """Give each row all variables that others, or prompts, have: promptfoo shows nothing."""
        used = {name for prompt in prompts for name in CompiledPrompt(_template(prompt)).fields}
        known = {name for row in rows for name in row}
        if missing := sorted(used - known - {ROW}):
            self.config.notes.append(
                f"variables that no test gives are empty: {', '.join(missing)}"
            )
        for row in rows:
            row |= dict.fromkeys(sorted((known | {*missing}) - row.keys()), "")

    def _models(self, providers: Found) -> Iterator[dict[str, Any]]:
        names, seen = Counter[str](), list[dict[str, Any]]()
        for each in _each(providers):
            entry = each if isinstance(each, dict) else {"id": each}
            if "id" not in entry and len(entry) == 1:  # {"openai:gpt-...": {config: ...}}
                entry = {"id": next(iter(entry)), **_mapping(next(iter(entry.values())))}
            name = str(entry.get("id", entry))
            if (model := self.config.model(name, entry.get("config") or {})) is None:
                self.config.notes.append(
                    f"the provider {name}: write it as `python/module:function` or "
                    "`command/...`, or with `base_url` (docs/providers.md)"
                )
                continue
            self.config.drop(entry, ("id", "config", "label"), f"{name}: ")
            if model in seen:
                self.config.notes.append(
                    f"the provider {name} {entry.get('label', '')}: equal to another"
                )
                continue
            seen.append(model)
            label = _name(entry["label"]) if entry.get("label") else ""
            called = label or model["model"]
            names[called] += 1
            if names[called] > 1:
                label = f"{_name(called)}-{names[called]}"
            yield {**model, **({"label": label} if label else {})}

    def _prompts(self, prompts: Found) -> Iterator[dict[str, Any]]:
        names: Counter[str] = Counter()
        if isinstance(prompts, dict) and not {"raw", "id"} & prompts.keys():
            prompts = [{"id": name, "label": label} for name, label in prompts.items()]
        for each in _each(prompts):
            given = {"raw": each} if isinstance(each, str) else each
            for stem, body in self._bodies(given):
                name = _name(given.get("label") or stem or f"prompt-{names.total() + 1}")
                names[name] += 1
                yield {"name": name if names[name] == 1 else f"{name}-{names.total()}", **body}

    def _bodies(self, given: Mapping[str, Found]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield name and content of each prompt of a file, or the text itself without a name."""
        text = given.get("raw", given.get("id"))
        if not isinstance(text, str):
            self.config.notes.append(f"the prompt {given}: write its messages to a .json file")
            return
        name = text.removeprefix(_FILE)
        # A text without file:// is a path if it ends like one ("prompts/a.txt"), has one line and
        # shows no variable.
        if name == text and ("\n" in text or "{{" in text or not re.search(r"\.\w{2,4}$", text)):
            yield "", _body(text)
            return
        if not name.endswith((*_TEXTS, *_DATA)):
            self.config.notes.append(
                f"the prompt {text}: texts, JSON and YAML are read, code is not run"
            )
            return
        for path in self.config.files(name):
            is_yaml = path.suffix in (".yaml", ".yml")
            content = json.dumps(_parsed(path)) if is_yaml else _text(path)
            parts = _DELIMITER.split(content) if path.suffix == ".txt" else [content]
            yield from ((path.stem, _body(part.strip())) for part in parts if part.strip())

    def _tests(self, default: Mapping[str, Found]) -> Iterator[dict[str, Any]]:
        """Yield the tests with what the default test, or their scenario, adds to them."""
        for each in _each(self.config.data.get("tests")):
            yield from (self._joined(default, test) for test in self._tests_in(each))
        # A scenario runs each of its tests with each of its configs; a config without tests is one
        # itself.
        for scenario in map(self.config.content, _each(self.config.data.get("scenarios"))):
            for config in _each(scenario.get("config")):
                first = self._joined(default, config)
                for each in _each(scenario.get("tests")) or [{}]:
                    yield from (self._joined(first, test) for test in self._tests_in(each))

    def _tests_in(self, each: Found) -> Iterable[Found]:
        """Return the tests that an entry of `tests` is, or those of the file that it names."""
        name = each.get("path") if isinstance(each, dict) and "vars" not in each else each
        return self._from_files(name) if isinstance(name, str) else [each]

    def _joined(self, first: Mapping[str, Found], test: Found) -> dict[str, Any]:
        """Return a test with the variables, assertions and options that stand before its own."""
        if not isinstance(test, dict):
            raise ConfigError(f"a test of a promptfoo config is a mapping, got {test!r}")
        self.config.drop(test, _TEST, "tests: ")
        return {
            **first,
            **test,
            "vars": {
                **_mapping(first.get("vars")),
                **_mapping(self.config.content(test.get("vars"))),
            },
            "options": {**_mapping(first.get("options")), **_mapping(test.get("options"))},
            "assert": [*_each(first.get("assert")), *self.checks.assertions(test)],
        }

    def _from_files(self, name: str) -> Iterator[Found]:
        if not name.removeprefix(_FILE).endswith((*_DATA, ".jsonl", ".csv", "*")):
            self.config.notes.append(f"the tests of {name}: only files of data are read")
            return
        for path in self.config.files(name.removeprefix(_FILE)):
            if path.suffix in (".yaml", ".yml"):
                yield from _each(_parsed(path))
                continue
            is_table = path.suffix == ".csv"
            for row in load_rows(path):
                yield self._from_cells(row.values) if is_table else dict(row.values)

    def _from_cells(self, cells: Mapping[str, Found]) -> dict[str, Any]:
        """Return the test of a row of a table: columns are variables but for `__...`."""
        test: dict[str, Any] = {"vars": {}, "assert": []}
        for name, cell in cells.items():
            text = str(cell)
            if not name.startswith("__"):
                test["vars"][name] = text
            elif name.startswith("__expected"):
                test["assert"] += [_from_cell(text.strip())] if text.strip() else []
            elif name != "__description" and not name.startswith("__metadata"):
                self.config.notes.append(f"the column {name} of the tests")
        return test

    def _rows(self, test: Mapping[str, Any]) -> Iterator[_Test]:
        """Yield an example for each combination of the variables that are lists of texts."""
        before, options = len(self.config.notes), test["options"]
        given = {str(key): self.config.content(value) for key, value in test["vars"].items()}
        self.config.drop(options, ("provider", *_TRANSFORMS), "tests: options.")
        for name in options.keys() & {*_TRANSFORMS}:
            self.checks.leave_out(
                "transform", "", f"{name}: {options[name]}; checks read whole answers"
            )
        if test.get("threshold") is not None:
            self.checks.weighs = True
            self.config.notes.append(
                f"threshold: {test['threshold']}; the score is the weighted mean"
            )
        # Notes made since `before` are about this test. They are taken off the list for the whole
        # study and written as comments at each example of the test.
        of_test, self.config.notes[before:] = self.config.notes[before:], []
        # promptfoo tries all combinations of variables that are lists; each is an example here.
        choices = [v if isinstance(v, list) and v else [v] for v in given.values()]
        for combination in product(*choices):
            inputs = dict(zip(given, ("" if v is None else v for v in combination), strict=True))
            checks: list[Found] = []
            for assertion in test["assert"]:
                checks += self.checks.check(assertion, inputs, self.checks.grader(options))
            yield _Test(inputs, checks, [*of_test, *self.config.notes[before:]])
            self.config.notes[before:] = []


def _yaml(content: Found) -> str:
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)


def _template(prompt: Mapping[str, Any]) -> PromptTemplate:
    messages = tuple(Message(**message) for message in prompt.get("messages", ()))
    return PromptTemplate("prompt", text=prompt.get("text"), messages=messages)


def _mapping(value: Found) -> Mapping[str, Found]:
    return value if isinstance(value, dict) else {}


def _each(value: Found) -> list[Found]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _text(path: Path) -> str:
    check_file(path, "file")
    return read_text(path)


def _parsed(path: Path) -> Found:
    return parsed_yaml(path, _text(path))[0]


def _body(text: str) -> dict[str, Any]:
    """Return a prompt's ``messages`` if it is a list of them in JSON, else its ``text``."""
    try:
        messages: Found = json.loads(text)
    except ValueError:
        messages = None
    if not isinstance(messages, list) or not all(
        isinstance(turn, dict) and isinstance(turn.get("content"), str) for turn in messages
    ):
        return {"text": _jinja(text)}
    filled = [{"role": m.get("role"), "content": _jinja(m["content"])} for m in messages]
    return {"messages": filled}


def _jinja(text: str) -> str:
    """Return a template of Nunjucks for Jinja, which has another name for the filter `dump`."""
    return re.sub(r"\|\s*dump\b", "| tojson", text)


def _name(value: Found) -> str:
    return _ODD.sub("_", str(value)).strip("_. ")[:60] or "unnamed"


def _filled(value: Found, inputs: Mapping[str, Any]) -> Found:
    """Return a value with the variables of its test filled into its texts."""

    def filled(scalar: Found, _: object) -> Found:
        if not isinstance(scalar, str) or "{{" not in scalar:
            return scalar
        return CompiledPrompt(PromptTemplate("assertion", text=_jinja(scalar))).render(inputs)

    return replaced(value, filled)


def _parts(value: Found, kind: str) -> list[Found]:
    """Return the texts that an assertion compares with; lists may be written with commas."""
    if kind.endswith(("-any", "-all")) and isinstance(value, str):
        return [part.strip().strip('"') for part in value.split(",")]
    return _each(value)


def _from_cell(text: str) -> dict[str, Any]:
    """Return the assertion that a cell of a table writes, such as `icontains: Rome`."""
    # "icontains: Rome", "not-contains:x", "similar(0.8): text": a type, perhaps a threshold, a
    # value.
    match = re.fullmatch(r"((?:not-)?[a-z][a-z0-9-]*)(?:\([\d.]+\))?:(.*)", text, re.DOTALL)
    if match is not None:
        return {"type": _CELLS.get(match[1], match[1]), "value": match[2].strip()}
    if text in ("is-json", "contains-json"):
        return {"type": text}
    return {"type": "equals", "value": text}
