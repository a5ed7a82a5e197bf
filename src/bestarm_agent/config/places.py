"""Where in a study a value stands, so that messages can say so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from bestarm_agent.config.yaml_text import KeyPath
from bestarm_agent.errors import ConfigError

_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class Places:
    """Finds the place of a key path.

    Attributes:
        subject: the whole: a file as messages show it, or "the study".
        lines: 1-based line of each key path; empty where lines are unknown.
        origins: what gave the values that the file did not, by key path ("BESTARM_SEED").
    """

    subject: str
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    origins: Mapping[KeyPath, str] = field(default_factory=dict)

    def origin(self, key_path: KeyPath) -> str | None:
        """Return what gave the value at ``key_path`` if it was not the file."""
        return _of_longest_prefix(self.origins, key_path)

    def line(self, key_path: KeyPath) -> int | None:
        """Return the line of ``key_path``, or else of the nearest mapping or list around it."""
        return _of_longest_prefix(self.lines, key_path)

    def where(self, *key_path: str | int) -> str:
        """Return the place of ``key_path`` as people write it: "study.yaml, line 7"."""
        if (origin := self.origin(key_path)) is not None:
            return origin
        line = self.line(key_path)
        return self.subject if line is None else f"{self.subject}, line {line}"

    def error(self, text: str, *key_path: str | int) -> ConfigError:
        """Return an error about what stands at ``key_path``; ``text`` names key, rule and value."""
        return ConfigError(f"{self.where(*key_path)}: {text}")


def _of_longest_prefix(values: Mapping[KeyPath, _V], key_path: KeyPath) -> _V | None:
    prefixes = (key_path[:n] for n in range(len(key_path), 0, -1))
    return next((values[prefix] for prefix in prefixes if prefix in values), None)
