"""Put untrusted text into a judge's prompt: shortened, visible, between marks it cannot forge.

The answer of a candidate is data, never an instruction. The marks around a text hold a digest of
that text, so a text that closes its own mark would have to contain its own SHA-256.
"""

from __future__ import annotations

from collections.abc import Mapping

import regex

from bestarm_agent.domain.digest import Json, digest

# Control characters (terminal escapes among them), direction overrides, zero-width characters and
# the tag block: invisible, or they change how other characters are displayed.
_INVISIBLE = regex.compile(
    r"[\p{Cc}--[\n\t]]|[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff]"
    r"|[\U000e0000-\U000e007f]",
    regex.VERSION1,
)


def visible(text: str) -> str:
    r"""Write out invisible characters, so that text is fit for prompts, terminals and storage.

    Example:
        >>> visible("a\x1b[31mb\u202ec")
        'a\\u{1b}[31mb\\u{202e}c'
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = text.encode("utf-8", "replace").decode("utf-8")  # lone surrogates
    if text.isascii() and text.isprintable():
        return text
    return str(_INVISIBLE.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", text))


def shortened(text: str, limit: int) -> str:
    """Keep the beginning and end of a text, ``limit`` >= 2 characters, and count the rest."""
    if len(text) <= limit:
        return text
    half = limit // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[... {left_out} characters left out ...]\n{text[-half:]}"


def enclosed(texts: Mapping[str, str | None], key: Json) -> dict[str, str]:
    """Enclose texts in marks with their names, which none of them contains; None becomes "".

    The marks are a digest of the texts and of ``key``.

    Example:
        >>> print(enclosed({"answer": "46"}, "judge")["answer"])
        <<<answer d17785b86b732506>>>
        46
        <<<end of answer d17785b86b732506>>>
    """
    cleaned = {name: None if text is None else clean(text) for name, text in texts.items()}
    mark = digest([key, cleaned])
    return {
        name: "" if text is None else f"<<<{name} {mark}>>>\n{text}\n<<<end of {name} {mark}>>>"
        for name, text in cleaned.items()
    }


def clean(text: str) -> str:
    """Make text visible and break up ``<|im_end|>``, which some servers read as control tokens."""
    return visible(text).replace("<|", "< |").replace("|>", "| >")
