"""The answer matches the user's own pattern."""

from __future__ import annotations

from collections import deque
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

import regex
from pydantic import AfterValidator, Field, model_validator

from bestarm_agent.domain.example import Example
from bestarm_agent.judges.rule import RuleJudge, RuleOptions, broken, references, unparsable
from bestarm_agent.judges.text import Normalisation, normaliser

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
    """Options of ``regex``.

    Attributes:
        pattern: in the syntax of the ``regex`` package, a superset of Python's ``re``.
        flags: "ignore-case", "multi-line", "dot-all", "ascii".
        group: number or name of the group that holds the answer, which is then compared with the
            references; None compares nothing: a reply that matches scores 1, another one 0.
        which: the "first" or the "last" match counts.
        normalise: steps taken with the group and the references before they are compared.
        timeout_seconds: CPU seconds of this process after which a match is given up, in (0, 10].
    """

    pattern: str = Field(min_length=1, max_length=2000)
    flags: Annotated[tuple[Flag, ...], AfterValidator(_sorted_flags)]
    group: int | str | None
    which: Literal["first", "last"]
    normalise: Normalisation
    timeout_seconds: float = Field(gt=0, le=10)

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
    """Scores 1 if the pattern matches, or if what its group caught equals any reference."""

    adapter: ClassVar[str] = "regex"
    options_type: ClassVar[type[RuleOptions]] = RegexOptions

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
            if self.options.which == "first":
                return self._pattern.search(text, timeout=timeout)
            matches = deque(self._pattern.finditer(text, timeout=timeout), maxlen=1)
            return matches[0] if matches else None
        except TimeoutError:
            raise broken(
                f"the pattern of judge `{self.name}` took more than {timeout:g} s on a reply of "
                f"{len(text):,} characters; make its repetitions unambiguous or possessive "
                "(`a++`), or lower `max_chars`"
            ) from None
