"""Grades one answer on a scale, by a rubric or against a reference."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Reply
from bestarm_agent.judges.asking import AskingJudge, Opinion, Question, schema_of
from bestarm_agent.judges.asking_options import AskingOptions
from bestarm_agent.judges.quoting import as_shown
from bestarm_agent.judges.reading import read_verdict
from bestarm_agent.judges.scales import ScaleOption, make_scale


class GradingOptions(AskingOptions):
    """Options of ``rubric`` and ``reference-graded``.

    Attributes:
        rubric: what counts, in words; the template shows it.
        scale: ``[worst, best]``, or labels with their worth.
        whole: whether only whole numbers are verdicts; labels do not care.
        explain: whether the judge writes an explanation before its verdict.
    """

    rubric: str
    scale: ScaleOption
    whole: bool
    explain: bool


class RubricJudge(AskingJudge[GradingOptions]):
    """Grades each answer by itself; a reference, where there is one, is shown."""

    adapter: ClassVar[str] = "rubric"
    options_type: ClassVar[type[AskingOptions]] = GradingOptions

    def __init__(self, name: str, options: GradingOptions) -> None:
        self._scale = make_scale(options.scale, whole=options.whole)
        super().__init__(name, options)

    def _questions(self, example: Example, answer: str, vote: int) -> Sequence[Question]:
        why: dict[str, Json] = {"explanation": {"type": "string"}} if self.options.explain else {}
        call = self._call(
            example,
            {"answer": self._shown(answer)},
            vote=vote,
            words={
                "rubric": self.options.rubric,
                "verdicts": self._scale.words,
                "explain": self.options.explain,
            },
            schema=schema_of({**why, "verdict": self._scale.schema}),
        )
        return [Question(call, partial(self._read, as_shown(answer)))]

    def _read(self, answer: str, reply: Reply) -> Opinion:
        verdict = read_verdict(reply, ["verdict"], answer)
        value = self._scale.value(verdict["verdict"])
        vote = self._vote(value, verdict["verdict"], verdict.get("explanation", ""))
        return Opinion(value, (vote,))


class ReferenceGradedJudge(RubricJudge):
    """Grades each answer against the example's reference."""

    adapter: ClassVar[str] = "reference-graded"
    needs_reference = True
