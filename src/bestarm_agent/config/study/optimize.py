"""The `optimize` part of a study: prompts that are proposed while it runs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Strict

from bestarm_agent.config.fields import StudyModel

GEPA = "gepa"


class OptimizeSpec(StudyModel):
    """Lets a function propose prompts by what went wrong, in rounds."""

    proposer: Annotated[str, Strict(), Field(min_length=1)] = Field(
        description="Function that proposes prompts, as `module:function`, or `gepa`."
    )
    rounds: Annotated[int, Field(ge=1)] = Field(4, description="Times that it is asked at most.")
    model: Annotated[str, Strict(), Field(pattern="^[^/]+/.+$")] | None = Field(
        None,
        description="Model that it asks, as `provider/model`; left out: that of the leading "
        "candidate.",
    )
