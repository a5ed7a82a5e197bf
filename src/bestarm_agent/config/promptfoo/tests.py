"""Reads the tests of a promptfoo config as the rows of a dataset, each with its assertions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from bestarm_agent.config.datasets.text import read_json, read_jsonl, read_separated
from bestarm_agent.config.promptfoo.assertions import Assertions, from_cell
from bestarm_agent.config.promptfoo.source import FILE, Found, Source
from bestarm_agent.config.study.value_types import tidy
from bestarm_agent.config.yaml.parser import KeyPath
from bestarm_agent.config.yaml.study_sources import read_source
from bestarm_agent.domain.digest import canonical

TARGET, ID = "__assert", "__id"
_TEST = ("vars", "assert", "options", "threshold", "description", "metadata")
_OPTIONS = ("provider", "disableVarExpansion", "disableDefaultAsserts")


def read_tests(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a promptfoo config's tests; raises ConfigError."""
    data, places = read_source(path)
    return Tests(data, Source(places, path.parent)).rows


class Tests:
    """The tests of a config: ``rows`` of a dataset, and the ``fields`` that prompts may use.

    ``assertions`` holds what their judge needs. Raises ConfigError.
    """

    def __init__(self, data: Mapping[str, Any], source: Source) -> None:
        self._source = source
        self.assertions = Assertions(source)
        self._default = self._checked(data.get("defaultTest") or {}, ("defaultTest",))
        tests = self._tests(data.get("tests"), ("tests",))
        rows = [row for test, at in tests for row in self._rows(test, at)]
        fields = {name: "" for row in rows for name in row}  # promptfoo: absent is empty
        if not any(json.loads(row[TARGET])["assert"] for row in rows):
            source.refuse(("tests",), "assert nothing, so every answer would pass; add an `assert`")
        numbered = enumerate(rows, start=1)
        self.rows = [{**fields, **row, ID: f"{number:06}{row[ID]}"} for number, row in numbered]
        self.fields = [name for name in fields if name not in (TARGET, ID)]

    def _tests(self, found: Found, at: KeyPath) -> Iterator[tuple[dict[str, Any], KeyPath]]:
        several = isinstance(found, list)
        if not found:
            self._source.refuse(at, "must hold at least one test: without, nothing is scored")
        for i, each in enumerate(found if several else [found]):
            place = (*at, i) if several else at
            tests = self._from_file(each, place) if isinstance(each, str) else [each]
            for test in tests:
                yield self._checked(test, place), place

    def _from_file(self, name: str, at: KeyPath) -> Iterator[Found]:
        path = self._source.path(name, at)
        if path.suffix == ".csv":
            for row in read_separated(path, ","):
                yield self._from_row({key: str(value) for key, value in row.values.items()}, at)
        elif path.suffix in (".json", ".jsonl"):
            read = read_json if path.suffix == ".json" else read_jsonl
            yield from (dict(row.values) for row in read(path))
        elif path.suffix in (".yaml", ".yml"):
            yield from self._source.content(f"{FILE}{name.removeprefix(FILE)}", at) or []
        else:
            self._source.refuse(at, "must be a list, or a file: .yaml, .json, .jsonl or .csv")

    def _from_row(self, row: Mapping[str, str], at: KeyPath) -> dict[str, Any]:
        """Return the test of a row of a table, whose columns are variables but for `__...`."""
        test: dict[str, Any] = {"vars": {}, "assert": []}
        for name, text in row.items():
            if not name.startswith("__"):
                test["vars"][name] = text
            elif name.startswith("__expected"):
                test["assert"] += [from_cell(text.strip())] if text.strip() else []
            elif name == "__threshold" and text.strip():
                test["threshold"] = self._source.number(text, at)
            elif name == "__description":
                test["description"] = text
            elif not name.startswith(("__metric", "__metadata", "__threshold")):
                self._source.refuse(at, f"has the column {name}, which has no counterpart here")
        if row.get("__metric"):
            test["assert"] = [{**one, "metric": row["__metric"]} for one in test["assert"]]
        return test

    def _checked(self, found: Found, at: KeyPath) -> dict[str, Any]:
        test = self._source.mapping(self._source.content(found, at), at, *_TEST)
        self._source.mapping(test.get("options") or {}, (*at, "options"), *_OPTIONS)
        return test

    def _rows(self, test: Mapping[str, Any], at: KeyPath) -> Iterator[dict[str, Any]]:
        """Yield a row for each combination of the test's variables that are lists of texts."""
        default = self._default
        options = {**(default.get("options") or {}), **(test.get("options") or {})}
        asserted = [*self._asserted(test, at)]
        if not options.get("disableDefaultAsserts"):
            asserted = [*self._asserted(default, ("defaultTest",)), *asserted]
        given = {**self._vars(default, ("defaultTest",)), **self._vars(test, at)}
        threshold = test.get("threshold", default.get("threshold"))
        if threshold is not None:
            threshold = self._source.number(threshold, at)
        described = f" {test['description']}" if test.get("description") else ""
        for values in _combinations(given, expand=not options.get("disableVarExpansion")):
            inputs = {key: self._input(value, (*at, "vars")) for key, value in values.items()}
            inputs = {
                key: self._source.rendered(value, inputs, (*at, "vars", key))
                for key, value in inputs.items()
            }
            grader = options.get("provider")
            group: dict[str, Any] = {
                "assert": [
                    self.assertions.translated(one, place, inputs, grader)
                    for place, one in asserted
                ],
                **({} if threshold is None else {"threshold": threshold}),
            }
            yield {**inputs, TARGET: canonical(group), ID: described}

    def _asserted(self, test: Mapping[str, Any], at: KeyPath) -> Iterator[tuple[KeyPath, Found]]:
        for i, one in enumerate(self._source.sequence(test.get("assert"), (*at, "assert"))):
            yield (*at, "assert", i), one

    def _vars(self, test: Mapping[str, Any], at: KeyPath) -> dict[str, Any]:
        place = (*at, "vars")
        return self._source.mapping(self._source.content(test.get("vars"), place) or {}, place)

    def _input(self, value: Found, at: KeyPath) -> Found:
        content = self._source.content(value, at, data=(".yaml", ".yml"))
        if content is not value and not isinstance(content, str):
            content = json.dumps(content)
        if isinstance(content, str):
            return content.removesuffix("\n")
        return "" if content is None else tidy(content)


def _combinations(given: Mapping[str, Any], *, expand: bool) -> Iterator[dict[str, Any]]:
    choices = [
        value
        if expand and isinstance(value, list) and value and isinstance(value[0], str)
        else [value]
        for value in given.values()
    ]
    for values in product(*choices):
        yield dict(zip(given, values, strict=True))
