"""Translates a promptfoo config into a study.

Providers are models, prompts are prompts, tests are the dataset, and their assertions the scorer
`assertions`. What has no counterpart is refused with its line.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bestarm_agent.config.fields import shown
from bestarm_agent.config.promptfoo.source import FILE, Found, Source, jinja, name_of
from bestarm_agent.config.promptfoo.tests import ID, TARGET, Tests
from bestarm_agent.config.prompts.load import prompt_files
from bestarm_agent.config.yaml.documents import check_file, read_text
from bestarm_agent.config.yaml.parser import KeyPath
from bestarm_agent.config.yaml.source_positions import Places

_READ = ("prompts", "providers", "targets", "tests", "defaultTest", "evaluateOptions")
_DECORATION = ("description", "tags", "metadata", "outputPath", "sharing", "writeLatestResults")
_SETTINGS = ("maxConcurrency", "repeat", "cache", "showProgressBar", "generateSuggestions")
_TEMPLATES = (".txt", ".md", ".j2", ".json", ".yaml", ".yml")
_PROMPT = ("raw", "label", "id")
_DELIMITER = re.compile(r"^[ \t]*---[ \t]*$", re.MULTILINE)  # between the prompts of a .txt


class _Prompt(NamedTuple):
    name: str
    aliases: frozenset[str]  # by which promptfoo's providers may name it
    body: dict[str, Any]  # `text` or `messages`


def is_promptfoo(data: Mapping[str, object]) -> bool:
    """Return whether a file holds a promptfoo config: a study's `providers` is a mapping."""
    found = data.get("providers", data.get("targets"))
    return isinstance(found, str | list) and "models" not in data


def translated(
    data: Mapping[str, Any], places: Places, path: Path
) -> tuple[dict[str, Any], Places]:
    """Return the study that a promptfoo config means, and the positions of its values.

    Without a temperature it is 0, as in promptfoo. Raises ConfigError for what has no counterpart.
    """
    source = Source(places, path.parent)
    source.mapping(data, (), *_READ, *_DECORATION)
    settings = data.get("evaluateOptions") or {}
    source.mapping(settings, ("evaluateOptions",), *_SETTINGS)
    providers = "providers" if "providers" in data else "targets"
    models = _models(data[providers], source, providers)
    prompts = _prompts(data.get("prompts", "{{prompt}}"), source)
    tests = Tests(data, source)
    study: dict[str, Any] = {
        "models": models,
        "prompts": [{"name": prompt.name, **prompt.body} for prompt in prompts],
        "params": {"temperature": 0},
        "exclude": [
            {"model": model.get("label", model["model"]), "prompt": others}
            for model in models
            if (others := _others(model.pop("prompts", None), prompts))
        ],
        "dataset": {"path": path.name, "format": "promptfoo", "id": ID, "target": TARGET},
        "scorer": {
            "name": "assertions",
            "members": tests.assertions.members,
            "functions": list(tests.assertions.functions),
        },
    }
    if "repeat" in settings:
        study["repeats"] = settings["repeat"]
    if "maxConcurrency" in settings:
        study["limits"] = {"in_flight": settings["maxConcurrency"]}
    if tests.fields:
        study["dataset"]["fields"] = tests.fields
    lines = {
        ("models", *at[1:]) if at[0] == providers else at: line for at, line in places.lines.items()
    }
    return study, Places(places.subject, lines, places.origins)


def _each(found: Found, at: KeyPath) -> Iterator[tuple[Found, KeyPath]]:
    """Yield what a list holds, or what stands in its place, with the key paths."""
    if isinstance(found, list):
        yield from ((each, (*at, i)) for i, each in enumerate(found))
    else:
        yield found, at


def _models(found: Found, source: Source, key: str) -> list[dict[str, Any]]:
    models = [source.model(each, at) for each, at in _each(found, (key,))]
    seen: Counter[str] = Counter()
    for model in models:
        seen[model["model"]] += 1
        if seen[model["model"]] > 1 and "label" not in model:
            last = model["model"].rpartition("/")[2]
            model["label"] = name_of(f"{last} ({seen[model['model']]})")
    return models


def _prompts(found: Found, source: Source) -> list[_Prompt]:
    if isinstance(found, dict):  # labels by file
        found = [{"raw": file, "label": str(label)} for file, label in found.items()]
    prompts: list[_Prompt] = []
    for each, at in _each(found, ("prompts",)):
        given = source.mapping({"raw": each} if isinstance(each, str) else each, at, *_PROMPT)
        text = given.get("raw", given.get("id"))
        if not isinstance(text, str):
            source.refuse(at, f"must be a template or a file://, got {shown(each)}")
        for stem, template in _templates(text, source, at):
            name = name_of(given.get("label") or stem or f"prompt-{len(prompts) + 1}")
            if name in {known.name for known in prompts}:
                name = f"{name}-{len(prompts) + 1}"
            aliases = frozenset({name, template, *map(str, given.values())})
            prompts.append(_Prompt(name, aliases, _body(template, source, at)))
    return prompts


def _templates(text: str, source: Source, at: KeyPath) -> list[tuple[str, str]]:
    """Return name and template of each prompt of a file, or the text itself without a name."""
    name = text.removeprefix(FILE)
    if name == text and ("\n" in text or "{{" in text or not name.endswith(_TEMPLATES)):
        return [("", text)]
    if not name.endswith(_TEMPLATES):
        source.refuse(at, f"is {shown(text)}; prompts are read from {', '.join(_TEMPLATES)}")
    is_pattern = bool(set(name) & set("*?["))
    found = []
    for path in prompt_files(name, source.base_dir) if is_pattern else [source.base_dir / name]:
        check_file(path, "prompt")
        content = read_text(path)
        if path.suffix in (".yaml", ".yml"):
            content = json.dumps(source.parsed(content, at))
        parts = _DELIMITER.split(content) if path.suffix == ".txt" else [content]
        found += [(path.stem, part.strip()) for part in parts if part.strip()]
    return found


def _body(text: str, source: Source, at: KeyPath) -> dict[str, Any]:
    """Return a prompt's ``messages`` if it is a list of them in JSON or YAML, else its ``text``."""
    found: Found = None
    if text.lstrip().startswith("- role:"):
        found = source.parsed(text, at)
    elif text.lstrip().startswith("["):
        try:
            found = json.loads(text)
        except ValueError:
            if '"role"' in text:
                source.refuse(at, "makes chat messages by a template; write them out in JSON")
    if not isinstance(found, list):
        return {"text": jinja(text)}
    for one in found:
        if not isinstance(one, dict) or not isinstance(one.get("content"), str):
            source.refuse(at, f"holds a message that is no text: {shown(one)}; write it as text")
    return {"messages": [{"role": m.get("role"), "content": jinja(m["content"])} for m in found]}


def _others(labels: Found, prompts: Sequence[_Prompt]) -> list[str]:
    """Return the prompts that a provider with its own list of prompts is not asked."""
    if labels is None:
        return []
    asked = {str(label) for label, _ in _each(labels, ())}
    return [one.name for one in prompts if not one.aliases & asked]
