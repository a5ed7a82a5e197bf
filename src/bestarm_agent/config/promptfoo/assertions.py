"""Translates the assertions of promptfoo's tests for the judge `assertions`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bestarm_agent.config.fields import shown
from bestarm_agent.config.promptfoo.source import FILE, Found, Source
from bestarm_agent.config.study.value_types import tidy
from bestarm_agent.config.yaml.parser import KeyPath
from bestarm_agent.domain.digest import canonical

_LISTS = ("contains-any", "contains-all", "icontains-any", "icontains-all")
_JSON = ("is-json", "contains-json")
_LIMITS = ("cost", "latency")
_GRADER, _EMBEDDER = "openai:gpt-5.6-sol", "openai:text-embedding-3-large"
# the judge here, and promptfoo's default model
_JUDGED = {
    "similar": ("similar", _EMBEDDER),
    "llm-rubric": ("llm-rubric", _GRADER),
    "model-graded-closedqa": ("model-graded-qa", _GRADER),
    "factuality": ("factuality", _GRADER),
    "model-graded-factuality": ("factuality", _GRADER),
}
_TEXTS = ("equals", "contains", "icontains", "starts-with", "regex")
_KNOWN = (*_TEXTS, *_LISTS, *_JSON, *_LIMITS, *_JUDGED, "python")
# further types that a cell of a table may name; other words are answers to be equalled
_REFUSED = """agent-rubric answer-relevance bleu classifier contains-html contains-sql contains-xml
context-faithfulness context-recall context-relevance conversation-relevance finish-reason g-eval
gleu guardrails is-html is-refusal is-sql is-xml javascript levenshtein meteor moderation perplexity
perplexity-score pi rouge-n ruby search-rubric tool-call-f1 webhook word-count"""
_CELL = re.compile(r"(not-)?([a-z0-9-]+)(?:\((\d+(?:\.\d+)?)\))?(?::(.*))?", re.DOTALL)
_PART = re.compile(r'\s*,*\s*(?:"((?:[^"\\]|\\.|"")*)"|([^,]+))\s*')
_MODULE = re.compile(r"(?:\./)?(\w+(?:/\w+)*)\.py(?::(\w+))?")


class Assertions:
    """Translates assertions, and notes the judges and the functions that they need."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.members: dict[str, dict[str, Any]] = {}  # of the judge, by key
        self.functions: dict[str, None] = {}

    def translated(
        self, one: Found, at: KeyPath, inputs: Mapping[str, Any], grader: Found
    ) -> dict[str, Any]:
        """Return an assertion as the judge reads it; raises ConfigError if there is no such thing.

        Args:
            one: what stands in the config.
            at: where.
            inputs: the variables of its test.
            grader: the provider of grades for the test, or None.
        """
        if not isinstance(one, dict) or not isinstance(one.get("type"), str):
            self._source.refuse(at, f"must be an assertion with a `type`, got {shown(one)}")
        kind = self._checked(one["type"], at)
        names = ("type", "threshold", "weight", "metric")
        kept = {key: one[key] for key in names if one.get(key) is not None}
        if "metric" in kept:
            kept["metric"] = self._source.rendered(kept["metric"], inputs, (*at, "metric"))
        for key in kept.keys() & {"threshold", "weight"}:
            kept[key] = self._source.number(kept[key], (*at, key))
        if kind == "assert-set":
            self._source.mapping(one, at, *names, "assert")
            parts = enumerate(self._source.sequence(one.get("assert"), (*at, "assert")))
            inner = [self.translated(p, (*at, "assert", i), inputs, grader) for i, p in parts]
            return {**kept, "assert": inner}
        self._source.mapping(one, at, *names, "value", *(["provider"] if kind in _JUDGED else []))
        if kind in _LIMITS:
            return kept
        if kind == "python":
            return {**kept, "value": self._function(one.get("value"), at)}
        place = (*at, "value")
        value = self._source.rendered(self._source.content(one.get("value"), place), inputs, place)
        kept["value"] = self._value(value, kind, at)
        if kind in _JUDGED:
            kept["judge"] = self._member(kind, one.get("provider", grader), at)
        return {"threshold": 0.75, **kept} if kind == "similar" else kept

    def _checked(self, kind: str, at: KeyPath) -> str:
        """Return the type without `not-`, if it has a counterpart."""
        base = kind.removeprefix("not-")
        if base in ("javascript", "ruby"):
            self._source.refuse(
                at,
                f"is {shown(kind)}, whose code is not run here; write it as `get_assert(output, "
                "context)` in a file, with `type: python` and `value: file://checks.py`",
            )
        if base not in _KNOWN and kind != "assert-set":
            self._source.refuse(
                at,
                f"is {shown(kind)}, which has no counterpart here; there are {', '.join(_KNOWN)}; "
                "with `python` you write one of your own",
            )
        if base != kind and base in _JUDGED and base not in ("similar", "llm-rubric"):
            self._source.refuse(at, f"is {shown(kind)}, where promptfoo ignores the `not-`")
        return base

    def _value(self, value: Found, kind: str, at: KeyPath) -> Found:
        if kind in _JSON:
            return self._source.parsed(value, at) if isinstance(value, str) else value
        if kind in _LISTS:
            parts = _parts(value) if isinstance(value, str) else value
            value = [*map(_text, self._source.sequence(parts, (*at, "value")))]
        elif value is not None and not (kind == "equals" and isinstance(value, list | dict)):
            value = [*map(_text, value)] if isinstance(value, list) else _text(value)
        if value in (None, []) or (value == "" and kind != "equals"):
            self._source.refuse(at, f"needs a `value`, got {shown(value)}")
        return value

    def _function(self, value: Found, at: KeyPath) -> str:
        found = _MODULE.fullmatch(str(value).removeprefix(FILE))
        if found is None or not str(value).startswith(FILE):
            self._source.refuse(
                at,
                f"is code in the config, or beyond its folder: {shown(value)}; put a function "
                "`get_assert(output, context)` in a file next to the config, and write `value: "
                "file://checks.py` or `file://checks.py:function`",
            )
        name = f"{found[1].replace('/', '.')}:{found[2] or 'get_assert'}"
        self.functions[name] = None
        return name

    def _member(self, kind: str, grader: Found, at: KeyPath) -> str:
        """Return the key of the judge of an assertion, which is noted among the members."""
        judge, default = _JUDGED[kind]
        if isinstance(grader, dict) and grader.keys() <= {"text", "embedding"}:
            grader = grader.get("embedding" if judge == "similar" else "text")
        model = self._source.model(grader or default, (*at, "provider"))
        options = {"name": judge, "model": model["model"], "model_options": model["options"]}
        if judge != "similar":
            params = {k: v[0] if isinstance(v, list) else v for k, v in model["params"].items()}
            own = params.keys() & {"temperature", "seed", "max_tokens"}
            options |= {name: params.pop(name) for name in sorted(own)}
            options["params"] = params
        known = (key for key, one in self.members.items() if one == options)
        key = next(known, f"{judge}-{len(self.members) + 1}")
        self.members[key] = options
        return key


def from_cell(text: str) -> dict[str, Any]:
    """Return the assertion that a cell of a table writes, such as `similar(0.8): Rome`."""
    text = re.sub(r"^grade:", "llm-rubric:", re.sub(r"^(fn|eval):", "javascript:", text))
    if text.startswith(FILE) and ".py" in text:
        return {"type": "python", "value": text}
    found = _CELL.fullmatch(text)
    if found is None or found[2] not in (*_KNOWN, *_REFUSED.split()):
        return {"type": "equals", "value": text}
    limit = found[3] or {"cost": 0.75, "latency": 0.75}.get(found[2])
    return {
        "type": f"{found[1] or ''}{found[2]}",
        **({} if found[4] is None else {"value": found[4].strip()}),
        **({} if limit is None else {"threshold": float(limit)}),
    }


def _parts(text: str) -> list[str]:
    """Return the parts of a list that is written with commas; quotes protect a comma."""
    return [
        re.sub(r'\\(["\\])|""', lambda m: m[1] or '"', quoted) if plain is None else plain.strip()
        for quoted, plain in (found.groups() for found in _PART.finditer(text))
    ]


def _text(value: Found) -> str:
    """Return a value as JavaScript writes it."""
    return value if isinstance(value, str) else canonical(tidy(value))
