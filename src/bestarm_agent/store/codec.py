"""Events and replies as JSON text, and back.

A line of a log is an event's tag, which is its class's name, and the fields of its dataclass as
JSON, but for those that hold their default. Names of classes and fields, and defaults, are the
store's format: whoever changes one raises the version of its layout.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any, TypeAlias, TypeVar, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from bestarm_agent.domain import events
from bestarm_agent.domain.events import Event
from bestarm_agent.domain.redaction import redacted
from bestarm_agent.domain.values import Reply, Score, clean_text
from bestarm_agent.errors import StoreError, StoreVersionError

_T = TypeVar("_T")
Line: TypeAlias = tuple[str, str]  # an event: its tag and its JSON

# "candidates-added" for ``CandidatesAdded``
_CLASSES: dict[str, type[Event]] = {
    re.sub("(?<!^)(?=[A-Z])", "-", cls.__name__).lower(): cls for cls in get_args(Event)
}
_TAGS = {cls: tag for tag, cls in _CLASSES.items()}
OF_PAIRS = ("asked", "attempted", "settled", "told")
"""Tags of the events of pairs, which are nearly all."""

# NaN and infinities are no JSON; where a reader would stop at one, the writer must not begin.
_to_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_NO_NUMBERS = ("NaN", "Infinity")  # as pydantic writes them, and as texts may hold them, too


def line_of(event: Event) -> Line:
    """Write an event, secrets redacted; raise ValueError if it holds NaN or an infinity.

    Example:
        >>> line_of(events.Resumed(at="2026-11-21T09:30:15Z", version="0.1.0"))
        ('resumed', '{"at":"2026-11-21T09:30:15Z","version":"0.1.0"}')
    """
    tag = _TAGS[type(event)]
    return tag, _dump(event, tag, f"event {tag!r}")


def event_of(line: Line) -> Event:
    """Read an event; raise StoreError if it is damaged, StoreVersionError for an unknown tag."""
    tag, text = line
    if tag not in _CLASSES:
        raise StoreVersionError(
            f"the store holds an event {tag!r}, which this version of bestarm-agent does not know; "
            f"a newer version wrote it: pip install --upgrade bestarm-agent"
        )
    event: Event = _load(text, tag, "event")
    return event


def events_in(lines: Iterable[Line], first: int = 0) -> list[Event]:
    """Read events, of which the first has this number; raises as ``event_of``, with the number."""
    events: list[Event] = []
    for line in lines:
        try:
            events.append(event_of(line))
        except StoreError as error:
            raise type(error)(f"event {first + len(events)} of the log: {error}") from error
    return events


def dump_reply(reply: Reply) -> str:
    """Write a reply; raise ValueError if it holds NaN or an infinity."""
    return _dump(reply, "reply", "reply")


def load_reply(text: str) -> Reply:
    """Read a reply back; raise StoreError if it is damaged."""
    reply: Reply = _load(text, "reply", "reply")
    return reply


def as_stored(value: object, cls: type[_T]) -> tuple[_T, str]:
    """Return a reply or a score that a plug-in made as the store will give it back, and as text.

    So whatever passes can be written, read, and computed with.

    Raises:
        ValueError: it is none, or a field is not what it has to be.
    """
    if not isinstance(value, cls):
        raise ValueError(f"a {cls.__name__} was due, got {value!r:.60}")
    tag = cls.__name__.lower()
    # Written and read again rather than checked field by field: there is no second list of rules
    # that could differ from what reading a log demands.
    text = _dump(value, tag, tag)
    stored: _T = _validated(text, tag)
    return stored, text


@cache
def _adapter(tag: str) -> TypeAdapter[Any]:
    cls: Any = _CLASSES.get(tag) or {"reply": Reply, "score": Score}[tag]
    # optional: pydantic leaves fields of a dataclass to the dataclass, but not those of a union
    config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")
    return TypeAdapter(cls | None, config=config)


def _dump(value: object, tag: str, what: str) -> str:
    # Events of pairs are nearly all, hold no secrets, and are written in half the time without the
    # step below. What may be no JSON, and a lone surrogate, is left to that step.
    if tag in OF_PAIRS:
        with suppress(PydanticSerializationError):
            text: str = (
                _adapter(tag).dump_json(value, exclude_defaults=True, warnings=False).decode()
            )
            if not any(word in text for word in _NO_NUMBERS):
                return text
    try:
        # no warnings of mappings other than dict
        record = _adapter(tag).dump_python(value, exclude_defaults=True, warnings=False)
        # These hold what people configured, keys among it. It is redacted here, where everything
        # passes on its way into the store, so that no caller can forget it.
        match value:
            case events.Started():
                record["config"] = redacted(record["config"])
            case events.CandidatesAdded():
                for candidate in record["candidates"]:
                    candidate["params"] = redacted(candidate.get("params", {}))
            case Reply() if value.sent:
                record["sent"] = redacted(record["sent"])
        return clean_text(_to_text(record))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} cannot be stored as JSON: {error}") from error


def _load(text: str, tag: str, what: str) -> Any:  # noqa: ANN401 - an event or a reply
    try:
        return _validated(text, tag)
    except ValueError as error:
        raise StoreError(
            f"a stored {what} is damaged, or a newer version wrote it ({error}): {text[:80]!r}; "
            f"restore the store from a copy, go on with a new one, or pip install --upgrade "
            f"bestarm-agent"
        ) from error


def _validated(text: str, tag: str) -> Any:  # noqa: ANN401 - an event, a reply or a score
    """Read what ``_dump`` wrote; raise ValueError with the field that is wrong."""
    try:
        value = _adapter(tag).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
        raise ValueError(problem) from error
    if value is None:
        raise ValueError("null")
    return value
