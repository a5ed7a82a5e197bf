"""Find JSON objects in a judge's reply, complete or in need of repair."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from json import JSONDecoder

import json_repair

_MAX_BRACES = 500
_AROUND = " \t\r\n*_`\"'.“”‘’«»"
_TYPOGRAPHY = str.maketrans("“”«»‘’：", '""""\'\':')
_SCORE_KEYS = ("score", "verdict", "grade", "rating", "value")
_NAME_KEYS = ("criterion", "name")


class UnreadableError(ValueError):
    """A judge's reply holds no verdict beyond doubt; the message says why."""


class _Ambiguous:
    """The value of a key that an object holds with two different values."""


def whole_value(text: str) -> object:
    """Return the value of a text that is JSON, also within a JSON string; else None."""
    value = _parsed(text.strip())
    return _parsed(value) if isinstance(value, str) else value


def complete_objects(text: str) -> list[tuple[object, int, int]]:
    """Return all complete JSON objects in a text, with their beginnings and ends."""
    decoder = JSONDecoder(strict=False, object_pairs_hook=_object)
    found = []
    at = 0
    for _ in range(_MAX_BRACES):
        at = text.find("{", at)
        if at < 0:
            break
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        found.append((value, at, end))
        at = end
    return found


def verdict_in(value: object, keys: Sequence[str]) -> dict[str, object] | None:
    """Return the verdict that a value is or holds one level down; None if there is none.

    A value may be an object with a score: ``{"clarity": {"score": 4}}``. A list of objects with
    names is a verdict too: ``[{"criterion": "clarity", "score": 4}]``. Raises UnreadableError if
    there are several verdicts, or two values of one key.
    """
    if isinstance(value, dict) and all(key in value for key in keys):
        return _unambiguous(value, keys)
    inner = [*value.values()] if isinstance(value, dict) else value
    if not isinstance(inner, list):
        return None
    objects = [_by_name(one) for one in (inner, *inner)]
    verdicts = [one for one in objects if isinstance(one, dict) and all(key in one for key in keys)]
    if len(verdicts) > 1:
        raise UnreadableError(f"the judge gave {len(verdicts)} verdicts in one")
    return _unambiguous(verdicts[0], keys) if verdicts else None


def repaired(text: str, keys: Sequence[str]) -> dict[str, object]:
    """Repair a text that is almost an object; every value must stand in the text as read.

    Raises UnreadableError if it cannot be repaired, or a value is incomplete or in doubt.
    """
    try:
        value = json_repair.loads(text.translate(_TYPOGRAPHY), skip_json_loads=True)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"the judge's reply cannot be repaired: {error}") from None
    verdict = verdict_in(_lowered(value[-1] if isinstance(value, list) and value else value), keys)
    if verdict is None:
        raise UnreadableError("the judge's reply holds no verdict, not even after repair")
    for key in keys:
        _check_written(key, verdict[key], text)
    return verdict


def key_pattern(key: str) -> re.Pattern[str]:
    """Return a pattern for a key with its value, and for what follows a complete value."""
    return re.compile(
        rf"""(?<![\w-])["'“”‘’«»]?{re.escape(key)}["'“”‘’«»]?\s*[:=：]\s*
        (?P<value>"[^"\n]{{0,99}}"|'[^'\n]{{0,99}}'|“[^”\n]{{0,99}}”|‘[^’\n]{{0,99}}’|«[^»\n]{{0,99}}»|[^\s,}}\]"']+)
        (?P<after>\s*[,}}\]]|[ \t]*\n|)""",
        re.IGNORECASE | re.VERBOSE,
    )


def plain(value: object) -> str:
    """Return a scalar as text, without quotes and emphasis."""
    return str(value).strip(_AROUND).lower()


def blanked(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Replace spans of a text by blanks."""
    for start, end in spans:
        text = text[:start] + " " * (end - start) + text[end:]
    return text


def _parsed(text: str) -> object:
    try:
        return JSONDecoder(strict=False, object_pairs_hook=_object).decode(text)
    except (ValueError, RecursionError):
        return None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made: dict[str, object] = {}
    for key, value in pairs:
        key = key.strip().lower()
        made[key] = _Ambiguous() if key in made and made[key] != value else value
    return made


def _by_name(value: object) -> object:
    if not isinstance(value, list):
        return value
    named = {}
    for one in value:
        named_by = [one[key] for key in _NAME_KEYS if key in one] if isinstance(one, dict) else []
        name = named_by[0] if named_by else None
        if not isinstance(name, str) or name.lower() in named:
            return None
        named[name.strip().lower()] = one
    return named


def _unambiguous(verdict: Mapping[str, object], keys: Sequence[str]) -> dict[str, object]:
    values = {key: _score_of(verdict[key]) for key in keys}
    for key, value in values.items():
        if isinstance(value, _Ambiguous):
            raise UnreadableError(f"the judge gave two values of {key!r} in one verdict")
    return {**verdict, **values}


def _score_of(value: object) -> object:
    if not isinstance(value, dict):
        return value
    scores = [value[key] for key in _SCORE_KEYS if key in value]
    return scores[0] if len(scores) == 1 else value


def _check_written(key: str, value: object, text: str) -> None:
    written = list(key_pattern(key).finditer(text))
    if len({plain(one["value"]) for one in written}) != 1:
        raise UnreadableError(f"the judge's reply leaves open what {key!r} is")
    is_quoted = written[-1]["value"][-1] in "\"'”’»"
    if not is_quoted and not written[-1]["after"]:
        raise UnreadableError("the judge's reply was cut off within its verdict")
    if plain(value) != plain(written[-1]["value"]):
        raise UnreadableError(f"repair of the judge's reply changed {key!r}")


def _lowered(value: object) -> object:
    if isinstance(value, dict):
        return _object([(str(key), inner) for key, inner in value.items()])
    return value
