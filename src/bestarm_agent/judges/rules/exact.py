"""Score 1 if the answer equals a reference."""

from __future__ import annotations

from typing import Generic, TypeVar

from bestarm_agent.domain.example import Example
from bestarm_agent.judges.rules.base import RuleJudge, RuleOptions, references, unparsable
from bestarm_agent.judges.rules.text_normalisation import STANDARD, Normalisation, normaliser


class ExactOptions(RuleOptions):
    """Options of ``exact``; ``normalise`` applies to the answer and to the references."""

    normalise: Normalisation = STANDARD


OptionsT = TypeVar("OptionsT", bound=ExactOptions)


class NormalisedTextJudge(RuleJudge[OptionsT, str], Generic[OptionsT]):
    """The base of judges that compare normalised texts."""

    def __init__(self, name: str, options: OptionsT) -> None:
        super().__init__(name, options)
        self._normalise = normaliser(options.normalise)

    def _extract(self, text: str, example: Example) -> str:
        answer = self._normalise(text)
        if not answer or answer.isspace():
            raise unparsable("no answer", text)
        return answer


class ExactJudge(NormalisedTextJudge[ExactOptions]):
    """Scores 1 if the text equals any reference after normalisation."""

    adapter = "exact"
    options_type = ExactOptions

    def _agrees(self, answer: str, example: Example) -> bool:
        return any(answer == self._normalise(reference) for reference in references(example))
