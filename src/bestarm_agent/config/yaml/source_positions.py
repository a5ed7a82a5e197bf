"""Find the line of a value in a study, for messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from bestarm_agent.config.yaml.parser import KeyPath
from bestarm_agent.errors import ConfigError

_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class Places:
    """Finds the position of a key path."""

    subject: str  # the file as messages show it, or "the study"
    # 1-based line of each key path; empty if lines are unknown
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    # source of the values that do not come from the file, by key path ("--seed")
    origins: Mapping[KeyPath, str] = field(default_factory=dict)

    def origin(self, key_path: KeyPath) -> str | None:
        """Return the source of the value at ``key_path`` if it is not the file."""
        return _of_longest_prefix(self.origins, key_path)

    def line(self, key_path: KeyPath) -> int | None:
        """Return the line of ``key_path``, or else of the nearest mapping or list around it."""
        return _of_longest_prefix(self.lines, key_path)

    def where(self, *key_path: str | int) -> str:
        """Return the position of ``key_path`` for a message: "study.yaml, line 7"."""
        if (origin := self.origin(key_path)) is not None:
            return origin
        line = self.line(key_path)
        return self.subject if line is None else f"{self.subject}, line {line}"

    def located(self, key_path: KeyPath, error: ConfigError) -> ConfigError:
        """Return an error with the position of ``key_path``, if known and not in it already."""
        known = self.origin(key_path) or self.line(key_path)
        if not known or type(error) is not ConfigError or self.subject in str(error):
            return error
        return self.error(str(error), *key_path)

    def error(self, text: str, *key_path: str | int) -> ConfigError:
        """Return an error about the value at ``key_path``; ``text`` names key, rule and value."""
        return ConfigError(f"{self.where(*key_path)}: {text}")


def _of_longest_prefix(values: Mapping[KeyPath, _V], key_path: KeyPath) -> _V | None:
    prefixes = (key_path[:n] for n in range(len(key_path), 0, -1))
    return next((values[prefix] for prefix in prefixes if prefix in values), None)
