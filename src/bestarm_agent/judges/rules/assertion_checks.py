"""The checks of assertions that look at a reply's text alone, as promptfoo 0.123.1 makes them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

import regex

from bestarm_agent.config.fields import shown
from bestarm_agent.config.study.value_types import tidy
from bestarm_agent.config.yaml.errors import YamlProblem
from bestarm_agent.config.yaml.parser import parse_yaml
from bestarm_agent.domain.digest import canonical
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.rules.base import judge_failed

# gets the reply's text and the assertion's value; Any: a text, a list of texts or a JSON value
Check: TypeAlias = Callable[[str, Any], bool]

_LONGEST_OBJECT = 100_000
_MOST_BRACES = 100  # that are looked behind, so that no reply takes long
_SECONDS = 1.0
_END = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\$", re.DOTALL)


def _equals(text: str, value: Any) -> bool:  # noqa: ANN401 - a JSON value
    """Compare texts, or the reply's JSON with a list or an object."""
    if isinstance(value, str):
        return text == value
    try:
        return canonical(tidy(json.loads(text))) == canonical(tidy(value))
    except (ValueError, RecursionError):
        return False


def _is_json(text: str, _: object) -> bool:
    try:
        json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


@lru_cache(maxsize=1000)
def _pattern(source: str) -> regex.Pattern[str]:
    """Compile a JavaScript pattern; its `$` matches at the very end only."""
    ends = _END.sub(lambda found: r"\Z" if found[0] == "$" else found[0], source)
    try:
        return regex.compile(ends)
    except regex.error as error:
        raise ConfigError(f"the pattern {source!r} of `regex` is malformed: {error}") from None


def check_value(kind: str, value: Any) -> None:  # noqa: ANN401 - a JSON value
    """Check that a check can compare with a value; raises ConfigError."""
    texts = value if kind.endswith(("-any", "-all")) else [value]
    takes_text = kind not in ("equals", "is-json", "contains-json", "cost", "latency")
    if takes_text and not (isinstance(texts, list) and all(isinstance(t, str) for t in texts)):
        kinds = "a list of texts" if texts is value else "a text"
        raise ConfigError(f"assertion `{kind}` compares with {kinds}, got {shown(value)}")
    if kind == "regex":
        _pattern(value)


def _matches(text: str, source: str) -> bool:
    try:
        return _pattern(source).search(text, timeout=_SECONDS) is not None
    except TimeoutError:
        raise judge_failed(
            f"assertion `regex`: {source!r} took more than {_SECONDS:g} s; make its repetitions "
            "unambiguous"
        ) from None


def json_objects(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in a text, also in YAML's flow style; braces at the end may be missing."""
    start = text.find("{")
    for _ in range(_MOST_BRACES):
        if start < 0:
            return
        part = _balanced(text[start : start + _LONGEST_OBJECT])
        found = _mapping(part)
        if found is not None:
            yield found
        start = text.find("{", start + (1 if found is None else len(part)))


def _balanced(text: str) -> str:
    """Return a text up to the brace that closes its first one, or with those that are missing."""
    depth = 0
    for end, mark in enumerate(text, start=1):
        depth += (mark == "{") - (mark == "}")
        if not depth:
            return text[:end]
    return text + "}" * depth


def _mapping(text: str) -> Mapping[str, Any] | None:
    try:
        found = parse_yaml(text)[0]
    except (YamlProblem, RecursionError):
        return None
    return found if isinstance(found, dict) else None


CHECKS: Final[Mapping[str, Check]] = {
    "equals": _equals,
    "contains": lambda text, value: value in text,
    "contains-any": lambda text, value: any(part in text for part in value),
    "contains-all": lambda text, value: all(part in text for part in value),
    "icontains": lambda text, value: value.lower() in text.lower(),
    "icontains-any": lambda text, value: any(part.lower() in text.lower() for part in value),
    "icontains-all": lambda text, value: all(part.lower() in text.lower() for part in value),
    "starts-with": lambda text, value: text.startswith(value),
    "regex": _matches,
    "is-json": _is_json,
    "contains-json": lambda text, _: any(True for _ in json_objects(text)),
}
