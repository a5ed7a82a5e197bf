"""Reads a judge's verdict out of what it wrote: strictly where possible, else by careful repair.

A verdict is a JSON object with known keys. It is looked for in this order: the whole reply as JSON;
the last object in it, in a code fence or not; that object after repair (``json-repair``); the bare
value. Whatever leaves a doubt about what the judge meant is unreadable: the judge is asked again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from json import JSONDecoder
from typing import TypeAlias

import json_repair

from bestarm_agent.domain.exchange import Finish, Reply

Verdict: TypeAlias = Mapping[str, object]

_MOST_CHARS = 200_000
_MOST_BRACES = 500
_MOST_REPAIRED = 20_000
_THINKS = re.compile(r"\s*<(think|thinking|reasoning)>", re.IGNORECASE)
_THOUGHT = re.compile(r"</(think|thinking|reasoning)>", re.IGNORECASE)
_AROUND = " \t\r\n*_`\"'.“”"


class UnreadableError(ValueError):
    """A judge's reply holds no verdict beyond doubt; the message says why."""


def read_verdict(reply: Reply, keys: Sequence[str], evidence: str = "") -> Verdict:
    """Return the values of ``keys`` in a judge's reply, as JSON has them; other keys are kept.

    Args:
        reply: what the judge wrote.
        keys: what the verdict must hold, in lower case.
        evidence: the answer being judged. An object within the judge's prose that stands in there
            too is a quotation and no verdict.

    Raises:
        UnreadableError: it holds no verdict, or leaves a doubt which.

    Example:
        >>> read_verdict(Reply('Well, {"Score": 7} it is.'), ["score"])
        {'score': 7}
    """
    if reply.finish in (Finish.REFUSAL, Finish.CONTENT_FILTER):
        raise UnreadableError("the judge refused to answer")
    text = _without_thoughts(reply.text)
    if not text.strip():
        raise UnreadableError("the judge's reply is empty")
    if len(text) > _MOST_CHARS:
        raise UnreadableError(f"the judge's reply is longer than {_MOST_CHARS:,} characters")
    found, end = _last_verdict(text, keys, evidence)
    tail = text[end:]
    if not _mentions(tail, keys):
        if found is not None:
            return found
        return _bare(text, keys)
    if reply.finish is Finish.LENGTH:
        raise UnreadableError("the judge's reply was cut off")
    if _quotes(evidence, tail[tail.index("{") : tail.rfind("}") + 1]):
        raise UnreadableError("the judge's reply only quotes the answer")
    return _repaired(tail, keys)


def _without_thoughts(text: str) -> str:
    """Drop what a model thought aloud before its answer; the opening tag may be in the prompt."""
    text = text.lstrip("\ufeff")
    if text.lstrip().startswith("{"):
        return text  # an answer at once; tags in it are somebody's words
    ends = [found.end() for found in _THOUGHT.finditer(text)]
    if ends:
        return text[ends[-1] :]
    if _THINKS.match(text):
        raise UnreadableError("the judge's reply was cut off while it was thinking")
    return text


def _last_verdict(text: str, keys: Sequence[str], evidence: str) -> tuple[Verdict | None, int]:
    """The last object that holds all keys, and where the reply goes on after it."""
    found, end = None, 0
    for value, start, after in _values(text):
        verdict = _verdict_in(value, keys)
        if verdict is not None:
            is_whole = not text[:start].strip() and not text[after:].strip()
            end = after
            if is_whole or not _quotes(evidence, text[start:after]):
                found = verdict
    return found, end


def _values(text: str) -> Iterator[tuple[object, int, int]]:
    """All complete JSON objects with where they begin and end, or the whole text as one value."""
    decoder = JSONDecoder(strict=False, object_pairs_hook=_object)
    whole = text.strip()
    try:
        value = decoder.decode(whole)
    except (ValueError, RecursionError):
        pass  # not JSON as a whole: the objects within it are looked at one by one
    else:
        yield (_inner(value) if isinstance(value, str) else value), 0, len(text)
        return
    at = 0
    for _ in range(_MOST_BRACES):
        at = text.find("{", at)
        if at < 0:
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        yield value, at, end
        at = end


def _inner(text: str) -> object:
    """What a JSON text within a JSON string says; the text itself if it is none."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        return text


def _quotes(evidence: str, part: str) -> bool:
    """Whether a part of the judge's reply stands in the answer being judged, white space apart."""
    part = "".join(part.split())
    return bool(part) and part in "".join(evidence.split())


class _Twice:
    """Stands for a key that an object holds with two different values."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Build an object with its keys in lower case."""
    made: dict[str, object] = {}
    for key, value in pairs:
        key = key.strip().lower()
        made[key] = _Twice() if key in made and made[key] != value else value
    return made


def _verdict_in(value: object, keys: Sequence[str]) -> Verdict | None:
    """The verdict that a value is, or that it holds one level down."""
    if isinstance(value, dict) and all(key in value for key in keys):
        return _unambiguous(value, keys)
    if isinstance(value, dict):
        inner = list(value.values())
    elif isinstance(value, list):
        inner = value
    else:
        return None
    verdicts = [one for one in inner if isinstance(one, dict) and all(key in one for key in keys)]
    if len(verdicts) > 1:
        raise UnreadableError(f"the judge gave {len(verdicts)} verdicts in one")
    return _unambiguous(verdicts[0], keys) if verdicts else None


def _unambiguous(verdict: Verdict, keys: Sequence[str]) -> Verdict:
    for key in keys:
        if isinstance(verdict[key], _Twice):
            raise UnreadableError(f"the judge gave two values of {key!r} in one verdict")
    return verdict


def _key_pattern(key: str) -> re.Pattern[str]:
    """Finds a key with its value, and that the value is complete: something must come after it."""
    return re.compile(
        rf"""(?<![\w-])["'“”]?{re.escape(key)}["'“”]?\s*[:=]\s*
        (?P<value>"[^"\n]*"|'[^'\n]*'|“[^”\n]*”|[^\s,}}\]"']+)
        (?P<after>\s*[,}}\]]|[ \t]*\n|)""",
        re.IGNORECASE | re.VERBOSE,
    )


def _mentions(text: str, keys: Sequence[str]) -> bool:
    """Whether a text begins an object with one of the keys, in whatever state."""
    begun = (
        re.search(rf"""\{{[^{{}}]*?["'“”]?\b{re.escape(key)}["'“”]?\s*[:=]""", text, re.IGNORECASE)
        for key in keys
    )
    return any(begun)


def _repaired(text: str, keys: Sequence[str]) -> Verdict:
    """Repair what is almost an object, and check that every value stands in the text as read."""
    broken = text[text.index("{") :]
    if len(broken) > _MOST_REPAIRED:
        raise UnreadableError("the judge's reply is too long to be repaired")
    try:
        repaired = json_repair.loads(broken, skip_json_loads=True)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"the judge's reply cannot be repaired: {error}") from None
    value = _lowered(repaired[-1] if isinstance(repaired, list) and repaired else repaired)
    verdict = _verdict_in(value, keys)
    if verdict is None:
        raise UnreadableError("the judge's reply holds no verdict, not even after repair")
    for key in keys:
        written = list(_key_pattern(key).finditer(text))
        if len({one["value"].strip(_AROUND) for one in written}) != 1:
            raise UnreadableError(f"the judge's reply leaves open what {key!r} is")
        quoted = written[-1]["value"][-1] in "\"'”"
        if not quoted and not written[-1]["after"]:
            raise UnreadableError("the judge's reply was cut off within its verdict")
        if _plain(verdict[key]) != _plain(written[-1]["value"]):
            raise UnreadableError(f"repair of the judge's reply changed {key!r}")
    return verdict


def _lowered(value: object) -> object:
    if isinstance(value, dict):
        return _object([(str(key), inner) for key, inner in value.items()])
    return value


def _plain(value: object) -> str:
    """A scalar as one would write it, without quotes."""
    return str(value).strip(_AROUND).lower()


def _bare(text: str, keys: Sequence[str]) -> Verdict:
    """A reply that is nothing but the value, where only one is asked for."""
    value = text.strip().strip(_AROUND).strip()
    if len(keys) != 1 or not value or "\n" in value or "{" in value:
        raise UnreadableError("the judge's reply holds no verdict")
    return {keys[0]: value}
