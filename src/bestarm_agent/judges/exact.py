"""The answer equals a reference."""

from __future__ import annotations

from typing import ClassVar

from bestarm_agent.domain.example import Example
from bestarm_agent.judges.rule import RuleJudge, RuleOptions, references, unparsable
from bestarm_agent.judges.text import Normalisation, normaliser


class ExactOptions(RuleOptions):
    """Options of ``exact``.

    Attributes:
        normalise: steps taken with answer and references before they are compared.
    """

    normalise: Normalisation


class ExactJudge(RuleJudge[ExactOptions, str]):
    """Scores 1 if what is read equals any reference after normalisation."""

    adapter: ClassVar[str] = "exact"
    options_type: ClassVar[type[RuleOptions]] = ExactOptions

    def __init__(self, name: str, options: ExactOptions) -> None:
        super().__init__(name, options)
        self._normalise = normaliser(options.normalise)

    def _extract(self, text: str, example: Example) -> str:
        answer = self._normalise(text)
        if not answer or answer.isspace():
            raise unparsable("no answer", text)
        return answer

    def _agrees(self, answer: str, example: Example) -> bool:
        return any(answer == self._normalise(reference) for reference in references(example))
