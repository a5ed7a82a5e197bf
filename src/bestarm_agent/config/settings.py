"""Read the settings of machine and user: BESTARM_* variables and ``.env``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from bestarm_agent.config.load import ENV_FILE, LoadedStudy, load_study
from bestarm_agent.config.study import BudgetSpec
from bestarm_agent.config.yaml import rule_of
from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import ConfigError

_PREFIX = "BESTARM_"
_OFF = frozenset({"", "0", "false", "no", "off"})

# Flags that are not named like their key.
_FLAGS = {
    "confirm.share": "--confirm",
    "gate.challengers": "--challenger",
    "optimize.model": "--proposer-model",
}


def _split_paths(value: object) -> object:
    return [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value


def _is_on(value: object) -> object:
    """Read NO_COLOR: any text means yes (no-color.org), except "0", "false", "no" and "off"."""
    return value.strip().lower() not in _OFF if isinstance(value, str) else value


class Settings(BaseSettings):
    """Settings from the environment; ConfigError names a variable that breaks a rule.

    Each field is read from the variable BESTARM_ plus its name in capitals, in the environment or
    else in ``.env`` of the working directory. A value given as an argument takes precedence.
    """

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_file=ENV_FILE,
        env_file_encoding="utf-8",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
    )

    store: str | None = Field(None, description="Run store: an SQLite file or a PostgreSQL URL.")
    catalog_dirs: Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_split_paths)] = Field(
        (),
        description="Catalogue folders searched before the packaged one, separated as in PATH.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "warning", description="How much is logged to stderr."
    )
    display: Literal["auto", "full", "plain", "none"] = Field(
        "auto", description="How progress is shown."
    )
    no_color: Annotated[bool, BeforeValidator(_is_on)] = Field(
        False,
        description="Whether to print without colours; NO_COLOR is heeded too.",
        validation_alias=AliasChoices("no_color", "BESTARM_NO_COLOR", "NO_COLOR"),
    )

    def __init__(self, **values: object) -> None:
        try:
            super().__init__(**values)  # type: ignore[arg-type] # pydantic checks them
        except ValidationError as error:
            raise _refusal(error, _variable) from None


def _variable(name: str) -> str:
    return name if name.isupper() else f"{_PREFIX}{name.upper()}"


def resolve(
    path: Path,
    flags: Mapping[str, Json | None] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> LoadedStudy:
    """Load a study; flags override the file, which overrides the defaults.

    Args:
        path: the study file.
        flags: values from the command line, by dotted key ("budget.usd"); None means not given.
        environ: variables for ``${VARIABLE}``; default: those of the process and of ``.env``.
    """
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    return load_study(path, given, environ=environ, given_by={key: flag_of(key) for key in given})


def flag_of(key: str) -> str:
    """Return the command-line flag of a study's key.

    Example:
        >>> flag_of("selector.name"), flag_of("budget.usd"), flag_of("selector.seed")
        ('--selector', '--budget-usd', '--seed')
    """
    if key in _FLAGS:
        return _FLAGS[key]
    *parents, last = key.split(".")
    if last == "name" and parents:
        last = parents[-1]
    words = ["budget", last] if parents == ["budget"] else [last]
    return f"--{'-'.join(words).replace('_', '-')}"


def more_budget(**caps: str | float | None) -> BudgetSpec | None:
    """Return the additional budget that flags allow, or None without any.

    A cap that is None does not change.
    """
    given = {name: amount for name, amount in caps.items() if amount is not None}
    try:
        return BudgetSpec.model_validate(given) if given else None
    except ValidationError as error:
        raise _refusal(error, "--budget-{}".format) from error


def _refusal(error: ValidationError, named: Callable[[str], str]) -> ConfigError:
    """Return the rules that were broken, by the names under which the values were given."""
    found = error.errors(include_url=False)
    rules = (f"{named(str(one['loc'][0]))} {rule_of(one)}" for one in found)
    return ConfigError("; ".join(rules))
