"""Names the nearest of what exists when somebody misspells."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MOST_LISTED = 12
_SHORTEST_PART = 3  # a letter or two are part of almost any name


def nearest(name: str, valid: Iterable[str], *, n: int = 3) -> list[str]:
    """Return up to ``n`` of ``valid`` that look like ``name``, the nearest first.

    Example:
        >>> nearest("bugdet", ["budget", "dataset", "models"])
        ['budget']
    """
    by_folded = {item.casefold(): item for item in sorted(valid)}
    folded = name.casefold()
    close = get_close_matches(folded, by_folded, n=n, cutoff=0.55)
    inside = [item for item in by_folded if len(folded) >= _SHORTEST_PART and folded in item]
    return [by_folded[item] for item in dict.fromkeys([*close, *inside])][:n]


def suggestion(name: str, valid: Iterable[str]) -> str:
    """Return the way out of a wrong ``name``: what was meant, or else what there is.

    Example:
        >>> suggestion("bugdet", ["budget", "dataset"])
        'did you mean `budget`?'
        >>> suggestion("xyz", ["budget", "dataset"])
        'there are: `budget`, `dataset`'
    """
    names = list(valid)
    if close := nearest(name, names, n=1):
        return f"did you mean `{close[0]}`?"
    if not names:
        return "there are none"
    shown = ", ".join(f"`{item}`" for item in names[:_MOST_LISTED])
    more = len(names) - _MOST_LISTED
    return f"there are: {shown}" + (f" and {more} more" if more > 0 else "")
