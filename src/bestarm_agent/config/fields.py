"""The base of all models of files: short forms, and how validators report broken rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, TypeAlias

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, JsonValue, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

from bestarm_agent.domain.values import canonical

BROKEN_RULE = "broken_rule"

KeyPath: TypeAlias = tuple[str | int, ...]


def broken(text: str, *path: str | int) -> NoReturn:
    """Report a broken rule from within a validator, at a path relative to it.

    ``text`` is a predicate ("must be positive, got -1"), printed after the key.
    """
    # The text goes in as a variable of the template "{text}", since it may hold braces itself.
    raise PydanticCustomError(BROKEN_RULE, "{text}", {"text": text, "at": path})


def as_json(value: object, *, width: int = 60) -> str:
    """Return ``value`` as JSON, cut to ``width`` characters."""
    try:
        text = canonical(value)  # type: ignore[arg-type] # anything may be found in a file
    except (TypeError, ValueError):
        text = str(value)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def dotted(path: Iterable[str | int]) -> str:
    """Return a key path as people write it.

    Example:
        >>> dotted(("models", 2, "params", "temperature"))
        'models[2].params.temperature'
    """
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".")


def unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of a JSON text with these pairs; ValueError if a key is written twice.

    It is the ``object_pairs_hook`` of ``json``, which by itself takes the last of the two.
    """
    values = dict(pairs)
    if len(values) < len(pairs):
        key = next(key for n, (key, _) in enumerate(pairs) if key in dict(pairs[:n]))
        raise ValueError(f"key `{key}` is written twice; leave one of the two out")
    return values


def replaced(
    value: object, replace: Callable[[Any, tuple[str | int, ...]], JsonValue], *path: str | int
) -> JsonValue:
    """Return a copy of ``value``, which stands at ``path``, with ``replace(scalar, path)`` of each.

    Example:
        >>> replaced({"a": [1, 2], "b": 3}, lambda value, path: f"{dotted(path)} is {value}")
        {'a': ['a[0] is 1', 'a[1] is 2'], 'b': 'b is 3'}
    """
    if isinstance(value, Mapping):
        return {key: replaced(item, replace, *path, key) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [replaced(item, replace, *path, i) for i, item in enumerate(value)]
    return replace(value, path)


def allow_also(schema: dict[str, Any], *others: dict[str, Any]) -> None:
    """Extend a JSON schema in place, so that it also allows ``others``."""
    # In place, because pydantic holds references to this very object; title and description stay
    # outside so that an editor shows them whichever form is written.
    mapping = dict(schema)
    schema.clear()
    for key in ("title", "description"):
        if key in mapping:
            schema[key] = mapping.pop(key)
    schema["anyOf"] = [*others, mapping]


class StrictModel(BaseModel):
    """A mapping that is immutable, and without unknown keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True, serialize_by_alias=True
    )


class StudyModel(StrictModel):
    """A mapping of a study file, or a short form of it."""

    short_form: ClassVar[str | None] = None  # the field that a value in place of the mapping sets
    short_type: ClassVar[type] = str  # of that value: str or int

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, value: object) -> object:
        if cls.short_form is not None:
            if isinstance(value, cls.short_type):
                return {cls.short_form: value}
            cls._check_text_or_mapping(value)
        return cls._without_blanks(value)

    @classmethod
    def _check_text_or_mapping(cls, value: object) -> None:
        if not isinstance(value, dict | cls):
            short = "a text" if cls.short_type is str else "a whole number"
            broken(f"must be {short} or a mapping (`key: value`), got {as_json(value)}")

    @classmethod
    def _without_blanks(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        # A key without a value (`limit:`) reads as null, and is as good as left out. A null under a
        # key that is no field is kept, such as an option of a scorer, which may mean it.
        return {key: v for key, v in value.items() if v is not None or key not in cls.model_fields}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        reference = handler(core_schema)
        if cls.short_form is not None:
            text, number = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 1}
            short = text if cls.short_type is str else number
            allow_also(handler.resolve_ref_schema(reference), short)
        return reference
