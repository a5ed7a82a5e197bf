"""The rules to compare, as users write them: ``ucb-e,ucb-e[eta=0.3,batch=16]``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from bestarm_agent.errors import ConfigError
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem

Option: TypeAlias = bool | int | float | str

_CONTENDER = re.compile(r"([^\[\],]+)(?:\[([^\[\]]*)\])?")


@dataclass(frozen=True, slots=True)
class Contender:
    """A rule with its parameters."""

    label: str  # name in tables and figures
    name: str  # name in the registry
    options: tuple[tuple[str, Option], ...] = ()  # its parameters

    def make(self, problem: Problem) -> Pairs:
        """Make the selector; raises ValueError if the rule refuses name, options or problem."""
        return make_selector(self.name, problem, **dict(self.options))


def parse_contenders(text: str) -> tuple[Contender, ...]:
    """Read a comma-separated list of rules, each with parameters in brackets or without.

    Example:
        >>> [c.options for c in parse_contenders("uniform,ucb-e[eta=0.3]")]
        [(), (('eta', 0.3),)]
    """
    contenders, at = [], 0
    while at < len(text):
        match = _CONTENDER.match(text, at)
        end = match.end() if match else at
        if match is None or not match[1].strip() or text[end : end + 1] not in ("", ","):
            raise ConfigError(
                f"cannot read the selectors {text!r} from {text[at:]!r} on;"
                " write them as NAME or NAME[OPTION=VALUE,...], separated by commas"
            )
        label, parts = match[0].strip(), (match[2] or "").split(",")
        options = tuple(_option(label, part) for part in parts if part.strip())
        contenders.append(Contender(label, match[1].strip(), options))
        at = end + 1
    labels = [contender.label for contender in contenders]
    if repeated := {label for label in labels if labels.count(label) > 1}:
        raise ConfigError(f"selector {min(repeated)!r} is named twice; leave one out")
    if not contenders:
        raise ConfigError("name at least one selector, for example --selectors ucb-e")
    return tuple(contenders)


def _option(label: str, pair: str) -> tuple[str, Option]:
    key, equals, value = (part.strip() for part in pair.partition("="))
    if not (key and equals and value):
        raise ConfigError(f"option {pair!r} of selector {label!r} must be written OPTION=VALUE")
    if value in ("true", "false"):
        return key, value == "true"
    for number in (int, float):
        try:
            return key, number(value)
        except ValueError:
            continue
    return key, value
