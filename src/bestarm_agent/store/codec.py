"""Events and replies as JSON text, and back.

Every dataclass becomes an object with its fields under their own names, but for those that hold
their default or what follows from other fields (``_IMPLIED``). A member of a union of dataclasses
carries its tag under "type"; an outcome without one is ``Scored``. Tags, field names and defaults
are the store's format. An unknown tag or field means that a newer version wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import PurePosixPath, PureWindowsPath
from types import SimpleNamespace, UnionType
from typing import Any, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from bestarm_agent.domain import events
from bestarm_agent.domain.events import Event
from bestarm_agent.domain.outcome import Failed, Scored
from bestarm_agent.domain.redaction import redacted
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.domain.rows import Rows
from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.errors import StoreError, StoreVersionError

_Value: TypeAlias = Any  # a dataclass or scalar on one side, what JSON has for it on the other
_Hint: TypeAlias = object  # a type hint
_Convert: TypeAlias = Callable[[_Value], _Value]
_T = TypeVar("_T")
_Coder: TypeAlias = tuple[_Convert | None, _Convert | None]  # None: JSON as it is

_TAGS: dict[str, type] = {
    "started": events.Started,
    "candidates-added": events.CandidatesAdded,
    "candidates-barred": events.CandidatesBarred,
    "examples-added": events.ExamplesAdded,
    "asked": events.Asked,
    "attempted": events.Attempted,
    "charged": events.Charged,
    "told": events.Told,
    "proposer-called": events.ProposerCalled,
    "proposed": events.Proposed,
    "budget-set": events.BudgetSet,
    "stopped": events.Stopped,
    "resumed": events.Resumed,
    "scored": Scored,
    "failed": Failed,
}
_TAG_OF = {cls: tag for tag, cls in _TAGS.items()}
OF_PAIRS = ("asked", "attempted", "charged", "told")
"""Tags of the events of pairs, which are nearly all."""
_UNTAGGED = "scored"  # by far the most frequent outcome


def _one_call(scored: Any) -> Spend:  # noqa: ANN401 - a Scored, or what its constructor is given
    """Return what a pair costs that took one call, which nothing else was paid for."""
    return Spend(pulls=1, calls=1, tokens=scored.usage.total, usd_nanos=scored.usd_nanos or 0)


# fields that are left out where they hold what follows from the others
_IMPLIED: dict[type, dict[str, Callable[[Any], object]]] = {
    events.Told: {"score": lambda told: getattr(told.outcome, "value", None)},
    Scored: {
        "answer": lambda _: None,
        "usage": lambda _: Usage(),
        "seconds": lambda _: 0.0,
        "spend": _one_call,
    },
}
# names of fields in logs of earlier versions, by tag
_FORMER = {"stopped": {"books": "reservations"}}
_SCALARS = {str, int, float, bool, type(None)}

_to_text = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def kind_of(event: Event) -> str:
    """Return the tag of an event ("asked", "told", ...)."""
    return _TAG_OF[type(event)]


def dump_event(event: Event) -> str:
    """Render an event as JSON text, secrets redacted; raise ValueError for NaN or an absolute base.

    Example:
        >>> dump_event(events.Resumed(at="2026-11-21T09:30:15Z", version="0.1.0"))
        '{"type":"resumed","at":"2026-11-21T09:30:15Z","version":"0.1.0"}'
    """
    if isinstance(event, events.Started):
        _check_base(event.base)
    return _dump(event, _coder(Event), f"event {kind_of(event)!r}")


def load_event(text: str) -> Event:
    """Read an event; raise StoreError if it is damaged, StoreVersionError if it is newer."""
    event: Event = _load(text, _coder(Event), "event")
    return event


def dump_reply(reply: Reply) -> str:
    """Render a reply as JSON text; raises ValueError if it holds NaN or an infinity."""
    return _dump(reply, _coder(Reply), "reply")


def load_reply(text: str) -> Reply:
    """Read a reply back; raises as ``load_event`` does."""
    reply: Reply = _load(text, _coder(Reply), "reply")
    return reply


def dump_value(value: object, cls: type) -> str:
    """Render a dataclass of other modules as JSON text, secrets redacted; infinity is allowed."""
    encode, _ = _coder(cls)
    assert encode is not None
    return json.dumps(encode(value), separators=(",", ":"))


def load_value(text: str, cls: type[_T]) -> _T:
    """Read such a dataclass; raises as ``load_event`` does."""
    hint: _Hint = cls
    value: _T = _load(text, _coder(hint), cls.__name__)
    return value


def _dump(value: object, coder: _Coder, what: str) -> str:
    encode, _ = coder
    try:
        return _to_text(encode(value) if encode else value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} cannot be stored as JSON: {error}") from error


def _load(text: str, coder: _Coder, what: str) -> _Value:
    _, decode = coder
    try:
        value = json.loads(text)
        return decode(value) if decode else value
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise StoreError(
            f"a stored {what} is damaged ({error}): {text[:80]!r}; "
            f"restore the store from a copy or go on with a new one"
        ) from error


def _check_base(base: str) -> None:
    if PurePosixPath(base).is_absolute() or PureWindowsPath(base).is_absolute():
        raise ValueError(f"`base` must be relative to the store's directory, got {base!r}")


@cache
def _coder(hint: _Hint) -> _Coder:
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if _SCALARS.issuperset(members):
        return None, None
    if len(members) == 2 and members[1] is type(None):
        return _optional_coder(members[0])
    if any(_is_mapping(member) for member in members):  # Json, or a mapping to it
        return (lambda value: redacted(value) if value else value), None
    if get_origin(hint) is tuple:
        return _tuple_coder(*get_args(hint)[:1])
    if hint is Rows:
        return _dump_rows, _load_rows
    if all(member in _TAG_OF for member in members):
        return _tagged_coder(members)
    if isinstance(hint, type):
        return _class_coder(hint)
    raise TypeError(f"the store has no form for {hint}")


def _class_coder(cls: type[_Value]) -> _Coder:
    if issubclass(cls, Enum):
        return None, cls
    if hasattr(cls, "model_validate"):  # a section of the configuration
        return (lambda value: value.model_dump(mode="json")), cls.model_validate
    if issubclass(cls, tuple):  # with names, of scalars
        return None, lambda values: cls(*values)
    if is_dataclass(cls):
        return _object_coder(cls)
    raise TypeError(f"the store has no form for {cls}")


def _is_mapping(hint: _Hint) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _optional_coder(hint: _Hint) -> _Coder:
    encode, decode = _coder(hint)
    return (
        None if encode is None else lambda value: None if value is None else encode(value),
        None if decode is None else lambda value: None if value is None else decode(value),
    )


def _tuple_coder(item: _Hint) -> _Coder:
    encode, decode = _coder(item)
    return (
        (lambda values: [encode(value) for value in values]) if encode else None,
        (lambda values: tuple(map(decode, values))) if decode else tuple,
    )


def _dump_rows(rows: Rows) -> list[int | list[int]]:
    return [first if first == last else [first, last] for first, last in rows.ranges]


def _load_rows(items: list[int | list[int]]) -> Rows:
    """Read rows and [first, last] ranges of them; older logs hold rows only."""
    if any(isinstance(item, list) for item in items):
        return Rows(tuple((i[0], i[1]) if isinstance(i, list) else (i, i) for i in items))
    return Rows.of(cast("list[int]", items))


def _tagged_coder(members: tuple[type, ...]) -> _Coder:
    by_class = {cls: (_tag(cls), _object_coder(cls)[0]) for cls in members}
    by_tag = {_TAG_OF[cls]: _object_coder(cls)[1] for cls in members}
    untagged = [_UNTAGGED] if _UNTAGGED in by_tag else []

    def encode(value: _Value) -> dict[str, Any]:
        tag, write = by_class[type(value)]
        return {**tag, **write(value)}

    def decode(value: dict[str, Any]) -> _Value:
        tag = value.pop("type", *untagged)
        if tag not in by_tag:
            raise _newer(f"a record of type {tag!r}")
        for former, name in _FORMER.get(tag, {}).items():
            if former in value:
                value[name] = value.pop(former)
        return by_tag[tag](value)

    return encode, decode


def _tag(cls: type) -> dict[str, str]:
    return {} if _TAG_OF[cls] == _UNTAGGED else {"type": _TAG_OF[cls]}


@cache
def _object_coder(cls: type[_Value]) -> tuple[_Convert, _Convert]:
    hints = get_type_hints(cls)
    coders = {field.name: _coder(hints[field.name]) for field in fields(cls)}
    known = frozenset(coders)
    implied = _IMPLIED.get(cls, {})
    writers = [
        (field.name, _default(field), implied.get(field.name), coders[field.name][0])
        for field in fields(cls)
    ]
    readers = [(name, decode) for name, (_, decode) in coders.items() if decode]
    optional = {name: default for name, default, *_ in writers if implied}

    def encode(value: _Value) -> dict[str, Any]:
        record = {}
        for name, default, follows, write in writers:
            item = getattr(value, name)
            if item != (follows(value) if follows else default):
                record[name] = write(item) if write else item
        return record

    def decode(record: dict[str, Any]) -> _Value:
        if not known.issuperset(record):
            raise _newer(f"{cls.__name__} with {sorted(record.keys() - known)}")
        for name, read in readers:
            if name in record:
                record[name] = read(record[name])
        for name, value_of in implied.items():
            if name not in record:
                record[name] = value_of(SimpleNamespace(**{**optional, **record}))
        return cls(**record)

    return encode, decode


def _default(field: Field[Any]) -> object:
    """Return a field's default, which a log leaves out; nothing equals that of a required one."""
    if field.default_factory is not MISSING:
        return field.default_factory()
    return object() if field.default is MISSING else field.default


def _newer(found: str) -> StoreVersionError:
    return StoreVersionError(
        f"the store holds {found}, which this version of bestarm-agent does not know; "
        f"a newer version wrote it: pip install --upgrade bestarm-agent"
    )
