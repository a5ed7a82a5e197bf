"""Word what is wrong in a user's file: a message with file, line, key, value and the way out.

``Positions`` finds the line of a key. A model of pydantic finds the rules that are broken; this
module words them, for a study (``config_error``) and for options of providers, judges and rows of
data (``parse_options``), whose lines only the caller may know (``OptionsError``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bestarm_agent.config.fields import BROKEN_RULE, KeyPath, as_json, dotted
from bestarm_agent.domain.values import Json
from bestarm_agent.errors import ConfigError, nearest

_V = TypeVar("_V")
_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Positions:
    """Finds the position of a key path."""

    subject: str  # the file as messages show it, or "the study"
    # 1-based line of each key path; empty if lines are unknown
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    # source of the values that do not come from the file, by key path ("--seed")
    origins: Mapping[KeyPath, str] = field(default_factory=dict)

    def line(self, key_path: KeyPath) -> int | None:
        """Return the line of ``key_path``, or else of the nearest mapping or list around it."""
        return _of_longest_prefix(self.lines, key_path)

    def describe(self, *key_path: str | int) -> str:
        """Return the position of ``key_path`` for a message: "study.yaml, line 7"."""
        if (origin := _of_longest_prefix(self.origins, key_path)) is not None:
            return origin
        line = self.line(key_path)
        return self.subject if line is None else f"{self.subject}, line {line}"

    @contextmanager
    def at(self, *key_path: str | int) -> Iterator[None]:
        """Add the position of ``key_path`` to ConfigErrors raised within that have none yet."""
        try:
            yield
        except ConfigError as error:
            # Errors of subclasses carry positions of their own (OptionsError), and a message that
            # names the file was given its line further below; neither gets a second one.
            is_known = self.describe(*key_path) != self.subject
            if not is_known or type(error) is not ConfigError or self.subject in str(error):
                raise
            raise self.error(str(error), *key_path) from error

    def error(self, text: str, *key_path: str | int) -> ConfigError:
        """Return an error about the value at ``key_path``; ``text`` names key, rule and value."""
        return ConfigError(f"{self.describe(*key_path)}: {text}")


def _of_longest_prefix(values: Mapping[KeyPath, _V], key_path: KeyPath) -> _V | None:
    # A key that is missing has no line; the mapping that lacks it has one.
    prefixes = (key_path[:n] for n in range(len(key_path), 0, -1))
    return next((values[prefix] for prefix in prefixes if prefix in values), None)


_MOST_LISTED, _MOST_KEYS = 10, 8  # errors; keys of a mapping
_MOST_ERRORS = 3  # of options
# Written at the top of a study by people who know other tools. They stand in `params`.
_SAMPLING = ("temperature", "top_p", "top_k", "max_tokens")
_LIKE_A_TYPO = 0.75
_NAMES = r"^\w["
_NAME_RULE = "must begin with a letter or digit and hold only letters, digits, spaces and .:@+()-_"

# The rule that a value breaks, by pydantic's type of error; filled in from the error's context.
_RULES = {
    "string_type": "must be a text",
    "string_too_long": "must have at most {max_length:,} characters",
    "string_pattern_mismatch": "must match the pattern `{pattern}`",
    "finite_number": "must be finite",
    **dict.fromkeys(("string_too_short", "too_short"), "must not be empty"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("decimal_type", "decimal_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(
        ("list_type", "tuple_type"), "must be a list (`- item` on lines of their own, or [a, b])"
    ),
    **dict.fromkeys(("dict_type", "model_type"), "must be a mapping (`key: value`)"),
    **dict.fromkeys(("literal_error", "enum"), "must be {expected}"),
    "greater_than": "must be greater than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
}


def config_error(
    error: ValidationError, root: type[BaseModel], positions: Positions
) -> ConfigError:
    """Return one ConfigError that lists up to ten errors in the order of the file."""
    rules = sorted(_broken_rules(error, root), key=lambda rule: positions.line(rule.path) or 0)
    texts = [f"{positions.describe(*rule.path)}: {rule.text}" for rule in rules]
    return _listed(texts, f"{positions.subject} has {len(texts)} errors:", _MOST_LISTED)


def _listed(texts: Sequence[str], heading: str, most: int) -> ConfigError:
    whole = [heading, *_first(texts, most)] if len(texts) > 1 else texts
    return ConfigError("\n  ".join(whole))


def _first(texts: Sequence[str], most: int) -> list[str]:
    rest = len(texts) - most
    return [*texts[:most], f"and {rest} more"] if rest > 0 else list(texts)


def _broken_rules(
    error: ValidationError, root: type[BaseModel], what: str = "key"
) -> Iterator[BrokenRule]:
    """Yield the rules that a mapping breaks; ``what`` is the name for its keys."""
    errors = error.errors(include_url=False)
    # pydantic reports a list that lost its only item as too short, beside the error of that item.
    for details in errors:
        if details["type"] == "too_short" and details["input"] and len(errors) > 1:
            continue  # a list is too short because one of its items is wrong
        # A validator of a whole mapping knows which key is wrong, and hands its path on in the
        # context.
        path: KeyPath = (*details["loc"], *details.get("ctx", {}).get("at", ()))
        yield BrokenRule(path, _text(details, path, root, what))


def _text(details: ErrorDetails, path: KeyPath, root: type[BaseModel], what: str) -> str:
    key = f"`{dotted(path)}`" if path else "the study"
    model = model_at(root, path[:-1])
    if details["type"] == "extra_forbidden":
        return f"unknown {what} {key}{_known_key(path, root, model, is_study=what == 'key')}"
    top = root.model_fields.get(str(path[0])) if path else None
    such_as = ""
    if top is not None and top.examples:
        purpose = f", {top.description}" if top.description else ""
        such_as = f"; such as `{path[0]}: {top.examples[0]}`{purpose}"
    if details["type"] == "missing":
        field = None if model is None else model.model_fields.get(str(path[-1]))
        sentence = ((field and field.description) or "").partition(". ")[0].rstrip(".")
        purpose = f" ({sentence[0].lower()}{sentence[1:]})" if sentence else ""
        return f"{key} is missing{such_as or purpose}"
    if details["type"] != "value_error":
        return f"{key} {rule_of(details)}{_hint(details, path, root)}{such_as}"
    rule = details["msg"].removeprefix("Value error, ")
    return f"{key}: {rule[0].lower()}{rule[1:]}, got {as_json(details['input'])}" if path else rule


def _known_key(
    path: KeyPath, root: type[BaseModel], model: type[BaseModel] | None, *, is_study: bool
) -> str:
    """Return which key may be meant in the place of an unknown one, and where others stand."""
    valid = keys_of(model) if model is not None else []
    # Most unknown keys at the top are keys of a part: `seed` belongs into `selector`.
    if is_study and len(path) == 1:
        if str(path[0]) in _SAMPLING:
            return f"; did you mean `params.{path[0]}`?"
        if nested := _nested_keys(root, str(path[0])):
            return f"; did you mean {nested}?"
    close = nearest(str(path[-1]), valid)
    if not close.endswith("?") and {"model", "params", "options"} <= set(valid):
        close += (
            "; sampling parameters stand in `params`, options of the provider in `options`, such "
            "as `options: {price: {input: 0.10, output: 0.50}}`"
        )
    return f"; {close}" if valid else ""


def keys_of(model: type[BaseModel]) -> list[str]:
    """Return the keys of a mapping, as a file has them."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _nested_keys(root: type[BaseModel], name: str) -> str:
    """Return the keys of the study's parts that have this name, or one like it."""
    keys: dict[str, list[str]] = {}
    for part in root.model_fields:
        model = model_at(root, (part,))
        if model is not None and get_origin(root.model_fields[part].annotation) is not tuple:
            for inner in keys_of(model):
                keys.setdefault(inner, []).append(f"`{part}.{inner}`")
    if name not in keys and get_close_matches(name, root.model_fields):
        return ""
    names = [name] if name in keys else get_close_matches(name, keys, n=1, cutoff=_LIKE_A_TYPO)
    return " or ".join(keys[names[0]]) if names else ""


def rule_of(details: ErrorDetails) -> str:
    """Return the rule that was broken and the value found: "must be at least 1, got 0"."""
    if details["type"] == BROKEN_RULE:
        return details["msg"]
    context = details.get("ctx", {})
    if str(context.get("pattern", "")).startswith(_NAMES):
        rule = _NAME_RULE
    elif details["type"] in _RULES:
        rule = _RULES[details["type"]].format(**context)
    else:
        rule = f"is refused ({details['msg']})"
    return f"{rule}, got {as_json(details['input'])}"


def _hint(details: ErrorDetails, path: KeyPath, root: type[BaseModel]) -> str:
    """Return the way out of a broken rule, after a semicolon; "" if it is not known."""
    value = details["input"]
    if details["type"].startswith("greater") and path[0] == "budget":
        return "; leave it out for no such cap"
    if details["type"] == "model_type" and (model := model_at(root, path)) is not None:
        keys = ", ".join(f"`{key}`" for key in keys_of(model)[:_MOST_KEYS])
        return f"; keys that it takes: {keys}"
    if details["type"] == "string_type" and isinstance(value, bool | int | float):
        return "; put it in quotes"
    if details["type"] in ("literal_error", "enum"):
        expected = str(details["ctx"]["expected"]).replace(" or ", ", ").replace("'", "")
        close = nearest(str(value), expected.split(", "))
        return f"; {close}" if close.endswith("?") else ""
    return ""


def model_at(root: type[BaseModel], path: KeyPath) -> type[Any] | None:
    """Return the model of the mapping at ``path``, or None if its keys are free."""
    here: Any = root
    for key in path:
        if isinstance(here, type) and issubclass(here, BaseModel):
            field = here.model_fields.get(str(key))
            here = field.annotation if field is not None else None
        else:
            # Of dict[str, X] and tuple[X, ...] the last argument is the type of what stands within.
            inner = [item for item in get_args(here) if item is not ...]
            here = inner[-1] if inner else None
        if get_origin(here) in (Union, UnionType):
            here = next(item for item in get_args(here) if item is not type(None))
    return here if isinstance(here, type) and issubclass(here, BaseModel) else None


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """A broken rule; ``text`` names the rule, the value and the way out."""

    path: KeyPath
    text: str
    line: int | None = None


class OptionsError(ConfigError):
    """Options that break rules, raised where the lines of the study are not known."""

    def __init__(self, subject: str, problems: Sequence[BrokenRule]) -> None:
        self.subject = subject  # the owner, such as a judge; "" if the problems name it
        self.problems = tuple(problems)  # at least one
        texts = [f"line {rule.line}: {rule.text}" if rule.line else rule.text for rule in problems]
        separator = ", " if problems[0].line else ": "
        whole = f"{subject}{separator}" if subject else ""
        super().__init__(f"{whole}{'; '.join(_first(texts, _MOST_ERRORS))}")

    def at(self, describe: Callable[..., str]) -> ConfigError:
        """Return the error with the position that ``describe`` gives to each key path.

        An error that has positions already is returned as it is.
        """
        if any(rule.line for rule in self.problems):
            return self
        by_position: dict[tuple[str, KeyPath], str] = {}
        # once per position, also if the option counts for several models
        for problem in self.problems:
            by_position.setdefault((describe(*problem.path), problem.path[-1:]), problem.text)
        texts = [f"{position}: {text}" for (position, _), text in by_position.items()]
        if len(texts) > 1:
            return _listed(texts, f"{len(texts)} errors in {self.subject}:", _MOST_ERRORS)
        ((position, _),) = by_position
        return ConfigError(": ".join(filter(None, (position, self.subject, self.problems[0].text))))


@contextmanager
def options_at(describe: Callable[..., str]) -> Iterator[None]:
    """Add the positions of options, by ``describe``, to OptionsErrors raised within."""
    try:
        yield
    except OptionsError as error:
        raise error.at(describe) from None


def parse_options(
    model: type[_Model],
    data: Mapping[str, Json],
    *,
    subject: str,
    what: str = "option",
    lines: Mapping[KeyPath, int] | None = None,
) -> _Model:
    """Validate the options of ``subject``; OptionsError has the names and values of the user.

    ``what`` is the name for keys; ``lines`` are those of every key, if known.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        rules = list(_broken_rules(error, model, what))
    # The model was read without positions; where the caller knows the lines of the file, each rule
    # gets that of its key or of the nearest mapping around it.
    known = lines or {}
    with_lines = [replace(rule, line=_of_longest_prefix(known, rule.path)) for rule in rules]
    raise OptionsError(subject, with_lines)


def parse_row(model: type[_Model], data: Mapping[str, Json], where: str) -> _Model:
    """Validate a row of a data file; raises ConfigError, which begins with ``where``."""
    try:
        return parse_options(model, data, subject=where, what="field")
    except OptionsError as error:
        raise ConfigError(str(error)) from None
