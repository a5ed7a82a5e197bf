"""Compare the last number of a reply, read exactly in the forms that people and models write."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

from bestarm_agent.domain.values import Example
from bestarm_agent.judges.base import unparsable
from bestarm_agent.judges.rule import RuleJudge, ShortRuleOptions

Number: TypeAlias = Decimal | Fraction

MAX_DIGITS = 1000

_MINUS = "−–﹣－-"  # the hyphen last: elsewhere in a character class it means a range
_START = re.compile(rf"[\d$€£¥₹.,+{_MINUS}]")
_NUMBER = re.compile(
    rf"""
    (?: (?<![\w)\]}}%.{_MINUS}]) (?P<sign>[+{_MINUS}]) [$€£¥₹]? )?    # not the hyphen of 10-15
    (?: (?<![A-Za-z_\d]) | (?<=USD|EUR|GBP|JPY|INR|CNY|CHF) )       # not the 2 of H2O
    (?<!\d\.)                                                       # not the 3 of 1.2.3
    (?: (?<!/) (?:(?P<whole>\d+)[ ])? (?P<over>\d+) \s?/\s? (?P<under>\d+) (?!\d|\s?/|\.\d)
      | 10(?:\^|\*\*) [{{(]? (?P<power>[+{_MINUS}]?\d+) [)}}]?
      | (?: (?P<integer>
                \d{{1,3}} (?: (?:,|\{{,\}}|\\,|[\u00a0\u2009\u202f'’_]) \d{{3}} )+ (?!\d) | \d+ )
            (?: \. (?P<decimals>\d+) )?
          | (?<!\.) \. (?P<bare>\d+)                                # .5, but not the end of ...5
        )
        (?: [eE] (?P<e>[+{_MINUS}]?\d+) (?![A-Za-z\d])
          | \s? (?:×|x|\*|·|\\times|\\cdot) \s? 10
            (?:\^|\*\*) [{{(]? (?P<times>[+{_MINUS}]?\d+) [)}}]?
        )?
    )
    (?: \s? (?: \\?[%％] | per\s?cent\b ) )?
    """,
    re.VERBOSE,
)
_LATEX_FRACTION = re.compile(r"(?P<whole>\d?)\\[dt]?frac\{(?P<over>\d+)\}\{(?P<under>\d+)\}")
_SUPERSCRIPTS = "⁻⁺⁰¹²³⁴⁵⁶⁷⁸⁹"
_RAISED = re.compile(rf"(?<=10)[{_SUPERSCRIPTS}]+")
_PLAIN = str.maketrans(_SUPERSCRIPTS, "-+0123456789")
_VULGAR = re.compile(r"(?P<whole>\d?)(?P<fraction>[¼½¾⅐-⅞])")
_TO_MINUS = str.maketrans(dict.fromkeys(_MINUS, "-"))


def last_number(text: str) -> Number | None:
    """Return the last number of a text, None if it holds none.

    Read are 1,234.50, -5, −$5, 1.5e-3, 2 × 10^3, 3/4, 2 1/2, .5, and 46 % as 46. Apostrophes,
    underscores and unbreakable spaces separate thousands too. Raises ValueError for more than 1,000
    digits, and for a zero denominator.

    Example:
        >>> last_number("12 + 34 is 46.")
        Decimal('46')
    """
    for line in reversed(text.splitlines()):
        if found := list(_found(line)):
            return _number(found[-1])
    return None


def _found(line: str) -> Iterator[re.Match[str]]:
    """Yield matches of the pattern; it is tried only at possible starts: 5 times faster."""
    line = _plain(line)
    at = 0
    while start := _START.search(line, at):
        found = _NUMBER.match(line, start.start())
        if found:
            yield found
        at = (found or start).end()


def _number(found: re.Match[str]) -> Number:
    if len(found[0]) > MAX_DIGITS:
        raise ValueError(f"a number of more than {MAX_DIGITS:,} digits")
    group = found.groupdict()
    sign = "-" if group["sign"] and group["sign"] != "+" else ""
    return _fraction(sign, group) if group["over"] else _decimal(sign, group)


def _decimal(sign: str, group: dict[str, str | None]) -> Decimal:
    """Return a decimal made from text, since arithmetic would round it to 28 digits."""
    written = group["e"] or group["times"] or group["power"] or "0"
    exponent = int(written.translate(_TO_MINUS))
    if abs(exponent) > MAX_DIGITS:
        raise ValueError(f"a number of more than {MAX_DIGITS:,} digits")
    integer = "1" if group["power"] else re.sub(r"\D", "", group["integer"] or "0")
    decimals = group["decimals"] or group["bare"] or ""
    return Decimal(f"{sign}{integer}.{decimals}E{exponent}")


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


Tolerance: TypeAlias = Annotated[
    Decimal,
    Field(ge=0, allow_inf_nan=False, max_digits=25),
    AfterValidator(lambda tolerance: abs(tolerance.normalize())),  # 0.10 is 0.1 in the digest
]


class NumericOptions(ShortRuleOptions):
    """Options of ``numeric``."""

    absolute_tolerance: Tolerance = Decimal(0)  # largest allowed difference, >= 0
    # as a share of the reference, >= 0; the larger one counts
    relative_tolerance: Tolerance = Decimal(0)


class NumericJudge(RuleJudge[NumericOptions, Number]):
    """Scores 1 if the number equals any reference, in exact arithmetic: 46 is 46.0."""

    adapter = "numeric"
    recognises = True
    options_type = NumericOptions

    def __init__(self, name: str, options: NumericOptions) -> None:
        super().__init__(name, options)
        self._read_reference = cache(last_number)
        self._absolute = Fraction(options.absolute_tolerance)
        self._relative = Fraction(options.relative_tolerance)

    def _extract(self, text: str, example: Example) -> Number:
        try:
            number = last_number(text)
        except ValueError as error:
            raise unparsable(str(error), text) from None
        if number is None:
            raise unparsable("no number", text)
        return number

    def _agrees(self, answer: Number, example: Example) -> bool:
        return any(self._close(answer, target) for target in self._targets(example))

    def _target(self, reference: str, example: Example) -> Number:
        number = self._read_reference(reference)
        if number is None:
            raise ValueError("it holds no number")
        return number

    def _close(self, answer: Number, reference: Number) -> bool:
        if answer == reference:
            return True
        if not self._absolute and not self._relative:
            return False
        target = Fraction(reference)
        tolerance = max(self._absolute, self._relative * abs(target))
        return abs(Fraction(answer) - target) <= tolerance
