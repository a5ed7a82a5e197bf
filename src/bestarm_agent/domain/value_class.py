"""Small values that are made by the thousand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value_class(cls: type[_T]) -> type[_T]:
    """Make a dataclass with slots and a hash, whose fields type checkers let nobody set.

    At run time nothing keeps one from it: a frozen dataclass takes three times as long to make, and
    each call makes some forty of these values, and a standing one for each candidate.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
