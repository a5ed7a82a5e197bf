"""Slices: examples that have the same value in a field of the dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.example import Example, Slice
from bestarm_agent.errors import ConfigError, nearest

LENGTH = "length_bucket"
_BUCKETS = ("1 shortest", "2", "3", "4 longest")
_MISSING = "(none)"
_MOST = 50  # values of a field


def slices_of(examples: Sequence[Example], by: Sequence[str]) -> tuple[Slice, ...]:
    """Return a slice for each value of each field, in the order of fields and values.

    Slices of one field share no example, and those of two fields may. A field with one value is
    no slice of the examples and is left out.

    Raises:
        ConfigError: no example has the field, or its values are too many, or lists or mappings.
    """
    found: list[Slice] = []
    for field in dict.fromkeys(by):
        columns: dict[str, list[int]] = {}
        for column, value in enumerate(_values(examples, field)):
            columns.setdefault(value, []).append(column)
        if len(columns) > _MOST:
            raise ConfigError(
                f"slices.by: `{field}` has {len(columns):,} different values, at most {_MOST} make "
                f"slices; name a field that groups the examples"
            )
        if len(columns) > 1:
            found += [Slice(f"{field}={name}", tuple(columns[name])) for name in sorted(columns)]
    return tuple(found)


def _values(examples: Sequence[Example], field: str) -> Iterator[str]:
    known = {name: None for example in examples for name in example.inputs}
    if field not in known and field == LENGTH:
        return _length_buckets(examples)
    if field not in known:
        raise ConfigError(
            f"slices.by: no example has the field `{field}`; {nearest(field, [*known, LENGTH])}"
        )
    return (_text(example.inputs.get(field), field) for example in examples)


def _text(value: Json, field: str) -> str:
    if value is None or value == "":
        return _MISSING
    if isinstance(value, list | tuple | dict):
        raise ConfigError(f"slices.by: `{field}` holds lists or mappings; name a field of values")
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # 1.0 in one row and 1 in another are the same
    return str(value).lower() if isinstance(value, bool) else str(value)


def _length_buckets(examples: Sequence[Example]) -> Iterator[str]:
    """Yield the quarter to which each example belongs by the length of its inputs as text."""
    lengths = np.array([sum(len(str(value)) for value in one.inputs.values()) for one in examples])
    edges = np.quantile(lengths, (0.25, 0.5, 0.75))
    return (_BUCKETS[k] for k in np.searchsorted(edges, lengths).tolist())
