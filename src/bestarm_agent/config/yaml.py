"""Parse YAML with the line of each value, and say in plain words what is wrong in it.

Scalars are those of YAML 1.2 and JSON: ``no``, ``on``, ``1:30`` and ``2026-01-01`` are texts and
``1e-3`` is a number, unlike in PyYAML's own loaders (YAML 1.1).
"""

from __future__ import annotations

import re
from typing import NoReturn, TypeAlias

import yaml
from pydantic import JsonValue
from yaml.nodes import Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from bestarm_agent.config.fields import KeyPath

# PyYAML names tokens and states of its parser; people know brackets, keys and the end of a file.
_PLAIN_WORDS = {
    "<block end>": "the end of the block",
    "'<block mapping start>'": "a key that is indented differently",
    "'<block sequence start>'": "a list that is indented differently",
    "'<block end>'": "the end of the block",
    "'<scalar>'": "more text",
    "'<stream end>'": "the end of the file",
    "'?'": "`?`",
    "a block mapping": "the mapping",
    "a block collection": "the list",
    "a flow node": "the `{` or `[`",
    "a flow mapping": "the `{`",
    "a flow sequence": "the `[`",
}


class YamlProblem(ValueError):
    """The text is not YAML, or not the YAML that a study may use; lines and columns start at 1."""

    def __init__(self, text: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(text)
        self.line = line
        self.column = column


def explained(error: yaml.YAMLError, text: str) -> YamlProblem:
    """Return an error found in ``text`` in plain words, with the way out."""
    if isinstance(error, ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return YamlProblem(f"U+{error.character:04X}: {error.reason}", line)
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return YamlProblem(str(error))
    mark = error.problem_mark
    # The scanner notices an open quote at the end of the file. The mistake is where the quote
    # opens.
    if error.context == "while scanning a quoted scalar" and error.context_mark is not None:
        mark = error.context_mark
    lines = text.splitlines()
    source = lines[mark.line] if mark.line < len(lines) else ""
    return YamlProblem(
        f"{_syntax_problem(error)}{_syntax_hint(source, error)}", mark.line + 1, mark.column + 1
    )


def _syntax_problem(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "malformed"
    if error.context == "while scanning a quoted scalar":
        return "the quote that opens here is never closed"
    if problem.startswith("mapping values are not allowed"):
        return "a `:` is not expected here"
    for jargon, words in _PLAIN_WORDS.items():
        problem = problem.replace(jargon, words)
    if problem == "but found another document":
        return "expected one document, but found a second one after `---`"
    return problem + _context(error)


def _context(error: yaml.MarkedYAMLError) -> str:
    if error.context is None or error.context_mark is None:
        return ""
    part = error.context.removeprefix("while ").removeprefix("parsing ").removeprefix("scanning ")
    return f" in {_PLAIN_WORDS.get(part, part)} that begins on line {error.context_mark.line + 1}"


def _syntax_hint(source: str, error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or ""
    if "'\\t'" in problem:
        return "; indent with spaces, not with tabs"
    if "{{" in source:
        return '; put quotes around a template: "{{ a }}"'
    if "'?'" in problem:
        return "; a `?` begins a key within `{` and `[`: put quotes around the text"
    if "cannot start any token" in problem:
        return "; put quotes around the text"
    if problem.startswith("mapping values are not allowed"):
        return "; put quotes around a text that holds `: `, or end the line above with a `:`"
    if "flow" in (error.context or ""):
        return "; close every bracket that is opened"
    if "<block end>" in problem:
        return "; give all keys of one mapping, or items of one list, the same indentation"
    return ""


Parsed: TypeAlias = tuple[JsonValue, dict[KeyPath, int]]

_MOST_VALUES = 200_000  # aliases of aliases expand without bound
_DEEPEST = 50
_TOO_DEEP = f"is nested deeper than {_DEEPEST} levels"
_PLAIN, _MERGE = "plain", "merge"
_TEXT, _LIST, _MAPPING = (f"tag:yaml.org,2002:{name}" for name in ("str", "seq", "map"))
# YAML 1.2's core schema: "12", "-3", "0o17", "0xff"; but "1:30" and "1_000" are no numbers, as they
# would be in YAML 1.1, nor is "017": neither 15 nor 17 is what a code or an id means by it.
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+")
# "1.5", ".5", "1.", "1e-3", "-.inf", ".nan".
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
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
        # implicit[0] is true for a scalar without quotes and without a tag. PyYAML would resolve it
        # by the regular expressions of YAML 1.1, where `no` is false and `2026-01-01` a date; the
        # tag "plain" puts the decision off until the value is read.
        if kind is ScalarNode and isinstance(implicit, tuple) and implicit[0]:
            return _MERGE if value == "<<" else _PLAIN
        return {ScalarNode: _TEXT, SequenceNode: _LIST}.get(kind, _MAPPING)

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        """Open a bracket, unless too many are open: the scanner takes quadratic time."""
        if self.flow_level == _DEEPEST:
            raise yaml.MarkedYAMLError(problem=_TOO_DEEP, problem_mark=self.get_mark())
        super().fetch_flow_collection_start(token)


def parse_yaml(text: str) -> Parsed:
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
        # Nodes that enclose the present one. An alias is the same node object as its anchor, so a
        # node that is its own ancestor is found by identity, before recursion would run out.
        self._enclosing: list[Node] = []

    def value(self, node: Node, path: KeyPath, line: int | None = None) -> JsonValue:
        """Return the value of a node; ``line`` is that of its key."""
        # Every visit counts, also of a node that was visited before by another alias: ten lists
        # that each hold the last one ten times are ten nodes and ten billion values.
        self._count += 1
        if self._count > _MOST_VALUES:
            _refuse(node, f"aliases (`*`) expand to more than {_MOST_VALUES:,} values")
        if path:
            self.lines[path] = line or node.start_mark.line + 1
        if node.tag not in (_MAPPING, _LIST):
            return _scalar(node)
        if node in self._enclosing:
            _refuse(node, "an alias (`*`) stands inside its own anchor (`&`)")
        if len(self._enclosing) == _DEEPEST:
            _refuse(node, _TOO_DEEP)
        self._enclosing.append(node)
        content: JsonValue
        if node.tag == _MAPPING:
            content = self._mapping(node, path)
        else:
            content = [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
        self._enclosing.pop()
        return content

    def _mapping(self, node: Node, path: KeyPath) -> dict[str, JsonValue]:
        # Own keys win over merged ones wherever `<<` stands, so merging comes first and is
        # overwritten.
        merged: dict[str, JsonValue] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:  # the first of a list takes precedence, so it comes last
                is_list = value_node.tag == _LIST
                for source in reversed(value_node.value) if is_list else [value_node]:
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


def _key(node: Node) -> str:
    if not isinstance(node, ScalarNode):
        _refuse(node, 'a list or mapping is used as a key; put quotes around a template: "{{ a }}"')
    key = _scalar(node)
    if not isinstance(key, str):
        _refuse(
            node, f"the key {node.value} is not a text; put it in quotes (a number holds no comma)"
        )
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
