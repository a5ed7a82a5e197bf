"""Score 1 if the answer is the same number as a reference."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

from bestarm_agent.domain.example import Example
from bestarm_agent.judges.rules.base import (
    RuleJudge,
    RuleOptions,
    judge_failed,
    references,
    unparsable,
)
from bestarm_agent.judges.rules.numbers import Number, last_number
from bestarm_agent.judges.rules.text_normalisation import shown


def _canonical(tolerance: Decimal) -> Decimal:
    return abs(tolerance.normalize())


Tolerance: TypeAlias = Annotated[
    Decimal, Field(ge=0, allow_inf_nan=False, max_digits=25), AfterValidator(_canonical)
]


class NumericOptions(RuleOptions):
    """Options of ``numeric``."""

    max_chars: int = Field(20_000, ge=100, le=10_000_000)
    absolute_tolerance: Tolerance = Decimal(0)  # largest allowed difference, >= 0
    # as a share of the reference, >= 0; the larger one counts
    relative_tolerance: Tolerance = Decimal(0)


class NumericJudge(RuleJudge[NumericOptions, Number]):
    """Scores 1 if the number equals any reference, in exact arithmetic: 46 is 46.0."""

    adapter = "numeric"
    options_type = NumericOptions

    def __init__(self, name: str, options: NumericOptions) -> None:
        super().__init__(name, options)
        self._reference = cache(self._read_reference)
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
        return any(self._close(answer, reference) for reference in references(example))

    def _problem(self, reference: str, example: Example) -> str | None:
        try:
            self._reference(reference)
        except ValueError as error:
            return str(error)
        return None

    def _read_reference(self, written: str) -> Number:
        number = last_number(written)
        if number is None:
            raise ValueError("it holds no number")
        return number

    def _close(self, answer: Number, written: str) -> bool:
        try:
            reference = self._reference(written)
        except ValueError as error:
            raise judge_failed(f"reference {shown(written)!r}: {error}") from None
        if answer == reference:
            return True
        if not self._absolute and not self._relative:
            return False
        target = Fraction(reference)
        tolerance = max(self._absolute, self._relative * abs(target))
        return abs(Fraction(answer) - target) <= tolerance
