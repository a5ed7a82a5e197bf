"""The goal of a study and the way to it: objective, rule, when to stop, and the modes of a run.

The sections `objective`, `selector`, `stop`, `confirm`, `optimize`, `certify` and `gate`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, JsonValue, Strict, WithJsonSchema, field_validator, model_validator

from bestarm_agent.config.fields import StudyModel, as_json, broken
from bestarm_agent.config.input_specs import ScorerSpec
from bestarm_agent.config.value_types import (
    Count,
    Dollars,
    Expandable,
    Flag,
    GridShare,
    Inside,
    Text,
)
from bestarm_agent.domain.text import percent
from bestarm_agent.errors import nearest

SCORE = "mean score"  # no measure's name: the score that candidates are compared by
PRICE, SECONDS, LENGTH = QUANTITIES = ("usd_per_1k_calls", "seconds_mean", "output_tokens_mean")
_TEXT = re.compile(r"\s*(<=|>=)\s*\$?(\d+(?:\.\d*)?|\.\d+)\s*")

_SCORES = 2  # statements about scores: before and after a candidate is found to break a limit


class Objective(StrEnum):
    """Kinds of objective."""

    BEST = "best"
    BEST_UNDER_USD = "best-under-usd"
    CHEAPEST = "cheapest-within-epsilon"
    AT_LEAST = "cheapest-at-least"


# the key that only one objective has, and how it is given
_NEEDS = {
    Objective.AT_LEAST: ("at_least", "{at_least: 0.9}"),
    Objective.BEST_UNDER_USD: ("usd_per_1k_calls", "{name: best-under-usd, usd_per_1k_calls: 2}"),
}


@dataclass(frozen=True, slots=True)
class Constraint:
    """A limit of a mean."""

    name: str  # as the study has it: one of ``QUANTITIES``, or a measure
    at_most: bool  # else at least
    limit: float

    @property
    def text(self) -> str:
        """The constraint as the study has it; shares in percent."""
        limit = f"{self.limit:g}" if self.name in QUANTITIES else percent(self.limit, exact=True)
        return f"{self.name} {'<=' if self.at_most else '>='} {limit}"


def constraint_of(name: str, text: str) -> Constraint:
    """Read an entry of ``subject_to``; a name that is no quantity of calls is a measure's.

    Example:
        >>> constraint_of("seconds_mean", "<= 2").limit
        2.0
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        broken(f'must be a limit such as "<= 2" or ">= 0.9", got {as_json(text)}', name)
    at_most, limit = match[1] == "<=", float(match[2])
    if name in QUANTITIES and not at_most:
        broken('limits from above: write "<="', name)
    if name not in QUANTITIES and limit > 1:
        meant = nearest(name, QUANTITIES)
        broken(f"limits a mean of scores, at most 1, got {limit:g}; {meant}", name)
    return Constraint(name, at_most, limit)


class ObjectiveSpec(StudyModel):
    """The goal of the study, or just its name."""

    short_form: ClassVar[str | None] = "name"

    name: Annotated[Objective, WithJsonSchema({"type": "string", "enum": [*Objective]})] = Field(
        Objective.BEST,
        description="`best`: the candidate of the highest mean. `best-under-usd`: the best of "
        "those whose price is at most `usd_per_1k_calls`. `cheapest-within-epsilon`: the cheapest "
        "of those that are probably (9 in 10) at most `epsilon` below the best; meant where only "
        "that is given. `cheapest-at-least`: the cheapest of those that are proved to score "
        "`at_least`; meant where only that is given. All but `best` need known prices.",
    )
    epsilon: Inside = Field(
        0.02,
        description="How far below the highest mean is good enough; for `cheapest-within-epsilon`.",
    )
    at_least: Inside | None = Field(
        None,
        description="Mean score over the study's examples that is good enough; for "
        "`cheapest-at-least`, which needs it.",
    )
    usd_per_1k_calls: Dollars | None = Field(
        None, description="Dollars that 1,000 calls may cost; for `best-under-usd`, which needs it."
    )

    subject_to: dict[str, Annotated[str, Strict()]] = Field(
        default_factory=dict,
        description="Limits of means that the winner of `best` must keep: `usd_per_1k_calls`, "
        "`seconds_mean`, `output_tokens_mean`, or the name of one of `measures`; each a text such "
        "as '<= 2' or '>= 0.9'.",
    )

    @model_validator(mode="before")
    @classmethod
    def _named_by_bound(cls, given: Any) -> Any:  # noqa: ANN401 - of any kind yet
        """Name the objective by its bound: ``epsilon`` and ``at_least`` each belong to one."""
        keys = {"epsilon": Objective.CHEAPEST, "at_least": Objective.AT_LEAST}
        if isinstance(given, Mapping) and "name" not in given:
            names = [name.value for key, name in keys.items() if key in given]
            if len(names) > 1:
                broken("and `epsilon` are two objectives; leave one out", "at_least")
            return {"name": names[0], **given} if names else given
        return given

    @model_validator(mode="after")
    def _check_needs(self) -> Self:
        for name, (key, written) in _NEEDS.items():
            if (self.name is name) != (getattr(self, key) is not None):
                text = f"is what `{name}` needs, and no other objective has; write "
                text += f"`objective: {written}`"
                if self.name is not name:  # else it is missing
                    text += f", or leave it out: the objective is `{self.name}`"
                broken(text, key)
        return self

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.subject_to and self.name not in (Objective.BEST, Objective.BEST_UNDER_USD):
            broken(
                f"belongs to `best`, and the objective is `{self.name}`; name that one, or leave "
                f"the limits out",
                "subject_to",
            )
        if PRICE in self.subject_to and self.usd_per_1k_calls is not None:
            broken("is given twice; leave one out", "subject_to", PRICE)
        for name, text in self.subject_to.items():
            constraint_of(name, text)
        return self

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """The limits that the winner must keep; `best-under-usd` is one of them by itself."""
        limits = [constraint_of(name, text) for name, text in self.subject_to.items()]
        if self.usd_per_1k_calls is not None:
            limits.insert(0, constraint_of(PRICE, f"<= {self.usd_per_1k_calls!r}"))
        if self.at_least is not None:
            limits.append(Constraint(SCORE, at_most=False, limit=self.at_least))
        return tuple(limits)

    @property
    def by_price(self) -> bool:
        """Return whether the answer depends on prices."""
        return self.name is not Objective.BEST or PRICE in self.subject_to

    @property
    def is_plain(self) -> bool:
        """Return whether simply the best is asked for."""
        return self.name is Objective.BEST and not self.subject_to

    def confidence_of_each(self, confidence: float) -> float:
        """Return the confidence of each part of the statement, so that all hold at ``confidence``.

        Example:
            >>> spec = ObjectiveSpec(name="best-under-usd", usd_per_1k_calls=1.0)
            >>> round(spec.confidence_of_each(0.9), 4), ObjectiveSpec().confidence_of_each(0.9)
            (0.9667, 0.9)
        """
        # A score that is good enough is the whole statement: no other candidate is compared. Else
        # by Bonferroni: the statement holds if each limit, and each of the two statements about
        # scores, does.
        parts = len(self.constraints) + _SCORES if self.constraints and not self.at_least else 1
        return 1 - (1 - confidence) / parts


_DEFAULT_LEVEL = 0.95


class SelectorSpec(StudyModel):
    """The selection rule, or just its name."""

    short_form: ClassVar[str | None] = "name"

    name: Text = Field("auto", description="Name of the selection rule.")
    params: dict[str, JsonValue] = Field(
        default_factory=dict, description="Parameters of the rule, such as `eta: 1.0`."
    )
    history: tuple[Text, ...] = Field(
        (),
        description="Earlier runs (id or name) to learn from, for rules that can: `auto` and "
        "`pulse`. Examples are recognised by content.",
    )
    seed: Annotated[int, Strict(), Field(ge=0)] = Field(
        0, description="Seed of all random choices."
    )
    per: Literal["call", "dollar"] = Field(
        "call",
        description="Unit in which the rule saves: calls, or dollars. Per dollar, expensive "
        "candidates are pulled less (docs/costs.md); needs known prices.",
    )
    confidence: Inside | None = Field(
        None,
        description="Confidence that the answer must have; a run that ends less sure "
        "exits with code 3. Left out: none is asked for, intervals are stated at 0.95.",
    )
    stop_when_separated: Flag = Field(
        True,
        description="Whether to stop before the budget is spent, once what was asked for is shown.",
    )

    @property
    def level(self) -> float:
        """Return the confidence of intervals, in (0, 1)."""
        return _DEFAULT_LEVEL if self.confidence is None else self.confidence


class StopSpec(StudyModel):
    """When a run may stop before its budget is spent."""

    within: Inside | None = Field(
        None,
        description="Stop once the leading candidate is shown to be at most this far below the "
        "best, at the confidence of `selector`. Left out: stop once those that are open "
        "are nearer to the leading one than the examples can tell apart.",
    )
    for_: Literal["seen", "new"] = Field(
        "seen",
        alias="for",
        description="For which examples it must be shown who leads, or what a `gate` asks: `seen`, "
        "those of the study, or `new`, examples like them, which takes more calls. It ends, too, "
        "when the examples cannot show it.",
    )


_MOST = 0.5


class ConfirmSpec(StudyModel):
    """Keeps examples back, which only the winner answers, after it was chosen."""

    share: GridShare = Field(
        0.2,
        description=f'Share of the examples kept back, in (0, {_MOST}]; 0.2 or "20%". The '
        "selection does not see them.",
    )

    @field_validator("share")
    @classmethod
    def _check_share(cls, share: float) -> float:
        if share > _MOST:
            broken(f"must be at most {_MOST}, or too few examples are left to choose by")
        return share


GEPA = "gepa"


class OptimizeSpec(StudyModel):
    """Lets a function propose prompts by what went wrong, in rounds."""

    proposer: Text = Field(
        description="Function that proposes prompts, as `module:function`, or `gepa`."
    )
    rounds: Annotated[int, Field(ge=1)] = Field(4, description="Most rounds of proposals.")
    model: Annotated[str, Strict(), Field(pattern="^[^/]+/.+$")] | None = Field(
        None,
        description="Model that the proposer asks, as `provider/model`; left out: that of the "
        "leading candidate.",
    )


class CertifySpec(StudyModel):
    """Asks for the cheapest candidate that is good enough instead of the best one.

    The study's `scorer` is the trusted judge, which scores replies to labelled examples. A loss is
    one minus a score.
    """

    risk: Inside = Field(description="Largest mean loss that is good enough.")
    confidence: Inside = Field(0.9, description="Probability that no bad candidate is certified.")
    judge: ScorerSpec = Field(
        description="The autoevaluator, which scores every reply, or just its name."
    )
    labels: Expandable | None = Field(
        None,
        description="JSON lines with `id` and `target`: the labels, in the place of the answers "
        "that the dataset holds. Left out: examples with an answer are the labelled ones. "
        "`${VARIABLE}` is expanded.",
    )
    order: Literal["cost", "prompt", "given"] = Field(
        "cost",
        description="How candidates are tried: from the dearest to the cheapest, from the longest "
        "to the shortest prompt, or as they are given.",
    )
    method: Literal["r-eval", "r-autoeval", "r-autoeval+"] = Field(
        "r-autoeval+", description="How evidence is gathered (docs/certification.md)."
    )
    betting: Literal["portfolio", "plug-in"] = Field("portfolio", description="How bets are made.")
    factors: Annotated[int, Strict(), Field(ge=2)] = Field(
        10, description="Reliance factors of `r-autoeval+`."
    )
    per_label: Count | None = Field(
        None,
        description="Unlabelled examples per label. Left out: as many as there are; 3 if all "
        "examples are labelled.",
    )
    max_labels: Count | None = Field(None, description="Most labels that may be used.")
    correction: Literal["sequence", "bonferroni"] = Field(
        "sequence",
        description="For many candidates: `sequence` tries them in order and stops at the first "
        "that fails; `bonferroni` splits the error evenly and goes from the last to the first that "
        "passes.",
    )
    people: bool = Field(
        False,
        description="Whether scores that people gave to single answers (the study's `labels`) take "
        "the place of the trusted scorer's.",
    )


_MARGIN = 0.02


class GateSpec(StudyModel):
    """Asks whether challengers are not worse than a baseline instead of for the best candidate."""

    baseline: Text = Field(description="Label of the candidate that the others are compared with.")
    challengers: tuple[Annotated[str, Strict()], ...] = Field(
        (), description="Labels of the candidates to be compared. Left out: all others."
    )
    margin: Annotated[float, Strict(), Field(ge=0, lt=1)] | None = Field(
        None,
        description="By how much the mean score may be lower, in [0, 1); with `improve`, by how "
        f"much it must be exceeded. Left out: {_MARGIN}; 0 with `improve`.",
    )
    slice_margin: Annotated[float, Strict(), Field(ge=0, lt=1)] | None = Field(
        None,
        description="By how much the mean score of a slice may be lower, in [0, 1), where the "
        f"study has `slices`. Left out: the margin; {_MARGIN} with `improve`.",
    )
    improve: bool = Field(False, description="Ask for challengers that are better.")
    confidence: Inside = Field(
        0.95, description="Probability that all verdicts together are right."
    )

    @property
    def margin_used(self) -> float:
        """The margin, given or by default."""
        if self.margin is None:
            return 0.0 if self.improve else _MARGIN
        return self.margin

    @property
    def slice_margin_used(self) -> float:
        """The margin of slices, given or by default."""
        if self.slice_margin is not None:
            return self.slice_margin
        return _MARGIN if self.improve else self.margin_used
