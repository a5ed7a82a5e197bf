"""The `confirm` part of a study: examples kept back for the winner."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Strict, field_validator

from bestarm_agent.config.fields import StudyModel, broken
from bestarm_agent.config.study.value_types import GridShare
from bestarm_agent.stats.keyed_random import KeyedRandom

_MOST = 0.5


class ConfirmSpec(StudyModel):
    """Keeps examples back, which only the winner answers, after it was chosen."""

    share: GridShare = Field(
        0.2,
        description=f'Share of the examples kept back, in (0, {_MOST}]; 0.2 or "20%". The '
        "selection does not see them.",
    )
    baseline: Annotated[str, Strict(), Field(min_length=1)] | None = Field(
        None, description="Label of a candidate that answers them too, to be compared with."
    )

    @field_validator("share")
    @classmethod
    def _check_share(cls, share: float) -> float:
        if share > _MOST:
            broken(f"must be at most {_MOST}, or too few examples are left to choose by")
        return share

    def drawn(self, n_rows: int, seed: int) -> tuple[int, ...]:
        """Draw the rows of a dataset that are kept back, in a random order."""
        order = KeyedRandom(seed, "confirm-order").at(0).permutation(n_rows)
        return tuple(int(row) for row in order[: max(1, round(self.share * n_rows))])
