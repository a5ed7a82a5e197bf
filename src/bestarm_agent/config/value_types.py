"""Types of the values in study files: amounts, shares, names, options, axes of a grid.

Values are strict. A broken rule is reported by ``fields.broken``, and becomes a message with its
line in ``config.file_errors``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, Strict, ValidationInfo

from bestarm_agent.config.fields import KeyPath, as_json, broken, replaced
from bestarm_agent.domain.redaction import REDACTED, secrets_in, url_secrets_in
from bestarm_agent.domain.values import canonical

_VARIABLE = re.compile(r"\$(\$\{[^}]*\})|\$\{([^}]*)\}")  # "$${X}" stands for the text "${X}"
# "5", "0.25", ".5"; with the patterns below "$5", "5 USD", "10%".
_AMOUNT = r"\s*(\d+(?:\.\d*)?|\.\d+)\s*"
_DOLLARS = re.compile(rf"\s*\$?{_AMOUNT}(?:usd)?\s*", re.IGNORECASE)
_SHARE = re.compile(rf"{_AMOUNT}(%?)\s*")


def expand_variables(value: JsonValue, environ: Mapping[str, str]) -> JsonValue:
    """Replace every ``${NAME}`` in the texts of ``value``; report one that is not set.

    Example:
        >>> expand_variables({"base_url": "${HOST}/v1"}, {"HOST": "http://localhost"})
        {'base_url': 'http://localhost/v1'}
    """

    def expanded(scalar: JsonValue, path: KeyPath) -> JsonValue:
        return _expand_text(scalar, environ, path) if isinstance(scalar, str) else scalar

    return replaced(value, expanded)


def _expand_text(text: str, environ: Mapping[str, str], path: KeyPath) -> str:
    def replacement(match: re.Match[str]) -> str:
        literal, name = match.groups()
        if literal is not None:
            return str(literal)
        if name not in environ:
            broken(
                f"{_unknown_variable(name)}, or write $${{{name}}} for these very characters", *path
            )
        return environ[name]

    return _VARIABLE.sub(replacement, text)


def _unknown_variable(name: str) -> str:
    if name.isidentifier():
        return f"needs the environment variable {name}, which is not set; set it"
    return f"holds ${{{name}}}, which is not the name of an environment variable; correct it"


def _expanded(value: JsonValue, info: ValidationInfo) -> JsonValue:
    environ = None if info.context is None else info.context.get("environ")
    return value if environ is None else expand_variables(value, environ)


def without_secrets(options: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Refuse written-out secrets: study files are shared, and logs leave secrets out."""
    for path, value in secrets_in(options).items():
        # A study that was read back from a log holds this mark where a secret stood.
        if value == REDACTED:
            broken(
                "held a secret when the run began, which its log leaves out; begin a new run with "
                "the secret in an environment variable and ${NAME_OF_THE_VARIABLE} in its place",
                *path,
            )
    found = [("", path) for path in secrets_in(options)]
    for where, path in (*found, *((" in its URL", path) for path in url_secrets_in(options))):
        broken(
            f"holds a secret{where}, which does not belong in a study file; put it into an "
            "environment variable and write ${NAME_OF_THE_VARIABLE}",
            *path,
        )
    return options


def without_secret_names(params: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Refuse names of secrets, which the log would leave out, where no variable is expanded."""
    for path in secrets_in(params):
        broken(
            "is named like a secret, which the log of a run leaves out, so that it could not be "
            "resumed; pass it to the provider by an option, as ${NAME_OF_THE_VARIABLE}",
            *path,
        )
    return params


def tidy(value: JsonValue) -> JsonValue:
    """Return ``value`` with whole floats as integers, so 1.0 and 1 are the same; refuse NaN."""

    def tidied(scalar: JsonValue, path: KeyPath) -> JsonValue:
        if not isinstance(scalar, float):
            return scalar
        if not math.isfinite(scalar):
            broken(f"must be finite, got {scalar}", *path)
        # The digest of a candidate is of its parameters as JSON, where 1.0 and 1 are different
        # texts.
        return int(scalar) if scalar.is_integer() else scalar

    return replaced(value, tidied)


def axis(value: JsonValue) -> tuple[JsonValue, ...]:
    """Return the values that an entry of a grid takes: those of a list, or the one given."""
    return tuple(value) if isinstance(value, list) else (value,)


def check_axes(params: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Refuse an axis that has no value, or one value twice."""
    for name, value in params.items():
        # Values are equal if their JSON is: 1 and true are two values, unlike in Python.
        counts = Counter(canonical(item) for item in axis(value))
        if not counts:
            broken("is an axis without values; give at least one, or leave the key out", name)
        item, count = counts.most_common(1)[0]
        if count > 1:
            broken(f"holds {item} more than once; every value must differ", name)
    return params


def read_dollars(value: object) -> object:
    """Read "$5" and "5 USD" as 5.0; leave numbers as they are."""
    if not isinstance(value, str):
        return value
    match = _DOLLARS.fullmatch(value)
    if match is None:
        broken(f'must be an amount of dollars such as 5 or "$5", got {as_json(value)}')
    return float(match[1])


def read_share(value: object) -> object:
    """Read "10%" and "0.1" as 0.1; leave numbers as they are, but for those that mean percents."""
    if isinstance(value, str):
        match = _SHARE.fullmatch(value)
        if match is None:
            broken(f'must be a number in (0, 1] such as 0.1, or "10%", got {as_json(value)}')
        # "10%" says what it means, while 10 may be ten percent or a slip for 1.0, so it is refused.
        value = float(match[1]) / 100 if match[2] else float(match[1])
        if match[2]:
            return value
    if isinstance(value, int | float) and 1 < value <= 100:
        broken(f'must be at most 1, got {value:g}; for {value:g} percent write "{value:g}%"')
    return value


Count: TypeAlias = Annotated[int, Strict(), Field(ge=1)]
Shots: TypeAlias = Annotated[int, Strict(), Field(ge=0)]
Positive: TypeAlias = Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
Share: TypeAlias = Annotated[float, Strict(), Field(ge=0, le=1)]
Inside: TypeAlias = Annotated[float, Strict(), Field(gt=0, lt=1)]  # of (0, 1), without its ends
Flag: TypeAlias = Annotated[bool, Strict()]
Text: TypeAlias = Annotated[str, Field(min_length=1)]
# Names stand in labels, tables and file names.
Name: TypeAlias = Annotated[str, Field(min_length=1, pattern=r"^\w[\w .:@+()-]*$")]
# Labels of candidates stand in tables only: any text of one line, such as a prompt of `find_best`.
Label: TypeAlias = Annotated[
    str, Field(min_length=1, pattern=r"^[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f])?$")
]
Dollars: TypeAlias = Annotated[
    Positive, BeforeValidator(read_dollars, json_schema_input_type=Positive | str)
]
_Fraction: TypeAlias = Annotated[float, Strict(), Field(gt=0, le=1)]
GridShare: TypeAlias = Annotated[
    _Fraction, BeforeValidator(read_share, json_schema_input_type=_Fraction | str)
]
Expandable: TypeAlias = Annotated[str, Field(min_length=1), AfterValidator(_expanded)]
Options: TypeAlias = Annotated[
    dict[str, JsonValue], AfterValidator(without_secrets), AfterValidator(_expanded)
]
Params: TypeAlias = Annotated[
    dict[str, JsonValue], AfterValidator(without_secret_names), AfterValidator(tidy)
]
Grid: TypeAlias = Annotated[Params, AfterValidator(check_axes)]


FILE_PREFIX = "file://"


def check_model_name(name: str, *path: str | int) -> str:
    """Check that ``name``, which stands at ``path``, is "provider/model"; else report it."""
    provider, slash, model = name.partition("/")
    if provider and slash and model and not set(name) & set(" \t\n") and ":" not in provider:
        return name
    hint = ""
    head, colon, tail = name.partition(":")
    if colon and head.isalnum() and tail:  # promptfoo's way of writing
        hint = f"; did you mean `{head}/{tail}`?"
    broken(f"must be `provider/model`, such as openai/gpt-6-luna, got {as_json(name)}{hint}", *path)
