"""Score 1 if the answer contains a reference."""

from __future__ import annotations

from typing import Literal

from bestarm_agent.domain.example import Example
from bestarm_agent.judges.rules.base import references
from bestarm_agent.judges.rules.exact import ExactOptions, NormalisedTextJudge
from bestarm_agent.judges.rules.text_normalisation import contains


class ContainsOptions(ExactOptions):
    """Options of ``contains``."""

    words: bool = True  # whether a reference must occur as whole words; else "46" occurs in "1463"
    require: Literal["any", "all"] = "any"  # references that must occur


class ContainsJudge(NormalisedTextJudge[ContainsOptions]):
    """Scores 1 if the references occur in the text after normalisation."""

    adapter = "contains"
    options_type = ContainsOptions

    def _agrees(self, answer: str, example: Example) -> bool:
        words = self.options.words
        combine = any if self.options.require == "any" else all
        parts = map(self._normalise, references(example))
        return combine(contains(answer, part, words=words) for part in parts)
