"""Grades one answer by several criteria at once; the score is their weighted mean."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Reply
from bestarm_agent.judges.asking import AskingJudge, Opinion, Question, schema_of
from bestarm_agent.judges.asking_options import AskingOptions
from bestarm_agent.judges.quoting import as_shown
from bestarm_agent.judges.reading import read_verdict
from bestarm_agent.judges.scales import ScaleOption, make_scale


class Criterion(BaseModel):
    """One thing that counts.

    Attributes:
        about: what it asks for, in words.
        weight: how much it counts, > 0.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

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


class CriteriaOptions(AskingOptions):
    """Options of ``criteria``.

    Attributes:
        criteria: what counts, by name.
        scale: ``[worst, best]``, or labels with their worth; the same for all criteria.
        whole: whether only whole numbers are verdicts.
        explain: whether the judge writes an explanation before its verdicts.
    """

    criteria: Annotated[dict[str, Criterion], Field(min_length=1), AfterValidator(_check_names)]
    scale: ScaleOption
    whole: bool
    explain: bool


class CriteriaJudge(AskingJudge[CriteriaOptions]):
    """Asks for all criteria in one call."""

    adapter: ClassVar[str] = "criteria"
    options_type: ClassVar[type[AskingOptions]] = CriteriaOptions

    def __init__(self, name: str, options: CriteriaOptions) -> None:
        self._scale = make_scale(options.scale, whole=options.whole)
        super().__init__(name, options)

    def _questions(self, example: Example, answer: str, vote: int) -> Sequence[Question]:
        options = self.options
        properties: dict[str, Json] = dict.fromkeys(options.criteria, self._scale.schema)
        if options.explain:
            properties = {"explanation": {"type": "string"}, **properties}
        call = self._call(
            example,
            {"answer": self._shown(answer)},
            vote=vote,
            words={
                "criteria": {name: one.about for name, one in options.criteria.items()},
                "verdicts": self._scale.words,
                "explain": options.explain,
            },
            schema=schema_of(properties),
        )
        return [Question(call, partial(self._read, as_shown(answer)))]

    def _read(self, answer: str, reply: Reply) -> Opinion:
        criteria = self.options.criteria
        verdict = read_verdict(reply, list(criteria), answer)
        values = {name: self._scale.value(verdict[name]) for name in criteria}
        why = verdict.get("explanation", "")
        votes = tuple(
            self._vote(value, verdict[name], why if i == 0 else "", about=name)
            for i, (name, value) in enumerate(values.items())
        )
        total = sum(one.weight for one in criteria.values())
        weighted = sum(values[name] * one.weight for name, one in criteria.items()) / total
        return Opinion(min(1.0, weighted), votes)
