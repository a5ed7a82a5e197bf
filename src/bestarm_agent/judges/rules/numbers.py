"""Read numbers exactly, in the forms that people and models write."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Literal, TypeAlias

Number: TypeAlias = Decimal | Fraction
DecimalMark: TypeAlias = Literal[".", ","]

MAX_DIGITS = 1000

_MINUS = "−–﹣－-"  # the hyphen last: elsewhere in a character class it means a range
_START = re.compile(rf"[\d$€£¥₹.,+{_MINUS}]")
_PATTERN = r"""
    (?: (?<![\w)\]}}%.{minus}]) (?P<sign>[+{minus}]) [$€£¥₹]? )?    # not the hyphen of 10-15
    (?: (?<![A-Za-z_\d]) | (?<=USD|EUR|GBP|JPY|INR|CNY|CHF) )       # not the 2 of H2O
    (?<!\d{mark})                                                   # not the 3 of 1.2.3
    (?: {fraction}
        10(?:\^|\*\*) [{{(]? (?P<power>[+{minus}]?\d+) [)}}]?
      | (?: (?P<integer> \d{{1,3}}(?:(?:{separator})\d{{3}})+(?!\d) | \d+ )
            (?: {mark} (?P<decimals>\d+) )?
          | (?<!{mark}) {mark} (?P<bare>\d+)                        # .5, but not the end of ...5
        )
        (?: [eE] (?P<e>[+{minus}]?\d+) (?![A-Za-z\d])
          | \s? (?:×|x|\*|·|\\times|\\cdot) \s? 10
            (?:\^|\*\*) [{{(]? (?P<times>[+{minus}]?\d+) [)}}]?
        )?
    )
    (?P<percent> \s? (?: \\?[%％] | per\s?cent\b ) )?
"""
_FRACTION = r"""
        (?<!/) (?:(?P<whole>\d+)[ ])? (?P<over>\d+) \s?/\s? (?P<under>\d+) (?!\d|\s?/|{mark}\d) |
"""
_LATEX_FRACTION = re.compile(r"(?P<whole>\d?)\\[dt]?frac\{(?P<over>\d+)\}\{(?P<under>\d+)\}")
_SUPERSCRIPTS = "⁻⁺⁰¹²³⁴⁵⁶⁷⁸⁹"
_RAISED = re.compile(rf"(?<=10)[{_SUPERSCRIPTS}]+")
_PLAIN = str.maketrans(_SUPERSCRIPTS, "-+0123456789")
_VULGAR = re.compile(r"(?P<whole>\d?)(?P<fraction>[¼½¾⅐-⅞])")
_TO_MINUS = str.maketrans(dict.fromkeys(_MINUS, "-"))


class NumberReader:
    """Finds numbers in a text: 1,234.50, -5, −$5, 1.5e-3, 2 × 10^3, 3/4, 2 1/2, 46 %, .5.

    The mark that is not ``decimal_mark`` separates thousands, as do apostrophes, underscores and
    unbreakable spaces. ``percent`` "ignore" reads 46 % as 46, "hundredth" as 0.46.

    Example:
        >>> NumberReader().last("12 + 34 is 46.")
        Decimal('46')
    """

    def __init__(
        self,
        decimal_mark: DecimalMark = ".",
        *,
        fractions: bool = True,
        percent: Literal["ignore", "hundredth"] = "ignore",
    ) -> None:
        mark = re.escape(decimal_mark)
        comma = "," if decimal_mark == "." else r"\."
        pattern = _PATTERN.format(
            minus=_MINUS,
            mark=mark,
            separator=rf"{comma}|\{{,\}}|\\,|[\u00a0\u2009\u202f'’_]",
            fraction=_FRACTION.format(mark=mark) if fractions else "",
        )
        self._pattern = re.compile(pattern, re.VERBOSE)
        self._hundredth = percent == "hundredth"

    def first(self, text: str) -> Number | None:
        """Return the first number; ValueError: above 1,000 digits, or a zero denominator."""
        found = next((f for line in text.splitlines() for f in self._found(line)), None)
        return None if found is None else self._number(found)

    def last(self, text: str) -> Number | None:
        """Return the last number of ``text``, None if it holds none; raises as ``first``."""
        for line in reversed(text.splitlines()):
            if found := list(self._found(line)):
                return self._number(found[-1])
        return None

    def _found(self, line: str) -> Iterator[re.Match[str]]:
        """Yield matches of the pattern; it is tried only at possible starts: 5 times faster."""
        line = _plain(line)
        at = 0
        while start := _START.search(line, at):
            found = self._pattern.match(line, start.start())
            if found:
                yield found
            at = (found or start).end()

    def _number(self, found: re.Match[str]) -> Number:
        if len(found[0]) > MAX_DIGITS:
            raise ValueError(f"a number of more than {MAX_DIGITS:,} digits")
        group = found.groupdict()
        sign = "-" if group["sign"] and group["sign"] != "+" else ""
        shift = -2 if self._hundredth and group["percent"] else 0
        if group.get("over"):
            return _fraction(sign, group) * Fraction(10) ** shift
        return _decimal(sign, group, shift)


def _decimal(sign: str, group: dict[str, str | None], shift: int) -> Decimal:
    """Return a decimal made from text, since arithmetic would round it to 28 digits."""
    written = group["e"] or group["times"] or group["power"] or "0"
    exponent = int(written.translate(_TO_MINUS))
    if abs(exponent) > MAX_DIGITS:
        raise ValueError(f"a number of more than {MAX_DIGITS:,} digits")
    integer = "1" if group["power"] else re.sub(r"\D", "", group["integer"] or "0")
    decimals = group["decimals"] or group["bare"] or ""
    return Decimal(f"{sign}{integer}.{decimals}E{exponent + shift}")


def _fraction(sign: str, group: dict[str, str | None]) -> Fraction:
    whole, over, under = (int(group[name] or 0) for name in ("whole", "over", "under"))
    if under == 0:
        raise ValueError("a fraction over zero")
    value = whole + Fraction(over, under)
    return -value if sign else value


def _plain(line: str) -> str:
    r"""Rewrite \frac{3}{4}, ½ and 10³ in plain characters."""
    if "\\" in line:
        line = _LATEX_FRACTION.sub(_plain_fraction, line)
    if not line.isascii():
        line = _VULGAR.sub(_plain_fraction, line)
        line = _RAISED.sub(lambda raised: "^" + raised[0].translate(_PLAIN), line)
    return line


def _plain_fraction(found: re.Match[str]) -> str:
    group = found.groupdict()
    if "fraction" in group:
        fraction = unicodedata.normalize("NFKC", group["fraction"]).replace("⁄", "/")
    else:
        fraction = f"{group['over']}/{group['under']}"
    return f"{group['whole']} {fraction}" if group["whole"] else fraction
