"""Reads the text of a study file: YAML, or JSON and TOML by the ending of its name."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from pydantic import JsonValue

from bestarm_agent.config.base import KeyPath, dotted, shown
from bestarm_agent.config.places import Places
from bestarm_agent.config.yaml_errors import YamlProblem
from bestarm_agent.config.yaml_text import read_yaml
from bestarm_agent.errors import ConfigError

_MOST_BYTES = 5_000_000


def read_source(path: Path) -> tuple[dict[str, JsonValue], Places]:
    """Read the mapping that a study file holds.

    Raises:
        ConfigError: the file cannot be read, is malformed or holds something else.
    """
    text = _read_text(path)
    read: Callable[[Path, str], tuple[object, Places]]
    read = {".json": _read_json, ".toml": _read_toml}.get(path.suffix.lower(), _read_yaml)
    try:
        value, places = read(path, text)
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply to be a study") from None
    if value is None:
        raise ConfigError(f"{path} is empty; `bestarm-agent init` writes a study to start from")
    if not isinstance(value, dict):
        raise places.error(f"a study must be a mapping (`key: value`), got {shown(value)}")
    _check_plain(value, (), places)
    value.pop("$schema", None)  # what editors read in a JSON file
    return value, places


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(_unreadable(path, error)) from error
    if len(content) > _MOST_BYTES:
        raise ConfigError(
            f"{path} is larger than {_MOST_BYTES:,} bytes; a study names its dataset and does not "
            "hold it: is this the dataset?"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: is not UTF-8 text; save it as UTF-8") from error


def _unreadable(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"there is no study file {path}; `bestarm-agent init` writes one to start from"
    if isinstance(error, IsADirectoryError):
        return f"{path} is a folder; name the study file in it"
    return f"the study file {path} cannot be read: {error.strerror}"


def _read_yaml(path: Path, text: str) -> tuple[object, Places]:
    try:
        value, lines = read_yaml(text)
    except YamlProblem as problem:
        raise _malformed(path, problem) from problem
    return value, Places(path, lines)


def _malformed(path: Path, problem: YamlProblem) -> ConfigError:
    line = "" if problem.line is None else f", line {problem.line}"
    column = "" if problem.column is None else f", column {problem.column}"
    return ConfigError(f"{path}{line}{column}: {problem}")


def _read_json(path: Path, text: str) -> tuple[object, Places]:
    if not text.strip():
        return None, Places(path)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{path}, line {error.lineno}, column {error.colno}: is not valid JSON: {error.msg}"
        ) from error
    except ValueError as error:  # an integer of thousands of digits
        raise ConfigError(f"{path}: is not valid JSON: {error}") from error
    return value, Places(path, _json_lines(path, text))


def _json_lines(path: Path, text: str) -> dict[KeyPath, int]:
    """Lines of a valid JSON text, which is YAML once its tabs are spaces (texts hold none)."""
    try:
        return read_yaml(text.replace("\t", " "))[1]
    except YamlProblem as problem:
        raise _malformed(path, problem) from problem


def _read_toml(path: Path, text: str) -> tuple[object, Places]:
    if not text.strip():
        return None, Places(path)
    try:
        return tomllib.loads(text), Places(path)
    except tomllib.TOMLDecodeError as error:  # its message ends with line and column
        raise ConfigError(f"{path}: is not valid TOML: {error}") from error


def _check_plain(value: object, at: KeyPath, places: Places) -> None:
    """Refuse what JSON has no word for, wherever it stands."""
    if isinstance(value, dict):
        for key, item in value.items():
            _check_plain(item, (*at, key), places)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _check_plain(item, (*at, i), places)
    elif isinstance(value, float) and not math.isfinite(value):
        _refuse(f"must be finite, got {value}", at, places)
    elif value is not None and not isinstance(value, str | int | float | bool):
        _refuse(f"must be a text or a number, got {value}; put it in quotes", at, places)


def _refuse(text: str, at: KeyPath, places: Places) -> NoReturn:
    raise places.error(f"`{dotted(at)}` {text}", *at)
