"""Text that users write: read as UTF-8, parsed as YAML with line numbers, validated in their words.

Every error is a ``ConfigError`` of one paragraph that names the file, the line, the key and the way
out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bestarm_agent.config.yaml_errors import YamlProblem
from bestarm_agent.config.yaml_text import KeyPath as KeyPath
from bestarm_agent.config.yaml_text import parse_yaml
from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import ConfigError, nearest

_MOST_BYTES = 4_000_000
_MOST_ERRORS = 3

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed YAML file.

    Attributes:
        data: what it says.
        lines: line of every key and list item, from 1.
    """

    data: Mapping[str, Json]
    lines: Mapping[KeyPath, int] = field(default_factory=dict, repr=False)


def shown_path(path: Path) -> str:
    """A path as messages show it: relative to the working directory where it lies below."""
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)


def read_text(path: Path) -> str:
    """Read a small UTF-8 file; a byte-order mark is dropped and line ends become line feeds.

    Raises:
        ConfigError: it cannot be read, is too large, or is not UTF-8.
    """
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
    return text.replace("\r\n", "\n")


def read_yaml(path: Path) -> Document:
    """Read a YAML file that holds a mapping.

    Raises:
        ConfigError: it cannot be read, is malformed, or a key is written twice.
    """
    try:
        data, lines = parse_yaml(read_text(path))
    except YamlProblem as problem:
        raise malformed(path, problem) from None
    if not isinstance(data, dict):
        raise ConfigError(
            f"{shown_path(path)}, line 1: expected keys with values, such as `description: ...`"
        )
    return Document(data, lines)


def malformed(path: Path, problem: YamlProblem, language: str = "YAML") -> ConfigError:
    """Return the error that says where a file is not the language it should be, and why."""
    line = "" if problem.line is None else f", line {problem.line}"
    column = "" if problem.column is None else f", column {problem.column}"
    return ConfigError(f"{shown_path(path)}{line}{column}: malformed {language}: {problem}")


def parse_options(
    model: type[_Model],
    data: Mapping[str, Json],
    *,
    subject: str,
    lines: Mapping[KeyPath, int] | None = None,
) -> _Model:
    """Validate what a user wrote, in the user's words.

    Args:
        model: the rules.
        data: what was written.
        subject: what it belongs to, for messages ("judge `exact`", a file).
        lines: line of every key, if known.

    Raises:
        ConfigError: a rule is broken; names the key, the rule, the value and the way out.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        found = [_located(one, model, lines or {}) for one in error.errors()]
    more = f"; and {len(found) - _MOST_ERRORS} more" if len(found) > _MOST_ERRORS else ""
    separator = ", " if found[0].startswith("line ") else ": "
    raise ConfigError(f"{subject}{separator}{'; '.join(found[:_MOST_ERRORS])}{more}")


def _located(error: ErrorDetails, model: type[BaseModel], lines: Mapping[KeyPath, int]) -> str:
    key = error["loc"]
    line = next((lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in lines), None)
    explanation = _explained(error, ".".join(map(str, key)), model)
    return f"line {line}: {explanation}" if line else explanation


def _explained(error: ErrorDetails, name: str, model: type[BaseModel]) -> str:
    if error["type"] == "extra_forbidden":
        known = model.model_fields if name in error["loc"] else ()
        return f"unknown option `{name}`" + (f"; {nearest(name, known)}" if known else "")
    if error["type"] == "missing":
        return f"option `{name}` is required"
    rule = error["msg"].removeprefix("Value error, ")
    if not name:
        return rule
    return f"`{name}`: {rule[0].lower()}{rule[1:]}, got {error['input']!r:.80}"
