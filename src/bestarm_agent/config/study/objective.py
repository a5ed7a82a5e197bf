"""The `objective` of a study: the best, or the best at a price."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Self

from pydantic import Field, Strict, WithJsonSchema, model_validator

from bestarm_agent.config.fields import StudyModel, broken
from bestarm_agent.config.study.value_types import Dollars


class Objective(StrEnum):
    """Kinds of objective."""

    BEST = "best"
    BEST_UNDER_USD = "best-under-usd"
    CHEAPEST = "cheapest-within-epsilon"
    PARETO = "pareto"


_PARTS_OF: dict[Objective, int] = {Objective.BEST_UNDER_USD: 2}  # scores, and prices


class ObjectiveSpec(StudyModel):
    """The goal of the study, or just its name."""

    short_form: ClassVar[str | None] = "name"

    name: Annotated[Objective, WithJsonSchema({"type": "string", "enum": [*Objective]})] = Field(
        Objective.BEST,
        description="`best`: the candidate of the highest mean. `best-under-usd`: the best of "
        "those whose price is at most `usd_per_1k_calls`. `cheapest-within-epsilon`: the cheapest "
        "of those at most `epsilon` below the best. `pareto`: all that no candidate beats in score "
        "without being dearer. All but `best` need known prices.",
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
    def by_price(self) -> bool:
        """Return whether the answer depends on prices."""
        return self.name is not Objective.BEST

    def level(self, confidence: float) -> float:
        """Return the confidence of each part of the statement, so that all hold at ``confidence``.

        Example:
            >>> spec = ObjectiveSpec(name="best-under-usd", usd_per_1k_calls=1.0)
            >>> spec.level(0.9), ObjectiveSpec().level(0.9)
            (0.95, 0.9)
        """
        return 1 - (1 - confidence) / _PARTS_OF.get(self.name, 1)
