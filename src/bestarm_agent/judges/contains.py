"""The answer holds a reference."""

from __future__ import annotations

from typing import ClassVar, Literal

from bestarm_agent.domain.example import Example
from bestarm_agent.judges.rule import RuleJudge, RuleOptions, references, unparsable
from bestarm_agent.judges.text import Normalisation, holds, normaliser


class ContainsOptions(RuleOptions):
    """Options of ``contains``.

    Attributes:
        normalise: steps taken with reply and references before they are compared.
        words: whether a reference must stand there as whole words.
        require: whether "any" or "all" references must occur.
    """

    normalise: Normalisation
    words: bool
    require: Literal["any", "all"]


class ContainsJudge(RuleJudge[ContainsOptions, str]):
    """Scores 1 if the references occur in what is read, after normalisation."""

    adapter: ClassVar[str] = "contains"
    options_type: ClassVar[type[RuleOptions]] = ContainsOptions

    def __init__(self, name: str, options: ContainsOptions) -> None:
        super().__init__(name, options)
        self._normalise = normaliser(options.normalise)
        self._enough = any if options.require == "any" else all

    def _extract(self, text: str, example: Example) -> str:
        read = self._normalise(text)
        if not read or read.isspace():
            raise unparsable("no answer", text)
        return read

    def _agrees(self, answer: str, example: Example) -> bool:
        words = self.options.words
        parts = map(self._normalise, references(example))
        return self._enough(holds(answer, part, words=words) for part in parts)
