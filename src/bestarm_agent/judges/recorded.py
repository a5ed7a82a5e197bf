"""The score that came with a reply played back from a record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from bestarm_agent.domain.digest import digest
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Reply
from bestarm_agent.domain.outcome import Score
from bestarm_agent.judges.base import Calls, JudgeCall, JudgeModel
from bestarm_agent.judges.rule import broken


class RecordedOptions(BaseModel):
    """``recorded`` has no options."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RecordedJudge:
    """Passes on the score that the record holds, whatever the reply says.

    Args:
        name: what users call it.
        options: none.
    """

    adapter: ClassVar[str] = "recorded"
    options_type: ClassVar[type[BaseModel]] = RecordedOptions
    models: tuple[JudgeModel, ...] = ()

    def __init__(self, name: str, options: BaseModel) -> None:
        self.name = name
        self.needs_reference = False
        self.digest = digest({"adapter": self.adapter, "version": 1, "options": {}})

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        """None: the score is there already."""
        return ()

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Return the recorded score, in [0, 1].

        Raises:
            JudgeError: blame JUDGE; the record holds no score, or one outside [0, 1].
        """
        if reply.score is None:
            raise broken(
                f"no score is recorded for example `{example.id}`; let judge `{self.name}` score "
                "only records that hold scores, or choose a judge that reads the answer"
            )
        if not 0.0 <= reply.score <= 1.0:  # NaN fails this too
            raise broken(
                f"the score recorded for example `{example.id}` must be in [0, 1], "
                f"got {reply.score}"
            )
        return Score(value=reply.score)
