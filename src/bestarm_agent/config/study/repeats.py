"""The `repeats` part of a study: draws of every pair, and how their scores become one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, Strict

from bestarm_agent.config.fields import StudyModel
from bestarm_agent.domain.digest import Json


class RepeatsSpec(StudyModel):
    """Draws of every pair, or just their number."""

    short_form: ClassVar[str | None] = "draws"
    short_type: ClassVar[type] = int

    draws: Annotated[int, Strict(), Field(ge=1, le=100)] = Field(
        1, description="Calls with the same prompt for every (candidate, example), 1 to 100."
    )
    reduce: Literal["mean", "each", "majority", "pass@k", "worst"] = Field(
        "mean",
        description="The score of a pair. `mean`: of its draws. `each`: each draw is a pair of its "
        "own, and the mean over all is looked for. `majority`: the score of the most "
        "frequent answer; where the scorer reads none, whether most draws are right. `pass@k`: 1 "
        "if any draw is right (a score of at least 0.5), else 0. `worst`: the lowest. The "
        "last three end a pair once no further draw can change its score.",
    )

    @property
    def per_pair(self) -> int:
        """Number of draws that a pair takes at most."""
        return 1 if self.reduce == "each" else self.draws

    @property
    def per_row(self) -> int:
        """Number of examples that a row of the dataset is."""
        return self.draws if self.reduce == "each" else 1


def recorded_repeats(config: Json) -> RepeatsSpec:
    """Return the repeats of a stored run, by its configuration; older ones name none."""
    section = config.get("repeats") if isinstance(config, Mapping) else None
    return RepeatsSpec.model_validate(section or {})
