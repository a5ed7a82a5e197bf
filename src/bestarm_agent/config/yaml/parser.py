"""Read YAML into plain values, with the line of each.

Scalars are those of YAML 1.2 and JSON: ``no``, ``on``, ``1:30`` and ``2026-01-01`` are texts and
``1e-3`` is a number, unlike in PyYAML's own loaders (YAML 1.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NoReturn, TypeAlias

import yaml
from pydantic import JsonValue
from yaml.nodes import Node, ScalarNode, SequenceNode

from bestarm_agent.config.yaml.errors import YamlProblem, explained

KeyPath: TypeAlias = tuple[str | int, ...]

_MOST_VALUES = 200_000  # aliases of aliases expand without bound
_DEEPEST = 50
_TOO_DEEP = f"is nested deeper than {_DEEPEST} levels"
_PLAIN, _MERGE = "plain", "merge"
_TEXT, _LIST, _MAPPING = (f"tag:yaml.org,2002:{name}" for name in ("str", "seq", "map"))
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class _Loader(yaml.SafeLoader):
    """Composes nodes and leaves plain scalars unresolved."""

    def resolve(
        self, kind: type[Node], value: str | None, implicit: bool | tuple[bool, bool]
    ) -> str:
        if kind is ScalarNode and isinstance(implicit, tuple) and implicit[0]:
            return _MERGE if value == "<<" else _PLAIN
        return {ScalarNode: _TEXT, SequenceNode: _LIST}.get(kind, _MAPPING)

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        """Open a bracket, unless too many are open: the scanner takes quadratic time."""
        if self.flow_level == _DEEPEST:
            raise yaml.MarkedYAMLError(problem=_TOO_DEEP, problem_mark=self.get_mark())
        super().fetch_flow_collection_start(token)


def parse_yaml(text: str) -> tuple[JsonValue, dict[KeyPath, int]]:
    r"""Read one YAML document: its value, and the line, from 1, of each key or list item.

    Raises YamlProblem if it is malformed, a key is given twice, or aliases expand too far.

    Example:
        >>> value, lines = parse_yaml("models:\n- a\n- b\n")
        >>> value, lines[("models", 1)]
        ({'models': ['a', 'b']}, 3)
    """
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise explained(error, text) from error
    except RecursionError:
        raise YamlProblem(_TOO_DEEP) from None
    if node is None:
        return None, {}
    reader = _Reader()
    return reader.value(node, ()), reader.lines


class _Reader:
    def __init__(self) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._count = 0
        self._open: list[Node] = []

    def value(self, node: Node, path: KeyPath, line: int | None = None) -> JsonValue:
        """Return the value of a node; ``line`` is that of its key."""
        self._count += 1
        if self._count > _MOST_VALUES:
            _refuse(node, f"aliases (`*`) expand to more than {_MOST_VALUES:,} values")
        if path:
            self.lines[path] = line or node.start_mark.line + 1
        if node.tag not in (_MAPPING, _LIST):
            return _scalar(node)
        if node in self._open:
            _refuse(node, "an alias (`*`) stands inside its own anchor (`&`)")
        if len(self._open) == _DEEPEST:
            _refuse(node, _TOO_DEEP)
        self._open.append(node)
        content = self._mapping(node, path) if node.tag == _MAPPING else self._list(node, path)
        self._open.pop()
        return content

    def _list(self, node: Node, path: KeyPath) -> list[JsonValue]:
        return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]

    def _mapping(self, node: Node, path: KeyPath) -> dict[str, JsonValue]:
        merged: dict[str, JsonValue] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                for source in _merge_sources(value_node):
                    merged |= self._merged(source, path)
        return merged | self._own(node, path)

    def _merged(self, source: Node, path: KeyPath) -> dict[str, JsonValue]:
        content = self.value(source, path, self.lines.get(path))
        if not isinstance(content, dict):
            _refuse(source, "`<<` merges mappings, and this is none")
        return content

    def _own(self, node: Node, path: KeyPath) -> dict[str, JsonValue]:
        own: dict[str, JsonValue] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                continue
            key = _key(key_node)
            if key in own:
                first = self.lines[(*path, key)]
                _refuse(key_node, f"key `{key}` is written twice, first on line {first}")
            own[key] = self.value(value_node, (*path, key), key_node.start_mark.line + 1)
        return own


def _merge_sources(node: Node) -> Iterator[Node]:
    """Yield the mappings to merge; the first one takes precedence, so it comes last."""
    yield from reversed(node.value) if node.tag == _LIST else [node]


def _key(node: Node) -> str:
    if not isinstance(node, ScalarNode):
        _refuse(
            node,
            'a list or mapping is used as a key; put quotes around a template: "{{ a }}"',
        )
    key = _scalar(node)
    if not isinstance(key, str):
        _refuse(node, f"the key {node.value} is not a text; put it in quotes")
    return key


def _scalar(node: Node) -> bool | int | float | str | None:
    if node.tag == _PLAIN or node.tag == _MERGE:
        return _plain_scalar(node)
    if node.tag != _TEXT:
        _refuse(node, f"the tag `{node.tag}` is not supported; leave it out")
    return str(node.value)


def _plain_scalar(node: Node) -> bool | int | float | str | None:
    text: str = node.value
    if text in _WORDS:
        return _WORDS[text]
    try:
        if _INT.fullmatch(text):
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        if _FLOAT.fullmatch(text):
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        _refuse(node, "the number has too many digits")
    return text


def _refuse(node: Node, text: str) -> NoReturn:
    raise YamlProblem(text, node.start_mark.line + 1, node.start_mark.column + 1)
