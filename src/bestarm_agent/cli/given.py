"""Values of the options that commands share: the study, its changes, the store, the run."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from bestarm_agent.cli.options import OPTIONS
from bestarm_agent.config.load import LoadedStudy, load_study
from bestarm_agent.config.settings import Settings
from bestarm_agent.config.yaml import YamlProblem, parse_yaml
from bestarm_agent.domain.values import Json
from bestarm_agent.engine.setup.options import Options
from bestarm_agent.errors import ConfigError

STUDY_FILE = "study.yaml"


@dataclass(frozen=True, slots=True)
class Given:
    """The values of shared options. ``replaced`` holds those that replace values of the study."""

    study: Path | None = None
    candidates: Path | None = None
    changes: tuple[str, ...] = ()  # KEY=VALUE
    replaced: Mapping[str, Json] = field(default_factory=dict)  # by key of the study
    run: str | None = None
    store: str | None = None
    no_cache: bool = False
    as_json: bool = False
    quiet: bool = False

    @property
    def path(self) -> Path:
        """The study file named, or ``study.yaml`` of this folder; ConfigError if neither."""
        if self.study is not None and self.candidates is not None:
            raise ConfigError(
                f"two study files are named, {self.study} and --candidates {self.candidates}; "
                f"name one"
            )
        named = self.study or self.candidates
        if named is None and not Path(STUDY_FILE).exists():
            raise ConfigError(
                f"no study file is named, and there is no {STUDY_FILE} in this folder; name one, "
                f"or write one with `bestarm-agent init`"
            )
        return named or Path(STUDY_FILE)

    def replacing(self, key: str, value: Json) -> Given:
        """Return these with another value of the study."""
        return replace(self, replaced={**self.replaced, key: value})

    def load(self) -> LoadedStudy:
        """Read the study; what options say replaces what the file says."""
        flags = {o.key: o.flags(name)[0] for name, o in OPTIONS.items() if o.key}
        set_ = dict(map(_assignment, self.changes))
        named = {**flags, **{key: f"--set {key}" for key in set_}}
        return load_study(self.path, {**self.replaced, **set_}, given_by=named)

    def options(self, store: str | Path | None = None) -> Options:
        """Return the options to open a study with; ``store``, a path or URL, wins."""
        settings = Settings()
        return Options(
            store=store or self.store or settings.store,
            catalog_dirs=settings.catalog_dirs,
            use_cache=not self.no_cache,
        )

    @property
    def display(self) -> str:
        """Form of the progress: "none" if ``quiet``, else that of BESTARM_DISPLAY."""
        return "none" if self.quiet else Settings().display


def take_given(values: dict[str, Any]) -> Given:
    """Take the values of shared options out of those of a command."""
    shared = {f.name: values.pop(f.name) for f in fields(Given) if f.name in values}
    keyed = {OPTIONS[name].key: values.pop(name) for name in [*values] if OPTIONS[name].key}
    replaced = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in keyed.items()
        if value not in (None, ())
    }
    # An option says all of what is sought. With only its own key replaced, a study that looks for
    # the cheapest within epsilon would be asked for a least score as well.
    if any(key.startswith("objective.") for key in replaced):
        replaced = {"objective": {}, **replaced}
    return Given(**shared, replaced=replaced)


def _assignment(text: str) -> tuple[str, Json]:
    """Read KEY=VALUE, whose value is written as in a study file."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set takes KEY=VALUE, such as budget.minutes=5, got {text!r}")
    if not value.strip():
        raise ConfigError(f"--set {key}= has no value; write one, or `null` for none")
    try:
        return key.strip(), parse_yaml(value)[0]
    except YamlProblem as problem:
        raise ConfigError(f"--set {key}: {problem}") from None


class _StderrHandler(logging.Handler):
    """Writes to the present ``sys.stderr``: a live table replaces it, to keep lines above it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record as a line."""
        sys.stderr.write(self.format(record) + "\n")


def apply_settings() -> None:
    """Apply ``BESTARM_LOG_LEVEL`` and ``BESTARM_NO_COLOR``; raise ConfigError if one is wrong."""
    settings = Settings()
    if settings.no_color:
        os.environ["NO_COLOR"] = "1"  # read by every console that is made from now on
    log = logging.getLogger("bestarm_agent")
    log.setLevel(settings.log_level.upper())
    if not log.handlers:
        handler = _StderrHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        log.addHandler(handler)
        log.propagate = False
