"""Files of users: YAML with the line of each value, and one message for what is wrong in them.

Scalars are those of YAML 1.2 and JSON: ``no``, ``on``, ``1:30`` and ``2026-01-01`` are texts and
``1e-3`` is a number, unlike in PyYAML's own loaders (YAML 1.1). A ConfigError names the file, the
line, the key, the value found and the way out.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, NoReturn, TypeAlias, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import ErrorDetails
from yaml.nodes import Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from bestarm_agent.config.fields import BROKEN_RULE, as_json, dotted, replaced
from bestarm_agent.domain.values import Json
from bestarm_agent.errors import ConfigError, nearest

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


KeyPath: TypeAlias = tuple[str | int, ...]
_Parsed: TypeAlias = tuple[JsonValue, dict[KeyPath, int]]

_MOST_VALUES = 200_000  # aliases of aliases expand without bound
_DEEPEST = 50
_TOO_DEEP = f"is nested deeper than {_DEEPEST} levels"
_PLAIN, _MERGE = "plain", "merge"
_TEXT, _LIST, _MAPPING = (f"tag:yaml.org,2002:{name}" for name in ("str", "seq", "map"))
# YAML 1.2's core schema: "12", "-3", "0o17", "0xff"; but "1:30", "017" as octal and "1_000" are not
# numbers, as they would be in YAML 1.1.
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
# "1.5", ".5", "1.", "1e-3", "-.inf", ".nan".
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


def parse_yaml(text: str) -> _Parsed:
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


_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class Places:
    """Finds the position of a key path."""

    subject: str  # the file as messages show it, or "the study"
    # 1-based line of each key path; empty if lines are unknown
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    # source of the values that do not come from the file, by key path ("--seed")
    origins: Mapping[KeyPath, str] = field(default_factory=dict)

    def line(self, key_path: KeyPath) -> int | None:
        """Return the line of ``key_path``, or else of the nearest mapping or list around it."""
        return _of_longest_prefix(self.lines, key_path)

    def where(self, *key_path: str | int) -> str:
        """Return the position of ``key_path`` for a message: "study.yaml, line 7"."""
        if (origin := _of_longest_prefix(self.origins, key_path)) is not None:
            return origin
        line = self.line(key_path)
        return self.subject if line is None else f"{self.subject}, line {line}"

    def located(self, key_path: KeyPath, error: ConfigError) -> ConfigError:
        """Return an error with the position of ``key_path``, if known and not in it already."""
        # Errors of subclasses carry positions of their own (OptionsError), and a message that names
        # the file already was given its line further below; neither gets a second one.
        is_known = self.where(*key_path) != self.subject
        if not is_known or type(error) is not ConfigError or self.subject in str(error):
            return error
        return self.error(str(error), *key_path)

    @contextmanager
    def locating(self, *key_path: str | int) -> Iterator[None]:
        """Add the position of ``key_path`` to ConfigErrors raised within, as ``located``."""
        try:
            yield
        except ConfigError as error:
            raise self.located(key_path, error) from error

    def error(self, text: str, *key_path: str | int) -> ConfigError:
        """Return an error about the value at ``key_path``; ``text`` names key, rule and value."""
        return ConfigError(f"{self.where(*key_path)}: {text}")


def _of_longest_prefix(values: Mapping[KeyPath, _V], key_path: KeyPath) -> _V | None:
    # A key that is missing has no line; the mapping that lacks it has one.
    prefixes = (key_path[:n] for n in range(len(key_path), 0, -1))
    return next((values[prefix] for prefix in prefixes if prefix in values), None)


_MOST_LISTED, _MOST_KEYS = 10, 8  # errors; keys of a mapping
# Written at the top of a study by people who know other tools. They stand in `params`.
_SAMPLING = ("temperature", "top_p", "top_k", "max_tokens")
_LIKE_A_TYPO = 0.75
_NAMES = r"^\w["
_NAME_RULE = "must begin with a letter or digit and hold only letters, digits, spaces and .:@+()-_"

# The rule that a value breaks, by pydantic's type of error; filled in from the error's context.
_RULES = {
    "string_type": "must be a text",
    "string_too_long": "must have at most {max_length:,} characters",
    "string_pattern_mismatch": "must match the pattern `{pattern}`",
    "finite_number": "must be finite",
    **dict.fromkeys(("string_too_short", "too_short"), "must not be empty"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("decimal_type", "decimal_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(
        ("list_type", "tuple_type"), "must be a list (`- item` on lines of their own, or [a, b])"
    ),
    **dict.fromkeys(("dict_type", "model_type"), "must be a mapping (`key: value`)"),
    **dict.fromkeys(("literal_error", "enum"), "must be {expected}"),
    "greater_than": "must be greater than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
}


def config_error(error: ValidationError, root: type[BaseModel], places: Places) -> ConfigError:
    """Return one ConfigError that lists up to ten errors in the order of the file."""
    rules = sorted(_broken_rules(error, root), key=lambda rule: places.line(rule.path) or 0)
    texts = [f"{places.where(*rule.path)}: {rule.text}" for rule in rules]
    return _listed(texts, f"{places.subject} has {len(texts)} errors:", _MOST_LISTED)


def _listed(texts: Sequence[str], heading: str, most: int) -> ConfigError:
    whole = [heading, *_first(texts, most)] if len(texts) > 1 else texts
    return ConfigError("\n  ".join(whole))


def _first(texts: Sequence[str], most: int) -> list[str]:
    rest = len(texts) - most
    return [*texts[:most], f"and {rest} more"] if rest > 0 else list(texts)


def _broken_rules(
    error: ValidationError, root: type[BaseModel], what: str = "key"
) -> Iterator[BrokenRule]:
    """Yield the rules that a mapping breaks; ``what`` is the name for its keys."""
    errors = error.errors(include_url=False)
    # pydantic reports a list that lost its only item as too short, beside the error of that item.
    for details in errors:
        if details["type"] == "too_short" and details["input"] and len(errors) > 1:
            continue  # a list is too short because one of its items is wrong
        # A validator of a whole mapping knows which key is wrong, and hands its path on in the
        # context.
        path: KeyPath = (*details["loc"], *details.get("ctx", {}).get("at", ()))
        yield BrokenRule(path, _text(details, path, root, what))


def _text(details: ErrorDetails, path: KeyPath, root: type[BaseModel], what: str) -> str:
    key = f"`{dotted(path)}`" if path else "the study"
    model = model_at(root, path[:-1])
    if details["type"] == "extra_forbidden":
        return f"unknown {what} {key}{_known_key(path, root, model, is_study=what == 'key')}"
    top = root.model_fields.get(str(path[0])) if path else None
    such_as = ""
    if top is not None and top.examples:
        purpose = f", {top.description}" if top.description else ""
        such_as = f"; such as `{path[0]}: {top.examples[0]}`{purpose}"
    if details["type"] == "missing":
        field = None if model is None else model.model_fields.get(str(path[-1]))
        sentence = ((field and field.description) or "").partition(". ")[0].rstrip(".")
        purpose = f" ({sentence[0].lower()}{sentence[1:]})" if sentence else ""
        return f"{key} is missing{such_as or purpose}"
    if details["type"] != "value_error":
        return f"{key} {rule_of(details)}{_hint(details, path, root)}{such_as}"
    rule = details["msg"].removeprefix("Value error, ")
    return f"{key}: {rule[0].lower()}{rule[1:]}, got {as_json(details['input'])}" if path else rule


def _known_key(
    path: KeyPath, root: type[BaseModel], model: type[BaseModel] | None, *, is_study: bool
) -> str:
    """Return which key may be meant in the place of an unknown one, and where others stand."""
    valid = keys_of(model) if model is not None else []
    # Most unknown keys at the top are keys of a part: `seed` belongs into `selector`.
    if is_study and len(path) == 1:
        if str(path[0]) in _SAMPLING:
            return f"; did you mean `params.{path[0]}`?"
        if nested := _nested_keys(root, str(path[0])):
            return f"; did you mean {nested}?"
    close = nearest(str(path[-1]), valid)
    if not close.endswith("?") and {"model", "params", "options"} <= set(valid):
        close += (
            "; sampling parameters stand in `params`, options of the provider in `options`, such "
            "as `options: {price: {input: 0.10, output: 0.50}}`"
        )
    return f"; {close}" if valid else ""


def keys_of(model: type[BaseModel]) -> list[str]:
    """Return the keys of a mapping, as a file has them."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _nested_keys(root: type[BaseModel], name: str) -> str:
    """Return the keys of the study's parts that have this name, or one like it."""
    keys: dict[str, list[str]] = {}
    for part in root.model_fields:
        model = model_at(root, (part,))
        if model is not None and get_origin(root.model_fields[part].annotation) is not tuple:
            for inner in keys_of(model):
                keys.setdefault(inner, []).append(f"`{part}.{inner}`")
    if name not in keys and get_close_matches(name, root.model_fields):
        return ""
    names = [name] if name in keys else get_close_matches(name, keys, n=1, cutoff=_LIKE_A_TYPO)
    return " or ".join(keys[names[0]]) if names else ""


def rule_of(details: ErrorDetails) -> str:
    """Return the rule that was broken and the value found: "must be at least 1, got 0"."""
    if details["type"] == BROKEN_RULE:
        return details["msg"]
    context = details.get("ctx", {})
    if str(context.get("pattern", "")).startswith(_NAMES):
        rule = _NAME_RULE
    elif details["type"] in _RULES:
        rule = _RULES[details["type"]].format(**context)
    else:
        rule = f"is refused ({details['msg']})"
    return f"{rule}, got {as_json(details['input'])}"


def _hint(details: ErrorDetails, path: KeyPath, root: type[BaseModel]) -> str:
    """Return the way out of a broken rule, after a semicolon; "" if it is not known."""
    value = details["input"]
    if details["type"].startswith("greater") and path[0] == "budget":
        return "; leave it out for no such cap"
    if details["type"] == "model_type" and (model := model_at(root, path)) is not None:
        keys = ", ".join(f"`{key}`" for key in keys_of(model)[:_MOST_KEYS])
        return f"; keys that it takes: {keys}"
    if details["type"] == "string_type" and isinstance(value, bool | int | float):
        return "; put it in quotes"
    if details["type"] in ("literal_error", "enum"):
        expected = str(details["ctx"]["expected"]).replace(" or ", ", ").replace("'", "")
        close = nearest(str(value), expected.split(", "))
        return f"; {close}" if close.endswith("?") else ""
    return ""


def model_at(root: type[BaseModel], path: KeyPath) -> type[Any] | None:
    """Return the model of the mapping at ``path``, or None if its keys are free."""
    here: Any = root
    for key in path:
        if isinstance(here, type) and issubclass(here, BaseModel):
            field = here.model_fields.get(str(key))
            here = field.annotation if field is not None else None
        else:
            # Of dict[str, X] and tuple[X, ...] the last argument is the type of what stands within.
            inner = [item for item in get_args(here) if item is not ...]
            here = inner[-1] if inner else None
        if get_origin(here) in (Union, UnionType):
            here = next(item for item in get_args(here) if item is not type(None))
    return here if isinstance(here, type) and issubclass(here, BaseModel) else None


_MOST_BYTES = 4_000_000
_MOST_ERRORS = 3

_Model = TypeVar("_Model", bound=BaseModel)


def shown_path(path: Path) -> str:
    """Return a path for messages, relative to the working directory if it lies below it."""
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)


def check_regular(path: Path) -> None:
    """Check that a file that exists is no pipe or device, which may hold no end, or none yet."""
    # Reading a pipe would wait for its writer for ever. The null device is allowed: it is how
    # people say "no file" on a command line.
    if not path.is_file() and path.exists() and not path.samefile(os.devnull):
        what = "a folder" if path.is_dir() else "a pipe" if path.is_fifo() else "a device"
        raise ConfigError(f"{shown_path(path)} is {what}, and not a file; name a file")


def check_file(path: Path, kind: str = "dataset") -> None:
    """Check that a file exists; raises ConfigError with the nearest names in its folder."""
    if path.is_dir():
        raise ConfigError(f"{kind} {shown_path(path)} is a folder; name a file in it")
    if path.exists():
        return check_regular(path)
    if not {"http:", "https:"}.isdisjoint(path.parts):
        raise ConfigError(f"{kind} {path.name} is an address on the web; download the file first")
    if not path.parent.is_dir():
        raise ConfigError(
            f"{kind} {shown_path(path)} does not exist, and neither does its folder; a "
            "relative path starts from the study file's folder"
        )
    files = [file.name for file in path.parent.iterdir()]
    raise ConfigError(f"{kind} {shown_path(path)} does not exist; {nearest(path.name, files)}")


def read_text(path: Path) -> str:
    """Read a small UTF-8 file; a byte-order mark is dropped and line ends become line feeds."""
    check_regular(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {shown_path(path)}: {error.strerror or error}") from None
    if len(content) > _MOST_BYTES:
        raise ConfigError(
            f"{shown_path(path)} holds {len(content):,} bytes; the most is {_MOST_BYTES:,}"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{shown_path(path)}, line {line}: not UTF-8; save it as UTF-8") from None
    # Lines are counted by "\n" everywhere; and a template must not differ by the system it was
    # saved on.
    return text.replace("\r\n", "\n")


def read_yaml(path: Path) -> tuple[dict[str, JsonValue], dict[KeyPath, int]]:
    """Read a YAML file that holds a mapping; return it, and the line of each key and list item."""
    data, lines = parsed_yaml(path, read_text(path))
    if not isinstance(data, dict):
        raise ConfigError(
            f"{shown_path(path)}, line 1: expected keys with values, such as `description: ...`"
        )
    return data, lines


def parsed_yaml(path: Path, text: str, language: str = "YAML") -> _Parsed:
    """Read the YAML text of a file, as ``parse_yaml``; raise ConfigError with its position."""
    try:
        return parse_yaml(text)
    except YamlProblem as problem:
        line = "" if problem.line is None else f", line {problem.line}"
        column = "" if problem.column is None else f", column {problem.column}"
        where = f"{shown_path(path)}{line}{column}"
        raise ConfigError(f"{where}: malformed {language}: {problem}") from None


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """A broken rule; ``text`` names the rule, the value and the way out."""

    path: KeyPath
    text: str
    line: int | None = None


class OptionsError(ConfigError):
    """Options that break rules, raised where the lines of the study are not known."""

    def __init__(self, subject: str, problems: Sequence[BrokenRule]) -> None:
        self.subject = subject  # the owner, such as a judge; "" if the problems name it
        self.problems = tuple(problems)  # at least one
        sentences = [f"line {one.line}: {one.text}" if one.line else one.text for one in problems]
        separator = ", " if problems[0].line else ": "
        whole = f"{subject}{separator}" if subject else ""
        super().__init__(f"{whole}{'; '.join(_first(sentences, _MOST_ERRORS))}")

    def located(self, where: Callable[..., str]) -> ConfigError:
        """Return the error with the position of each key path by ``where``; itself, if known."""
        if any(one.line for one in self.problems):
            return self
        by_position: dict[tuple[str, KeyPath], str] = {}
        for one in self.problems:  # once per position, also if the option counts for several models
            by_position.setdefault((where(*one.path), one.path[-1:]), one.text)
        texts = [f"{place}: {text}" for (place, _), text in by_position.items()]
        if len(texts) > 1:
            return _listed(texts, f"{len(texts)} errors in {self.subject}:", _MOST_ERRORS)
        ((place, _),) = by_position
        return ConfigError(": ".join(filter(None, (place, self.subject, self.problems[0].text))))


@contextmanager
def locating_options(where: Callable[..., str]) -> Iterator[None]:
    """Add the positions of options to errors raised within, as ``OptionsError.located``."""
    try:
        yield
    except OptionsError as error:
        raise error.located(where) from None


def parse_options(
    model: type[_Model],
    data: Mapping[str, Json],
    *,
    subject: str,
    what: str = "option",
    lines: Mapping[KeyPath, int] | None = None,
) -> _Model:
    """Validate the options of ``subject``; OptionsError has the names and values of the user.

    ``what`` is the name for keys; ``lines`` are those of every key, if known.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        rules = list(_broken_rules(error, model, what))
    # The model was read without positions; where the caller knows the lines of the file, each rule
    # gets that of its key or of the nearest mapping around it.
    known = lines or {}
    with_lines = [replace(rule, line=_of_longest_prefix(known, rule.path)) for rule in rules]
    raise OptionsError(subject, with_lines)


def parse_row(model: type[_Model], data: Mapping[str, Json], where: str) -> _Model:
    """Validate a row of a data file; raises ConfigError, which begins with ``where``."""
    try:
        return parse_options(model, data, subject=where, what="field")
    except OptionsError as error:
        raise ConfigError(str(error)) from None


_DATASETS = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")


def read_source(path: Path) -> tuple[dict[str, JsonValue], Places]:
    """Return the mapping in a study file and the positions of its values, or raise ConfigError."""
    name = shown_path(path)
    if not path.exists():
        raise ConfigError(
            f"there is no study file {name}; `bestarm-agent init` writes one to start from"
        )
    if path.is_dir():
        raise ConfigError(f"{name} is a folder; name the study file in it")
    if path.suffix.lower() in _DATASETS:
        raise ConfigError(f"{name} is a dataset by its suffix; name a study file, such as a .yaml")
    text = read_text(path)
    # JSON's own parser gives the values, and the YAML parser only the lines, which the other does
    # not know.
    parse = _parse_json if path.suffix.lower() == ".json" else parsed_yaml
    try:
        value, lines = parse(path, text) if text.strip() else (None, {})
    except RecursionError:
        raise ConfigError(f"{name} is nested too deeply for a study") from None
    places = Places(name, lines)
    if value is None:
        raise ConfigError(f"{name} is empty; `bestarm-agent init` writes a study to start from")
    if not isinstance(value, dict):
        raise ConfigError(f"{name}: a study must be a mapping (`key: value`), got {as_json(value)}")
    return {key: plain_copy(item, places, key) for key, item in value.items()}, places


def _parse_json(path: Path, text: str) -> _Parsed:
    name = shown_path(path)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{name}, line {error.lineno}, column {error.colno}: malformed JSON: {error.msg}"
        ) from None
    except ValueError as error:  # an integer of thousands of digits
        raise ConfigError(f"{name}: malformed JSON: {error}") from None
    # a valid JSON text is YAML once its tabs, which no JSON text holds inside, are spaces
    return value, parsed_yaml(path, text.replace("\t", " "), "JSON")[1]


def plain_copy(value: object, places: Places, *path: str | int) -> JsonValue:
    """Return a copy of ``value``, which stands at ``path``; ConfigError if it is not JSON."""

    def checked(scalar: JsonValue, inner: KeyPath) -> JsonValue:
        if isinstance(scalar, float) and not math.isfinite(scalar):
            raise places.error(f"`{dotted(inner)}` must be finite, got {scalar}", *inner)
        if scalar is not None and not isinstance(scalar, str | int | float | bool):
            rule = f"must be a text or a number, got {scalar}; put it in quotes"
            raise places.error(f"`{dotted(inner)}` {rule}", *inner)
        return scalar

    return replaced(value, checked, *path)
