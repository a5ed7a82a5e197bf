"""Write a study from a promptfoo config.

Providers become models, prompts prompts, the variables of the tests a dataset. The commonest kind
of assertion becomes the scorer, and its values the targets. What has no counterpart is listed in
comments at the top of the study.
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

from bestarm_agent.config.datasets import load_rows
from bestarm_agent.config.prompts import CompiledPrompt, prompt_files
from bestarm_agent.config.starter import write_new
from bestarm_agent.config.yaml import YamlProblem, check_file, parse_yaml, read_text
from bestarm_agent.domain.values import PromptTemplate
from bestarm_agent.errors import ConfigError

Found: TypeAlias = Any  # what stands in a file that somebody else wrote

TARGET = "expected"  # field of the dataset
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
# the scorer for a kind of assertion, and for none
_SCORERS: Mapping[str, dict[str, Any]] = {
    "equals": {"name": "exact", "normalise": ["strip"]},
    **{
        f"{case}contains{which}": {
            "name": "contains",
            "normalise": ["case" if case else "strip"],
            "words": False,
            "require": "any" if which == "-any" else "all",
        }
        for case in ("", "i")
        for which in ("", "-any", "-all")
    },
    "llm-rubric": {"name": "llm-rubric", "model": _GRADER},
    "model-graded-closedqa": {"name": "model-graded-qa", "model": _GRADER},
    "factuality": {"name": "factuality", "model": _GRADER},
    "model-graded-factuality": {"name": "factuality", "model": _GRADER},
    "": {"name": "rubric", "model": _GRADER},
}
_KNOWN = ("prompts", "providers", "targets", "tests", "defaultTest", "evaluateOptions")
_TEST = ("vars", "assert", "options")
# keys that change nothing about which candidate is best
_HARMLESS = """$schema assertionTemplates cache cache_control description metadata outputPath
outputs sharing tags writeLatestResults commandLineOptions maxConcurrency showProgressBar
generateSuggestions label apiKey"""
_CELLS = {"grade": "llm-rubric", "fn": "javascript", "eval": "javascript"}
_DELIMITER = re.compile(r"^[ \t]*---[ \t]*$", re.MULTILINE)  # between the prompts of a .txt
_ODD = re.compile(r"[^\w .:@+()-]+")


def write_study(config: Path, study: Path) -> tuple[Path, Path]:
    """Write a study and its dataset beside it; return both paths.

    Raises:
        ConfigError: the config cannot be read, has no test, or a file exists already.
    """
    data = _parsed(config)
    if not isinstance(data, dict) or not ({"providers", "targets"} & data.keys()):
        raise ConfigError(f"{config}: not a promptfoo config: it has no `providers`")
    dataset = study.with_name(f"{study.stem}.jsonl")
    for path in (study, dataset):
        if path.exists():  # said before the config is read, which may take functions
            raise ConfigError(
                f"{path} exists already and is not overwritten; choose another name, or move it"
            )
    content, rows = _Translation(config.parent, data).study(dataset.name)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_new({dataset: lines, study: content})
    return study, dataset


@dataclass
class _Translation:
    """The translation of one config; ``notes`` say what has no counterpart."""

    folder: Path
    data: Mapping[str, Found]
    notes: list[str] = field(default_factory=list)

    def study(self, dataset: str) -> tuple[str, list[dict[str, Any]]]:
        """Return the study as YAML, and the rows of its dataset."""
        data = self.data
        self._drop(data, _KNOWN, "")
        self._drop(data.get("evaluateOptions") or {}, (), "evaluateOptions.")
        tests = [*self._tests()]
        if not tests:
            raise ConfigError("the promptfoo config has no test; a study needs examples")
        kind = self._commonest(tests)
        rows = [row for test in tests for row in self._rows(test, kind)]
        models = [*self._models(data.get("providers", data.get("targets")))]
        prompts = [*self._prompts(data.get("prompts", "{{prompt}}"))]
        stand_in = "\n".join(f"{{{{ {name} }}}}" for name in rows[0] if name != TARGET)
        study: dict[str, Any] = {
            "models": models or [{"model": "openai/NAME-A-MODEL"}],
            "prompts": prompts or [{"name": "stand-in", "text": stand_in}],
            "dataset": {"path": dataset, **({"target": TARGET} if kind else {})},
            "scorer": _SCORERS[kind],
        }
        head = ["# Written from a promptfoo config; check it with `bestarm-agent plan`."]
        if self.notes:
            head += ["# Not taken over, since it has no counterpart here:"]
            head += [f"# - {' '.join(note.split())}" for note in dict.fromkeys(self.notes)]
        body = yaml.safe_dump(study, sort_keys=False, allow_unicode=True, width=100)
        return "\n".join(head) + "\n\n" + body, rows

    def _drop(self, found: Iterable[str], known: tuple[str, ...], where: str) -> None:
        """Note the keys that nothing is made of."""
        for key in found:
            if key not in known and key not in _HARMLESS.split():
                self.notes.append(f"`{where}{key}`")

    def _content(self, value: Found) -> Found:
        """Return what a `file://` holds, parsed if it is data; any other value as it is."""
        if not isinstance(value, str) or not value.startswith(_FILE):
            return value
        path = self.folder / value.removeprefix(_FILE)
        if path.suffix not in _TEXTS + _DATA:
            self.notes.append(f"{value}: code is not run")
            return None
        return _text(path).strip() if path.suffix in _TEXTS else _parsed(path)

    def _files(self, name: str) -> Sequence[Path]:
        """Return the files of a name, which may be a pattern."""
        return prompt_files(name, self.folder) if set(name) & set("*?[") else [self.folder / name]

    def _models(self, found: Found) -> Iterator[dict[str, Any]]:
        for each in _each(found):
            one = each if isinstance(each, dict) else {"id": each}
            name = str(one.get("id", one))
            if (model := self._model(name, one.get("config") or {})) is None:
                self.notes.append(
                    f"the provider {name}: write it as `python/module:function` or "
                    "`command/...`, or with `base_url` (docs/providers.md)"
                )
                continue
            self._drop(one, ("id", "config"), f"{name}: ")
            yield {**model, **({"label": _name(one["label"])} if one.get("label") else {})}

    def _model(self, name: str, config: Mapping[str, Any]) -> dict[str, Any] | None:
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
                params[_PARAMS[key]] = [value] if isinstance(value, list) else value
            elif key == "apiBaseUrl":
                options["base_url"] = value
            elif key == "apiKeyEnvar":
                options["api_key"] = f"${{{value}}}"
            else:
                self._drop([key], (), f"{name}: config.")
        entry = {"model": f"{_PROVIDERS[provider]}/{model}"}
        return entry | {k: v for k, v in (("params", params), ("options", options)) if v}

    def _prompts(self, found: Found) -> Iterator[dict[str, Any]]:
        names: Counter[str] = Counter()
        for each in _each(found):
            given = {"raw": each} if isinstance(each, str) else each
            for stem, body in self._bodies(given):
                name = _name(given.get("label") or stem or f"prompt-{names.total() + 1}")
                names[name] += 1
                yield {"name": name if names[name] == 1 else f"{name}-{names.total()}", **body}

    def _bodies(self, given: Mapping[str, Found]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield name and content of each prompt of a file, or the text itself without a name."""
        text = given.get("raw", given.get("id"))
        if not isinstance(text, str):
            self.notes.append(f"the prompt {given}: write its messages to a .json file")
            return
        name = text.removeprefix(_FILE)
        if name == text and ("\n" in text or "{{" in text or not re.search(r"\.\w{2,4}$", text)):
            yield "", _body(text)
            return
        if not name.endswith((*_TEXTS, ".json")):
            self.notes.append(f"the prompt {text}: a text or JSON is read, code is not run")
            return
        for path in self._files(name):
            content = _text(path)
            parts = _DELIMITER.split(content) if path.suffix == ".txt" else [content]
            yield from ((path.stem, _body(part.strip())) for part in parts if part.strip())

    def _tests(self) -> Iterator[dict[str, Any]]:
        """Yield the tests with the variables and assertions that the default test adds."""
        default = self.data.get("defaultTest") or {}
        if not isinstance(default, dict):
            raise ConfigError(f"write the promptfoo config's defaultTest into it, got {default!r}")
        self._drop(default, _TEST, "defaultTest.")
        self._drop(default.get("options") or {}, (), "defaultTest.options.")
        for each in _each(self.data.get("tests") or []):
            for test in self._from_files(each) if isinstance(each, str) else [each]:
                if not isinstance(test, dict):
                    raise ConfigError(f"a test of a promptfoo config is a mapping, got {test!r}")
                self._drop(test, _TEST, "tests: ")
                self._drop(test.get("options") or {}, (), "tests: options.")
                asserted = [*_each(default.get("assert")), *_each(test.get("assert"))]
                given = {**(default.get("vars") or {}), **(test.get("vars") or {})}
                yield {
                    "vars": {key: self._content(value) for key, value in given.items()},
                    "assert": [{"type": "$ref", **a} for a in asserted if isinstance(a, dict)],
                }

    def _from_files(self, name: str) -> Iterator[Found]:
        for path in self._files(name.removeprefix(_FILE)):
            if path.suffix in (".yaml", ".yml"):
                yield from _each(_parsed(path))
                continue
            is_table = path.suffix == ".csv"
            for row in load_rows(path):
                yield self._from_cells(row.values) if is_table else dict(row.values)

    def _from_cells(self, cells: Mapping[str, Found]) -> dict[str, Any]:
        """Return the test of a row of a table: columns are variables but for `__...`."""
        test: dict[str, Any] = {"vars": {}, "assert": []}
        for name, found in cells.items():
            text = str(found)
            if not name.startswith("__"):
                test["vars"][name] = text
            elif name.startswith("__expected"):
                test["assert"] += [_from_cell(text.strip())] if text.strip() else []
            elif name != "__description" and not name.startswith("__metadata"):
                self.notes.append(f"the column {name} of the tests")
        return test

    def _commonest(self, tests: list[dict[str, Any]]) -> str:
        """Return the kind of assertion that most tests have among those with a scorer, or ""."""
        kinds = Counter(k for test in tests for k in {str(a["type"]) for a in test["assert"]})
        valued = {a["type"] for test in tests for a in test["assert"] if a.get("value") is not None}
        chosen = max(
            (kind for kind in _SCORERS if kind in valued), key=kinds.__getitem__, default=""
        )
        for kind, count in kinds.items():
            if kind != chosen:
                self.notes.append(f"assertions of type `{kind}` (in {count} of {len(tests)} tests)")
        if not chosen:
            self.notes.append("any assertion: the judge `rubric` grades answers (docs/judges.md)")
        return chosen

    def _rows(self, test: Mapping[str, Any], kind: str) -> Iterator[dict[str, Any]]:
        """Yield a row for each combination of the test's variables that are lists of texts."""
        values = [self._content(a.get("value")) for a in test["assert"] if a["type"] == kind]
        if kind and not values:
            self.notes.append(f"tests without an assertion of type `{kind}`")
            return
        choices = [v if isinstance(v, list) and v else [v] for v in test["vars"].values()]
        for combination in product(*choices):
            inputs = dict(zip(test["vars"], combination, strict=True))
            targets = [_filled(part, inputs) for value in values for part in _parts(value, kind)]
            target = {TARGET: targets[0] if len(targets) == 1 else targets}
            yield {**inputs, **(target if kind else {})}


def _each(found: Found) -> list[Found]:
    if found is None:
        return []
    return found if isinstance(found, list) else [found]


def _text(path: Path) -> str:
    check_file(path, "file")
    return read_text(path)


def _parsed(path: Path) -> Found:
    try:
        return parse_yaml(_text(path))[0]
    except YamlProblem as problem:
        raise ConfigError(f"{path}: malformed YAML: {problem}") from None


def _body(text: str) -> dict[str, Any]:
    """Return a prompt's ``messages`` if it is a list of them in JSON, else its ``text``."""
    try:
        found: Found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(
        isinstance(one, dict) and isinstance(one.get("content"), str) for one in found
    ):
        return {"text": _jinja(text)}
    return {"messages": [{"role": m.get("role"), "content": _jinja(m["content"])} for m in found]}


def _jinja(text: str) -> str:
    """Return a template of Nunjucks for Jinja, which has another name for the filter `dump`."""
    return re.sub(r"\|\s*dump\b", "| tojson", text)


def _name(found: Found) -> str:
    return _ODD.sub("_", str(found)).strip("_. ")[:60] or "unnamed"


def _filled(value: Found, inputs: Mapping[str, Any]) -> Found:
    """Return a value with the variables of its test filled in."""
    if not isinstance(value, str) or "{{" not in value:
        return value
    return CompiledPrompt(PromptTemplate("assertion", text=_jinja(value))).render(inputs)


def _parts(value: Found, kind: str) -> list[Found]:
    """Return the texts that an assertion compares with; lists may be written with commas."""
    if kind.endswith(("-any", "-all")) and isinstance(value, str):
        return [part.strip().strip('"') for part in value.split(",")]
    return _each(value)


def _from_cell(text: str) -> dict[str, Any]:
    """Return the assertion that a cell of a table writes, such as `icontains: Rome`."""
    found = re.fullmatch(r"((?:not-)?[a-z][a-z0-9-]*)(?:\([\d.]+\))?:(.*)", text, re.DOTALL)
    if found is not None:
        return {"type": _CELLS.get(found[1], found[1]), "value": found[2].strip()}
    if text in ("is-json", "contains-json"):
        return {"type": text}
    return {"type": "equals", "value": text}
