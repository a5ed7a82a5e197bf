"""The `objective` of a study: the best, the best within limits, or the cheapest that is as good."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar, Self

from pydantic import Field, Strict, WithJsonSchema, model_validator

from bestarm_agent.config.fields import StudyModel, broken, shown
from bestarm_agent.config.study.value_types import Dollars

PRICE, SECONDS, LENGTH = QUANTITIES = ("usd_per_1k_calls", "seconds_mean", "output_tokens_mean")
_TEXT = re.compile(r"\s*(<=|>=)\s*\$?(\d+(?:\.\d*)?|\.\d+)\s*")
_SCORES = 2  # statements about scores: before and after a candidate is found to break a limit


class Objective(StrEnum):
    """Kinds of objective."""

    BEST = "best"
    BEST_UNDER_USD = "best-under-usd"
    CHEAPEST = "cheapest-within-epsilon"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A limit of a mean."""

    name: str  # as the study has it: one of ``QUANTITIES``, or a measure
    at_most: bool  # else at least
    limit: float

    @property
    def text(self) -> str:
        """The constraint as the study has it."""
        return f"{self.name} {'<=' if self.at_most else '>='} {self.limit:g}"


def constraint_of(name: str, text: str) -> Constraint:
    """Read an entry of ``subject_to``; a name that is no quantity of calls is a measure's.

    Example:
        >>> constraint_of("seconds_mean", "<= 2").limit
        2.0
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        broken(f'must be a limit such as "<= 2" or ">= 0.9", got {shown(text)}', name)
    at_most, limit = match[1] == "<=", float(match[2])
    if name in QUANTITIES and not at_most:
        broken('limits from above: write "<="', name)
    if name not in QUANTITIES and limit > 1:
        broken(f"limits a mean of scores, at most 1, got {limit:g}", name)
    return Constraint(name, at_most, limit)


class ObjectiveSpec(StudyModel):
    """The goal of the study, or just its name."""

    short_form: ClassVar[str | None] = "name"

    name: Annotated[Objective, WithJsonSchema({"type": "string", "enum": [*Objective]})] = Field(
        Objective.BEST,
        description="`best`: the candidate of the highest mean. `best-under-usd`: the best of "
        "those whose price is at most `usd_per_1k_calls`. `cheapest-within-epsilon`: the cheapest "
        "of those at most `epsilon` below the best. All but `best` need known prices.",
    )
    epsilon: Annotated[float, Strict(), Field(gt=0, lt=1)] = Field(
        0.02,
        description="How far below the highest mean is good enough, in (0, 1); for "
        "`cheapest-within-epsilon`.",
    )
    usd_per_1k_calls: Dollars | None = Field(
        None,
        description="Dollars that 1,000 calls may cost; for `best-under-usd`, which needs it.",
    )

    subject_to: dict[str, Annotated[str, Strict()]] = Field(
        default_factory=dict,
        description="Limits of means that the winner of `best` must keep: `usd_per_1k_calls`, "
        "`seconds_mean`, `output_tokens_mean`, or the name of one of `measures`; each a text such "
        "as '<= 2' or '>= 0.9'.",
    )

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

    @model_validator(mode="after")
    def _check_price(self) -> Self:
        needed = self.name is Objective.BEST_UNDER_USD
        if needed and self.usd_per_1k_calls is None:
            broken(
                "is missing: `best-under-usd` needs to know what 1,000 calls may cost; write "
                "`objective: {name: best-under-usd, usd_per_1k_calls: 2}`, or give "
                "--usd-per-1k-calls 2",
                "usd_per_1k_calls",
            )
        if not needed and self.usd_per_1k_calls is not None:
            broken(
                f"belongs to `best-under-usd`, and the objective is `{self.name}`; name that one, "
                f"or leave the price out",
                "usd_per_1k_calls",
            )
        return self

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """The limits that the winner must keep; `best-under-usd` is one of them by itself."""
        found = [constraint_of(name, text) for name, text in self.subject_to.items()]
        if self.usd_per_1k_calls is not None:
            found.insert(0, constraint_of(PRICE, f"<= {self.usd_per_1k_calls!r}"))
        return tuple(found)

    @property
    def by_price(self) -> bool:
        """Return whether the answer depends on prices."""
        return self.name is not Objective.BEST or PRICE in self.subject_to

    @property
    def is_plain(self) -> bool:
        """Return whether simply the best is asked for."""
        return self.name is Objective.BEST and not self.subject_to

    def level(self, confidence: float) -> float:
        """Return the confidence of each part of the statement, so that all hold at ``confidence``.

        Example:
            >>> spec = ObjectiveSpec(name="best-under-usd", usd_per_1k_calls=1.0)
            >>> round(spec.level(0.9), 4), ObjectiveSpec().level(0.9)
            (0.9667, 0.9)
        """
        parts = len(self.constraints) + _SCORES if self.constraints else 1
        return 1 - (1 - confidence) / parts
