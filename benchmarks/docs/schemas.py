"""Pages that show a JSON schema as tables: one for each object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.docs.tables import table

from bestarm_agent.config.starter import study_schema

_Node: TypeAlias = Mapping[str, Any]

_STUDY_HEAD = """# Keys of the study file

All keys with their types, bounds and defaults, from the [JSON schema](../study.schema.json) that
editors use. [The study file](../configuration.md) explains them, with a complete example.
"""
_EXIT_CODES = {
    0: "the winner is established at the confidence that was asked for, or the run ended as "
    "configured; a candidate is certified; no challenger of a `gate` is worse",
    1: "an error",
    2: "wrong usage or configuration",
    3: "a confidence was asked for and is not reached: the budget ended, or the examples cannot "
    "tell the best apart; no candidate is certified; a `gate` left a challenger undecided",
    4: "too many calls failed, or the first call to a model or the first judgement did; no pair "
    "got a score; a cap was passed, since calls cost more than their provider said they could; a "
    "model of `try` got no score",
    5: "`gate`: a challenger is worse than the baseline, over all examples or with `--by` on a "
    "slice; with `--improve`, not better",
    130: "interrupted; `bestarm-agent resume` goes on",
}
_BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
}


def study_page() -> str:
    """Return the page of the study's keys."""
    return _page(_STUDY_HEAD, study_schema())


def result_page(schema: Path) -> str:
    """Return the page of the result that ``--json`` prints."""
    loaded = json.loads(schema.read_text(encoding="utf-8"))
    codes = table(["code", "meaning"], [(str(code), what) for code, what in _EXIT_CODES.items()])
    head = f"# Exit codes and --json\n\n## Exit codes\n\n{codes}\n## JSON\n"
    return _page(f"{head}\n{loaded['description']}\n", loaded)


def _page(head: str, schema: _Node) -> str:
    known = schema["$defs"]
    sections = [f"## Top level\n\n{_keys(schema, known)}"]
    for name, node in known.items():
        about = _about(node, known)
        sections += [f"## {name}\n\n{about}\n\n{_keys(form, known)}" for form in _objects(node)]
    return "\n".join([head, *sections])


def _objects(node: _Node) -> list[_Node]:
    """Return the forms of a definition that are objects with known keys."""
    return [form for form in (node, *node.get("anyOf", ())) if "properties" in form]


def _keys(node: _Node, known: _Node) -> str:
    required = node.get("required", ())
    rows = [
        (f"`{key}`", _type(value), _default(value, required=key in required), _about(value, known))
        for key, value in node["properties"].items()
        if key != "$schema"
    ]
    if any(default.startswith("`") for _, _, default, _ in rows):
        return table(["key", "type", "default", "meaning"], rows)
    return table(["key", "type", "meaning"], [(key, kind, about) for key, kind, _, about in rows])


def _about(node: _Node, known: _Node) -> str:
    """Return the description of a value, or else of the definition that it refers to."""
    if "$ref" in node and "description" not in node:
        return _about(known[_name(node)], known)
    text: str = node.get("description", "")
    return text.replace("``", "`")


def _name(node: _Node) -> str:
    name: str = node["$ref"].rpartition("/")[2]
    return name


def _default(node: _Node, *, required: bool) -> str:
    default = node.get("default")
    return "required" if required else "" if default is None else f"`{json.dumps(default)}`"


def _type(node: _Node) -> str:
    """Return the type of a value, as people say it."""
    if "$ref" in node:
        name = _name(node)
        return f"[{name}](#{name.lower()})" if name != "JsonValue" else "any"
    if forms := node.get("anyOf") or node.get("oneOf"):
        kinds = [_type(form) for form in forms if form.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "const" in node or "enum" in node:
        values = node.get("enum", [node.get("const")])
        return ", ".join(f"`{json.dumps(value)}`" for value in values)
    if node.get("type") == "array":
        return f"list of {_type(node.get('items', {}))}"
    return _simple(node)


def _simple(node: _Node) -> str:
    bounds = [form.format(node[key]) for key, form in _BOUNDS.items() if key in node]
    kind = node.get("type", "any")
    kinds = " or ".join(kind) if isinstance(kind, list) else kind
    return " ".join([kinds.replace("object", "mapping"), ", ".join(bounds)]).strip()
