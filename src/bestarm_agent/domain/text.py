"""Texts of others made harmless, and numbers as people read them.

One style everywhere: `52 of 60`, `87 %`, `18 points` (of a hundred), `$0.35`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import ceil, floor, isfinite, log10

from bestarm_agent.domain.spend import usd

_TIE = 1e-9  # numbers that differ by less are equal
LEAST_LABEL = 16  # characters to which a label is shortened at most


def safe(text: str) -> str:
    r"""Make text that others wrote harmless on a terminal: one line, no control characters.

    Example:
        >>> safe("it has 2 errors:\n  a\n  b")
        'it has 2 errors: a b'
    """
    text = re.sub(r"\s*\n\s*", " ", text)
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def safe_lines(text: str) -> str:
    """Make text of several lines harmless on a terminal; line breaks stay."""
    return "\n".join(safe(line) for line in text.split("\n"))


def shortened(label: str, width: int) -> str:
    """Shorten a label in its middle, since labels often differ at their ends.

    Example:
        >>> shortened("llama-167k/spaced/t=0.7", 16)
        'llama-16…d/t=0.7'
    """
    width = max(LEAST_LABEL, width)
    if len(label) <= width:
        return label
    tail = (width - 1) // 2
    return f"{label[: width - 1 - tail]}…{label[-tail:]}"


def money(nano_dollars: int) -> str:
    """Write dollars and cents, small amounts with two significant digits.

    Example:
        >>> money(0), money(1_230_000), money(300_000_000), money(12_340_000_000)
        ('$0', '$0.0012', '$0.30', '$12.34')
    """
    amount = usd(nano_dollars)
    if amount == 0:
        return "$0"
    digits = 2 if amount >= 0.1 else 1 - floor(log10(float(f"{amount:.1e}")))
    return f"${amount:,.{digits}f}"


def cost_text(nano_dollars: int, *, priced: bool) -> str:
    """Write dollars; a price that is not known shows as unknown, never as $0.

    Example:
        >>> cost_text(0, priced=True), cost_text(0, priced=False), cost_text(10**9, priced=False)
        ('$0', 'unknown', '$1.00 + unknown')
    """
    if priced:
        return money(nano_dollars)
    return f"{money(nano_dollars)} + unknown" if nano_dollars else "unknown"


def duration(seconds: float) -> str:
    """Write hours, minutes and seconds.

    Example:
        >>> duration(0.24), duration(3.2), duration(75), duration(3725)
        ('0.2 s', '3 s', '1:15', '1:02:05')
    """
    if 0 < seconds < 1:  # a cap may be as short, and is not 0
        return f"{max(seconds, 0.1):.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def about(pairs: int) -> str:
    """Write a number with two significant digits."""
    return f"{float(f'{pairs:.2g}'):,.0f}"


def percent(value: float, *, exact: bool = False, whole: bool = False) -> str:
    """Write a share, in [0, 1], in percent: whole ones, but for shares very near to 0 and 1.

    ``exact`` is for what somebody chose, as a limit or a confidence: to five digits. ``whole`` is
    for estimates, which are between 1 and 99 where they are neither 0 nor 1.

    Example:
        >>> percent(0.871), percent(0.004), percent(0.9996), percent(1.0)
        ('87 %', '0.4 %', '99.96 %', '100 %')
        >>> percent(0.95, exact=True), percent(0.725, exact=True)
        ('95 %', '72.5 %')
        >>> percent(0.871, whole=True), percent(0.997, whole=True), percent(1.0, whole=True)
        ('87 %', '99 %', '100 %')
    """
    if exact:
        return f"{100.0 * value:.5g} %"
    hundred = 100.0 * value
    if whole and hundred not in (0.0, 100.0):
        return f"{min(max(round(hundred), 1), 99)} %"
    for digits in range(4):
        text = f"{hundred:.{digits}f}"
        if float(text) not in (0.0, 100.0) or hundred in (0.0, 100.0):
            break
    return f"{text} %"


def span(lower: float, upper: float, to: str = "to", digits: int = 0) -> str:
    """Write the ends of an interval of shares; none is rounded to a 0 or 100 that it excludes.

    Example:
        >>> span(0.656, 0.817), span(0.996, 0.999), span(0.945, 0.949, digits=1)
        ('66 to 82 %', '99 to 100 %', '94.5 to 94.9 %')
    """
    low, high = round(100.0 * lower), round(100.0 * upper)
    if digits:
        return f"{100.0 * lower:.{digits}f} {to} {100.0 * upper:.{digits}f} %"
    return f"{low if lower >= 1 else min(low, 99)} {to} {high if upper <= 0 else max(high, 1)} %"


def digits_beside(bar: float, values: Iterable[float]) -> int:
    """Return how many decimals it takes that no number is rounded past a bar, at most 5.

    Example:
        >>> digits_beside(94.5, [94.5, 95.2]), digits_beside(20, [6.3, 19.7, float("inf")])
        (1, 0)
    """
    sides = [(x, (x > bar + _TIE) - (x < bar - _TIE)) for x in values if isfinite(x)]
    for digits in range(5):
        gaps = ((round(x, digits) - bar, side) for x, side in sides)
        if all(abs(gap) < _TIE or gap * side > 0.0 for gap, side in gaps):
            return digits
    return 5


def signed(value: float) -> str:
    """Write a difference of shares, in [-1, 1], in hundredths with its sign, and a decimal.

    Example:
        >>> signed(0.0357), signed(-0.02), signed(-0.0001)
        ('+3.6', '-2.0', '+0.0')
    """
    return f"{100.0 * value:+.1f}".replace("-0.0", "+0.0")


def signed_range(lower: float, upper: float) -> str:
    """Write the ends of an interval of a difference, as ``signed`` does.

    Example:
        >>> signed_range(-0.02, 0.029)
        '-2.0 to +2.9'
    """
    return f"{signed(lower)} to {signed(upper)}"


def points(value: float) -> str:
    """Write a difference of shares, in [0, 1], in hundredths, rounded up where it is small.

    Example:
        >>> points(0.18), points(0.01), points(0.024), points(0.0)
        ('18 points', '1 point', '2.4 points', '0 points')
    """
    hundred = ceil(1000.0 * value - 1e-9) / 10.0
    text = f"{hundred:.0f}" if hundred >= 10.0 or hundred == round(hundred) else f"{hundred:.1f}"
    return f"{text} point{'' if text == '1' else 's'}"
