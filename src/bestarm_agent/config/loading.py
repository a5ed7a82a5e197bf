"""Loads a study: file, then overrides, then validation; every error says where."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import JsonValue, ValidationError

from bestarm_agent.config.base import KeyPath, shown
from bestarm_agent.config.places import Places
from bestarm_agent.config.problems import config_error, model_at
from bestarm_agent.config.schema import StudyConfig
from bestarm_agent.config.sources import read_source
from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import ConfigError


@dataclass(frozen=True, slots=True)
class LoadedStudy:
    """A study as it was read.

    Attributes:
        config: the validated study; ``${VARIABLE}`` is expanded.
        path: the file it was read from.
        base_dir: folder that its relative paths start from.
        lines: 1-based line of each key path in the file.
        places: says where a value stands, for messages.
        source: what was read, overrides included, before defaults and expansion.
    """

    config: StudyConfig
    path: Path
    base_dir: Path
    lines: Mapping[KeyPath, int]
    places: Places
    source: Json = field(repr=False)

    def record(self) -> Json:
        """Return the study for the log: defaults filled in, variables not expanded."""
        return StudyConfig.model_validate(self.source).model_dump(mode="json")


def load_study(
    path: Path,
    overrides: Mapping[str, Json] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    origins: Mapping[str, str] | None = None,
) -> LoadedStudy:
    """Load and validate a study file (YAML; JSON and TOML by the ending of its name).

    Args:
        path: the file.
        overrides: values that replace those of the file, by dotted key ("selector.seed").
        environ: variables for ``${VARIABLE}``; default: those of the process.
        origins: who gave an override, by dotted key, for messages; default: "override".

    Raises:
        ConfigError: the file cannot be read or breaks a rule; the message lists the first ten
            places, with line, key, value and way out.
    """
    data, places = read_source(path)
    data.setdefault("name", _default_name(path))
    given = overrides or {}
    for key, value in given.items():
        _override(data, key, value)
    named: dict[KeyPath, str] = {
        tuple(key.split(".")): _origin(key, origins or {}) for key in given
    }
    places = replace(places, origins=named)
    config = _validated(data, environ, places)
    return LoadedStudy(config, path, path.parent, places.lines, places, data)


def restore_study(record: Json, environ: Mapping[str, str] | None = None) -> StudyConfig:
    """Return the study that ``LoadedStudy.record`` wrote to the log of a run.

    Raises:
        ConfigError: a variable is no longer set, or another version wrote the record.
    """
    return _validated(record, environ, Places(Path("the recorded study")))


def _validated(data: Json, environ: Mapping[str, str] | None, places: Places) -> StudyConfig:
    context = {"environ": os.environ if environ is None else environ}
    try:
        return StudyConfig.model_validate(data, context=context)
    except ValidationError as error:
        raise config_error(error, StudyConfig, places) from error


def _default_name(path: Path) -> str:
    return re.sub(r"[^\w.+-]+", "-", path.stem).lstrip(".+-") or "study"


def _origin(key: str, origins: Mapping[str, str]) -> str:
    return origins.get(key, f"override {key}")


def _override(data: dict[str, JsonValue], key: str, value: Json) -> None:
    """Set one value in place; a text that stands for a mapping is spelt out first."""
    *parents, last = key.split(".")
    here = data
    for depth, part in enumerate(parents):
        inner = here.get(part)
        if inner is None:
            inner = {}
        elif isinstance(inner, str) and (short := _short_form((*parents[:depth], part))):
            inner = {short: inner}
        if not isinstance(inner, dict):
            raise ConfigError(
                f"cannot override `{key}`: `{'.'.join(parents[: depth + 1])}` is "
                f"{shown(inner)}, not a mapping"
            )
        here[part] = inner
        here = inner
    here[last] = _plain(value)


def _short_form(path: KeyPath) -> str | None:
    model = model_at(StudyConfig, path)
    return model.short_form if model is not None else None


def _plain(value: Json) -> JsonValue:
    """Copy a JSON value into the lists and dicts that validation works on."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value
