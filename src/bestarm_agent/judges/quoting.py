"""A text as data inside a judge's prompt: cut to size, made visible, between marks it cannot forge.

What a candidate wrote is evidence, never an instruction. A prompt that holds it must leave no doubt
where it begins and ends: the marks carry a digest of the very texts they enclose, so that a text
that closes its own mark would have to contain its own SHA-256.
"""

from __future__ import annotations

from collections.abc import Mapping

import regex

from bestarm_agent.domain.digest import Json, digest

# Control characters (terminal escapes among them), direction overrides, invisible characters and
# the tag block: what a reader cannot see, or what changes what a reader sees.
_UNSEEN = regex.compile(
    r"[\p{Cc}--[\n\t]]|[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff]"
    r"|[\U000e0000-\U000e007f]",
    regex.VERSION1,
)


def visible(text: str) -> str:
    r"""Return ``text`` with nothing invisible in it, fit for prompts, terminals and storage.

    Example:
        >>> visible("a\x1b[31mb\u202ec")
        'a\\u{1b}[31mb\\u{202e}c'
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = text.encode("utf-8", "replace").decode("utf-8")  # no half of a surrogate pair
    if text.isascii() and text.isprintable():
        return text
    return str(_UNSEEN.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", text))


def shortened(text: str, most: int) -> str:
    """Keep at most ``most`` >= 2 characters, of beginning and end, and say what is gone."""
    if len(text) <= most:
        return text
    half = most // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[... {left_out} characters left out ...]\n{text[-half:]}"


def quoted(texts: Mapping[str, str | None], key: Json) -> dict[str, str]:
    """Enclose texts in marks that none of them contains.

    Args:
        texts: what to enclose, by the name that its mark carries; None becomes "".
        key: what else the marks depend on, such as the judge.

    Example:
        >>> print(quoted({"answer": "46"}, "judge")["answer"])
        <<<answer d17785b86b732506>>>
        46
        <<<end of answer d17785b86b732506>>>
    """
    clean = {name: None if text is None else as_shown(text) for name, text in texts.items()}
    mark = digest([key, clean])
    return {
        name: "" if text is None else f"<<<{name} {mark}>>>\n{text}\n<<<end of {name} {mark}>>>"
        for name, text in clean.items()
    }


def as_shown(text: str) -> str:
    """A text as it stands between its marks.

    The likes of ``<|im_end|>``, which some servers read as the end of a turn, are broken up.
    """
    return visible(text).replace("<|", "< |").replace("|>", "| >")
