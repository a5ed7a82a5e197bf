"""Select and normalise the text that a rule reads."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Annotated, Literal, TypeAlias

import regex
from pydantic import AfterValidator

Step: TypeAlias = Literal["unicode", "case", "punctuation", "whitespace", "strip"]

_MAX_SHOWN = 200
_QUOTES = "\"'`´“”‘’„‚«»‹›"
_OPENING = f"{_QUOTES}*¿¡: \t\r\n"
_CLOSING = f"{_QUOTES}*.,;:!?…。 \t\r\n"
_TYPOGRAPHY = str.maketrans(
    {
        **dict.fromkeys("‘’‚´", "'"),
        **dict.fromkeys("“”„", '"'),
        **dict.fromkeys("‐‑‒–—−", "-"),
        **dict.fromkeys("\u00ad\u200b\u2060\ufeff", ""),  # invisible
    }
)
_WORD_EDGE = regex.compile(r"\b", regex.WORD)  # Unicode's word boundaries (UAX 29)


def unicode_form(text: str) -> str:
    """Return NFKC text with plain quotes and hyphens and without invisible characters."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", text).translate(_TYPOGRAPHY)


def _without_punctuation(text: str) -> str:
    """Strip quotes, stars and sentence marks, unless nothing would be left."""
    return text.lstrip(_OPENING).rstrip(_CLOSING) or text


def _with_single_spaces(text: str) -> str:
    return " ".join(text.split())


_STEPS: dict[Step, Callable[[str], str]] = {
    "unicode": unicode_form,
    "case": str.casefold,
    "punctuation": _without_punctuation,
    "whitespace": _with_single_spaces,
    "strip": str.strip,
}


def _in_order(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    return tuple(step for step in _STEPS if step in steps)


Normalisation: TypeAlias = Annotated[tuple[Step, ...], AfterValidator(_in_order)]
"""Steps of normalisation, always applied in this order.

``unicode``: compatibility forms (NFKC), typographic quotes and dashes, invisible characters.
``case``: case folding. ``punctuation``: quotes, stars and sentence marks around the text.
``whitespace``: runs of white space become one space. ``strip``: none around the text.
"""

STANDARD: tuple[Step, ...] = ("unicode", "case", "punctuation", "whitespace")


def normaliser(steps: Iterable[Step]) -> Callable[[str], str]:
    """Return the function that applies these steps.

    Example:
        >>> normaliser(["unicode", "case", "punctuation", "whitespace"])("**New\u00a0 York**.")
        'new york'
    """
    functions = [_STEPS[step] for step in steps]

    def normalise(text: str) -> str:
        for function in functions:
            text = function(text)
        return text

    return normalise


def clipped(text: str, limit: int) -> str:
    """Keep at most ``limit`` characters: the beginning and the end, on separate lines."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n{text[len(text) - half :]}"


def marker_pattern(marker: str) -> re.Pattern[str]:
    """Return a pattern that finds ``marker`` in any case, with any white space between words."""
    return re.compile(r"\s+".join(map(re.escape, marker.split())), re.IGNORECASE)


def contains(text: str, part: str, *, words: bool) -> bool:
    """Return whether ``part`` occurs in ``text``; with ``words`` as whole words.

    Word boundaries are Unicode's (UAX 29): "46" is not a word of "46.5"; any Chinese character is
    one. An empty ``part`` does not occur.
    """
    at = text.find(part) if part else -1
    while at >= 0 and words and not _is_word(text, at, at + len(part)):
        at = text.find(part, at + 1)
    return at >= 0


def _is_word(text: str, start: int, end: int) -> bool:
    return all(
        at in (0, len(text)) or _WORD_EDGE.match(text, at) is not None for at in (start, end)
    )


def shown(text: str) -> str:
    """Return the beginning of ``text``, fit for storage: without lone surrogates."""
    text = text[:_MAX_SHOWN]
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
