"""The `slices` part of a study: groups of examples that are looked at by themselves."""

from __future__ import annotations

from pydantic import Field

from bestarm_agent.config.fields import StudyModel
from bestarm_agent.config.study.value_types import Text


class SlicesSpec(StudyModel):
    """Groups the examples by fields of the dataset: a slice for each value of each field."""

    by: tuple[Text, ...] = Field(
        (),
        description="Fields of the dataset whose values group the examples. `length_bucket`, where "
        "no field is called so: a quarter of the examples each, by the length of their texts.",
    )
