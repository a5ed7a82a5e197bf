"""Pages that show a JSON schema as tables: one for each object."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TypeAlias, get_args, get_type_hints

from benchmarks.docs.commands import items

from bestarm_agent.cli.result_output import DERIVED, SCHEMA_VERSION
from bestarm_agent.config.goal_specs import Constraint
from bestarm_agent.config.starter import study_schema
from bestarm_agent.domain.values import Candidate
from bestarm_agent.engine.results.effects import AxisEffects
from bestarm_agent.engine.results.standing import Decision, Standing
from bestarm_agent.report.words import ENDINGS

_Node: TypeAlias = Mapping[str, Any]

_FIELD = re.compile(
    r"    (?P<name>\w+)(?:: (?P<type>[^=#]+?))?(?: = (?P<value>[^#]*?))?(?:  # (?P<about>.*))?"
)
_ATTRIBUTE = re.compile(r"^ {8}(\w+): ((?:.|\n {12})*)", re.MULTILINE)
_SHOWN = {"usd_nanos": "usd"}
_JSON_HEAD = """## JSON

`select`, `resume`, `show` and `demo` print one JSON object with `--json`: the attributes of the
[Standing](#standing) of the run, as [Python](../python.md) has them, and those that follow here. A
candidate is its label, id, model, name of the prompt, and parameters. A mean with its ends is
`{value, lower, upper}`. What is not known, or has no end, is null, and so are dollars without a
price. `schema_version` rises when a key goes away or changes its meaning; new keys may come at any
time. All that is said of a run is in `decision`; the rest is what it rests on.
"""
_JSON_KEYS = {
    "schema_version": f"{SCHEMA_VERSION}",
    "decision": "[Decision](#decision): what to take, how sure that is, and what to do next.",
    "report": "Path of the HTML report; null if none was written.",
    "caps_passed": "Budgets that a server made the run exceed, a sentence each.",
    "effects": "[AxisEffects](#axiseffects), the axis with the largest spread first.",
}

_STUDY_HEAD = """# Keys of the study file

All keys with their types, bounds and defaults, from the [JSON schema](../study.schema.json) that
editors use. [The study file](../configuration.md) explains them, with a complete example.
"""
_EXIT_CODES = {
    "0": "the run ended as configured, and its winner is proved if a confidence was asked for; a "
    "candidate is certified; no challenger of a `gate`, or of files that `compare` reads, "
    "is worse",
    "1": "an error",
    "2": "wrong usage or configuration",
    "3": "there is no winner (no score, no right answer, a scorer that seems to reject right "
    "ones, or nobody keeps the limits); a confidence was asked for and is not reached; no "
    "candidate is certified; a `gate` left a challenger undecided, or a `compare` of files a "
    "candidate",
    "4": "too many calls failed, or the first call to a model or the first judgement did; no "
    "answer got a score; a cap was passed, since calls cost more than their provider said they "
    "could; a model of `try` got no score",
    "5": "`gate`: a challenger is worse than the baseline, over all examples or with `--by` on a "
    "slice; with `--improve`, not better; `compare` of files: a candidate is worse than the first",
    "130": "interrupted; `bestarm-agent resume` goes on",
}
_BOUNDS = {
    "minimum": "≥{}",
    "exclusiveMinimum": ">{}",
    "maximum": "≤{}",
    "exclusiveMaximum": "<{}",
}


def study_page() -> str:
    """Return the page of the study's keys."""
    schema = study_schema()
    known, sections = schema["$defs"], [f"## Top level\n\n{_keys(schema, schema['$defs'])}"]
    for name, node in known.items():
        forms = [form for form in (node, *node.get("anyOf", ())) if "properties" in form]
        sections += [
            f"## {name}\n\n{_about(node, known)}\n\n{_keys(form, known)}" for form in forms
        ]
    return "\n".join([_STUDY_HEAD, *sections])


def result_page() -> str:
    """Return the page of the result that ``--json`` prints: the fields of its parts."""
    derived = [(name, _summary(getattr(Standing, name))) for name in DERIVED]
    found = _parts(Standing, _parts(Decision, {}))
    parts = [*found, *_parts(AxisEffects, {})]
    return "\n".join(
        [
            f"# Exit codes and --json\n\n## Exit codes\n\n{items(_EXIT_CODES.items())}",
            f"{_JSON_HEAD}\n{items([*_JSON_KEYS.items(), *derived])}",
            *(f"## {part.__name__}\n\n{_summary(part)}\n\n{_fields(part)}" for part in parts),
            f"## Ends\n\nThe values of `end`.\n\n{items(ENDINGS.items())}",
        ]
    )


def _parts(kind: Any, found: dict[type, None]) -> dict[type, None]:  # noqa: ANN401 - a type
    """Add a type of our own, and those of its fields, in their order."""
    is_own = is_dataclass(kind) or (isinstance(kind, type) and issubclass(kind, Enum))
    if is_own and kind not in (*found, Candidate, Constraint):
        found[kind] = None
        hints = get_type_hints(kind)
        for one in fields(kind) if is_dataclass(kind) else ():
            if one.repr:  # else it is for Python alone
                _parts(hints[one.name], found)
    for inner in get_args(kind):
        _parts(inner, found)
    return found


def _summary(documented: object) -> str:
    """Return the first paragraph of a docstring, as a noun."""
    text = " ".join((documented.__doc__ or "").partition("\n\n")[0].split())
    return text.removeprefix("Return ").replace("``", "`")


def _fields(kind: type) -> str:
    """List the fields of a dataclass, or the values of an enumeration, as its comments do."""
    found, before, about = [], "", dict(_ATTRIBUTE.findall(kind.__doc__ or ""))
    hidden = {one.name for one in fields(kind) if not one.repr} if is_dataclass(kind) else set()
    links = {one.__name__: f"[{one.__name__}](#{one.__name__.lower()})" for one in _parts(kind, {})}
    for line in inspect.getsource(kind).partition('"""\n\n')[2].split("\n\n")[0].splitlines():
        if (match := _FIELD.fullmatch(line)) is None:
            before += f"{line.strip(' #')} "
            continue
        if match["name"] in hidden:
            before = ""
            continue
        name, hint, comment = match["name"], match["type"] or "", match["about"]
        text = before + (comment or " ".join(about.get(name, "").split()))
        linked = [links[one] for one in re.findall(r"\w+", hint) if one in links]
        key = _SHOWN.get(name, name) if hint else match["value"].strip('"')
        found.append((key, "; ".join(filter(None, (*linked, text.strip())))))
        before = ""
    return items(found)


def _keys(node: _Node, known: _Node) -> str:
    found = []
    for key, value in node["properties"].items():
        default = value.get("default")
        said = "" if default in (None, [], {}) else f", default `{json.dumps(default)}`"
        said = ", required" if key in node.get("required", ()) else said
        if key != "$schema":
            found.append((key, f"{_type(value)}{said}. {_about(value, known)}"))
    return items(found)


def _about(node: _Node, known: _Node) -> str:
    """Return the description of a value, or else of the definition that it refers to."""
    if "$ref" in node and "description" not in node:
        return _about(known[node["$ref"].rpartition("/")[2]], known)
    text: str = node.get("description", "")
    return text


def _type(node: _Node) -> str:
    """Return the type of a value, as people say it."""
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})" if name != "JsonValue" else "any"
    if forms := node.get("anyOf"):
        kinds = [_type(form) for form in forms if form.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if values := node.get("enum"):
        return ", ".join(f"`{value}`" for value in values)
    if node.get("type") == "array":
        return f"list of {_type(node.get('items', {}))}"
    bounds = [form.format(node[key]) for key, form in _BOUNDS.items() if key in node]
    kind = node.get("type", "any").replace("object", "mapping").replace("string", "text")
    return " ".join([kind, *bounds])
