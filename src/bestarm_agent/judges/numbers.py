"""Compare the last number of a reply, read exactly in the forms that people and models write.

A run of digits and separators is read as a whole, or not at all: what has two readings (``3,5``, a
date, a range) raises ``DoubtError``, and never counts by one of its parts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from math import factorial
from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import AfterValidator, Field

from bestarm_agent.domain.values import Example, Json
from bestarm_agent.judges.base import unparsable
from bestarm_agent.judges.rule import (
    ANSWER,
    ANSWER_UNSPACED,
    DoubtError,
    RuleJudge,
    ShortRuleOptions,
)

Number: TypeAlias = Decimal | Fraction
Mark: TypeAlias = Literal[".", ","]

# Far above any answer, and low enough that exact arithmetic on it takes no time: a reply may write
# 10^999999999, whose digits would fill the memory.
MAX_DIGITS = 1000

_MINUS = "−–﹣－-"  # the hyphen last: elsewhere in a character class it means a range
_SPACE = "[ \u00a0\u2009\u202f]"
# A run is a number with all separators that touch it, before it is known what these mean. A space
# joins only groups of exactly three digits after one to three ("50 000"), since elsewhere it stands
# between two numbers ("rooms 12 and 14 16"). The run must not end where another digit follows a
# separator, or "1 234.567.8" would be read by its first part.
_RUN = rf"""(?:
    [1-9]\d{{0,2}} (?:{_SPACE}\d{{3}})+ (?:[.,]\d+)? (?![.,'’_/:]?\d)   # 50 000 and 1 234,56
  | \d+ (?:[.,'’_]\d+)*
  | (?<![\w.]) \.\d+                                # .5, but not the end of ...5 or is.5
)"""
# "10^3", "10 ^ 3", "10**3", "10^{-3}"; bold would be "10 **3**". NAME is replaced where it is used:
# a pattern may name a group once.
_UP = r"(?:\s?\^\s?|\*\*|\s\*\*\s)"
_POWER = rf"{_UP} [{{(]? (?P<NAME>[+{_MINUS}]?\d+) [)}}]? (?![.,/]?\d|\s?\^)"
# Words for powers of ten; several multiply: "3 hundred million", "3千万". A word that is missing
# here is a unit, as are those that begin with 千 (3千克 are kilograms).
_SCALES = {
    **{2: "hundreds?|hundert|honderd|hundr[ae]|[百백]", 4: "[万萬만]", 8: "[亿億억]"},
    3: "thousands?|tausend|mil(?:le|a)?|duizend|tusen|tusind|tysi[ąę]c[ey]?|тысяч[аи]?|тыс|bin|ribu"
    "|nghìn|हजार|(?-i:k)|千(?![克米瓦卡帕伏焦赫])|천",
    **{5: "lakhs?|lac|लाख", 7: "crores?|करोड"},
    6: r"mil[lhjy]?i?[oóãõ](?!\w*th)\w{0,3}|mio|mn|mln|juta|triệu|млн|м[иі]л[ьл]?[ий]он\w{0,2}",
    9: r"billions?|bilh(?:ão|ões)|mil[lj]?[iy]?[aá]rd?\w{0,2}|mrd|mld|bn|tỷ|млрд|миллиард\w{0,2}",
    12: r"tril[lhjy]?i?[oóãõ](?!\w*th)\w{0,3}|tn|bil[lj]?i?[oó](?!\w*th)\w{0,3}|трлн"
    r"|триллион\w{0,2}|[兆조]",
}
# "m" and "b" are metres and bytes as often as millions and billions, so they scale a number only
# beside a currency ("$3m", "3M €"). "k" always does.
_SHORT = {"k": 3, "m": 6, "mm": 6, "b": 9, "t": 12}
_WORDS, _TOUCHING = "|".join(_SCALES.values()), "백천만억조぀-鿿"
# the end of a word: scripts without spaces may go on, and behind a word of theirs all may
_EDGE = rf"(?:(?<=[{_TOUCHING}])|(?![^\W_](?<![{_TOUCHING}가-힣])))"
# The sign: not after a word, a bracket or a digit, where a hyphen joins or subtracts ("x-15",
# "7-3"), and "minus" not after a digit ("7 minus 3"). Then a currency, with a sign possibly behind
# it ("$-5"). Then no letter may touch the number ("H2O", "GPT-2", but "USD5" is an amount).
#
# The number itself is a mixed fraction ("2 1/2") or a run. What hangs together with a run is caught
# in `more` ("3/4", "10-15", "5 ± 1", "12:30", "3 to 4"), so that the reader of the match can refuse
# it as a whole; the search must not go on inside and take "15" for the answer. Then an exponent
# ("1.5e-3", "2 × 10^3", "2^10"), then a word or letter for a scale ("3 million", "5k").
_NUMBER = re.compile(
    rf"""
    (?: (?<![\w)\]}}%.{_MINUS}]) (?P<sign>[+{_MINUS}] (?:(?<=[=≈]\s.)\s)?)  # not the hyphen of x-15
      | (?<!\d\s) \b (?P<less>minus|negative)\s )?
    (?P<currency> \\?[$€£¥₹₩₽₺] \s? [+{_MINUS}]? )?
    (?: (?<![A-Za-z_\d]) | (?<=USD|EUR|GBP|JPY|INR|CNY|CHF) )       # not the 2 of H2O
    (?<![A-Z][{_MINUS}]) (?<!\d[.,'’/:{_MINUS}])                    # nor of GPT-2 or of x1.2
    (?: (?P<whole>\d+) {_SPACE} (?P<over>\d+) \s?/\s? (?P<under>\d+) (?!\d|\s?/|[.,]\d)
      | (?P<run>{_RUN})
        (?P<more> (?: (?: \s?/\s? | \s?(?:±|\+/?-)\s? | [:百千万萬亿億兆백천만억조{_MINUS}]
            | \s(?:to|or|bis|oder|ou|à)\s ) {_RUN} )* )
        (?: (?:\s?[×x*·]\s?1)? [eE] (?P<e>[+{_MINUS}]?\d+) (?![A-Za-z\d])
          | \s? (?:×|x|\*|·|\\times|\\cdot) \s? 10 {_POWER.replace("NAME", "times")}
          | {_POWER.replace("NAME", "power")}
        )?
        (?: (?P<scale> (?: \s?-? (?i:{_WORDS}) {_EDGE} )+ ) (?P<on> \s?{_RUN} )?
          | (?P<short> (?(currency) (?:\s?(?:MM|[KMBT])|[mb]) (?![A-Za-z\d])
              | \s?[MB] (?=\s?[€£](?!\s?\d)) ) ) )?
    )
    """,
    re.VERBOSE,
)
# A number that is a part of an expression has no value by itself: √2, 2π, π/4, \frac{\sqrt{3}}{2},
# 3+4i, 0x1F, f(3), ln 2, 2x + 3, 2^n. After "=" another begins. A plain \frac{3}{4} was rewritten
# before. What looks like a function may hand in an answer: print(46), final_answer(46).
_BEFORE = re.compile(
    r"(?:[√∛∜]|\\sqrt(?:\[\d+\])?)\s?[{(]?\s*$|(?:π|\\pi|\bpi(?=\s?[*·/]))\s?[*·/]?\s?$|[)!}]\s?/\s?$"
    r"|\\[dtc]?(?:frac|binom)[^=≈]*$|(?<![A-Za-z])(?:arc)?(?:sin|cos|tan|log|lg|ln|sqrt)h?[\s({$]*$"
    r"|(?<![\w\\])(?!\w*(?:answer|print|return|submit|fin))(?:[A-Z]|[a-z]\w*)\([^()]{0,60}$"
    r"|(?:(?<![A-Za-z])[a-z](?:\s?[+×·]\s?|\*|\s\*\s)|\d[a-z]\s?-\s?)$"
    rf"|(?:\^|\d\*\*|\d\s\*\*\s)\s?[{{(]*[+{_MINUS}]?$"
)
_BEHIND = re.compile(
    r"\s?[*·]?\s?(?:[π√∛∜]|\\pi(?![a-z])|\\sqrt|(?:pi|sqrt)(?![^\W_]))|i(?!\w)|[₀-₉]|_\{?\d"
    r"|(?<=\b0)(?:[xX](?=[\da-fA-F])(?!10\b)|[bBoO](?=[0-7]))|!\s?(?:[+/×÷·^$\\]|\*(?!\*)|-\s?\d)"
    rf"|{_UP}[({{]*[+{_MINUS}]?(?:\d|\\[dt]?frac|[a-np-z](?![a-z]))"
)
# "5!" or "x = 5!" alone; elsewhere the mark is the end of a sentence ("It is 46!"), unless its
# value stands before it ("120 = 5!").
_ALONE, _MARK = re.compile(r"(?:[^\w*]*[A-Za-z]\s?=)?[^\w*]*"), re.compile(r"!(?!\s?[!*])\W*$")
_FACTORIALS = {str(factorial(n)): str(n) for n in range(3, 21)}
# what stands between a number and a part of an expression that it equals: "46 = f(3)"
_EQUALS = re.compile(r"[\s$*]{0,3}[=≈](?:(?![=≈;]|\s[^\W\d_]{2,}\s).){0,60}")
# "between 3 and 5": when the 5 is reached, the words before it say that it ends a range.
_BETWEEN = re.compile(
    r"\b(?:between|zwischen|entre)\s\S*\d\S*\s(?:and|und|et|y|e)\s+$", re.IGNORECASE
)
# Every character that a match of the pattern above can begin with. The search for it is one scan of
# the C engine; the long pattern is tried at these places only.
_START = re.compile(rf"[\d\\$€£¥₹₩₽₺.+{_MINUS}]|[mn](?=inus\s|egative\s)")
# "\frac{3}{4}", "\dfrac34", and "2\frac{1}{2}", which is two and a half, not two times a half.
_LATEX_FRACTION = re.compile(
    rf"(?P<whole>\d?)\\[dtc]?frac\s?(?:\{{(?P<over>[+{_MINUS}]?[\d.]+)\}}|(?P<o>\d))"
    r"\s?(?:\{(?P<under>[\d.]+)\}|(?P<u>\d))"
)
_SUPERSCRIPTS = "⁻⁺⁰¹²³⁴⁵⁶⁷⁸⁹"
# "10³" and "2¹⁰"; in "5 m³" the raised digit belongs to the unit.
_RAISED = re.compile(rf"(?<=\d)[{_SUPERSCRIPTS}]+")
_PLAIN = str.maketrans(_SUPERSCRIPTS, "-+0123456789")
# "½" and "2½".
_VULGAR = re.compile(r"(?P<whole>\d?)(?P<fraction>[¼½¾⅐-⅞])")
_TO_MINUS = str.maketrans(dict.fromkeys(_MINUS, "-"))
_TO_ASCII = str.maketrans({"٫": ".", "٬": ",", "．": ".", "⁄": "/", "’": "'"})
# "~~12~~ 14": what is struck out was taken back. Nor do addresses and footnotes answer anything:
# "42[^1]", "[^1]: page 7", "42【4:0†source】".
_STRUCK = re.compile(
    r"~~.*?~~|<del>.*?</del>|https?://[!-;=?-~]+|\[\^\w+\](?::.*)?|【[^】]*†[^】]*】"
)
# "42 [1]": the number of a source behind one
_SOURCE = re.compile(r"(?<=[\d%)])\s?(?:\[\d{1,2}\])+(?!\()")
# an underscore that is emphasis, and not a part of a name or the mark of a subscript
_EMPHASIS = re.compile(r"(?<![^\W_])_+(?!\{)|_+(?![^\W_]|\{)")
# the exponent of a unit, the index of a name
_RAISED_UNIT = re.compile(
    rf"(?<=[^\W\d_]|[)\]}}°])\s?(?:\^|\*\*|_)\s?[{{(]?[+{_MINUS}]?\d+[)}}]?(?![*\d])"
)
_LISTED = re.compile(r"\s*\d{1,2}[.)]\s+(?=\S)")  # the number of an item of a list
# What says that a number is no answer. "3 +", "(2) ×", "+ 4" stand before, or behind, a term of a
# sum or a product; "**" is bold. Others deny it: "46, not 45", "46 rather than 45", "45 is wrong".
# Few words may stand in between: "it is not hard to see: 45".
_SIGN = r"[)%\s]*(?:[+×÷]|(?<!\*)\*(?!\*)|\\times|\\cdot)\s*"
_NOT = (
    "not|never|neither|nor|cannot|rather than|instead of|opposed to|unlike|no longer|nicht|statt"
    "|anstatt|pas|plutôt que|au lieu de|no es|en lugar de|en vez de|não|em vez de|non|invece di"
    "|niet|inte|ikke|nie|zamiast|ne|ei|nem|bukan|không|не|вместо|ليس|وليس"
)
_DENIAL = rf"(?i:(?:(?<![^\W_])(?:{_NOT})|n't|(?<=[,;y]\s)no)\s)"
_REFUSED_BEFORE = re.compile(
    rf"(?i:\d{_SIGN}|(?:{_DENIAL}|不是|≠|!=|\\neq?(?![a-z]))\s?(?:(?:the"
    r"|an?|have|be|been|equals?|only|just|exactly|to|it|die|der|das|la|le|el|es|è|é|[a-z]\s?=)\s){0,3}"
    r"[^\w\n.,;:!?]{0,4})\S?$"
)
_REFUSED_BEHIND = re.compile(
    rf"{_SIGN}[^\w\s]?\d|[^\w\n.,;:]{{0,4}}(?:[^\W\d_]+\s)?(?:(?:is|was|would\sbe|ist|est|es|è|é)\s(?:\w+\s)?"
    r"(?:wrong|false|incorrect[oa]?|falsch|faux)|(?:is|was|would)(?:n't|\snot)\s(?:be\s)?(?:the\s)?"
    r"(?:right|correct)|(?:では|じゃ)(?:な|あり)|[이가은는]?\s?아[니닙]|değil|是?(?:错|不对|不正确)|は間違)"
)
# What stands between a number and one in parentheses behind it, which is a remark on the first: "7
# (out of 30)", "15 kg (33 lb)". It is not in "4 (= 2 + 2)", nor in LaTeX's "\\(", nor where several
# amounts come before it, which it may add up: "5 ft 7 in (67 in)".
_UNIT = r"[\s\\%°*$€£¥]{0,6}(?:\\text\w*\{[^{}]*\}|[^\W\d_][^\s()（]*)?[\s*$]{0,3}"
_REMARK = re.compile(rf"{_UNIT}(?<!\\)[(（][^=≈()（]*")
# The label of a line ("**Confidence:** high"), or of a key in JSON; and those of an answer.
# "Result" is none: a step of several has one, too, and that of the last may be called a total.
_LABEL = re.compile(r"[\W_]*([^\W\d_][\w ']{0,40}?)[*_\s\"']*[:：][*_\s\"']*")
_KEY = re.compile(r"[{,]\s*([\"'])(\w+)\1\s*:")
_OF_ANSWER = re.compile(
    rf"(?:(?:the|my|final|correct|numeric(?:al)?)[ _])*(?:{ANSWER}|{ANSWER_UNSPACED})"
    "|final[ _]result",
    re.IGNORECASE,
)
# What follows an answer in its line: ". Confidence: 90", and of one that is no percentage, ", I am
# 90 % sure". "44. Wait, it is 46" takes the answer back. A unit of any length would make the search
# quadratic in a reply of points alone.
_ASIDE = re.compile(
    rf"[^\d=≈,;|]{{0,60}}[,;.|]{_LABEL.pattern}.*"
    r"|[^\d=≈,;|%]*[,;|][^\d=≈%]*\d{1,3}(?:[.,]\d+)?\s?\\?%[^\d=≈%]*"
)
_AND = re.compile(r"\s?[^\W\d_]+(?:,|\s[^\W\d_]+)?\s")
_CLOSE = 4  # characters between a label and its number, such as a currency
_LATEX_SPACES = {"\\,": "\u2009", "\\;": "\u2009", "\\ ": "\u2009", "\\!": ""}


class ReadNumber(NamedTuple):
    """A number that was read; of "3.2 million", both 3,200,000 and the 3.2 before the word."""

    value: Number
    unscaled: Number | None = None  # None without such a word


def last_number(text: str, decimal: Mark | None = None) -> Number | None:
    r"""Return the last number of a text that is no term and no remark; None if it has none.

    Terms are those of a sum or product, remarks stand in parentheses behind another number; nor is
    it one that is denied ("not 45"). Where all are such, the last of these. Numbers with labels of
    their own behind ``Answer: 42``, in its line or in JSON, are remarks on that one.

    Read are 1,234.50, 1.234,50, 50 000, -5, −$5, 1.5e-3, 2 × 10^3, 3/4, 2 1/2, .5, 3 million, and
    46 % as 46. Where the text holds ``\boxed{...}``, it is the last in the last of these.

    Args:
        text: a reply or a target.
        decimal: the decimal mark; None: a point, unless the number says otherwise. Then commas
            before groups of three digits separate thousands, as do apostrophes, underscores and
            spaces; a point does so in ``1.234.567`` and ``1.234,5``.

    Raises:
        DoubtError: it has two readings, as ``3,5``, ``10-15`` or ``2024-05-01``.
        ValueError: it has more than 1,000 digits, or a zero denominator.

    Example:
        >>> last_number("12 + 34 is 46."), last_number("3,5 kg", ",")
        (Decimal('46'), Decimal('3.5'))
    """
    matches = _last_line(text)
    return _number(matches[-1], decimal).value if matches else None


def formula(text: str) -> str | None:
    """Return the last number of a text without LaTeX as LaTeX, with its last line.

    None if the number is a part of an expression; the text itself if none can be read.
    """
    matches = _last_line(text)
    try:
        number = _number(matches[-1], None).value
    except (IndexError, ValueError):
        return None if matches and _is_part(matches[-1]) else text
    share = f"\\frac{{{Fraction(number).numerator}}}{{{Fraction(number).denominator}}}"
    latex, match = f"{number:f}" if isinstance(number, Decimal) else share, matches[-1]
    if match["e"] or match["times"] or match["scale"] or match["whole"]:
        return f"\\boxed{{{latex}}}"
    percent = "\\%" if match.string[match.end() :].lstrip().startswith("%") else ""
    line = text.strip().splitlines()[-1]
    return f"${latex}{percent}$\n{'' if re.search(_DENIAL, line) else line}"


def _last_line(text: str) -> list[re.Match[str]]:
    """Return the numbers of the last line with any: list markers count if there are no others."""
    # Each line is read without a list's number first ("3. Paris" answers nothing by its 3). Only if
    # no line holds any other number does the marker count: "1. 46" gives 46, and the reply "46."
    # gives 46.
    boxed = _boxed(text)
    lines = text.splitlines() if boxed is None else [boxed]
    if boxed is None and (stated := _stated(text)):
        return [stated]
    # Terms and remarks explain an answer ("7, since 3 + 4") and are none, unless there is no other.
    for pattern, read in ((_LISTED, _answers), (_LISTED, _matches), (None, _matches)):
        for line in reversed(lines):
            start = pattern.match(line) if pattern else None
            if matches := [*read(line[start.end() :] if start else line)]:
                return matches
    return []


def _stated(text: str) -> re.Match[str] | None:
    """Return the number behind ``answer:``, where remarks with numbers follow it alone.

    They say how sure the answer is, or how it was found, behind labels of their own or in the same
    line: ``{"answer": 42, "confidence": 0.9}``, ``Answer: 42, 90 % sure``.
    """
    others = False
    for line in reversed(_KEY.sub(r"\n\2:", text).splitlines()):
        label = _LABEL.match(line)
        numbers = [*_matches(line[label.end() :] if label else line)]
        if label and _OF_ANSWER.fullmatch(label[1]):
            if not numbers or numbers[0].start() >= _CLOSE:
                return None
            first, *more = numbers
            is_stated = _ASIDE.fullmatch(first.string, first.end()) if more else others
            return first if is_stated else None
        if numbers and not label:
            return None
        others |= bool(numbers)
    return None


def _answers(line: str) -> Iterator[re.Match[str]]:
    """Yield numbers that are no terms of a sum or product, not denied, and no remarks on others."""
    last = alone = None  # the last number, and the same if nothing is to be added to it
    for match in _matches(line):
        text, (start, end) = match.string, match.span()
        before = text[max(0, start - 40) : start + 1]
        if _REFUSED_BEFORE.search(before) or _REFUSED_BEHIND.match(text, end):
            continue
        if last and _EQUALS.fullmatch(text, last.end(), start):
            is_factorial = text[end : end + 1] == "!" and match[0] == _FACTORIALS.get(last[0])
            if is_factorial or _is_part(match):
                continue
        if alone and _REMARK.fullmatch(text, alone.end(), start):
            continue
        is_more = match["more"] or (last and _AND.fullmatch(text, last.end(), start))
        last, alone = match, None if is_more else match
        yield match


def options_for(targets: Iterable[str]) -> dict[str, Json] | None:
    """Return options of ``numeric`` with which each target is a number and no more; None if none.

    Example:
        >>> options_for(["3,5", "1.234", "2 %"]), options_for(["2024-05-01"])
        ({'decimal': ','}, None)
    """
    targets = list(targets)
    marks: tuple[Mark | None, Mark] = (None, ",")
    for mark in marks:
        if all(is_number(target, mark) for target in targets):
            return {"decimal": mark} if mark else {}
    return None


def is_number(text: str, decimal: Mark | None = None) -> bool:
    """Return whether a text is a number and no more."""
    matches = _last_line(text)
    try:
        is_one = len(matches) == 1 and _number(matches[0], decimal) is not None
    except ValueError:
        return False
    return is_one and not re.search(r"\w", matches[0].string.replace(matches[0][0], ""))


def _boxed(text: str) -> str | None:
    """Return the content of the last box of a text; None if it has no box."""
    _, is_there, rest = text.rpartition("\\boxed{")
    # Braces nest, as in \boxed{\frac{1}{2}}, which no regular expression can count.
    depth = 1
    for end, character in enumerate(rest if is_there else ""):
        depth += (character == "{") - (character == "}")
        if not depth:
            return rest[:end]
    return None


def _matches(line: str) -> Iterator[re.Match[str]]:
    """Yield matches of the pattern; it is tried only at possible starts: 5 times faster."""
    line = _plain(line)
    position = 0
    while start := _START.search(line, position):
        if match := _NUMBER.match(line, start.start()):
            yield match
        # After a failed try the search goes on behind one character, after a match behind all of
        # it: no part of what was read is read again.
        position = (match or start).end()


def _number(match: re.Match[str], decimal: Mark | None) -> ReadNumber:
    # Limits come before any conversion: int() and Fraction() of long texts take quadratic time.
    if len(match[0]) > MAX_DIGITS:
        raise ValueError(f"a number of more than {MAX_DIGITS:,} digits")
    if _BETWEEN.search(match.string[: match.start()]):
        raise DoubtError(f"{match[0].strip()!r} is the end of a range")
    if _is_part(match):
        raise DoubtError(f"{match[0].strip()!r} is a part of an expression; `math` compares these")
    group = match.groupdict("")
    signs = f"{group['sign']}{group['currency']}".translate(_TO_MINUS)
    sign = "-" if "-" in signs or group["less"] else ""
    words = re.findall(rf"[{_TOUCHING}]|[^\s-]+", group["scale"] or group["short"])
    powers = [_SHORT.get(word.lower()) or _power(word) for word in words]
    scale, unscaled = sum(powers), sum(powers[:-1])
    if not (group["over"] or group["more"] or group["power"] or group["on"]):
        # The exponent is written into the text of the decimal, so that nothing is rounded on the
        # way: the default context of Decimal would round a product to 28 digits.
        digits = _digits(group["run"], decimal)
        exponent = _exponent(group["e"] or group["times"] or "0")
        value = Decimal(f"{sign}{digits}E{exponent + scale}")
        share = Decimal(f"{sign}{digits}E{exponent + unscaled}")
        return ReadNumber(value, share if powers else None)
    ratio = Fraction(f"{sign}1") * _share(match, group, decimal)
    return ReadNumber(ratio * 10**scale, ratio * 10**unscaled if powers else None)


def _power(word: str) -> int:
    return next(n for n, words in _SCALES.items() if re.fullmatch(words, word, re.IGNORECASE))


def _is_part(match: re.Match[str]) -> bool:
    """Return whether a number is a part of an expression."""
    text, end = match.string, match.end()
    before = text[max(0, match.start() - 200) : match.start()]
    if _BEFORE.search(before) or _BEHIND.match(text, end):
        return True
    return bool(_MARK.match(text, end) and _ALONE.fullmatch(before))


def _share(match: re.Match[str], group: Mapping[str, str], decimal: Mark | None) -> Fraction:
    """Return the value of a fraction, or of a power, without its sign."""
    over, under = Fraction(group["over"] or _digits(group["run"], decimal)), group["under"]
    if group["power"] and not group["more"]:
        exponent = _exponent(group["power"])
        # A power has about as many digits as its base has, times the exponent.
        if len(group["run"]) * abs(exponent) > MAX_DIGITS * len("10"):
            raise ValueError(f"a number of more than {MAX_DIGITS:,} digits")
        return over**exponent
    if more := group["more"] or group["on"]:
        start, _, rest = more.partition("/")
        # Of all that may hang together with a run, only a slash with one number behind it is a
        # number: "3/4". "1/2/3" is a date or a quotient of quotients, "10-15" a range.
        if start.strip() or not re.fullmatch(_RUN, rest.strip(), re.VERBOSE):
            raise DoubtError(f"{match[0].strip()!r} is a range, a date or several numbers")
        under = _digits(rest.strip(), decimal)
    if Fraction(under) == 0:
        raise ValueError("a fraction over zero")
    # "2 3/4" is a mixed number, "12 3/2" is not: perhaps 12 and 3/2, perhaps 123/2.
    if group["whole"] and over >= Fraction(under):
        raise DoubtError(f"{match[0].strip()!r} can be read in several ways")
    return int(group["whole"] or 0) + over / Fraction(under)


def _exponent(written: str) -> int:
    exponent = int(written.translate(_TO_MINUS))
    if abs(exponent) > MAX_DIGITS:
        raise ValueError(f"a number of more than {MAX_DIGITS:,} digits")
    return exponent


def _digits(run: str, decimal: Mark | None) -> str:
    """Return a run of digits and separators with a point as decimal mark, and nothing else.

    The last separator is the decimal mark if it differs from all others. A single one is it if
    ``decimal`` says so, or if it is a point that does not stand before a group of three where
    ``decimal`` is a comma. All other separators are alike, and join groups.
    """
    groups, marks = re.split(r"\D", run), re.sub(r"\d", "", run)
    last, whole = marks[-1:], groups
    # Where commas are decimal marks, "1.234" is one thousand, and "1.23", which cannot be groups of
    # three, is still a decimal.
    is_point = last == "." and not (decimal == "," and _grouped(groups, "."))
    if last in (".", ",") and (
        last not in marks[:-1] if marks[:-1] else last == decimal or is_point
    ):
        whole, marks = groups[:-1], marks[:-1]
    # The separators that are left must be alike and make groups: "1,234,567" passes. "3,5" and
    # "1,2,3" do not, and are refused rather than read by a guess.
    if marks and not (len(set(marks)) == 1 and _grouped(whole, marks[0])):
        hint = "" if decimal else '; set `decimal: ","` or `decimal: "."`'
        raise DoubtError(f"{run!r} can be read in several ways{hint}")
    return f"{''.join(whole) or 0}" + ("" if whole is groups else f".{groups[-1]}")


def _grouped(groups: Sequence[str], mark: str) -> bool:
    """Return whether digits stand in groups of three; by commas also as in 12,34,567."""
    first, *rest = groups
    if not re.fullmatch(r"[1-9]\d{0,2}", first) or len(groups[-1]) != 3:
        return False
    # The middle groups: threes everywhere, or twos by Indian custom (12,34,567) with a three at the
    # end.
    sizes = {len(group) for group in rest[:-1]}
    return sizes <= {3} or (mark == "," and sizes == {2} and len(first) < 3)


def _plain(line: str) -> str:
    r"""Rewrite \frac{3}{4}, ½ and 10³ in plain characters; drop emphasis and exponents of units."""
    # The order matters: LaTeX spaces become thin spaces before fractions are read, raised digits
    # become "^3" before the exponents of units are dropped, and "m^2" must be gone before numbers
    # are looked for, or its 2 would be the last number of the line.
    line = _STRUCK.sub(" ", _SOURCE.sub("", line).translate(_TO_ASCII)).replace("{,}", ",")
    for written, plain in _LATEX_SPACES.items():
        line = line.replace(written, plain)
    line = _LATEX_FRACTION.sub(_plain_fraction, line).replace("<sup>", "^").replace("<sub>", "_")
    if not line.isascii():
        line = "".join(str(unicodedata.decimal(character, character)) for character in line)
        line = _VULGAR.sub(_plain_fraction, line)
        line = _RAISED.sub(lambda raised: "^" + raised[0].translate(_PLAIN), line)
    return _RAISED_UNIT.sub("", _EMPHASIS.sub("", line))


def _plain_fraction(match: re.Match[str]) -> str:
    group = match.groupdict("")
    if "fraction" in group:
        fraction = unicodedata.normalize("NFKC", group["fraction"]).replace("⁄", "/")
    else:
        fraction = f"{group['over'] or group['o']}/{group['under'] or group['u']}"
    return f"{group['whole']} {fraction}" if group["whole"] else fraction


Tolerance: TypeAlias = Annotated[
    Decimal,
    Field(ge=0, allow_inf_nan=False, max_digits=25),
    AfterValidator(lambda tolerance: abs(tolerance.normalize())),  # 0.10 is 0.1 in the digest
]


class NumericOptions(ShortRuleOptions):
    """Options of ``numeric``."""

    # the mark before decimals, in replies and targets; None: a point, unless a number has others
    decimal: Mark | None = None
    absolute_tolerance: Tolerance = Decimal(0)  # largest allowed difference, >= 0
    # as a share of the reference, >= 0; the larger one counts
    relative_tolerance: Tolerance = Decimal(0)


class NumericJudge(RuleJudge[NumericOptions, ReadNumber]):
    """Scores 1 if the number equals any reference, in exact arithmetic: 46 is 46.0.

    "3.2 million" equals both 3,200,000 and a target of 3.2, which may be counted in millions.
    """

    adapter = "numeric"
    # 2: a number is read as a whole, or not at all; 3: those of sources are none, 4: nor are terms,
    # 5: nor remarks, 6: what has another label behind "answer:" is none, 7: nor what follows in its
    # line, 8: answers have labels in more languages, 9: nor what is denied; more words for scales
    version = 9
    recognises = True
    options_type = NumericOptions

    def __init__(self, name: str, options: NumericOptions) -> None:
        super().__init__(name, options)
        self._read_reference = cache(self._read_target)
        self._absolute = Fraction(options.absolute_tolerance)
        self._relative = Fraction(options.relative_tolerance)

    def _extract(self, text: str, example: Example) -> ReadNumber:
        matches = _last_line(text)
        if not matches:
            raise unparsable("no number", text)
        try:
            return _number(matches[-1], self.options.decimal)
        except ValueError as error:
            raise unparsable(str(error), text) from None

    def _text(self, answer: ReadNumber) -> str:
        return f"{answer.value:f}" if isinstance(answer.value, Decimal) else str(answer.value)

    def _agrees(self, answer: ReadNumber, example: Example) -> bool:
        return any(self._close(answer, target) for target in self._targets(example))

    def _target(self, reference: str, example: Example) -> ReadNumber:
        return self._read_reference(reference)

    def _read_target(self, reference: str) -> ReadNumber:
        matches = _last_line(reference)
        if not matches:
            raise ValueError("it holds no number")
        if len(matches) > 1:
            raise DoubtError(f"it holds {len(matches)} numbers; leave the right one")
        return _number(matches[0], self.options.decimal)

    def _close(self, answer: ReadNumber, target: ReadNumber) -> bool:
        if self._near(answer.value, target.value):
            return True
        # Only one of the two says its scale in a word: a target column headed "in millions" holds
        # 3.2 where the reply says "3.2 million". Where both say it or neither does, the scales must
        # agree.
        if (answer.unscaled is None) == (target.unscaled is None):
            return False
        return self._near(answer.unscaled or answer.value, target.unscaled or target.value)

    def _near(self, answer: Number, target: Number) -> bool:
        if answer == target or not (self._absolute or self._relative):
            return answer == target  # exact, also of a decimal and a fraction
        # Decimal's own subtraction rounds to 28 digits, Fraction does not. It is only made where a
        # tolerance asks for it: for 1E+1000 it has a thousand digits.
        share = Fraction(target)
        tolerance = max(self._absolute, self._relative * abs(share))
        return abs(Fraction(answer) - share) <= tolerance
