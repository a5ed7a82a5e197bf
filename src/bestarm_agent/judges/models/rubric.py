"""Grade one answer on a scale, by a rubric or against a reference."""

from __future__ import annotations

from collections.abc import Sequence

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.example import Example
from bestarm_agent.judges.models.base import Judgement, Query
from bestarm_agent.judges.models.grading import GradingJudge, GradingOptions
from bestarm_agent.judges.models.verdicts import Verdict


class RubricOptions(GradingOptions):
    """Options of ``rubric`` and ``reference-graded``; the template shows the ``rubric``."""

    rubric: str


class RubricJudge(GradingJudge[RubricOptions]):
    """Grades each answer by itself; shows the reference if there is one."""

    adapter = "rubric"
    options_type = RubricOptions

    def _queries(self, example: Example, answer: str, vote: int) -> Sequence[Query]:
        words: dict[str, Json] = {"rubric": self.options.rubric}
        return [self._query(example, answer, vote, ["verdict"], words)]

    def _judgement_of(self, verdict: Verdict) -> Judgement:
        value = self._scale.value(verdict["verdict"])
        vote = self._vote(value, verdict["verdict"], verdict.get("explanation", ""))
        return Judgement(value, (vote,))


class ReferenceGradedJudge(RubricJudge):
    """Grades each answer against the example's reference."""

    adapter = "reference-graded"
    needs_reference = True
