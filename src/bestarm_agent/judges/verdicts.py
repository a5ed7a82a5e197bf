"""Read the verdict in a judge's reply; a reply that leaves a doubt is unreadable.

A verdict is a JSON object with known keys: the whole reply, or an object within it, in a code fence
or not, repaired if necessary (``json-repair``). It may also be a line ("Score: 8"), a tag
(``<verdict>8</verdict>``), a value in brackets (``[[8]]``) or the bare value. All verdicts of a
reply must agree. The answer being judged may state verdicts too, which the judge may quote: what
could be a quotation is not the judge's verdict.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bestarm_agent.domain.request_reply import Finish, Reply
from bestarm_agent.judges.verdict_objects import UnreadableError as UnreadableError
from bestarm_agent.judges.verdict_objects import (
    blanked,
    complete_objects,
    key_pattern,
    plain,
    repaired,
    verdict_in,
    whole_value,
)

Verdict: TypeAlias = Mapping[str, object]
_Forms: TypeAlias = Mapping[str, re.Pattern[str]]

_MAX_CHARS = 200_000
_MAX_REPAIRED = 20_000
_EXPLANATION = "explanation"
_THINKS = re.compile(r"\s*<(think|thinking|reasoning)>", re.IGNORECASE)
_THOUGHT = re.compile(r"</(think|thinking|reasoning)>", re.IGNORECASE)
_NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?)(?:\s*(?:/|out of)\s*\d+(?:\.\d+)?)?", re.IGNORECASE)
_DECORATION = re.compile(r"""[\s"'`´“”„‘’«»*_\\]+""")
_FENCE = re.compile(r"```\w*")
_NUMBER_VALUE = r"[+-]?\d+(?:\.\d+)?(?:\s*(?:/|out\ of)\s*\d+(?:\.\d+)?)?"
_FLAGS = re.IGNORECASE | re.MULTILINE | re.VERBOSE
_OTHER_NAMES = {"verdict": ("score", "grade", "rating"), "winner": ("verdict",)}


@dataclass(frozen=True, slots=True)
class Stated:
    """A verdict, perhaps on some of the keys only, and whether it is the whole reply."""

    values: Verdict
    is_whole: bool = False


def read_verdict(
    reply: Reply, keys: Sequence[str], evidence: str = "", labels: Collection[str] = ()
) -> Verdict:
    """Return the values of ``keys`` (lower case) in a judge's reply; other keys are kept.

    Args:
        reply: the judge's reply.
        keys: the keys of the verdict.
        evidence: the answer being judged. A verdict in the judge's prose that the answer states
            too is a quotation, unless it comes with an explanation of the judge's own.
        labels: verdicts that are words, which lines, tags and brackets may state.

    Raises:
        UnreadableError: there is no verdict, or there are verdicts that differ.

    Example:
        >>> read_verdict(Reply('Well, {"Score": 7} it is.'), ["score"])
        {'score': 7}
    """
    text = said_at_last(reply)
    verdict = verdict_in(whole_value(text), keys)
    if verdict is not None:
        return verdict
    forms = prose_forms(keys, labels)
    found = _all_stated(text, keys, forms, is_cut_off=reply.finish is Finish.LENGTH)
    return agreed(found, keys, evidence, claims(evidence, keys, forms))


def said_at_last(reply: Reply) -> str:
    """Return a reply without the reasoning before it; raises UnreadableError if nothing is left."""
    if reply.finish in (Finish.REFUSAL, Finish.CONTENT_FILTER):
        raise UnreadableError("the judge refused to answer")
    text = _without_thoughts(reply.text)
    if not text.strip():
        raise UnreadableError("the judge's reply is empty")
    if len(text) > _MAX_CHARS:
        raise UnreadableError(f"the judge's reply is longer than {_MAX_CHARS:,} characters")
    return text


def _without_thoughts(text: str) -> str:
    """Drop the reasoning before the answer; its opening tag may be part of the prompt."""
    text = text.lstrip("\ufeff")
    if text.lstrip().startswith("{"):
        return text  # an answer at once; tags in it are quoted
    ends = [found.end() for found in _THOUGHT.finditer(text)]
    if ends:
        return text[ends[-1] :]
    if _THINKS.match(text):
        raise UnreadableError("the judge's reply was cut off while it was thinking")
    return text


def _all_stated(text: str, keys: Sequence[str], forms: _Forms, *, is_cut_off: bool) -> list[Stated]:
    objects = complete_objects(text)
    found, end = [], 0
    for value, start, after in objects:
        if (verdict := verdict_in(value, keys)) is not None:
            found.append(Stated(verdict, not prose(text[:start] + text[after:])))
            end = after
    rest = blanked(text, [(start, after) for _, start, after in objects])
    tail = text[end:]
    if _begins_object(tail, keys):
        if is_cut_off:
            raise UnreadableError("the judge's reply was cut off")
        found.append(_repaired(text, end, keys))
    found += _in_fragments(rest[:end], keys)
    # a line that the token limit ended may be cut off within its number
    found += in_prose(rest.rpartition("\n")[0] if is_cut_off else rest, forms)
    if not found and not is_cut_off:
        found += _bare(text, keys)
    return found


def agreed(
    found: Sequence[Stated], keys: Sequence[str], evidence: str, claimed: Mapping[str, set[str]]
) -> Verdict:
    """Return the verdict on which all statements agree that are the judge's own.

    ``claimed`` holds, by key, the canonical values that the answer being judged states. Raises
    UnreadableError if statements differ, or if none is the judge's own.
    """
    squeezed = _squeezed(evidence)
    own = [one for one in found if not _may_be_quoted(one, claimed, squeezed)]
    if found and not own:
        raise UnreadableError("the judge's reply only quotes the answer")
    # with several claims in the answer, one may have been made to hide the judge's own verdict
    hides = any(len(values) > 1 for values in claimed.values())
    for key in keys:
        counted = [one.values[key] for one in (found if hides else own) if key in one.values]
        if len({canonical(value) for value in counted}) > 1:
            raise UnreadableError(f"the judge's reply gives different values of {key!r}")
    merged = {key: value for one in own for key, value in one.values.items()}
    if not all(key in merged for key in keys):
        raise UnreadableError("the judge's reply holds no verdict")
    return merged


def claims(evidence: str, keys: Sequence[str], forms: _Forms) -> dict[str, set[str]]:
    """Return, by key, the canonical values that the answer being judged states."""
    claimed: dict[str, set[str]] = {key: set() for key in keys}
    for one in in_prose(evidence, forms):
        for key, value in one.values.items():
            claimed[key].add(canonical(value))
    for key in keys:
        claimed[key] |= {canonical(m["value"]) for m in key_pattern(key).finditer(evidence)}
    return claimed


def _may_be_quoted(one: Stated, claimed: Mapping[str, set[str]], evidence: str) -> bool:
    if one.is_whole:
        return False
    why = one.values.get(_EXPLANATION)
    if isinstance(why, str) and _squeezed(why) and _squeezed(why) not in evidence:
        return False
    values = [(key, canonical(one.values[key])) for key in claimed if key in one.values]
    return bool(values) and all(value in claimed[key] for key, value in values)


def _begins_object(text: str, keys: Sequence[str]) -> bool:
    begun = (
        re.search(
            rf"""\{{[^{{}}]*?["'“”‘’«»]?\b{re.escape(key)}["'“”‘’«»]?\s*[:=：]""",
            text,
            re.IGNORECASE,
        )
        for key in keys
    )
    return any(begun)


def _repaired(text: str, end: int, keys: Sequence[str]) -> Stated:
    start = text.index("{", end)
    if len(text) - start > _MAX_REPAIRED:
        raise UnreadableError("the judge's reply is too long to be repaired")
    around = text[:start] + text[start:].rpartition("}")[2] * ("}" in text[start:])
    return Stated(repaired(text[start:], keys), is_whole=not prose(around))


def _in_fragments(text: str, keys: Sequence[str]) -> list[Stated]:
    """Return the numbers and words in what looks like an object but is not JSON."""
    found = []
    for key in keys:
        for match in key_pattern(key).finditer(text):
            value = plain(match["value"])
            is_inside = text.rfind("{", 0, match.start()) > text.rfind("}", 0, match.start())
            if is_inside and value[:1].isalnum():
                found.append(Stated({key: value}))
    return found


def in_prose(text: str, forms: _Forms) -> list[Stated]:
    """Return the verdicts that lines, tags and brackets of a text state."""
    found = []
    length = len(prose(text))
    for key, pattern in forms.items():
        for match in pattern.finditer(text):
            value = next(group for group in match.groups() if group is not None)
            found.append(Stated({key: value}, len(prose(match[0])) == length))
    return found


def prose_forms(keys: Sequence[str], labels: Collection[str]) -> _Forms:
    """Return a pattern for each key: lines, tags and, for a single key, double brackets."""
    value = "|".join([_NUMBER_VALUE, *map(_flexible, labels)])
    is_single = len(keys) == 1
    forms = {}
    for key in keys:
        names = "|".join(map(_flexible, (key, *(_OTHER_NAMES.get(key, ()) if is_single else ()))))
        patterns = [
            rf"""^[ \t>\#*_•-]*(?:(?:my|the|final|overall|total)[ ]+){{0,2}}(?:{names})[ \t*_`]*
            (?:[:=：]|\bis\b)[ \t*_`"'“”]*({value})[ \t*_`"'“”.]*$""",
            rf"<(?:{names})>\s*({value})\s*</(?:{names})>",
        ]
        if is_single:
            patterns.append(rf"\[\[\s*({value})\s*\]\]")
        forms[key] = re.compile("|".join(patterns), _FLAGS)
    return forms


def _flexible(name: str) -> str:
    """Return a pattern for a name, with spaces, hyphens and underscores alike."""
    return r"[\ _-]".join(map(re.escape, re.split(r"[\s_-]+", name)))


def _bare(text: str, keys: Sequence[str]) -> list[Stated]:
    value = plain(text)
    if len(keys) != 1 or not value or "\n" in value or "{" in value:
        return []
    return [Stated({keys[0]: value}, is_whole=True)]


def prose(text: str) -> str:
    """Return a text without fences, white space and decoration."""
    return _DECORATION.sub("", _FENCE.sub("", text))


def canonical(value: object) -> str:
    """Return one text for equal values: 10, "10", 10.0 and "10/10"; "Very good" and "very-good"."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return repr(value)
    text = plain(value)
    number = _NUMBER.fullmatch(text)
    return f"{float(number[1]):g}" if number else re.sub(r"[\s_-]+", "-", text)


def _squeezed(text: str) -> str:
    return _DECORATION.sub("", text).casefold()
