"""Read the files of users: texts, YAML and JSON with the line of each value, study files."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

from pydantic import JsonValue

from bestarm_agent.config.fields import KeyPath, as_json, dotted, replaced
from bestarm_agent.config.file_errors import Positions
from bestarm_agent.config.yaml import Parsed, YamlProblem, parse_yaml
from bestarm_agent.errors import ConfigError, nearest

_MOST_BYTES = 4_000_000


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


def parsed_yaml(path: Path, text: str, language: str = "YAML") -> Parsed:
    """Read the YAML text of a file, as ``parse_yaml``; raise ConfigError with its position."""
    try:
        return parse_yaml(text)
    except YamlProblem as problem:
        line = "" if problem.line is None else f", line {problem.line}"
        column = "" if problem.column is None else f", column {problem.column}"
        where = f"{shown_path(path)}{line}{column}"
        raise ConfigError(f"{where}: malformed {language}: {problem}") from None


_DATASETS = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")


def read_source(path: Path) -> tuple[dict[str, JsonValue], Positions]:
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
    positions = Positions(name, lines)
    if value is None:
        raise ConfigError(f"{name} is empty; `bestarm-agent init` writes a study to start from")
    if not isinstance(value, dict):
        raise ConfigError(f"{name}: a study must be a mapping (`key: value`), got {as_json(value)}")
    return {key: plain_copy(item, positions, key) for key, item in value.items()}, positions


def _parse_json(path: Path, text: str) -> Parsed:
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


def plain_copy(value: object, positions: Positions, *path: str | int) -> JsonValue:
    """Return a copy of ``value``, which stands at ``path``; ConfigError if it is not JSON."""

    def checked(scalar: JsonValue, inner: KeyPath) -> JsonValue:
        if isinstance(scalar, float) and not math.isfinite(scalar):
            raise positions.error(f"`{dotted(inner)}` must be finite, got {scalar}", *inner)
        if scalar is not None and not isinstance(scalar, str | int | float | bool):
            rule = f"must be a text or a number, got {scalar}; put it in quotes"
            raise positions.error(f"`{dotted(inner)}` {rule}", *inner)
        return scalar

    return replaced(value, checked, *path)
