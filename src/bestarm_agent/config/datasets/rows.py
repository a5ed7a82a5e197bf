"""Turn rows of a dataset into examples; errors name the row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from bestarm_agent.domain.digest import Json, canonical
from bestarm_agent.domain.example import Example
from bestarm_agent.errors import ConfigError, nearest

_AUTOMATIC_ID = "id"
_ID_DIGITS = 6
_EXACT_BELOW = 2.0**53


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file, and its position ("line 3")."""

    place: str
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Columns:
    """The fields of a row that hold id, target and inputs."""

    # unique; None: ``id`` if the first row has it, else rows are numbered: "000001"
    id: str | None = None
    # reference answer or a list of acceptable ones; None: no judge needs one
    target: str | None = None
    fields: tuple[str, ...] | None = None  # for templates; None: all but the target

    def selected(self, available: Sequence[str], source: str) -> list[str]:
        """Return the columns of a table to read; raise ConfigError if it lacks one."""
        if self.fields is None:
            return list(available)
        named = {*self.fields, self.id, self.target} - {None}
        for name in sorted(map(str, named)):
            if name not in available:
                raise ConfigError(f"{source} has no field `{name}`; {nearest(name, available)}")
        return [name for name in available if name in named or name == _AUTOMATIC_ID]


ALL_COLUMNS = Columns()


def to_examples(rows: Iterable[Row], columns: Columns, source: str) -> tuple[Example, ...]:
    """Turn rows into examples, in order; raise ConfigError with the dataset and the row.

    Fields must be there, ids unique, targets not empty, and values JSON.
    """
    maker = _Maker(columns, source)
    examples = tuple(maker.example(number, row) for number, row in enumerate(rows, start=1))
    if not examples:
        raise ConfigError(f"{source} holds no rows; add at least one example")
    maker.check_fields()
    return examples


class _Maker:
    """Makes examples one by one and remembers their ids and fields."""

    def __init__(self, columns: Columns, source: str) -> None:
        self._columns = columns
        self._source = source
        self._id_field = columns.id
        self._places: dict[str, str] = {}
        self._seen: set[str] = set()

    def example(self, number: int, row: Row) -> Example:
        """Make one example; ``number`` counts from 1."""
        where = f"{self._source}, {row.place}"
        if number == 1 and self._id_field is None and _AUTOMATIC_ID in row.values:
            self._id_field = _AUTOMATIC_ID
        self._seen.update(row.values)
        example = Example(
            id=self._id(number, row, where),
            inputs=self._inputs(row),  # type: ignore[arg-type] # checked next
            reference=self._reference(row, where),
        )
        _check_content(example, where)
        return example

    def check_fields(self) -> None:
        for field in self._columns.fields or ():
            if field not in self._seen:
                raise ConfigError(
                    f"{self._source}: no row has the field `{field}`; {nearest(field, self._seen)}"
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
        fields = self._columns.fields
        if fields is None:
            target = self._columns.target
            return {field: value for field, value in row.values.items() if field != target}
        return {field: row.values[field] for field in fields if field in row.values}

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
    """Return a target as text; whole numbers without ``.0``, as models write them."""
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
    try:
        _ = example.digest
    except (TypeError, ValueError, RecursionError):
        for field, value in {**example.inputs, "the target": example.reference}.items():
            if problem := _problem(value):
                raise ConfigError(f"{where}: field `{field}` {problem}") from None
        raise


def _problem(value: Json) -> str | None:
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
