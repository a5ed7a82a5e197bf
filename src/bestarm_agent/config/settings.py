"""Read the settings of machine and user: BESTARM_* variables and ``.env``."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from bestarm_agent.config.file_errors import rule_of
from bestarm_agent.config.load import ENV_FILE, in_env_file
from bestarm_agent.config.study import BudgetSpec
from bestarm_agent.domain.values import Json
from bestarm_agent.errors import ConfigError

_PREFIX = "BESTARM_"
_OFF = frozenset({"", "0", "false", "no", "off"})


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
        env_file_encoding="utf-8-sig",  # a byte-order mark is none of the first name
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
    )

    store: str | None = Field(None, description="Run store: an SQLite file or a PostgreSQL URL.")
    catalog_dirs: Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_split_paths)] = Field(
        (), description="Catalogue folders searched before the packaged one, separated as in PATH."
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
        in_env_file()  # refuses what pydantic would wait for, or fail on, and tells what is no line
        logging.getLogger("dotenv.main").setLevel(logging.ERROR)  # which says it without the file
        try:
            super().__init__(**values)  # type: ignore[arg-type] # pydantic checks them
        except ValidationError as error:
            raise _refusal(error, _variable) from None


def _variable(name: str) -> str:
    return name if name.isupper() else f"{_PREFIX}{name.upper()}"


def more_budget(given: Mapping[str, Json]) -> BudgetSpec | None:
    """Return the additional budget that caps by key ("budget.usd") allow, or None without any."""
    caps = {key.removeprefix("budget."): cap for key, cap in given.items()}
    try:
        return BudgetSpec.model_validate(caps) if caps else None
    except ValidationError as error:
        raise _refusal(error, "--budget-{}".format) from error


def _refusal(error: ValidationError, named: Callable[[str], str]) -> ConfigError:
    """Return the rules that were broken, by the names under which the values were given."""
    errors = error.errors(include_url=False)
    rules = (f"{named(str(details['loc'][0]))} {rule_of(details)}" for details in errors)
    return ConfigError("; ".join(rules))
