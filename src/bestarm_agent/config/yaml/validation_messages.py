"""Turn the validation errors of pydantic into one message."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from bestarm_agent.config.fields import BROKEN_RULE, StudyModel, dotted, shown
from bestarm_agent.config.yaml.parser import KeyPath
from bestarm_agent.config.yaml.source_positions import Places
from bestarm_agent.errors import ConfigError, nearest

_MOST_LISTED, _MOST_KEYS = 10, 8  # errors; keys of a mapping
_SAMPLING = ("temperature", "top_p", "top_k", "max_tokens")
_LIKE_A_TYPO = 0.75
_NAMES = r"^\w["
_NAME_RULE = "must begin with a letter or digit and hold only letters, digits, spaces and .:@+()-_"

# The rule that a value breaks, by pydantic's type of error.
_PREDICATES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "string_type": lambda _: "must be a text",
    "string_too_short": lambda _: "must not be empty",
    "string_too_long": lambda context: f"must have at most {context['max_length']:,} characters",
    "string_pattern_mismatch": lambda context: _pattern_rule(context["pattern"]),
    "too_short": lambda _: "must not be empty",
    "int_type": lambda _: "must be a whole number",
    "int_parsing": lambda _: "must be a whole number",
    "int_from_float": lambda _: "must be a whole number",
    "float_parsing": lambda _: "must be a number",
    "float_type": lambda _: "must be a number",
    "finite_number": lambda _: "must be finite",
    "decimal_parsing": lambda _: "must be a number",
    "decimal_type": lambda _: "must be a number",
    "list_type": lambda _: "must be a list (`- item` on lines of their own, or [a, b])",
    "bool_parsing": lambda _: "must be true or false",
    "bool_type": lambda _: "must be true or false",
    "tuple_type": lambda _: "must be a list (`- item` on lines of their own, or [a, b])",
    "dict_type": lambda _: "must be a mapping (`key: value`)",
    "model_type": lambda _: "must be a mapping (`key: value`)",
    "literal_error": lambda context: f"must be {context['expected']}",
    "enum": lambda context: f"must be {context['expected']}",
    "greater_than": lambda context: f"must be greater than {context['gt']:g}",
    "greater_than_equal": lambda context: f"must be at least {context['ge']:g}",
    "less_than": lambda context: f"must be less than {context['lt']:g}",
    "less_than_equal": lambda context: f"must be at most {context['le']:g}",
}


def _pattern_rule(pattern: str) -> str:
    return _NAME_RULE if pattern.startswith(_NAMES) else f"must match the pattern `{pattern}`"


def config_error(error: ValidationError, root: type[StudyModel], places: Places) -> ConfigError:
    """Return one ConfigError that lists up to ten errors in the order of the file."""
    found = [
        _described(details, root, places)
        for details in error.errors(include_url=False)
        if not _is_echo(details)
    ]
    found.sort(key=lambda item: item[0])
    if len(found) == 1:
        return ConfigError(f"{found[0][1]}: {found[0][2]}")
    listed = [f"  {where}: {text}" for _, where, text in found[:_MOST_LISTED]]
    if (more := len(found) - _MOST_LISTED) > 0:
        listed.append(f"  and {more} more")
    return ConfigError("\n".join([f"{places.subject} has {len(found)} errors:", *listed]))


def _is_echo(details: ErrorDetails) -> bool:
    """Return whether a list is too short only because one of its items is wrong."""
    return details["type"] == "too_short" and bool(details["input"])


def _described(
    details: ErrorDetails, root: type[StudyModel], places: Places
) -> tuple[int, str, str]:
    at: KeyPath = (*details["loc"], *details.get("ctx", {}).get("at", ()))
    # a missing key has no line: use that of the mapping around it
    place = at[:-1] if details["type"] == "missing" else at
    return places.line(place) or 0, places.where(*place), _text(details, at, root)


def _text(details: ErrorDetails, at: KeyPath, root: type[StudyModel]) -> str:
    key = f"`{dotted(at)}`" if at else "the study"
    model = model_at(root, at[:-1])
    if details["type"] == "extra_forbidden":
        valid = model.model_fields if model is not None else ()
        if len(at) == 1 and str(at[0]) in _SAMPLING:
            return f"unknown key {key}; did you mean `params.{at[0]}`?"
        if len(at) == 1 and (nested := _nested_keys(root, str(at[0]))):
            return f"unknown key {key}; did you mean {nested}?"
        close = nearest(str(at[-1]), valid)
        return f"unknown key {key}; {close}{'' if close.endswith('?') else _where_else(valid)}"
    if details["type"] == "missing":
        return f"{key} is missing{_purpose(model, at)}"
    return f"{key} {rule_of(details)}{_hint(details, at, root)}"


def _nested_keys(root: type[StudyModel], name: str) -> str:
    """Return the keys of the study's parts that have this name, or one like it."""
    keys: dict[str, list[str]] = {}
    for part in root.model_fields:
        model = model_at(root, (part,))
        if model is not None and get_origin(root.model_fields[part].annotation) is not tuple:
            for inner in model.model_fields:
                keys.setdefault(inner, []).append(f"`{part}.{inner}`")
    if name not in keys and get_close_matches(name, root.model_fields):
        return ""
    found = [name] if name in keys else get_close_matches(name, keys, n=1, cutoff=_LIKE_A_TYPO)
    return " or ".join(keys[found[0]]) if found else ""


def _where_else(valid: Collection[str]) -> str:
    """Return where keys belong that are often written next to ``model``."""
    if not {"model", "params", "options"} <= set(valid):
        return ""
    return (
        "; sampling parameters stand in `params`, options of the provider in `options`, such as "
        "`options: {price: {input: 0.10, output: 0.50}}`"
    )


def rule_of(details: ErrorDetails) -> str:
    """Return the rule that was broken and the value found: "must be at least 1, got 0"."""
    if details["type"] == BROKEN_RULE:
        return details["msg"]
    predicate = _PREDICATES.get(details["type"])
    rule = (
        f"is refused ({details['msg']})" if predicate is None else predicate(details.get("ctx", {}))
    )
    return f"{rule}, got {shown(details['input'])}"


def _purpose(model: type[StudyModel] | None, at: KeyPath) -> str:
    field = model.model_fields.get(str(at[-1])) if model is not None else None
    if field is None or field.description is None:
        return ""
    sentence = field.description.partition(". ")[0].rstrip(".")
    return f" ({sentence[0].lower()}{sentence[1:]})"


def _hint(details: ErrorDetails, at: KeyPath, root: type[StudyModel]) -> str:
    if details["type"].startswith("greater") and at[0] == "budget":
        return "; leave it out for no such cap"
    if details["type"] == "model_type" and (model := model_at(root, at)) is not None:
        keys = ", ".join(f"`{key}`" for key in list(model.model_fields)[:_MOST_KEYS])
        return f"; keys that it takes: {keys}"
    return hint_of(details)


def hint_of(details: ErrorDetails) -> str:
    """Return the way out of a broken rule, after a semicolon; "" if it is not known."""
    value = details["input"]
    if details["type"] == "string_type" and isinstance(value, bool | int | float):
        return "; put it in quotes"
    if details["type"] in ("literal_error", "enum"):
        expected = str(details["ctx"]["expected"]).replace(" or ", ", ").replace("'", "")
        close = nearest(str(value), expected.split(", "))
        return f"; {close}" if close.endswith("?") else ""
    return ""


def model_at(root: type[StudyModel], path: KeyPath) -> type[StudyModel] | None:
    """Return the model of the mapping at ``path``, or None if its keys are free."""
    here: Any = root
    for key in path:
        if isinstance(here, type) and issubclass(here, StudyModel):
            field = here.model_fields.get(str(key))
            here = field.annotation if field is not None else None
        else:
            inner = [item for item in get_args(here) if item is not ...]
            here = inner[-1] if inner else None
        here = _without_none(here)
    return here if isinstance(here, type) and issubclass(here, StudyModel) else None


def _without_none(annotation: Any) -> Any:  # noqa: ANN401 - an annotation may be anything
    if get_origin(annotation) in (Union, UnionType):
        return next(item for item in get_args(annotation) if item is not type(None))
    return annotation
