"""Read a study file: YAML, or JSON by the ending of its name."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import NoReturn, TypeAlias

from pydantic import JsonValue

from bestarm_agent.config.fields import dotted, shown
from bestarm_agent.config.yaml.documents import malformed, read_text, shown_path
from bestarm_agent.config.yaml.errors import YamlProblem
from bestarm_agent.config.yaml.parser import KeyPath, parse_yaml
from bestarm_agent.config.yaml.source_positions import Places
from bestarm_agent.errors import ConfigError

_DATASETS = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")

_Parsed: TypeAlias = tuple[object, dict[KeyPath, int]]


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
    parse = _parse_json if path.suffix.lower() == ".json" else _parse_yaml
    try:
        value, lines = parse(path, text) if text.strip() else (None, {})
    except RecursionError:
        raise ConfigError(f"{name} is nested too deeply for a study") from None
    places = Places(name, lines)
    if value is None:
        raise ConfigError(f"{name} is empty; `bestarm-agent init` writes a study to start from")
    if not isinstance(value, dict):
        raise ConfigError(f"{name}: a study must be a mapping (`key: value`), got {shown(value)}")
    check_plain(value, places)
    return value, places


def _parse_yaml(path: Path, text: str, language: str = "YAML") -> _Parsed:
    try:
        return parse_yaml(text)
    except YamlProblem as problem:
        raise malformed(path, problem, language) from None


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
    return value, _parse_yaml(path, text.replace("\t", " "), "JSON")[1]


def check_plain(value: object, places: Places, *at: str | int) -> None:
    """Raise ConfigError if ``value``, found ``at`` this path, is not JSON (NaN, a date)."""
    if isinstance(value, dict):
        for key, item in value.items():
            check_plain(item, places, *at, key)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            check_plain(item, places, *at, i)
    elif isinstance(value, float) and not math.isfinite(value):
        _refuse(f"must be finite, got {value}", at, places)
    elif value is not None and not isinstance(value, str | int | float | bool):
        _refuse(f"must be a text or a number, got {value}; put it in quotes", at, places)


def _refuse(text: str, at: KeyPath, places: Places) -> NoReturn:
    raise places.error(f"`{dotted(at)}` {text}", *at)
