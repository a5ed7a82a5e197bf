"""Judges that grade one answer on a scale: by a rubric, a reference, criteria, or G-Eval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Generic, Self, TypeAlias, TypeVar

from pydantic import AfterValidator, Field, model_validator

from bestarm_agent.domain.values import Json, Reply, Score
from bestarm_agent.judges.base import JudgeOptions
from bestarm_agent.judges.model import ModelJudge, ModelJudgeOptions
from bestarm_agent.judges.verdicts import (
    LabelScale,
    NumberScale,
    Scale,
    VerdictForm,
    folded,
    weighted_worth,
)


def _checked_range(bounds: tuple[float, float]) -> tuple[float, float]:
    if bounds[0] == bounds[1]:
        raise ValueError("the two ends of the scale must differ")
    return bounds


def _checked_labels(labels: dict[str, float]) -> dict[str, float]:
    if len(set(labels.values())) < 2:
        raise ValueError("a scale needs at least two labels of different worth")
    if len({folded(label) for label in labels}) < len(labels):
        raise ValueError("two labels of the scale are the same but for case or hyphens")
    return labels


_Finite: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
ScaleOption: TypeAlias = (
    Annotated[tuple[_Finite, _Finite], AfterValidator(_checked_range)]
    | Annotated[dict[str, _Finite], AfterValidator(_checked_labels)]
)


class GradingOptions(ModelJudgeOptions):
    """Options of judges that grade."""

    # ``[worst, best]``, or labels with their worth: the lowest becomes 0, the highest 1
    scale: ScaleOption  # the catalogue holds the default
    whole: bool = True  # whether a verdict on a scale of numbers must be a whole number
    explain: bool = True  # whether the judge writes an explanation before its verdicts


class RubricOptions(GradingOptions):
    """Options of ``rubric`` and ``reference-graded``; the template shows the ``rubric``."""

    rubric: str


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
        if name in ("explanation", "mark"):
            raise ValueError(f"a criterion cannot be called `{name}`; choose another name")
    return criteria


class CriteriaOptions(GradingOptions):
    """Options of ``criteria``: what counts, by name; all criteria have the same scale."""

    criteria: Annotated[dict[str, Criterion], Field(min_length=1), AfterValidator(_check_names)]


OptionsT = TypeVar("OptionsT", bound=GradingOptions)


class GradingJudge(ModelJudge[OptionsT], Generic[OptionsT]):
    """Asks for one or several verdicts on a scale, in one call; scores their weighted mean."""

    def __init__(
        self,
        name: str,
        options: OptionsT,
        weights: Mapping[str, float],  # of the verdicts, by key
        words: Mapping[str, Json],  # variables of the template
    ) -> None:
        scale: Scale
        if isinstance(options.scale, dict):
            scale = LabelScale(options.scale)
        else:
            scale = NumberScale(*options.scale, whole=options.whole)
        self._verdicts = VerdictForm(dict.fromkeys(weights, scale), explain=options.explain)
        self._weights = weights
        super().__init__(name, options, self._verdicts, words)

    def _score_of(self, reply: Reply, mark: str, suffix: str) -> Score:
        verdict = self._verdicts.read(reply, mark)
        votes = tuple(
            self._vote(
                value,
                verdict.said[key],
                "" if i else verdict.why,
                about="" if key == "verdict" else key,
            )
            for i, (key, value) in enumerate(verdict.values.items())
        )
        total = sum(weight * verdict.values[key] for key, weight in self._weights.items())
        return Score(min(1.0, total / sum(self._weights.values())), votes=votes)


class RubricJudge(GradingJudge[RubricOptions]):
    """Grades each answer by itself; shows the reference if there is one."""

    adapter = "rubric"
    check_option = "rubric"
    options_type = RubricOptions

    def __init__(self, name: str, options: RubricOptions) -> None:
        super().__init__(name, options, {"verdict": 1.0}, {"rubric": options.rubric})


class ReferenceGradedJudge(RubricJudge):
    """Grades each answer against the example's reference."""

    adapter = "reference-graded"
    check_option = ""
    needs_reference = True


class CriteriaJudge(GradingJudge[CriteriaOptions]):
    """Asks for all criteria in one call."""

    adapter = "criteria"
    check_option = "criteria"
    options_type = CriteriaOptions

    def __init__(self, name: str, options: CriteriaOptions) -> None:
        weights = {key: criterion.weight for key, criterion in options.criteria.items()}
        about: Json = {key: criterion.about for key, criterion in options.criteria.items()}
        super().__init__(name, options, weights, {"criteria": about})


class GEvalOptions(ModelJudgeOptions):
    """Options of ``g-eval``."""

    rubric: str = Field(min_length=1)  # the criterion, in words
    steps: tuple[str, ...] = ()  # how to evaluate it, one after the other
    # the worst score and the best, of one digit each: a token of every model
    scale: tuple[int, int] = (1, 5)
    logprobs: bool = True  # whether scores are weighted by their probabilities; else one counts

    @model_validator(mode="after")
    def _check_scale(self) -> Self:
        if self.scale[0] == self.scale[1] or not all(0 <= end <= 9 for end in self.scale):
            raise ValueError(f"`scale` needs two digits that differ, got {list(self.scale)}")
        return self


class GEvalJudge(ModelJudge[GEvalOptions]):
    """Asks for a score alone, and weighs all scores by the probabilities of their tokens.

    Liu et al. 2023, "G-Eval", equation 1, with the probabilities of the scale's tokens made to add
    up to 1. Their criteria are rated one by one: an `ensemble` of such judges has several.
    """

    adapter = "g-eval"
    check_option = "rubric"
    options_type = GEvalOptions

    def __init__(self, name: str, options: GEvalOptions) -> None:
        scale = NumberScale(*options.scale)
        low, high = sorted(options.scale)
        # Each value of the scale must be one token, or its probability could not be read off; hence
        # digits.
        self._worth = {str(digit): scale.value(digit) for digit in range(low, high + 1)}
        request = f"Reply with the score and nothing else: {scale.words}."
        words: dict[str, Json] = {"rubric": options.rubric, "steps": list(options.steps)}
        super().__init__(name, options, request, words, logprobs=options.logprobs)

    def _score_of(self, reply: Reply, mark: str, suffix: str) -> Score:
        value, written = weighted_worth(reply, self._worth)
        return Score(value, votes=(self._vote(value, written),))
