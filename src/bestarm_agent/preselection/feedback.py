"""Feedback on one prompt: the candidates that answered it, and which was best."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite, isnan, nan
from typing import Any

from bestarm_agent.errors import ConfigError, nearest

_KEYS = ("prompt", "features", "shown", "candidates", "winner", "ranking", "scores", "usd")
_VERDICTS = ("winner", "ranking", "scores")
_LONGEST = 60  # characters of a value that a message quotes


@dataclass(frozen=True, slots=True)
class Record:
    """One prompt and its verdict: a winner, a ranking or scores.

    Attributes:
        ranking: the best of ``shown``, best first; a winner is a ranking of one. Empty with scores,
            or where nobody won.
        features: numbers that describe the prompt, if it is not described by its text; NaN where
            one is missing.
    """

    prompt: str
    shown: tuple[str, ...]  # names of the candidates that were run
    ranking: tuple[str, ...] = ()
    # in [0, 1], by name; empty where only a ranking is known
    scores: Mapping[str, float] = field(default_factory=dict)
    # dollars of each call; empty: the candidates' prices
    usd: Mapping[str, float] = field(default_factory=dict)
    features: tuple[float, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the record as a JSON object that ``parse_record`` reads."""
        row: dict[str, Any] = {"prompt": self.prompt, "shown": list(self.shown)}
        if self.scores:
            return {**row, "scores": dict(self.scores), **self._rest()}
        return {**row, "ranking": list(self.ranking), **self._rest()}

    def _rest(self) -> dict[str, Any]:
        features = [None if isnan(value) else value for value in self.features]
        return {"usd": dict(self.usd), "features": features}


def parse_line(line: str, where: str) -> Record:
    """Read a record from a line of JSON; the message of a ConfigError begins with ``where``."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where}: not a line of JSON ({error})") from None
    return parse_record(row, where)


def parse_prompt(line: str, where: str) -> dict[str, Any]:
    """Read a prompt to be routed: ``prompt``, with optional ``k``, ``features``, ``candidates``."""
    known = ("prompt", "k", "features", "candidates")
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where}: not a line of JSON ({error})") from None
    if not isinstance(row, dict) or not isinstance(row.get("prompt"), str):
        raise ConfigError(f"{where}: an object with a text `prompt` is needed, got {line.strip()}")
    for key in row:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}; {nearest(key, known)}")
    if not isinstance(row.get("k", 1), int):
        raise ConfigError(f"{where}: `k` must be a whole number, got {row['k']!r}")
    row["features"] = _features(row, where)
    row["candidates"] = _names(row.get("candidates"), "candidates", where) or None
    return row


def check_scores(record: Record, where: str) -> None:
    """Raise ConfigError if a score is outside [0, 1]."""
    for name, score in record.scores.items():
        if not 0 <= score <= 1:
            raise ConfigError(
                f"{where}: scores must be in [0, 1], higher is better, got {score:g} for {name!r}; "
                f"rescale them"
            )


def parse_record(row: object, where: str) -> Record:
    """Read a record from a JSON object: ``prompt``, ``shown`` and one verdict.

    The verdict is ``winner`` (a name; null if nobody won), ``ranking`` (names, best first) or
    ``scores`` (an object by name, or a list in the order of ``shown``). Raise ConfigError if a key
    is missing, unknown or of the wrong kind.

    Example:
        >>> parse_record({"prompt": "2+2", "shown": ["a", "b"], "winner": "b"}, "line 1").ranking
        ('b',)
    """
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: a record is a JSON object, got {row!r}")
    for key in row:
        if key not in _KEYS:
            raise ConfigError(f"{where}: unknown key {key!r}; {nearest(key, _KEYS)}")
    given = [key for key in _VERDICTS if key in row]
    if len(given) != 1:
        raise ConfigError(
            f"{where}: give exactly one of `winner`, `ranking` and `scores`, "
            f"got {', '.join(given) or 'none'}"
        )
    prompt = row.get("prompt", "")
    if not isinstance(prompt, str):
        raise ConfigError(f"{where}: `prompt` must be text, got {prompt!r}")
    shown = _names(row.get("shown", row.get("candidates")), "shown", where)
    scores = _scores(row["scores"], shown, where) if "scores" in row else {}
    record = Record(
        prompt=prompt,
        shown=shown or tuple(scores),
        ranking=_ranking(row, where),
        scores=scores,
        usd=_numbers(row.get("usd") or {}, "usd", where),
        features=tuple(_features(row, where)),
    )
    _check_names(record, where)
    return record


def _ranking(row: Mapping[str, Any], where: str) -> tuple[str, ...]:
    if "ranking" in row:
        return _names(row["ranking"], "ranking", where)
    winner = row.get("winner")
    if winner is None:
        return ()
    return _names([winner], "winner", where)


def _names(value: object, key: str, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"{where}: `{key}` must be names, got {value!r}")
    if len(set(value)) != len(value):
        raise ConfigError(f"{where}: `{key}` names a candidate twice: {', '.join(value)}")
    return tuple(value)


def _scores(value: object, shown: tuple[str, ...], where: str) -> dict[str, float]:
    if not isinstance(value, list):
        return _numbers(value, "scores", where)
    if len(value) != len(shown):
        raise ConfigError(f"{where}: {len(shown)} candidates shown need as many scores")
    return dict(zip(shown, _list(value, "scores", where), strict=True))


def _numbers(value: object, key: str, where: str) -> dict[str, float]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: `{key}` must be an object of numbers by name, got {value!r}")
    return dict(zip(value, _list(list(value.values()), key, where), strict=True))


def _features(row: Mapping[str, Any], where: str) -> list[float]:
    """Read features; null and NaN stand for a missing one."""
    value = row.get("features") or []
    if isinstance(value, list):
        value = [nan if item is None else item for item in value]
    return _list(value, "features", where, missing=True)


def _list(value: object, key: str, where: str, *, missing: bool = False) -> list[float]:
    if not isinstance(value, list):
        raise ConfigError(f"{where}: `{key}` must be a list of numbers, got {_short(value)}")
    for place, item in enumerate(value, start=1):
        if not _is_number(item) and not (missing and item != item):  # NaN differs from itself
            hint = "; write null for one that is missing" if missing else ""
            raise ConfigError(
                f"{where}: `{key}` must hold finite numbers, got {_short(item)} as number "
                f"{place}{hint}"
            )
    return [float(item) for item in value]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _is_number(item: object) -> bool:
    return isinstance(item, int | float) and isfinite(item)


def _check_names(record: Record, where: str) -> None:
    if not record.shown:
        raise ConfigError(f"{where}: `shown` must name the candidates that were run")
    for name in record.ranking:
        if name not in record.shown:
            raise ConfigError(f"{where}: {name!r} won, but is not among `shown`")
    if record.scores and set(record.scores) != set(record.shown):
        raise ConfigError(f"{where}: `scores` and `shown` name different candidates")
    check_scores(record, where)
