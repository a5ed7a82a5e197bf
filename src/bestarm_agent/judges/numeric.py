"""The answer is the same number as a reference."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, Field

from bestarm_agent.domain.example import Example
from bestarm_agent.judges.numerals import DecimalMark, Number, NumeralReader
from bestarm_agent.judges.rule import RuleJudge, RuleOptions, broken, references, unparsable
from bestarm_agent.judges.text import shown


def _canonical(tolerance: Decimal) -> Decimal:
    return abs(tolerance.normalize())


Tolerance: TypeAlias = Annotated[
    Decimal, Field(ge=0, allow_inf_nan=False, max_digits=25), AfterValidator(_canonical)
]


class NumericOptions(RuleOptions):
    """Options of ``numeric``.

    Attributes:
        which: the "first" or the "last" number is the answer.
        decimal_mark: "." or ","; the other one separates thousands.
        fractions: whether 3/4 is one number; else it is two.
        percent: what 46 % is: "ignore" reads 46, "hundredth" reads 0.46.
        absolute_tolerance: how far the answer may lie from the reference, >= 0.
        relative_tolerance: the same as a share of the reference's size, >= 0; the wider one counts.
    """

    which: Literal["first", "last"]
    decimal_mark: DecimalMark
    fractions: bool
    percent: Literal["ignore", "hundredth"]
    absolute_tolerance: Tolerance
    relative_tolerance: Tolerance


class NumericJudge(RuleJudge[NumericOptions, Number]):
    """Scores 1 if the number read equals any reference, in exact arithmetic: 46 is 46.0."""

    adapter: ClassVar[str] = "numeric"
    options_type: ClassVar[type[RuleOptions]] = NumericOptions

    def __init__(self, name: str, options: NumericOptions) -> None:
        super().__init__(name, options)
        reader = NumeralReader(
            options.decimal_mark, fractions=options.fractions, percent=options.percent
        )
        self._read = reader.first if options.which == "first" else reader.last
        self._reference = cache(self._read_reference)
        self._absolute = Fraction(options.absolute_tolerance)
        self._relative = Fraction(options.relative_tolerance)

    def _extract(self, text: str, example: Example) -> Number:
        try:
            number = self._read(text)
        except ValueError as error:
            raise unparsable(str(error), text) from None
        if number is None:
            raise unparsable("no number", text)
        return number

    def _agrees(self, answer: Number, example: Example) -> bool:
        return any(self._close(answer, reference) for reference in references(example))

    def _problem(self, reference: str, example: Example) -> str | None:
        try:
            self._reference(reference)
        except ValueError as error:
            return str(error)
        return None

    def _read_reference(self, written: str) -> Number:
        """Read a reference answer; raises ValueError if it holds no number."""
        number = self._read(written)
        if number is None:
            raise ValueError("it holds no number")
        return number

    def _close(self, answer: Number, written: str) -> bool:
        try:
            reference = self._reference(written)
        except ValueError as error:
            raise broken(f"reference {shown(written)!r}: {error}") from None
        if answer == reference:
            return True
        if not self._absolute and not self._relative:
            return False
        target = Fraction(reference)
        tolerance = max(self._absolute, self._relative * abs(target))
        return abs(Fraction(answer) - target) <= tolerance
