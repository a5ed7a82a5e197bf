"""Grade one answer by several criteria in one call; the score is their weighted mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.example import Example
from bestarm_agent.judges.base_judge import JudgeOptions
from bestarm_agent.judges.models.base import Judgement, Query
from bestarm_agent.judges.models.grading import GradingJudge, GradingOptions
from bestarm_agent.judges.models.verdicts import Verdict


class Criterion(JudgeOptions):
    """One criterion: ``about`` says it in words, ``weight`` > 0 is its share of the score."""

    about: str = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)


def _check_names(criteria: dict[str, Criterion]) -> dict[str, Criterion]:
    for name in criteria:
        if not name.replace("_", "").replace("-", "").isalnum() or name != name.lower():
            raise ValueError(
                f"criterion {name!r} must be named by lower-case letters, digits, `_` and `-`"
            )
        if name == "explanation":
            raise ValueError("a criterion cannot be called `explanation`; choose another name")
    return criteria


class CriteriaOptions(GradingOptions):
    """Options of ``criteria``: what counts, by name; all criteria have the same scale."""

    criteria: Annotated[dict[str, Criterion], Field(min_length=1), AfterValidator(_check_names)]

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if self.verdict != "json":
            raise ValueError(
                "`verdict` must be 'json' for several criteria: other forms hold one verdict; "
                "lines such as `clarity: 4` and tags `<clarity>4</clarity>` are read as it is"
            )
        return self


class CriteriaJudge(GradingJudge[CriteriaOptions]):
    """Asks for all criteria in one call."""

    adapter = "criteria"
    options_type = CriteriaOptions

    def _queries(self, example: Example, answer: str, vote: int) -> Sequence[Query]:
        criteria = self.options.criteria
        words: dict[str, Json] = {"criteria": {name: one.about for name, one in criteria.items()}}
        return [self._query(example, answer, vote, list(criteria), words)]

    def _judgement_of(self, verdict: Verdict) -> Judgement:
        criteria = self.options.criteria
        values = {name: self._scale.value(verdict[name]) for name in criteria}
        why = verdict.get("explanation", "")
        votes = tuple(
            self._vote(value, verdict[name], why if i == 0 else "", about=name)
            for i, (name, value) in enumerate(values.items())
        )
        total = sum(one.weight for one in criteria.values())
        weighted = sum(values[name] * one.weight for name, one in criteria.items()) / total
        return Judgement(min(1.0, weighted), votes)
