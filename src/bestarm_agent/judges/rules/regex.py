"""Score by a regular expression of the user."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

import regex
from pydantic import AfterValidator, Field, model_validator

from bestarm_agent.domain.example import Example
from bestarm_agent.judges.rules.base import (
    RuleJudge,
    RuleOptions,
    judge_failed,
    references,
    unparsable,
)
from bestarm_agent.judges.rules.text_normalisation import STANDARD, Normalisation, normaliser

Flag: TypeAlias = Literal["ignore-case", "multi-line", "dot-all", "ascii"]

_FLAGS: dict[Flag, int] = {
    "ignore-case": regex.IGNORECASE,
    "multi-line": regex.MULTILINE,
    "dot-all": regex.DOTALL,
    "ascii": regex.ASCII,
}


def _sorted_flags(flags: tuple[Flag, ...]) -> tuple[Flag, ...]:
    return tuple(sorted(set(flags)))


class RegexOptions(RuleOptions):
    """Options of ``regex``; ``normalise`` applies to the group and to the references.

    If ``group`` is None nothing is compared: a reply that matches scores 1, any other 0.
    """

    max_chars: int = Field(20_000, ge=100, le=10_000_000)
    pattern: str = Field(min_length=1, max_length=2000)  # in the syntax of the ``regex`` package
    flags: Annotated[tuple[Flag, ...], AfterValidator(_sorted_flags)] = ()
    group: int | str | None = None  # number or name
    normalise: Normalisation = STANDARD
    timeout_seconds: float = Field(0.5, gt=0, le=10)  # of a match, CPU seconds of this process

    @model_validator(mode="after")
    def _check_pattern(self) -> Self:
        compiled = self.compiled()
        if isinstance(self.group, int) and not 0 <= self.group <= compiled.groups:
            raise ValueError(
                f"`group` must be in [0, {compiled.groups}] for this `pattern`, got {self.group}"
            )
        if isinstance(self.group, str) and self.group not in compiled.groupindex:
            raise ValueError(f"`pattern` has no group named {self.group!r}")
        return self

    def compiled(self) -> regex.Pattern[str]:
        """Compile the pattern; raises ValueError if it is malformed."""
        flags = 0
        for flag in self.flags:
            flags |= _FLAGS[flag]
        try:
            return regex.compile(self.pattern, flags, cache_pattern=False)
        except regex.error as error:
            raise ValueError(f"`pattern` is malformed: {error}") from None


class RegexJudge(RuleJudge[RegexOptions, str | None]):
    """Scores 1 if the pattern matches, or if its group equals any reference."""

    adapter = "regex"
    options_type = RegexOptions

    def __init__(self, name: str, options: RegexOptions) -> None:
        super().__init__(name, options)
        self.needs_reference = options.group is not None
        self._pattern = options.compiled()
        self._normalise = normaliser(options.normalise)

    def _extract(self, text: str, example: Example) -> str | None:
        found = self._match(text)
        group = self.options.group
        if group is None:
            return None if found is None else found[0]
        answer = None if found is None else found[group]
        if not answer:
            raise unparsable(f"nothing that the pattern of judge `{self.name}` catches", text)
        return answer

    def _agrees(self, answer: str | None, example: Example) -> bool:
        if self.options.group is None or answer is None:
            return answer is not None
        said = self._normalise(answer)
        return any(said == self._normalise(reference) for reference in references(example))

    def _said(self, answer: str | None) -> str:
        return answer or ""

    def _match(self, text: str) -> regex.Match[str] | None:
        timeout = self.options.timeout_seconds
        try:
            return self._pattern.search(text, timeout=timeout)
        except TimeoutError:
            raise judge_failed(
                f"the pattern of judge `{self.name}` took more than {timeout:g} s on a reply of "
                f"{len(text):,} characters; make its repetitions unambiguous or possessive "
                "(`a++`), or lower `max_chars`"
            ) from None
