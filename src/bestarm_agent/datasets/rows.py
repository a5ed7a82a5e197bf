"""Rows of a dataset become examples; whatever is wrong with one is said with its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TypeAlias

from bestarm_agent.domain.digest import Json, canonical
from bestarm_agent.domain.example import Example
from bestarm_agent.errors import ConfigError, nearest

Fields: TypeAlias = Sequence[str] | Mapping[str, str] | None

_AUTOMATIC_ID = "id"
_ID_DIGITS = 6
_EXACT_BELOW = 2.0**53


@dataclass(frozen=True, slots=True)
class Row:
    """One row as it was read.

    Attributes:
        place: where it stands ("line 3").
        values: its fields.
    """

    place: str
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Columns:
    """Which fields of a row mean what.

    Attributes:
        id: field of the id; None takes ``id`` if the first row has it, else numbers the rows.
        target: field of the reference answer, or of a list of them; None if there is none.
        fields: fields that templates may use, or a mapping from the names that they use to the
            fields; None means all but the target.
    """

    id: str | None = None
    target: str | None = None
    fields: Fields = None

    def wanted(self) -> dict[str, str] | None:
        """Template names and their fields; None means all but the target."""
        if self.fields is None or isinstance(self.fields, Mapping):
            return None if self.fields is None else dict(self.fields)
        return {name: name for name in self.fields}

    def selected(self, available: Sequence[str], source: str) -> list[str]:
        """Choose the columns of a table that have to be read.

        Raises:
            ConfigError: the table lacks one that is named.
        """
        wanted = self.wanted()
        if wanted is None:
            return list(available)
        named = {*wanted.values(), self.id, self.target} - {None}
        for name in sorted(map(str, named)):
            if name not in available:
                raise ConfigError(f"{source} has no field `{name}`; {nearest(name, available)}")
        return [name for name in available if name in named or name == _AUTOMATIC_ID]


def to_examples(rows: Iterable[Row], columns: Columns, source: str) -> tuple[Example, ...]:
    """Turn rows into examples.

    Args:
        rows: what was read, in order.
        columns: which field means what.
        source: the dataset, for messages.

    Raises:
        ConfigError: there is no row, a field is missing, an id stands twice, a target is empty, or
            a value is not JSON; names the dataset, the row, and the nearest field.
    """
    maker = _Maker(columns, source)
    examples = tuple(maker.example(number, row) for number, row in enumerate(rows, start=1))
    if not examples:
        raise ConfigError(f"{source} holds no rows; add at least one example")
    maker.check_fields()
    return examples


class _Maker:
    """Makes examples one by one, and remembers what later rows are checked against."""

    def __init__(self, columns: Columns, source: str) -> None:
        self._columns = columns
        self._wanted = columns.wanted()
        self._source = source
        self._id_field = columns.id
        self._places: dict[str, str] = {}
        self._met: set[str] = set()

    def example(self, number: int, row: Row) -> Example:
        """Make one example; ``number`` counts from 1."""
        where = f"{self._source}, {row.place}"
        if number == 1 and self._id_field is None and _AUTOMATIC_ID in row.values:
            self._id_field = _AUTOMATIC_ID
        self._met.update(row.values)
        example = Example(
            id=self._id(number, row, where),
            inputs=self._inputs(row),  # type: ignore[arg-type] # checked next
            reference=self._reference(row, where),
        )
        _check_content(example, where)
        return example

    def check_fields(self) -> None:
        """Check that every field asked for was met in some row."""
        for field in (self._wanted or {}).values():
            if field not in self._met:
                raise ConfigError(
                    f"{self._source}: no row has the field `{field}`; {nearest(field, self._met)}"
                )

    def _id(self, number: int, row: Row, where: str) -> str:
        if self._id_field is None:
            name = f"{number:0{_ID_DIGITS}}"
        else:
            name = _id_text(_value(row, self._id_field, where), f"{where}: `{self._id_field}`")
        if name in self._places:
            raise ConfigError(
                f"{self._source}: the id `{name}` stands on {self._places[name]} and on "
                f"{row.place}; make ids unique, or name another field as the id"
            )
        self._places[name] = row.place
        return name

    def _inputs(self, row: Row) -> dict[str, object]:
        if self._wanted is None:
            target = self._columns.target
            return {field: value for field, value in row.values.items() if field != target}
        return {
            name: row.values[field] for name, field in self._wanted.items() if field in row.values
        }

    def _reference(self, row: Row, where: str) -> str | tuple[str, ...] | None:
        field = self._columns.target
        if field is None:
            return None
        value = _value(row, field, where)
        if isinstance(value, list | tuple) and value:
            return tuple(_target_text(one, f"{where}: `{field}`") for one in value)
        return _target_text(value, f"{where}: `{field}`")


def _value(row: Row, field: str, where: str) -> object:
    if field not in row.values:
        raise ConfigError(f"{where}: there is no field `{field}`; {nearest(field, row.values)}")
    return row.values[field]


def _id_text(value: object, what: str) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a column of integers with gaps
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise ConfigError(f"{what}: an id must be text or an integer, got {value!r:.60}")
    return str(value)


def _target_text(value: object, what: str) -> str:
    """Render a target as text; whole numbers without ``.0``, as models write them."""
    if value is None or value == [] or (isinstance(value, str) and not value.strip()):
        raise ConfigError(f"{what}: the target is empty; fill it in or remove the row")
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and isfinite(value):
        is_whole = value.is_integer() and abs(value) < _EXACT_BELOW
        return str(int(value) if is_whole else value)
    raise ConfigError(
        f"{what}: a target must be text, a number or a list of them, got {value!r:.60}"
    )


def _check_content(example: Example, where: str) -> None:
    """Check that an example can be stored: its digest is computed now rather than later."""
    try:
        _ = example.digest
    except (TypeError, ValueError, RecursionError):
        for field, value in {**example.inputs, "the target": example.reference}.items():
            if problem := _problem(value):
                raise ConfigError(f"{where}: field `{field}` {problem}") from None
        raise


def _problem(value: Json) -> str | None:
    """What keeps a value from being stored, None if nothing does."""
    try:
        canonical(value).encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair (\\ud800 to \\udfff); correct the text"
    except ValueError:
        return "is not a number (NaN or infinite); correct it, or leave it out of `fields`"
    except (TypeError, RecursionError):
        kind = type(value).__name__
        return f"holds {kind}, which is not text, a number or a list; leave it out of `fields`"
    return None
