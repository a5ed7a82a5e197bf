"""The base of judges that grade an answer on a scale.

Grade one answer on a scale, by a rubric or against a reference.

Grade one answer by several criteria in one call; the score is their weighted mean.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Generic, Protocol, Self, TypeAlias, TypeVar

from pydantic import AfterValidator, Field, model_validator

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.judges.base import JudgeOptions
from bestarm_agent.judges.model import (
    Judgement,
    ModelJudge,
    ModelJudgeOptions,
    Query,
    clean,
    verdict_schema,
)
from bestarm_agent.judges.verdicts import UnreadableError, Verdict

_NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?)(?:\s*(?:/|out of)\s*(\d+(?:\.\d+)?))?")
_MAX_CHOICES = 101


def _checked_range(bounds: tuple[float, float]) -> tuple[float, float]:
    if bounds[0] == bounds[1]:
        raise ValueError("the two ends of the scale must differ")
    return bounds


def _checked_labels(labels: dict[str, float]) -> dict[str, float]:
    if len(set(labels.values())) < 2:
        raise ValueError("a scale needs at least two labels of different worth")
    if len({_folded(label) for label in labels}) < len(labels):
        raise ValueError("two labels of the scale are the same but for case or hyphens")
    return labels


_Finite: TypeAlias = Annotated[float, Field(allow_inf_nan=False)]
Range: TypeAlias = Annotated[tuple[_Finite, _Finite], AfterValidator(_checked_range)]
Labels: TypeAlias = Annotated[dict[str, _Finite], AfterValidator(_checked_labels)]
ScaleOption: TypeAlias = Range | Labels
"""``[worst, best]``, or labels with their worth; the lowest worth becomes 0, the highest 1."""


class Scale(Protocol):
    """The verdicts of a judge."""

    schema: Mapping[str, Json]  # JSON schema of a verdict
    words: str  # the verdicts in words, for a prompt
    labels: Collection[str]  # the verdicts that are words

    def value(self, verdict: object) -> float:
        """Return the worth of a verdict in [0, 1]; raises UnreadableError if it is not one."""


class NumberScale:
    """Numbers from the worst (0) to the best (1); the best may be the lower one.

    Example:
        >>> NumberScale(1, 5).value("4/5"), NumberScale(5, 1).value(1)
        (0.75, 1.0)
    """

    labels: Collection[str] = ()

    def __init__(self, worst: float, best: float, *, whole: bool = True) -> None:
        self._worst, self._best, self._whole = worst, best, whole
        low, high = sorted((worst, best))
        kind = "whole number" if whole else "number"
        self.words = f"a {kind} from {worst:g} (worst) to {best:g} (best)"
        self.schema: Mapping[str, Json] = {"type": "integer" if whole else "number"}
        choices = range(math.ceil(low), math.floor(high) + 1)
        if whole and len(choices) <= _MAX_CHOICES:
            self.schema = {"type": "integer", "enum": list(choices)}

    def value(self, verdict: object) -> float:
        """Map a number, or a text such as "7" or "7/10", to [0, 1]."""
        number = self._number(verdict)
        low, high = sorted((self._worst, self._best))
        if not low <= number <= high:  # NaN fails this too
            raise UnreadableError(f"{number:g} is not on the scale from {low:g} to {high:g}")
        if self._whole and not number.is_integer():
            raise UnreadableError(f"{number:g} is not a whole number")
        return (number - self._worst) / (self._best - self._worst)

    def _number(self, verdict: object) -> float:
        if isinstance(verdict, int | float) and not isinstance(verdict, bool):
            return float(verdict)
        written = _NUMBER.fullmatch(verdict.strip()) if isinstance(verdict, str) else None
        if written is None:
            raise UnreadableError(f"{_shown(verdict)} is not a number")
        if written[2] is not None and float(written[2]) != max(self._worst, self._best):
            raise UnreadableError(f"{_shown(verdict)} is on another scale")
        return float(written[1])


class LabelScale:
    """Labels with their worth; the lowest becomes 0, the highest 1.

    Example:
        >>> LabelScale({"wrong": 0, "partly": 1, "right": 2}).value("Partly")
        0.5
    """

    def __init__(self, labels: Mapping[str, float]) -> None:
        low, high = min(labels.values()), max(labels.values())
        self._worth = {_folded(k): (v - low) / (high - low) for k, v in labels.items()}
        names = list(labels)
        self.labels: Collection[str] = names
        self.words = "one of " + ", ".join(f'"{name}"' for name in names)
        self.schema: Mapping[str, Json] = {"type": "string", "enum": names}

    def value(self, verdict: object) -> float:
        """Return the worth of a label, in any case, with spaces for hyphens."""
        if not isinstance(verdict, str) or _folded(verdict) not in self._worth:
            raise UnreadableError(f"{_shown(verdict)} is not one of the verdicts asked for")
        return self._worth[_folded(verdict)]


def make_scale(option: ScaleOption, *, whole: bool) -> Scale:
    """Return the scale of an option."""
    if isinstance(option, dict):
        return LabelScale(option)
    return NumberScale(*option, whole=whole)


def _folded(label: str) -> str:
    return re.sub(r"[\s_-]+", "-", label.strip().casefold())


def _shown(verdict: object) -> str:
    return repr(verdict)[:60]


class GradingOptions(ModelJudgeOptions):
    """Options of judges that grade."""

    # ``[worst, best]``, or labels with their worth; the catalogue holds the default
    scale: ScaleOption
    whole: bool = True  # whether a verdict on a scale of numbers must be a whole number
    explain: bool = True  # whether the judge writes an explanation before its verdicts


OptionsT = TypeVar("OptionsT", bound=GradingOptions)


class GradingJudge(ModelJudge[OptionsT], Generic[OptionsT]):
    """Asks for one or several verdicts on a scale, in one call."""

    def __init__(self, name: str, options: OptionsT) -> None:
        self._scale = make_scale(options.scale, whole=options.whole)
        super().__init__(name, options)

    def _query(
        self,
        example: Example,
        answer: str,
        vote: int,
        keys: Sequence[str],
        words: Mapping[str, Json],
    ) -> Query:
        explain = self.options.explain
        call = self._call(
            example,
            {"answer": self._shortened(answer)},
            vote=vote,
            words={**words, "verdicts": self._scale.words, "explain": explain},
            schema=verdict_schema(dict.fromkeys(keys, self._scale.schema), explain=explain),
        )
        evidence = clean(answer)

        def read(reply: Reply) -> Judgement:
            return self._judgement_of(self._verdict(reply, keys, evidence, self._scale.labels))

        return Query(call, read)

    @abstractmethod
    def _judgement_of(self, verdict: Verdict) -> Judgement:
        """Return the score of a verdict; raises UnreadableError if it is not on the scale."""


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
