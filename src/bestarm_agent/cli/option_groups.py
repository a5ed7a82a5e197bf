"""Commands whose options are the fields of dataclasses, so that each option is stated once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, get_type_hints

import typer
from typer.models import OptionInfo

if TYPE_CHECKING:
    from bestarm_agent.domain.digest import Json


class Keyed(OptionInfo):
    """An option that replaces the value of a study file at a dotted key ("budget.usd").

    ``help`` is its text in ``--help``; ``names`` are flags, where they are not the field's name.
    """

    def __init__(self, key: str, help: str, *names: str, min: int | None = None) -> None:
        vars(self).update(vars(typer.Option(*names, help=help, min=min)))
        self.key = key


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of its dataclass parameters as options of its own.

    The result takes keyword arguments, one per option, and builds the dataclasses from them.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type)}
    groups = {name: hint for name, hint in groups.items() if is_dataclass(hint)}

    @wraps(command)
    def call(**values: object) -> None:
        _apply_settings()
        made = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**made, **values)

    parameters = list(_parameters(command, hints))
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


def overrides(*groups: object) -> dict[str, Json]:
    """Collect the ``Keyed`` options that were given, under their dotted keys."""
    return {
        mark.key: value
        for group in groups
        for name, hint in get_type_hints(type(group), include_extras=True).items()
        for mark in getattr(hint, "__metadata__", ())
        if isinstance(mark, Keyed) and (value := getattr(group, name)) is not None
    }


def _parameters(command: Callable[..., None], hints: dict[str, Any]) -> Iterator[inspect.Parameter]:
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        if not is_dataclass(hint):
            yield _option(parameter.name, hint, parameter.default)
            continue
        field_hints = get_type_hints(hint, include_extras=True)
        for field in fields(hint):
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            yield _option(field.name, field_hints[field.name], default)


def _option(name: str, annotation: object, default: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY  # typer passes keywords; any order of defaults is allowed
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _apply_settings() -> None:
    from bestarm_agent.cli.environment import apply_settings

    apply_settings()
