"""The `gate` part of a study: the baseline, the margin, the challengers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Strict

from bestarm_agent.config.fields import StudyModel

_MARGIN = 0.02


class GateSpec(StudyModel):
    """Asks whether challengers are not worse than a baseline instead of for the best candidate."""

    baseline: Annotated[str, Strict(), Field(min_length=1)] = Field(
        description="Label of the candidate that the others are compared with."
    )
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
    confidence: Annotated[float, Strict(), Field(gt=0, lt=1)] = Field(
        0.95, description="Probability in (0, 1) that all verdicts together are right."
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
