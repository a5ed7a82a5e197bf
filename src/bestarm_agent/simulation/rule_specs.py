"""The rules to compare, as users write them: ``ucb-e,ucb-e[eta=0.3,batch=16]``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TypeAlias

from bestarm_agent.errors import ConfigError
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.registry import make_selector, selector_params
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

    def looking_for(self, top_k: int) -> Contender:
        """Return the rule with ``top_k`` set, if it takes one and has none; raises ValueError."""
        if "top_k" not in selector_params(self.name) or "top_k" in dict(self.options):
            return self
        return replace(self, options=(*self.options, ("top_k", top_k)))


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
        contenders.append(_contender(match[0].strip(), match[1].strip(), match[2]))
        at = end + 1
    labels = [contender.label for contender in contenders]
    if repeated := {label for label in labels if labels.count(label) > 1}:
        raise ConfigError(f"selector {min(repeated)!r} is named twice; leave one out")
    if not contenders:
        raise ConfigError("name at least one selector, for example --selectors ucb-e")
    return tuple(contenders)


def _contender(label: str, name: str, options: str | None) -> Contender:
    pairs = [part for part in (options or "").split(",") if part.strip()]
    return Contender(label, name, tuple(_option(label, pair) for pair in pairs))


def _option(label: str, pair: str) -> tuple[str, Option]:
    key, equals, value = (part.strip() for part in pair.partition("="))
    if not (key and equals and value):
        raise ConfigError(f"option {pair!r} of selector {label!r} must be written OPTION=VALUE")
    return key, _value(value)


def _value(text: str) -> Option:
    if text in ("true", "false"):
        return text == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
